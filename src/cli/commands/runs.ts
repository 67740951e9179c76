import type { ClientRun } from "../../model/client_run.ts";
import type { Children, ChildRun } from "../../model/children.ts";
import type { RunFilter, RunPage } from "../../model/run.ts";
import type { Timeline } from "../../engine/operate/timeline.ts";
import type { Command } from "../command.ts";
import {
  countOf,
  cutText,
  describeBoth,
  describeInstant,
  describeLabels,
  describeSpan,
  type Output,
  statusCell,
} from "../output.ts";
import { FILTER_OPTIONS, readFilter, toQuery } from "../read_options.ts";
import { askApi, findRunId } from "../service/api.ts";
import type { Service } from "../service/service.ts";
import { type Failure, failureReport } from "../../model/failure.ts";
import { HoldfastError, StoreError } from "../../model/error.ts";
import type { ClientStep } from "../../model/step.ts";
import type { RunFailures } from "../../store/operator_reads.ts";
import type { ClientWait } from "../../model/wait.ts";
import { toJsonLine } from "../../values/text.ts";

/** A run without its input and output. */
type RunSummary = ChildRun;

const DEFAULT_LIMIT = 20;
const PAGE = 1_000;

/** Lists runs. */
export const runs: Command = {
  name: "runs",
  usage: "[--job NAME] [--status STATUS] [--label KEY=VALUE] [--held] [--since TIME]",
  about: "list runs, newest first",
  options: { ...FILTER_OPTIONS, limit: { value: "NUMBER", about: `how many (${DEFAULT_LIMIT})` } },
  async run({ args, service, output }) {
    const limit = args.integer("limit") ?? DEFAULT_LIMIT;
    const listed: RunSummary[] = [];
    let first: RunSummaries | null = null;
    let count = 0;
    for await (const page of readRuns(service, readFilter(args, Date.now()), limit)) {
      first ??= page;
      count += page.runs.length;
      if (output.isJson) listRuns(output, page.runs, "");
      else listed.push(...page.runs); // a table is as wide as its widest row
    }
    if (!output.isJson) listRuns(output, listed, "No runs match");
    const { total, totalIsAtLeast } = first!; // there is one page or more
    const all = totalIsAtLeast ? `${total.toLocaleString("en")} or more runs` : countOf(total, "run");
    if (total > count) output.note(`${count} of ${all}; --limit shows more`);
  },
};

function listRuns(output: Output, runs: readonly RunSummary[], none: string): void {
  const now = Date.now();
  output.list(runs, {
    columns: [
      ["STATUS", ({ status }) => statusCell(status)],
      ["ID", ({ id }) => id],
      ["JOB", ({ jobName }) => jobName, "cut"],
      ["TRIGGERED", ({ createdAt }) => describeInstant(createdAt, now)],
      ["TOOK", ({ startedAt, completedAt }) => describeSpan(startedAt, completedAt, now), "right"],
      ["ERROR", ({ error, held }) => error ?? held?.message ?? "", "cut"],
    ],
    none,
  });
}

type RunSummaries = Omit<RunPage, "runs"> & { runs: RunSummary[] };

/** Reads the newest runs that match, page by page. */
async function* readRuns(service: Service, filter: RunFilter, limit: number): AsyncGenerator<RunSummaries> {
  const shown: string[] = [];
  for (let left = limit, total = true;; total = false) {
    const query = { ...toQuery(filter), fields: "summary", before: shown.at(-1), total, limit: Math.min(PAGE, left) };
    const page: RunSummaries | null = await askApi(service, "GET /runs", { query }).catch((error) => {
      // The last run was deleted meanwhile: what follows it also follows the run before it.
      if (error.code !== "not_found" || shown.pop() === undefined) throw error;
      return null;
    });
    if (page === null) continue;
    yield page;
    left -= page.runs.length;
    if (!page.hasMore || left === 0 || page.runs.length === 0) return;
    shown.push(...page.runs.map(({ id }) => id));
  }
}

/** What is shown of a run. */
interface Shown {
  run: ClientRun;
  steps: ClientStep[];
  waits: ClientWait[];
  /** What it failed of, with stacks; `null`: the service does not show it. */
  failure: RunFailures | null;
}

const MAX_VALUE_LENGTH = 2_000;

/** Shows a run. */
export const show: Command = {
  name: "show",
  usage: "RUN",
  about: "show a run with its steps, its waits and its error",
  async run({ args, service, output }) {
    const runId = await findRunId(service, args.positionals[0]!);
    const query = { runId };
    const shown: Shown = {
      run: await askApi(service, "GET /run", { query }),
      steps: await askApi(service, "GET /steps", { query }),
      waits: await askApi(service, "GET /waits", { query }),
      failure: await readFailure(service, runId),
    };
    output.object(shown, (value) => describeRun(value, output));
  },
};

async function readFailure(service: Service, runId: string): Promise<RunFailures | null> {
  try {
    return await askApi(service, "GET /failure", { query: { runId } });
  } catch (error) {
    if (error instanceof HoldfastError && !(error instanceof StoreError) && error.code === "forbidden") return null;
    throw error;
  }
}

function describeRun({ run, steps, waits, failure }: Shown, output: Output): void {
  const now = Date.now();
  const { text, color } = statusCell(run.status);
  output.facts([
    ["run", run.id],
    ["job", run.jobName],
    ["status", text, color],
    ["labels", describeLabels(run.labels) || null],
    ["triggered", describeBoth(run.createdAt, now)],
    ["by", run.triggeredBy ?? null],
    ["starts", describeBoth(run.startAt, now)],
    ["started", describeBoth(run.startedAt, now)],
    ["ended", describeBoth(run.completedAt, now)],
    ["cancelled by", run.cancelledBy ?? null],
    ["took", describeSpan(run.startedAt, run.completedAt, now) || null],
    ["held", run.held?.message ?? null, "yellow"],
    ["parent", run.parentRunId ?? null],
    ["schedule", run.scheduleName ?? null],
    ["cleans up after", run.endOf ?? null],
    ["cleaned up by", run.endRunId ?? null],
    ["retry of", run.retriggerOf ?? null],
    ["retried as", run.retriggeredAs ?? null],
    ["completed as", run.completedAs ?? null],
    ["progress", run.progress === undefined ? null : toJsonLine(run.progress)],
    ["input", showValue(run.input)],
    ["output", run.status === "completed" ? showValue(run.output) : null],
    ["failed step", run.failedStepName ?? null],
    ["error", run.error ?? null, "red"],
  ]);
  if (steps.length > 0) describeSteps(steps, now, output);
  if (waits.length > 0) describeWaits(waits, now, output);
  const shown = failure?.run ?? null;
  if (shown !== null) describeFailure(shown, output);
}

function showValue(value: ClientRun["input"]): string {
  return cutText(toJsonLine(value), MAX_VALUE_LENGTH);
}

function describeSteps(steps: readonly ClientStep[], now: number, output: Output): void {
  output.line("");
  output.line(countOf(steps.length, "step"), "bold");
  output.table(steps, [
    ["STATUS", ({ status }) => statusCell(status)],
    ["STEP", ({ name }) => name, "cut"],
    ["ATTEMPTS", ({ attempts }) => `${attempts}`, "right"],
    ["TOOK", ({ startedAt, completedAt }) => describeSpan(startedAt, completedAt, now), "right"],
    ["ERROR", ({ error }) => error ?? "", "cut"],
  ]);
}

function describeWaits(waits: readonly ClientWait[], now: number, output: Output): void {
  output.line("");
  output.line(countOf(waits.length, "wait"), "bold");
  output.table(waits, [
    ["STATUS", ({ status, outcome, signalledBy }) => `${outcome ?? status}${by(signalledBy)}`],
    ["WAIT", ({ name }) => name, "cut"],
    ["ID", ({ id }) => id],
    ["DEADLINE", ({ deadlineAt }) => describeBoth(deadlineAt, now) ?? "none"],
  ]);
}

function describeFailure(failure: Failure, output: Output): void {
  output.line("");
  for (const line of failureReport(failure).split("\n")) output.line(line);
}

/** Lists the children of a run. */
export const children: Command = {
  name: "children",
  usage: "RUN [--status STATUS] [--held]",
  about: "count and list the children of a run, first those that failed or are held",
  options: {
    status: FILTER_OPTIONS.status!,
    held: FILTER_OPTIONS.held!,
    limit: { value: "NUMBER", about: `how many (${DEFAULT_LIMIT})` },
  },
  async run({ args, service, output }) {
    const runId = await findRunId(service, args.positionals[0]!);
    const limit = args.integer("limit") ?? DEFAULT_LIMIT;
    const query = toQuery(readFilter(args, Date.now()));
    let page: Children | undefined;
    const runs: ChildRun[] = [];
    do {
      const part = { limit: Math.min(PAGE, limit - runs.length), cursor: page?.next ?? undefined };
      page = await askApi(service, "GET /children", { query: { runId, ...query, ...part } });
      runs.push(...page.children);
    } while (page.next !== null && runs.length < limit);
    listRuns(output, runs, "No children match");
    if (page.total !== null) output.note(describeChildren(page));
  },
};

/** `2,000 children: 21 failed, 3 held, 1,976 completed`. */
function describeChildren({ total, byStatus, held, executedAgain }: Children): string {
  const counts = { ...byStatus, held };
  const named = ["failed", "held", "leased", "running", "waiting", "pending", "cancelled", "completed"] as const;
  const parts = named.flatMap((name) => {
    const count = name === "pending" ? (counts.pending ?? 0) - (held ?? 0) : counts[name] ?? 0;
    return count === 0 ? [] : [`${count} ${name}`];
  });
  const again = executedAgain ?? 0;
  const retry = again === 0 ? "" : `; a retry from the failure executes ${again} of them again`;
  return `${total} ${total === 1 ? "child" : "children"}${parts.length === 0 ? "" : `: ${parts.join(", ")}`}${retry}`;
}

/** Shows what a run has done, and when. */
export const timeline: Command = {
  name: "timeline",
  usage: "RUN",
  about: "show what a run has done: attempts, pauses, delays, and who answered",
  async run({ args, service, output }) {
    const query = { runId: await findRunId(service, args.positionals[0]!), limit: PAGE };
    const { next, ...whole } = await askApi(service, "GET /timeline", { query });
    for (let from = next; from !== null;) {
      const part = await askApi(service, "GET /timeline", { query: { ...query, from } });
      whole.rows.push(...part.rows);
      from = part.next;
    }
    output.object({ ...whole, next: null }, (timeline) => describeTimeline(timeline, output));
  },
};

function describeTimeline({ rows, from, triggeredBy, to, cancelledBy }: Timeline, output: Output): void {
  const now = Date.now();
  output.line(`Triggered ${describeBoth(from, now)}${by(triggeredBy)}`);
  output.table(rows, [
    ["AFTER", ({ startedAt }) => describeSpan(from, startedAt, now), "right"],
    ["STATUS", ({ status, signalledBy }) => `${status}${by(signalledBy)}`],
    ["WHAT", ({ kind }) => kind],
    ["NAME", ({ name }) => name, "cut"],
    ["TOOK", ({ startedAt, endedAt }) => describeSpan(startedAt, endedAt, now), "right"],
    ["ERRORS", ({ spans }) => spans.flatMap(({ error }) => error ?? []).join("; "), "cut"],
  ]);
  if (to === null) return;
  output.line(`${cancelledBy === undefined ? "Ended" : "Cancelled"} ${describeBoth(to, now)}${by(cancelledBy)}`);
}

function by(actor: string | undefined): string {
  return actor === undefined ? "" : ` by ${actor}`;
}

/** Says why a run is not executed. */
export const why: Command = {
  name: "why",
  usage: "RUN",
  about: "say why a run is not executed, and what to act on first",
  async run({ args, service, output }) {
    const runId = await findRunId(service, args.positionals[0]!);
    const explanation = await askApi(service, "GET /explain", { query: { runId } });
    const cleanUp = explanation.reasons[0]!.kind === "ended" ? await explainCleanUp(service, runId) : null;
    output.object(explanation, ({ status, message, reasons }) => {
      output.line(sentenceOf(status, message));
      for (const { message } of reasons.slice(1)) output.line(`  ${message}`);
      if (cleanUp !== null) output.line(`  ${cleanUp}`);
    });
  },
};

/** Why the run that cleans up after one has not completed; `null`: it or its retry has, or there is none. */
async function explainCleanUp(service: Service, runId: string): Promise<string | null> {
  const { endRunId } = await askApi(service, "GET /run", { query: { runId } });
  if (endRunId === undefined) return null;
  const end = await askApi(service, "GET /run", { query: { runId: endRunId } });
  if (end.status === "completed" || end.completedAs !== undefined) return null;
  const { status, message } = await askApi(service, "GET /explain", { query: { runId: endRunId } });
  return `Its clean-up, run ${endRunId}: ${sentenceOf(status, message)}`;
}

/** `Pending: behind run ...`. A message that begins with the status stays. */
function sentenceOf(status: string, message: string): string {
  const name = status[0]!.toUpperCase() + status.slice(1);
  if (message.toLowerCase().startsWith(status)) return message;
  return `${name}: ${message[0]!.toLowerCase()}${message.slice(1)}`;
}
