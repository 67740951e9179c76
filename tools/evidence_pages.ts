import type { Result } from "../tests/support/results.ts";

/** What `docs/evidence.json` has of one kind of run. */
export interface EvidenceRun {
  command: string;
  /** The last commit that changed the code in `src`; with a `+` if there were changes without a commit. */
  revision: string;
  date: string;
  minutes: number;
  deno: string;
  cores: number;
  /** The mean number of processes that wanted a core in the minute before it. */
  load: number;
  results: Result[];
}

/** `docs/evidence.json`: the last run of each kind. */
export type Evidence = Partial<Record<KindName, EvidenceRun>>;

/** How much is run. */
export interface Limits {
  /** How long each torture lasts. */
  minutes: number;
  /** How many seeds are simulated over memory. */
  seeds: number;
}

/** A kind of run. */
export interface Kind {
  /** How the page names it. */
  title: string;
  /** The task and its options. */
  command(limits: Limits): string[];
  /** The counts that the page has, in this order. */
  shows: readonly string[];
}

/** The name of a kind, for `--only`. */
export type KindName = keyof typeof KINDS;

const SIMULATED = ["seeds", "events", "calls to the store", "situations"];
const STREAMS = ["parts", "resets", "kills", "suspensions", "connections that failed", "runs completed"];
const MESSAGES = ["sent", "messages received", "completed", "failed", "cancelled", "kills"];
const STREAMS_ON_FILE = "streams whose writers are killed and whose readers are cut off";
const MESSAGES_ON_FILE = "messages of two processes to runs that are cancelled, with workers that are killed";
const BANK_ON_FILE = "a bank whose workers are killed around commits";
// The bank is executed in so many ways, each of which lasts as long as it is told.
const BANK_WAYS = 3;

/** All kinds of runs, in the order in which they are executed and listed. */
export const KINDS = {
  "memory": {
    title: "simulation over memory",
    command: ({ seeds }) => ["simulate", "--seeds", `${seeds}`],
    shows: SIMULATED,
  },
  "sqlite": {
    title: "simulation over SQLite",
    command: ({ seeds }) => ["simulate", "--store", "sqlite", "--seeds", share(seeds, 10)],
    shows: SIMULATED,
  },
  "pglite": {
    title: "simulation over PostgreSQL, in PGlite",
    command: ({ seeds }) => ["simulate", "--store", "postgres", "--threads", "1", "--seeds", share(seeds, 30)],
    shows: SIMULATED,
  },
  "mutants": {
    title: "mutants in the simulation",
    command: () => ["simulate:mutants"],
    shows: ["mutants", "found", "found within 20 seeds"],
  },
  "torture": {
    title: "torture on SQLite",
    command: ({ minutes }) => ["torture", "--only", "storm", "--minutes", `${minutes}`],
    shows: [
      "kills",
      "suspensions",
      "power losses",
      "damaged copies opened",
      "runs that ended",
      "steps recorded",
      "steps started",
      "steps started again",
      "steps started by a zombie after they were recorded",
      "stale writes refused",
      "requests",
      "events compared with the journal",
    ],
  },
  "torture-postgres": {
    title: "torture on PostgreSQL",
    command: ({ minutes }) => ["torture", "--store", "postgres", "--only", "storm", "--minutes", `${minutes}`],
    shows: [
      "workers killed",
      "workers suspended",
      "restarts of the server",
      "runs",
      "steps recorded",
      "steps started",
      "runs cancelled",
      "slots fired",
      "looks at leases",
      "events received",
    ],
  },
  "streams": {
    title: "streams on SQLite",
    command: ({ minutes }) => ["torture", "--only", STREAMS_ON_FILE, "--minutes", `${minutes}`],
    shows: STREAMS,
  },
  "streams-postgres": {
    title: "streams on PostgreSQL",
    command: ({ minutes }) => ["torture", "--store", "postgres", "--only", "streams", "--minutes", `${minutes}`],
    shows: [...STREAMS, "restarts of the server"],
  },
  "messages": {
    title: "messages on SQLite",
    command: ({ minutes }) => ["torture", "--only", MESSAGES_ON_FILE, "--minutes", `${minutes}`],
    shows: MESSAGES,
  },
  "messages-postgres": {
    title: "messages on PostgreSQL",
    command: ({ minutes }) => ["torture", "--store", "postgres", "--only", "messages", "--minutes", `${minutes}`],
    shows: MESSAGES,
  },
  "bank": {
    title: "transactions of a bank on SQLite",
    command: ({ minutes }) => ["torture", "--only", BANK_ON_FILE, "--minutes", (minutes / BANK_WAYS).toFixed(2)],
    shows: ["transfers", "kills", "looks at the total", "made twice by the control"],
  },
  "linearizability": {
    title: "linearizability on SQLite",
    command: examine("sqlite"),
    shows: ["operations", "kills", "suspensions"],
  },
  "linearizability-postgres": {
    title: "linearizability on PostgreSQL",
    command: examine("postgres"),
    shows: ["operations", "kills", "suspensions"],
  },
  "linearizability-memory": {
    title: "linearizability in memory",
    command: examine("memory"),
    shows: ["operations"],
  },
  "scenarios": {
    title: "scenarios, in their short form",
    command: () => ["torture", "--only", "scenarios", "--brief"],
    shows: [],
  },
} satisfies Record<string, Kind>;

/** Where the texts are, and what makes them, by the names of their marks. */
export const TEXTS: Record<string, Record<string, (evidence: Evidence) => string>> = {
  "docs/concepts/reliability.md": { results: describeResults, scenarios: describeScenarios },
  "README.md": { summary: describeSummary },
};

/** Replaces what stands between the marks of a page. Throws if one of them is missing. */
export function renew(page: string, texts: Record<string, (evidence: Evidence) => string>, evidence: Evidence): string {
  return Object.entries(texts).reduce((text, [name, describe]) => {
    const marked = new RegExp(`(<!--evidence:${name}-->)[^]*?(<!--/evidence-->)`);
    if (!marked.test(text)) throw new Error(`the page has no marks of "${name}"`);
    return text.replace(marked, (_, begin, end) => `${begin}${describe(evidence)}${end}`);
  }, page);
}

/** All runs, one a row. */
function describeResults(evidence: Evidence): string {
  const rows = runsOf(evidence).map(([name, run]) => {
    const { title, shows }: Kind = KINDS[name];
    const { minutes, revision, date } = run;
    const told = run.results.flatMap(({ counts }) => shows.map((count) => describeCount(counts[count] ?? 0, count)));
    const broken = name === "mutants" ? "–" : toText(brokenIn(run));
    const what = name === "scenarios" ? describeCount(run.results.length, "scenarios, listed below") : told.join(", ");
    return [title, what, broken, toText(minutes), `${revision}, ${date}`];
  });
  return toTable(["what was run", "what happened", "promises broken", "minutes", "revision, date"], rows);
}

/** What each scenario has told of itself. */
function describeScenarios({ scenarios }: Evidence): string {
  if (scenarios === undefined) return "\n\nThey were not run at this version.\n\n";
  const rows = scenarios.results.map(({ name, broken, told = "" }) => [
    name,
    broken === null ? `not tried: ${told}` : broken > 0 ? "**broken**" : told,
  ]);
  return toTable(["scenario", "what it measured"], rows);
}

/** A sentence for those who read one. */
function describeSummary(evidence: Evidence): string {
  const runs = runsOf(evidence);
  const sum = (names: readonly string[]) =>
    runs.flatMap(([, { results }]) => results).reduce(
      (all, { counts }) => all + names.reduce((of, name) => of + (counts[name] ?? 0), 0),
      0,
    );
  const real = runs.filter(([name]) => !["memory", "sqlite", "pglite", "mutants"].includes(name));
  const broken = runs.filter(([name]) => name !== "mutants").reduce((all, [, run]) => all + brokenIn(run), 0);
  const minutes = Math.round(10 * real.reduce((all, [, run]) => all + run.minutes, 0)) / 10;
  const { mutants } = evidence;
  const found = mutants === undefined ? "" : `, and the simulation found ${toText(sum(["found"]))} of ` +
    `${toText(sum(["mutants"]))} bugs that were put in on purpose`;
  return `${broken === 0 ? "No" : toText(broken)} [promise${broken > 1 ? "s were" : " was"} broken]` +
    `(docs/concepts/reliability.md#results) in ${toText(sum(["seeds"]))} simulated systems and ` +
    `${toText(sum(["kills", "workers killed"]))} kills of real processes in ${
      toText(minutes)
    } minutes${found}. See it ` +
    "yourself: `deno task prove --minutes 5`, in a clone.";
}

function runsOf(evidence: Evidence): [KindName, EvidenceRun][] {
  const names = Object.keys(KINDS) as KindName[];
  return names.flatMap((name) => evidence[name] === undefined ? [] : [[name, evidence[name]]]);
}

/** How many promises a run broke. */
export function brokenIn({ results }: Pick<EvidenceRun, "results">): number {
  return results.reduce((all, { broken }) => all + (broken ?? 0), 0);
}

function examine(store: string) {
  return ({ minutes }: Limits) => [
    "linearizability",
    "--store",
    store,
    "--operations",
    "1000000",
    "--minutes",
    `${minutes}`,
  ];
}

function share(seeds: number, of: number): string {
  return `${Math.max(1, Math.round(seeds / of))}`;
}

function describeCount(count: number, what: string): string {
  return `${toText(count)} ${what}`;
}

function toText(count: number): string {
  return count.toLocaleString("en");
}

function toTable(head: readonly string[], rows: readonly string[][]): string {
  const toLine = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return `\n\n${[head, head.map(() => "---"), ...rows].map(toLine).join("\n")}\n\n`;
}
