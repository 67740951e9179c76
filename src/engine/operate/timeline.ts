import { ValidationError } from "../../model/error.ts";
import { isoTime } from "../../values/iso_time.ts";
import { checkInteger } from "../../values/integer.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Store } from "../../store/store.ts";
import type {
  Interruption,
  TimelinePause,
  TimelinePlace,
  TimelineRecords,
  TimelineRun,
  TimelineStep,
} from "../../store/operator_reads.ts";

/** Which part of a timeline to read. */
export interface TimelineOptions {
  /** Where it begins: the `next` of an earlier part. Default: at the first row. */
  from?: string;
  /** The maximum number of rows, 1 to 1,000. Default 200. */
  limit?: number;
}

/** What has happened in a run, by the times at which it began. Times are ISO 8601 in UTC. */
export interface Timeline {
  /** The run. */
  runId: string;
  /** When the run was triggered. */
  from: string;
  /** Who triggered it; left out: nobody said so. */
  triggeredBy?: string;
  /** Who cancelled it; left out: it is not cancelled, or nobody said so. */
  cancelledBy?: string;
  /** When it ended; `null`: it has not. */
  to: string | null;
  /** The rows of this part. */
  rows: TimelineRow[];
  /** Where the next part begins; `null`: this is the last one. */
  next: string | null;
  /** How many rows there are in all. */
  total: number;
}

/** A row of a timeline: something that a run has done, or waits for. */
export interface TimelineRow {
  /**
   * What it is: the time before the first claim (`queued`), a step, a wait, a sleep, a receive, a call of child runs, or an execution
   * that lost its lease without an end (`recovery`).
   */
  kind: "queued" | "step" | "wait" | "sleep" | "receive" | "child" | "recovery";
  /** The name of the step or the pause, with its occurrence; otherwise what happened. */
  name: string;
  /**
   * Its status: `completed`, `failed`, `cancelled` or `retrying` of a step; `pending`, `signal`, `timeout`, `completed`,
   * `cancelled` or `closed` of a pause; `lost`, `released` or `held` of a recovery; `pending` or `completed` of the queue.
   */
  status: string;
  /** When it began. */
  startedAt: string;
  /** When it ended; `null`: it has not. */
  endedAt: string | null;
  /** How long it was executed, in milliseconds: without pauses and delays. */
  activeMs: number;
  /** What it consists of, in the order of time. */
  spans: TimelineSpan[];
  /** The wait. */
  waitId?: string;
  /** Who signalled. */
  signalledBy?: string;
  /** The first child run. */
  childRunId?: string;
  /** The worker that had the lease. */
  workerId?: string;
  /** When it ends without a signal. */
  deadlineAt?: string;
}

/** A part of a row. */
export interface TimelineSpan {
  /** What it is. */
  kind: "queued" | "active" | "interrupted" | "retry-delay" | "paused";
  /** How it ended, or `pending`. */
  status: string;
  /** When it began. */
  from: string;
  /** When it ended; `null`: it has not. */
  to: string | null;
  /** The attempt at a step, from 1. */
  attempt?: number;
  /** Why it failed. */
  error?: string;
}

const OPTIONS: Record<keyof TimelineOptions, true> = { from: true, limit: true };
const DEFAULT_LIMIT = 200;
const MAX_LIMIT = 1_000;
const PLACE = /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})$/;

/**
 * Reads a part of the timeline of a run; `null` if there is no such run.
 *
 * @throws {ValidationError} `from` or `limit` is not valid.
 */
export async function readTimeline(
  store: Pick<Store, "getTimeline">,
  runId: string,
  options: TimelineOptions,
): Promise<Timeline | null> {
  checkOptionNames(options, OPTIONS, "getTimeline()");
  const { limit = DEFAULT_LIMIT } = options;
  checkInteger(limit, "limit", 1, MAX_LIMIT);
  const from = options.from === undefined ? null : toPlace(options.from);
  const records = await store.getTimeline(runId, from ?? NO_RECORDS, limit);
  return records === null ? null : toTimeline(records, from, limit);
}

const NO_RECORDS: TimelinePlace = { steps: 0, pauses: 0, interruptions: 0 };

function toPlace(text: unknown): TimelinePlace {
  const found = typeof text === "string" ? PLACE.exec(text) : null;
  if (found === null) throw new ValidationError("from must be the next of an earlier part");
  const [steps, pauses, interruptions] = found.slice(1).map(Number) as [number, number, number]; // the pattern has three
  return { steps, pauses, interruptions };
}

/** The rows from a place on; `null`: from the row of the queue on, which is no record and comes before all of them. */
function toTimeline(records: TimelineRecords, from: TimelinePlace | null, limit: number): Timeline {
  const { run, totals } = records;
  const lists = {
    steps: records.steps.map((step) => toStepRow(step, run)),
    pauses: records.pauses.map((pause) => toPauseRow(pause, run)),
    interruptions: records.interruptions.map(toRecoveryRow),
  };
  const rows: TimelineRow[] = from === null ? [toQueuedRow(run)] : [];
  const place = { ...(from ?? NO_RECORDS) };
  while (rows.length < limit) {
    const first = KINDS.filter((kind) => lists[kind].length > 0)
      .sort((one, other) => lists[one][0]!.startedAt < lists[other][0]!.startedAt ? -1 : 1)[0]; // they have a first row
    if (first === undefined) break;
    rows.push(lists[first].shift()!);
    place[first] += 1;
  }
  const hasMore = KINDS.some((kind) => place[kind] < totals[kind]);
  return {
    runId: run.id,
    from: isoTime(run.createdAt),
    to: isoTime(run.completedAt),
    ...(run.triggeredBy === null ? {} : { triggeredBy: run.triggeredBy }),
    ...(run.cancelledBy === null ? {} : { cancelledBy: run.cancelledBy }),
    rows,
    next: hasMore ? `${place.steps}.${place.pauses}.${place.interruptions}` : null,
    total: 1 + totals.steps + totals.pauses + totals.interruptions,
  };
}

const KINDS = ["steps", "pauses", "interruptions"] as const;

function toQueuedRow({ createdAt, startedAt, completedAt }: TimelineRun): TimelineRow {
  const endedAt = startedAt ?? completedAt;
  const status = endedAt === null ? "pending" : "completed";
  const span: TimelineSpan = { kind: "queued", status, from: isoTime(createdAt), to: isoTime(endedAt) };
  return {
    kind: "queued",
    name: "queued",
    status,
    startedAt: span.from,
    endedAt: span.to,
    activeMs: 0,
    spans: [span],
  };
}

function toStepRow(step: TimelineStep, run: TimelineRun): TimelineRow {
  const { name, status, attempts, startedAt, completedAt, failedAttempts, lastStartedAt } = step;
  const spans: TimelineSpan[] = [];
  let activeMs = 0;
  for (const [at, failed] of failedAttempts.entries()) {
    const { attempt, error } = failed;
    activeMs += failed.endedAt - failed.startedAt;
    spans.push(toSpan("active", "failed", failed.startedAt, failed.endedAt, { attempt, error }));
    const nextAt = failedAttempts[at + 1]?.startedAt ?? lastStartedAt;
    const to = attempt < attempts
      ? Math.min(nextAt ?? failed.retryAt, failed.retryAt)
      : status === "retrying"
      ? null
      : completedAt;
    spans.push(toSpan("retry-delay", to === null ? "pending" : "completed", failed.endedAt, to, { attempt }));
  }
  const isRecorded = failedAttempts.some(({ attempt }) => attempt === attempts);
  if (!isRecorded && completedAt !== null) {
    const from = lastStartedAt ?? failedAttempts.at(-1)?.retryAt ?? startedAt;
    activeMs += completedAt - from;
    const error = step.error === null || status === "completed" ? {} : { error: step.error };
    spans.push(toSpan("active", status, from, completedAt, { attempt: Math.max(1, attempts), ...error }));
  }
  return {
    kind: "step",
    name,
    status,
    startedAt: isoTime(startedAt),
    endedAt: isoTime(completedAt ?? run.completedAt),
    activeMs: Math.max(0, activeMs),
    spans,
  };
}

function toPauseRow(pause: TimelinePause, run: TimelineRun): TimelineRow {
  const { kind, name, outcome, createdAt, suspendedAt, resolvedAt, firstResumedAt, deadlineAt, childRunId, id } = pause;
  const status = outcome === null
    ? pause.status
    : outcome === "children" || outcome === "messages"
    ? "completed"
    : kind === "sleep"
    ? "completed"
    : outcome;
  const endedAt = resolvedAt ?? (pause.status === "pending" ? null : run.completedAt);
  const spans: TimelineSpan[] = [];
  // A wait that was resolved before the run paused on it was no pause.
  if (suspendedAt !== null && (endedAt === null || suspendedAt <= endedAt)) {
    spans.push(toSpan("paused", status, suspendedAt, endedAt));
  }
  if (suspendedAt !== null && resolvedAt !== null) {
    const from = Math.max(resolvedAt, suspendedAt);
    const to = firstResumedAt ?? run.completedAt;
    if (to !== from) spans.push(toSpan("queued", to === null ? "pending" : "completed", from, to));
  }
  return {
    kind: kind === "children" ? "child" : kind,
    name,
    status,
    startedAt: isoTime(createdAt),
    endedAt: isoTime(endedAt),
    activeMs: 0,
    spans,
    ...(kind === "wait" ? { waitId: id } : {}),
    ...(pause.signalledBy === null ? {} : { signalledBy: pause.signalledBy }),
    ...(childRunId === null ? {} : { childRunId }),
    ...(deadlineAt === null ? {} : { deadlineAt: isoTime(deadlineAt) }),
  };
}

function toRecoveryRow({ kind, workerId, leasedAt, endedAt }: Interruption): TimelineRow {
  const from = leasedAt ?? endedAt;
  return {
    kind: "recovery",
    name: kind,
    status: kind,
    startedAt: isoTime(from),
    endedAt: isoTime(endedAt),
    activeMs: 0,
    spans: [toSpan("interrupted", kind, from, endedAt)],
    ...(workerId === null ? {} : { workerId }),
  };
}

function toSpan(
  kind: TimelineSpan["kind"],
  status: string,
  from: number,
  to: number | null,
  more: Pick<TimelineSpan, "attempt" | "error"> = {},
): TimelineSpan {
  return { kind, status, from: isoTime(from), to: isoTime(to), ...more };
}
