import { endRunId, type NewEnd } from "../model/end.ts";
import type { Flow } from "../model/flow.ts";
import type { OriginText } from "../model/origin.ts";
import { isTerminal, type Labels, type RunStatus } from "../model/run.ts";
import type { NewRun } from "../store/new_run.ts";
import type { JsonText } from "../values/json.ts";

/** The column `on_end` of a run: what its end run has that the run itself does not; `null`: it has none. */
export function toOnEnd({ id, onEnd }: Pick<NewRun, "id" | "onEnd">): JsonText | null {
  return onEnd === undefined ? null : JSON.stringify({ id: endRunId(id), ...onEnd });
}

/** What is read from the column `on_end`. */
interface OnEnd extends NewEnd {
  /** The id of the end run. */
  id: string;
  /** Its end runs that were deleted, if they have undone something. */
  deleted?: readonly UndoingRun[];
}

/** An end run that has undone steps of its run. */
export interface UndoingRun {
  /** Its id. */
  id: string;
  /** Its number: that of a retry is greater. */
  seq: number;
  /** The names of its steps that have undone others. */
  undoing: readonly string[];
}

/** The steps with which end runs have undone others, with the first end run that did. */
export function undoersOf(ends: readonly UndoingRun[]): Map<string, string> {
  const latestFirst = [...ends].sort((one, other) => other.seq - one.seq);
  return new Map(latestFirst.flatMap(({ id, undoing }) => undoing.map((name) => [name, id] as const)));
}

/** Reads what {@linkcode toOnEnd} wrote, and what was added when end runs were deleted. */
export function readOnEnd(column: JsonText): OnEnd {
  return JSON.parse(column);
}

/** How a run is cleaned up after, from its column `on_end`. */
export function newEndOf(column: JsonText | null): NewEnd | null {
  if (column === null) return null;
  const { jobName, statuses, finishWithin } = readOnEnd(column);
  return { jobName, statuses, finishWithin };
}

/** The id of the run that cleans up after a run; `null`: there is none. */
export function endRunIdOf(column: JsonText | null, status: RunStatus): string | null {
  if (column === null || !isTerminal(status)) return null;
  const { id, statuses } = readOnEnd(column);
  return statuses.includes(status) ? id : null;
}

/** What an end run has of its run. */
export interface EndedRun {
  /** Its id. */
  id: string;
  /** The version of its job. */
  version: number;
  /** Its labels. */
  labels: Labels;
  /** Its concurrency key. */
  concurrencyKey: string | null;
  /** Its flow. */
  flow: Pick<Flow, "priority" | "fairnessKey" | "keyConcurrency" | "keyRate">;
  /** The trace of its trigger. */
  trace: OriginText | null;
}

/** The run that cleans up after a run, to be added. */
export function toEndRun(ended: EndedRun, { id, jobName, finishWithin }: NewEnd & { id: string }): NewRun {
  const payload = JSON.stringify({ runId: ended.id });
  return {
    id,
    jobName,
    version: ended.version,
    aliases: [],
    schemaPrint: null,
    payload,
    input: payload,
    labels: ended.labels,
    idempotencyKey: null,
    concurrencyKey: ended.concurrencyKey,
    coalesce: null,
    retriggerOf: null,
    flow: { ...ended.flow, start: null, startWithin: null, finishWithin },
    schedule: null,
    trace: ended.trace,
  };
}

/** Why a run is neither retried nor deleted. */
export function cleaningMessage(runId: string, { id, status }: { id: string; status: RunStatus }): string {
  return `Run "${runId}" is being cleaned up: run "${id}" (${status})`;
}

/** Why a run is not retried from its failure: a child of it is about to be cancelled, and then cleaned up after. */
export function orphanMessage(runId: string): string {
  return `Child run "${runId}" is about to be cancelled and cleaned up: its parent has ended`;
}

/** Why an end run is not retried. */
export function retriedMessage({ id, endOf }: { id: string; endOf: string | null }): string {
  return `Cannot retrigger run "${id}": run "${endOf}", after which it cleaned up, was retried or deleted`;
}
