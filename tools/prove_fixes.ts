// deno task prove-fixes [commit ...] [--last N] [--seconds N] [--json FILE]
//
// Whether each fix has a test that fails without it. For each commit whose subject begins with `fix`, in a checkout of its
// own: the files of `src` are taken back to what they were before it, and the tests that it touched are executed; if it
// touched none, those of the files that it changed. If they cannot be loaded then, its changes are taken back one by one;
// if that proves nothing, they are taken back from the newest commit, which may have more tests.
// Ends with status 1 if tests pass all the same, or if there are none.
//
//   --last N       without commits: the last N fixes that changed something in `src` (default 20)
//   --seconds N    how long the tests of a fix may take at once (default 300)
//   --json FILE    writes what was found after each fix; fixes that the file has already are kept, or replaced

import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

/** What the tests say about a fix. */
export type Proof =
  | "proved" // they fail without it, and pass with it
  | "proved in part" // they cannot be loaded without all of it, and fail without a part of it
  | "proved today" // not in its own commit, but they fail if it is taken back from the newest one
  | "not proved" // they pass without it
  | "no test" // it touched none, and its files have none
  | "no source" // it changed nothing in `src`
  | "not loaded" // without it they cannot even be loaded, which is no answer
  | "no server" // they need a PostgreSQL server, and there is none
  | "too slow" // they do not end in time
  | "fails with it"; // they fail with it, too

/** A fix, and what its tests say about it. */
interface Finding {
  commit: string;
  subject: string;
  proof: Proof;
  /** The files of tests that were executed. */
  tests: string[];
  /** How long it took. */
  seconds: number;
}

/** How an execution of tests ended. */
type Outcome = "passed" | "failed" | "not loaded" | "too slow";

/** How long the tests of a fix may take at once. */
const SECONDS = 300;
// What its own commit says of a fix, when it is taken back from the newest one, too.
const TRIED_TODAY: readonly Proof[] = ["not proved", "no test", "fails with it"];
// More parts of a fix are not taken back one by one.
const MAX_PARTS = 12;

const CONTRACT = ["tests/stores/memory/memory_store_test.ts", "tests/stores/sqlite/contract_test.ts"];
const POSTGRES_CONTRACT = "tests/stores/postgres/postgres_store_test.ts";

/** The tests that show what changed files do: themselves, or those that execute the contract of stores. */
export function testsOf(files: readonly string[]): string[] {
  const tests = files.filter((file) => /^tests\/.*_test\.ts$/.test(file));
  if (!files.some((file) => file.startsWith("src/testing/contract/"))) return tests;
  return [...new Set([...tests, ...contractOf(files)])];
}

/** Where the tests of source files are, if they exist: `tests` has the same tree. */
export function counterpartsOf(sources: readonly string[]): string[] {
  const tests = sources.map((file) => file.replace(/^src\//, "tests/").replace(/\.ts$/, "_test.ts"));
  const isOfStore = sources.some((file) => /^src\/stores\/(memory|sqlite|postgres)\//.test(file));
  return [...new Set([...tests, ...(isOfStore ? contractOf(sources) : [])])];
}

function contractOf(files: readonly string[]): string[] {
  return [...CONTRACT, ...(files.some((file) => file.startsWith("src/stores/postgres/")) ? [POSTGRES_CONTRACT] : [])];
}

/** The files that a fix is made of. What is built from others, and the contract of stores, which is a test, are none. */
export function sourcesOf(files: readonly string[]): string[] {
  return files.filter((file) => /^(src|mod\.ts)\b/.test(file) && !isBuilt(file))
    .filter((file) => !file.startsWith("src/testing/contract/"));
}

/** Whether a file is built from others: it goes back with them. */
export function isBuilt(file: string): boolean {
  return /^src\/(ui\/assets|create\/templates)\.ts$/.test(file);
}

/** The names of the tests that a diff adds, as far as they are written as strings. */
export function namesOfTests(diff: string): string[] {
  const names = diff.matchAll(/^\+\s*(?:Deno\.test|forEachStore|test|timed)\(\s*(?:\n\+\s*)?"((?:[^"\\]|\\.)*)"/gm);
  return [...names].map(([, name]) => JSON.parse(`"${name}"`) as string);
}

/** Whether the output of `deno test` says that a file could not be loaded, so that no test of it was executed. */
export function isNotLoaded(output: string): boolean {
  return /error: (Uncaught )?(SyntaxError|Module not found|Import )|\(uncaught error\)/.test(output) ||
    !/\| \d+ passed/.test(output);
}

/** The changes of a file one by one, each as a patch. */
export function hunksOf(patch: string): string[] {
  const [head, ...hunks] = patch.split(/^(?=@@ )/m);
  return hunks.map((hunk) => head + hunk);
}

/** What was found before, with what is found now: a fix is in it once. */
export function mergeFindings<T extends { commit: string }>(before: readonly T[], found: readonly T[]): T[] {
  const commits = new Set(found.map(({ commit }) => commit));
  return [...before.filter(({ commit }) => !commits.has(commit)), ...found];
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      last: { type: "string", default: "20" },
      seconds: { type: "string", default: `${SECONDS}` },
      json: { type: "string" },
    },
  });
  for (const name of ["last", "seconds"] as const) {
    if (/^[1-9]\d{0,3}$/.test(values[name])) continue;
    console.error(`--${name} is a number from 1 to 9999, not "${values[name]}"`);
    Deno.exit(2);
  }
  const commits = positionals.length > 0 ? positionals : await findFixes(Number(values.last));
  const before = values.json === undefined ? [] : readFindings(values.json);
  const findings: Finding[] = [];
  await using workshop = await Workshop.open(Number(values.seconds));
  for (const commit of commits) {
    const finding = await workshop.prove(commit);
    findings.push(finding);
    console.log(
      `${finding.proof.padEnd(14)} ${finding.commit} ${`${finding.seconds} s`.padStart(6)} ${finding.subject}`,
    );
    if (values.json === undefined) continue;
    Deno.writeTextFileSync(values.json, `${JSON.stringify(mergeFindings(before, findings), null, 2)}\n`);
  }
  const all = mergeFindings(before, findings);
  console.log(`\n${tableOf(all)}`);
  if (all.some(({ proof }) => proof === "not proved" || proof === "no test")) Deno.exitCode = 1;
}

function readFindings(file: string): Finding[] {
  try {
    return JSON.parse(Deno.readTextFileSync(file));
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return [];
    throw error;
  }
}

/** How many fixes are proved, and so on; then those that are not. */
function tableOf(findings: readonly Finding[]): string {
  const groups = [...Map.groupBy(findings, ({ proof }) => proof)].sort(([, one], [, other]) =>
    other.length - one.length
  );
  const counts = groups.map(([proof, { length }]) => `${`${length}`.padStart(4)}  ${proof}`);
  const open = groups.filter(([proof]) => !/^proved|^no source/.test(proof)).flatMap(([proof, list]) => [
    "",
    `${proof}:`,
    ...list.map(({ commit, subject }) => `  ${commit} ${subject}`),
  ]);
  return [...counts, ...open].join("\n");
}

/** The last fixes that changed something in `src`. */
async function findFixes(last: number): Promise<string[]> {
  const log = await git(".", "log", "--format=%h", "--extended-regexp", "--grep=^fix[(:]", "--", "src", "mod.ts");
  const fixes: string[] = [];
  for (const commit of lines(log)) {
    if (fixes.length >= last) break;
    const subject = await git(".", "log", "-1", "--format=%s", commit); // a line of the text below may begin with `fix`
    const isFix = /^fix[(:]/.test(subject);
    if (isFix && sourcesOf(lines(await git(".", ...changesOf(commit)))).length > 0) fixes.push(commit);
  }
  return fixes;
}

function changesOf(commit: string, ...options: string[]): string[] {
  return ["diff", "--name-only", "--no-renames", ...options, `${commit}^`, commit];
}

/** A checkout in a temporary folder, in which fixes are taken back. */
class Workshop implements AsyncDisposable {
  readonly #folder: string;
  readonly #seconds: number;
  readonly #hasServer: boolean;
  /** The commit from which fixes are taken back that prove nothing in their own. */
  readonly #newest: string;

  private constructor(folder: string, seconds: number, hasServer: boolean, newest: string) {
    this.#folder = folder;
    this.#seconds = seconds;
    this.#hasServer = hasServer;
    this.#newest = newest;
  }

  static async open(seconds: number): Promise<Workshop> {
    // A PostgreSQL server of the tests is executed as another user, who may not look into what makeTempDir() makes; and the
    // path of its socket has 107 characters at most.
    const folder = join(tmpdir(), `fixes_${crypto.randomUUID().slice(0, 8)}`);
    await Deno.mkdir(folder);
    await git(".", "worktree", "add", "--detach", "--quiet", `${folder}/tree`, "HEAD");
    const newest = (await git(".", "rev-parse", "HEAD")).trim();
    return new Workshop(folder, seconds, await hasPostgres(), newest);
  }

  get #tree(): string {
    return `${this.#folder}/tree`;
  }

  /** Takes the source of one commit back, and executes its tests. */
  async prove(commit: string): Promise<Finding> {
    const startedAt = performance.now();
    await git(this.#tree, "checkout", "--force", "--quiet", "--detach", commit);
    await git(this.#tree, "clean", "-ffdq");
    const subject = (await git(this.#tree, "log", "-1", "--format=%s")).trim();
    const own = await this.#judge();
    const { proof, tests } = TRIED_TODAY.includes(own.proof) ? await this.#judgeToday(commit) ?? own : own;
    return { commit, subject, proof, tests, seconds: Math.round((performance.now() - startedAt) / 1_000) };
  }

  async #judge(): Promise<Pick<Finding, "proof" | "tests">> {
    const changed = lines(await git(this.#tree, ...changesOf("HEAD")));
    const sources = sourcesOf(changed);
    if (sources.length === 0) return { proof: "no source", tests: [] };
    const { found, ...choice } = await this.#choose("HEAD", sources);
    const { tests } = choice;
    if (tests.length === 0) return { proof: found.length > 0 ? "no server" : "no test", tests: found };
    return {
      proof: await this.#proofBy(choice, changed.filter((file) => sources.includes(file) || isBuilt(file))),
      tests,
    };
  }

  /** Takes a fix back from the newest commit; `null`: that is not possible any more, or proves nothing. */
  async #judgeToday(commit: string): Promise<Pick<Finding, "proof" | "tests"> | null> {
    await git(this.#tree, "checkout", "--force", "--quiet", "--detach", this.#newest);
    const sources = sourcesOf(lines(await git(this.#tree, ...changesOf(commit))));
    const choice = await this.#choose(commit, sources);
    const patch = `${this.#folder}/whole.patch`;
    await Deno.writeTextFile(patch, await git(this.#tree, "diff", "--binary", `${commit}^`, commit, "--", ...sources));
    const isApplied = await git(this.#tree, "apply", "--reverse", "--3way", patch).then(() => true, () => false);
    const without = isApplied && choice.tests.length > 0 ? await this.#execute(choice) : null;
    await git(this.#tree, "reset", "--hard", "--quiet");
    if (without?.outcome !== "failed" || await this.#run(without.args) !== "passed") return null;
    return { proof: "proved today", tests: choice.tests };
  }

  /** The tests of a commit that the tree has. */
  async #choose(commit: string, sources: readonly string[]): Promise<TestChoice & { found: string[] }> {
    const touched = testsOf(lines(await git(this.#tree, ...changesOf(commit, "--diff-filter=d"))));
    const found = (touched.length > 0 ? touched : counterpartsOf(sources)).filter((test) => this.#has(test));
    const tests = found.filter((test) => this.#hasServer || !test.startsWith("tests/stores/postgres/"));
    const ofTests = ["--", "tests", "src/testing/contract"];
    const names = namesOfTests(await git(this.#tree, "diff", `${commit}^`, commit, ...ofTests));
    const isOfPostgres = this.#hasServer && sources.some((file) => file.startsWith("src/stores/postgres/"));
    return { tests, names, isOfPostgres, found };
  }

  async #proofBy(choice: TestChoice, files: readonly string[]): Promise<Proof> {
    await this.#takeBack(files);
    const whole = await this.#execute(choice);
    if (whole.outcome === "passed") return "not proved";
    if (whole.outcome === "too slow") return "too slow";
    const failed = whole.outcome === "failed" ? whole : await this.#executeWithoutParts(choice, files);
    if (failed === null) return "not loaded";
    await this.#restore();
    const withIt = await this.#run(failed.args);
    if (withIt === "too slow") return "too slow";
    if (withIt !== "passed") return "fails with it";
    return failed === whole ? "proved" : "proved in part";
  }

  /** What fails without one of the changes, and not because it cannot be loaded; `null`: nothing. */
  async #executeWithoutParts(choice: TestChoice, files: readonly string[]): Promise<Execution | null> {
    const changes = await Promise.all(
      files.map((file) => git(this.#tree, "diff", "--unified=0", "--diff-filter=M", "HEAD^", "HEAD", "--", file)),
    );
    const patch = `${this.#folder}/part.patch`;
    for (const part of changes.flatMap(hunksOf).slice(0, MAX_PARTS)) {
      await this.#restore();
      await Deno.writeTextFile(patch, part);
      await git(this.#tree, "apply", "--reverse", "--unidiff-zero", patch);
      const executed = await this.#execute(choice);
      if (executed.outcome === "failed") return executed;
    }
    return null;
  }

  /** Writes files as they were before the commit, and removes those that it has added. */
  async #takeBack(files: readonly string[]): Promise<void> {
    const before = new Set(lines(await git(this.#tree, "ls-tree", "-r", "--name-only", "HEAD^", "--", ...files)));
    if (before.size > 0) await git(this.#tree, "checkout", "HEAD^", "--", ...before);
    for (const added of files.filter((file) => !before.has(file))) await Deno.remove(`${this.#tree}/${added}`);
  }

  async #restore(): Promise<void> {
    await git(this.#tree, "checkout", "--force", "--quiet", "HEAD", "--", ".");
  }

  #has(file: string): boolean {
    try {
      return Deno.statSync(`${this.#tree}/${file}`).isFile;
    } catch {
      return false;
    }
  }

  /** Executes tests until some fail: first those that came with the fix alone. */
  async #execute({ tests, names, isOfPostgres }: TestChoice): Promise<Execution> {
    const command = ["test", "-A", "--no-check", "--fail-fast"];
    const filter = names.map((name) => name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")).join("|");
    const program = "tests/stores/postgres/run_tests.ts";
    const ofEngine = tests.filter((test) => !test.startsWith("tests/stores/"));
    const executed = [
      ...(names.length > 0 ? [[...command, "--filter", `/${filter}/`, ...tests]] : []),
      [...command, ...tests],
      ...(isOfPostgres && ofEngine.length > 0 && this.#has(program)
        ? [["run", "-A", program, "--fail-fast", ...ofEngine]]
        : []),
    ];
    for (const args of executed) {
      const outcome = await this.#run(args);
      if (outcome !== "passed") return { outcome, args };
    }
    return { outcome: "passed", args: [] };
  }

  async #run(args: string[]): Promise<Outcome> {
    const temporary = `${this.#folder}/tmp`;
    await Deno.mkdir(temporary);
    const required = { HOLDFAST_CHROMIUM: "required", HOLDFAST_PGBOUNCER: "required", HOLDFAST_POSTGRES: "required" };
    const env = { ...required, TMPDIR: temporary };
    const timeout = AbortSignal.timeout(1_000 * this.#seconds);
    const { success, output } = await execute(Deno.execPath(), args, this.#tree, env, timeout);
    await endServers(temporary);
    await Deno.remove(temporary, { recursive: true });
    if (success) return "passed";
    if (timeout.aborted) return "too slow";
    return isNotLoaded(output) ? "not loaded" : "failed";
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await git(".", "worktree", "remove", "--force", this.#tree);
    await Deno.remove(this.#folder, { recursive: true });
  }
}

/** How an execution of tests ended, and with which arguments of `deno` that was. */
interface Execution {
  outcome: Outcome;
  args: string[];
}

/** Which tests are executed. */
interface TestChoice {
  tests: string[];
  /** The names of those that came with the fix. */
  names: readonly string[];
  /** Whether tests of the engine are executed over PostgreSQL, too. */
  isOfPostgres: boolean;
}

/** Whether tests can start a server. */
async function hasPostgres(): Promise<boolean> {
  const { findPrograms } = await import("../tests/stores/postgres/server.ts");
  return Deno.env.has("HOLDFAST_POSTGRES_URL") || findPrograms() !== null;
}

/** Ends the PostgreSQL servers that tests have left because they were ended themselves. */
async function endServers(temporary: string): Promise<void> {
  for await (const { name } of Deno.readDir(temporary)) {
    if (!name.startsWith("holdfast_postgres_")) continue;
    const pid = await Deno.readTextFile(`${temporary}/${name}/data/postmaster.pid`).then(parseInt, () => null);
    if (pid === null) continue;
    Deno.kill(pid, "SIGQUIT");
    while (await Deno.stat(`${temporary}/${name}/data/postmaster.pid`).then(() => true, () => false)) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

async function git(folder: string, ...args: string[]): Promise<string> {
  const { success, output } = await execute("git", args, folder);
  if (!success) throw new Error(`git ${args.join(" ")}: ${output}`);
  return output;
}

async function execute(
  program: string,
  args: string[],
  cwd: string,
  env: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<{ success: boolean; output: string }> {
  const options = { args, cwd, env: { ...env, NO_COLOR: "1" }, ...(signal === undefined ? {} : { signal }) };
  const { success, stdout, stderr } = await new Deno.Command(program, { ...options, stdin: "null" }).output();
  return { success, output: [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("") };
}

function lines(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

if (import.meta.main) await main();
