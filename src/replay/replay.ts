import { type Duration, readDuration } from "../values/duration.ts";
import { withoutOccurrence } from "../values/name.ts";
import { divergenceMessage, listNames, showName } from "../execution/replay/divergence_message.ts";
import type { RecordName } from "../model/hold.ts";
import { checkHistory, type ExportedHistory, type HistoryFailure } from "../model/exported_history.ts";
import type { Job } from "../model/job.ts";
import { type CatalogJob, JobCatalog } from "../model/job/job_catalog.ts";
import { findOldNames, type JobChanges } from "../model/job/job_changes.ts";
import { decode, isSameJson, type JsonText } from "../values/json.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { isTerminal } from "../model/run.ts";
import { toFailure } from "../model/to_failure.ts";
import { executeHistory, type ReplayEnd, type ReplayLimits } from "./execute_history.ts";
import type { NeededChanges } from "./observed_replay.ts";
import { type ReplayReport, toReport } from "./replay_report.ts";
import { showChanges, suggestChanges } from "./suggest_changes.ts";

/** Options of {@linkcode replay}. */
export interface ReplayOptions {
  /**
   * For how long, in milliseconds, the job must do nothing before the replay counts as complete: it may await an import
   * or a timer outside of its steps. An engine allows it a second. Default 250.
   */
  patience?: Duration;
  /** For how long the job may await something outside of its steps, in milliseconds. Default 30,000. */
  timeout?: Duration;
}

// How many names a message suggests to declare.
const MAX_NAMES = 3;
const OPTIONS: Record<keyof ReplayOptions, true> = { patience: true, timeout: true };

/**
 * Executes the code of a job against the history of a run, and says whether the run goes on with this code.
 *
 * The classes are those of an engine. No function of a step is called, and no pause ends that had not ended. The replay
 * stops where the job begins something new, or at the end of its function. Code outside of steps is executed.
 *
 * @param history A history, as `engine.exportHistory()` has made it or as it was read from a file.
 * @throws {ValidationError} It is no history.
 */
export async function replay(history: object, job: Job, options: ReplayOptions = {}): Promise<ReplayReport> {
  checkOptionNames(options, OPTIONS, "replay()");
  const patience = readDuration(options.patience ?? 250, "patience of replay()");
  const timeout = readDuration(options.timeout ?? 30_000, "timeout of replay()");
  return await replayWith(checkHistory(history), new JobCatalog([job]), { patience, timeout });
}

/**
 * Replays a history with the job of a catalog that takes its run.
 *
 * @param suggest Finds what to declare for a run that would be held.
 */
export async function replayWith(
  history: ExportedHistory,
  jobs: JobCatalog,
  limits: ReplayLimits,
  suggest = suggestChanges,
): Promise<ReplayReport> {
  const { runId, jobName, version, status } = history;
  const definition = jobs.executing(jobName, version);
  const run = { runId, jobName, version, status };
  if (definition === undefined) {
    return toReport({
      ...run,
      outcome: "stranded",
      code: null,
      message: `No job takes runs of "${jobName}" version ${version}: they wait for a worker that knows it`,
      isNew: null,
      unasked: [],
      issues: [],
      suggestion: null,
      neededChanges: { renamed: {}, removed: [], added: [] },
    });
  }
  const execute = async (added: NeededChanges) => {
    const end = await executeHistory(history, declaring(definition, added), limits);
    return { ...resultOf(history, definition, end), neededChanges: end.needed };
  };
  const result = await execute({ renamed: {}, removed: [], added: [] });
  const suggestion = result.code === null ? null : await suggest(result, execute);
  return toReport({ ...run, ...result, suggestion });
}

/** The definition with more changes, and with runs that are held where they would fail: so that the report says why. */
function declaring(definition: CatalogJob, { renamed, removed, added }: NeededChanges): CatalogJob {
  const { job, job: { changes, changes: { onDivergence } } } = definition;
  const names = new Map([...changes.renamed, ...Object.entries(renamed)]);
  const declared: JobChanges = {
    ...changes,
    renamed: names,
    oldNames: findOldNames(names, `job "${job.name}"`),
    removed: new Set([...changes.removed, ...removed]),
    added: new Set([...changes.added, ...added]),
    // A history shows no setting of its engine.
    onDivergence: onDivergence === "continue" ? onDivergence : "hold",
  };
  return { ...definition, job: { ...job, changes: declared } };
}

type Result = Pick<ReplayReport, "outcome" | "code" | "message" | "isNew" | "unasked" | "issues">;

function resultOf(history: ExportedHistory, { job }: CatalogJob, end: ReplayEnd): Result {
  const { outcome, unasked } = end;
  const none = { code: null, isNew: null, unasked, issues: [] };
  switch (outcome.kind) {
    case "new":
      return leavesOut(end, job) ? heldLater(end) : { ...none, outcome: "goes on", ...goingOnWith(outcome.isNew) };
    case "waiting":
      return leavesOut(end, job) ? heldLater(end) : { ...none, outcome: "goes on", message: "The run goes on waiting" };
    case "hung":
      return {
        ...none,
        outcome: "fails",
        message: "The job awaits something outside of its steps that does not settle",
      };
    case "held": {
      const { code, message, details } = outcome.hold;
      if (job.changes.onDivergence === "fail") {
        return { outcome: "fails", code, message: message.replace(/^Held: /, ""), ...details };
      }
      return { outcome: "held", code, message, ...details };
    }
    case "completed":
      return { ...none, ...compareOutput(history, outcome.text) };
    case "failed":
      return { ...none, ...compareFailure(history, outcome.thrown) };
  }
}

function goingOnWith(isNew: RecordName | null): Pick<Result, "message" | "isNew"> {
  return { isNew, message: `The run goes on${isNew === null ? "" : ` with ${showName(isNew)}`}` };
}

/**
 * Whether the run waits for something that it has recorded, and the job has not asked for the rest. It is not held now,
 * since nothing new begins. It will be when that pause is over, unless the job then asks for the rest first.
 */
function leavesOut({ unasked, beganEarly }: ReplayEnd, { changes }: Job): boolean {
  return unasked.length > 0 && !beganEarly && changes.onDivergence !== "continue";
}

function heldLater({ unasked, heldBack }: ReplayEnd): Result {
  const held = { outcome: "held", code: "diverged", isNew: heldBack, unasked, issues: [] } as const;
  if (heldBack !== null) {
    return {
      ...held,
      message: `Held: ${divergenceMessage({ code: "diverged", isNew: heldBack, thrown: null, unasked })}`,
    };
  }
  const names = [...new Set(unasked.map(({ name }) => withoutOccurrence(name)))].slice(0, MAX_NAMES);
  const removed = showChanges({ removed: names });
  const message = `Held at its next step, unless the job asks before for what this run has recorded: ${
    listNames(unasked)
  }. If it asks later or not at all, say changes: ${removed}; else see what the job decides outside of its steps`;
  return { ...held, message };
}

function compareOutput(history: ExportedHistory, text: JsonText | null): Pick<Result, "outcome" | "message"> {
  const { status, output = null } = history;
  if (status !== "completed") {
    return { outcome: "ends otherwise", message: `The job returns, but the run ${before(history)}` };
  }
  if (isSameJson(decode(text) ?? null, output)) {
    return { outcome: "ends the same", message: "The job returns the same" };
  }
  return { outcome: "ends otherwise", message: "The job returns something else than the run did" };
}

function compareFailure(history: ExportedHistory, thrown: unknown): Pick<Result, "outcome" | "message"> {
  const { name, message } = toFailure(thrown);
  const what = `The job throws ${name}: ${message}`;
  if (history.status !== "failed") return { outcome: "fails", message: `${what}; the run ${before(history)}` };
  if (isSameFailure(history.error, { name, message })) return { outcome: "ends the same", message: what };
  return { outcome: "ends otherwise", message: `${what}; the run ${before(history)}` };
}

function isSameFailure(recorded: HistoryFailure | undefined, { name, message }: { name: string; message: string }) {
  return recorded?.name === name && recorded.message === message;
}

/** How the run was when its history was exported. */
function before({ status, error }: ExportedHistory): string {
  if (status === "failed" && error !== undefined) return `has failed with ${error.name}: ${error.message}`;
  return isTerminal(status) ? `has ended as ${status}` : "has not ended";
}
