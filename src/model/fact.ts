import type { RunEvent, RunHappening } from "./event.ts";
import type { Json, JsonText } from "../values/json.ts";
import { parseValue } from "../values/json.ts";
import type { Failure, FailureKind } from "./failure.ts";
import type { HoldCode } from "./hold.ts";
import type { LogLevel } from "./log.ts";
import type { Report } from "./execution_report.ts";
import type { Labels, Progress, Run, RunIdentity, RunStatus } from "./run.ts";
import type { StepWrite } from "./step.ts";
import { cutBytes } from "../values/text.ts";
import { isoTime } from "../values/iso_time.ts";

/**
 * What one commit made true of one run, as the journal of a store keeps it: the run by its row number, then the kind.
 *
 * It leaves out what a row keeps permanently: inputs, outputs, final errors and the identity of the run are read when
 * a client follows the run. Instants are by the store's clock, except `at` of a report: that is by the worker's.
 */
export type Fact =
  // `startAt`: when it is due; `null` if that is at once. What follows the last value that is not `null` is left out.
  | readonly [
    run: number,
    kind: "triggered",
    startAt?: number | null,
    parentRunId?: string | null,
    schedule?: { name: string; slotAt: string | null } | null,
    by?: string,
  ]
  // `by` of all facts: who did it; left out: nobody said so.
  | readonly [run: number, kind: "retried", newRunId: string, by?: string]
  | readonly [run: number, kind: "coalesced", status: RunStatus, input: Json, labels: Labels]
  | readonly [
    run: number,
    kind: "claimed",
    generation: number,
    owner: string,
    leaseExpiresAt: number,
    execution: number,
  ]
  | readonly [run: number, kind: "step_started", at: number, name: string, index: number, attempt: number]
  | readonly [run: number, kind: "progressed", at: number, progress: Progress]
  | readonly [
    run: number,
    kind: "logged",
    at: number,
    stepName: string | null,
    level: LogLevel,
    message: string,
    data: Json,
  ]
  // `startedAt`: if set, the fact also states that the attempt began; `null` if an earlier fact stated that.
  | readonly [
    run: number,
    kind: "step_completed",
    name: string,
    index: number,
    attempt: number,
    startedAt: number | null,
    durationMs: number,
  ]
  // `error`: `null` for the last attempt, whose error the row of the step keeps.
  | readonly [
    run: number,
    kind: "step_failed",
    name: string,
    index: number,
    attempt: number,
    startedAt: number | null,
    error: string | null,
    retryAt: number | null,
  ]
  | readonly [run: number, kind: "waiting", waitId: string | null, name: string, deadlineAt: number | null]
  | readonly [run: number, kind: "held", code: HoldCode, message: string]
  | readonly [run: number, kind: "resumed", by?: string]
  | readonly [run: number, kind: "completed", durationMs: number]
  // `failureKind`: why; left out if its function threw.
  | readonly [run: number, kind: "failed", failureKind?: FailureKind]
  | readonly [run: number, kind: "step_cancelled", name: string, index: number]
  | readonly [run: number, kind: "cancelled", by?: string]
  // Items of its streams were stored without the end of a step. It is no event.
  | readonly [run: number, kind: "streamed"]
  | readonly [run: number, kind: "deleted", runId: string, jobName: string, labels: Labels, by?: string]
  // Replaces each fact of a deleted run, in a store that erases deleted runs.
  | readonly [run: number, kind: "erased"];

/** Which value a fact leaves out, and where it is stored. */
export type FactValueRef =
  | { run: number; of: "payload" | "output" | "failure" }
  | { run: number; of: "step"; stepName: string };

/** A value that a fact leaves out. */
export interface FactValue {
  /** The input of a trigger, or the output of a run or a step. */
  json: JsonText | null;
  /** The error's message of a failed run or step. */
  error: string | null;
  /** The step that made a run fail. */
  failedStepName: string | null;
}

/**
 * The fact that a run was added, as short as possible.
 *
 * @param startAt The instant before which it is not claimed.
 * @param schedule The schedule that made it, and the slot: ISO 8601 in UTC.
 * @param by Who triggered it.
 */
export function triggeredFact(
  run: number,
  startAt: number | null,
  parentRunId: string | null = null,
  schedule: { name: string; slotAt: string | null } | null = null,
  by: string | null = null,
): Fact {
  const slot = schedule && { name: schedule.name, slotAt: schedule.slotAt };
  if (by !== null) return [run, "triggered", startAt, parentRunId, slot, by];
  if (slot !== null) return [run, "triggered", startAt, parentRunId, slot];
  if (parentRunId !== null) return [run, "triggered", startAt, parentRunId];
  return startAt === null ? [run, "triggered"] : [run, "triggered", startAt];
}

/** A fact whose last member can be who did it, and who did it. */
export function factBy(fact: Fact, by: string | null): Fact {
  return by === null ? fact : [...fact, by] as unknown as Fact; // the last member of each of them
}

/** The fact that a run failed. */
export function failedFact(run: number, kind: FailureKind): Fact {
  return kind === "error" ? [run, "failed"] : [run, "failed", kind];
}

/** The fact of a report. */
export function toFact(run: number, report: Report): Fact {
  const { at } = report;
  switch (report.kind) {
    case "start":
      return [run, "step_started", at, report.stepName, report.stepIndex, report.attempt];
    case "progress":
      return [run, "progressed", at, report.progress];
    case "log":
      return [run, "logged", at, report.stepName, report.level, report.message, report.data];
  }
}

const MAX_ERROR_BYTES = 2_036; // without the mark
// The longest input, in characters of JSON, that is kept for a trigger that joined another run: no row stores it.
const MAX_SKIPPED_LENGTH = 16_384;

/** The fact that a trigger joined a run, if it did. A long input is left out and marked so. */
export function coalescedFacts(
  run: number,
  { id, status }: Pick<Run, "id" | "status">,
  { payload: given, labels, joinOnly }: { payload: JsonText | null; labels: Labels; joinOnly?: string },
): Fact[] {
  if (joinOnly !== undefined && joinOnly !== id) return [];
  const isLong = given !== null && given.length > MAX_SKIPPED_LENGTH;
  const input = isLong ? { cut: true, length: given.length } : parseValue(given);
  return [[run, "coalesced", status, input, labels]];
}

/** Which value a fact leaves out; `null` if it is whole. */
export function valueRefOf(fact: Fact): FactValueRef | null {
  const [run, kind] = fact;
  switch (kind) {
    case "triggered":
      return { run, of: "payload" };
    case "completed":
      return { run, of: "output" };
    case "failed":
      return { run, of: "failure" };
    case "step_completed":
      return { run, of: "step", stepName: fact[2] };
    case "step_failed":
      return fact[6] === null ? { run, of: "step", stepName: fact[2] } : null;
    default:
      return null;
  }
}

/** The run that a fact states was deleted; `null` for other facts. */
export function deletedRunOf(fact: Fact): RunIdentity | null {
  return fact[1] === "deleted" ? { id: fact[2], jobName: fact[3], labels: fact[4] } : null;
}

const OF_STEPS: ReadonlySet<Fact[1]> = new Set<Fact[1]>([
  "step_started",
  "step_completed",
  "step_failed",
  "step_cancelled",
  "logged",
  "streamed",
]);

/** Whether a fact is about the run itself, not its steps or log lines: streams of several runs show only these. */
export function isOfRun(fact: Fact): boolean {
  return !OF_STEPS.has(fact[1]);
}

/** A fact's position in the journal. */
export interface FactPlace {
  /** Its number. */
  number: number;
  /** When it was committed, by the store's clock. */
  at: number;
}

/**
 * The events of a fact: one or two. An event's number is twice its fact's, less one for the first of two, so it is
 * the same in every process.
 *
 * @param value The value that the fact leaves out; `null` if there is none, or it is not needed.
 */
export function toEvents(fact: Fact, place: FactPlace, run: RunIdentity, value: FactValue | null): RunEvent[] {
  const happenings = toHappenings(fact, value);
  return happenings.map(({ at = place.at, ...happening }, index) => ({
    ...happening,
    runId: run.id,
    jobName: run.jobName,
    labels: run.labels,
    timestamp: isoTime(at),
    sequence: 2 * place.number - (happenings.length - 1 - index),
  }));
}

/** `at`: when it happened, if not at the commit. */
type Happening = RunHappening & { at?: number };

function toHappenings(fact: Fact, value: FactValue | null): Happening[] {
  switch (fact[1]) {
    case "triggered":
      return [{
        type: "run:trigger",
        input: parseValue(value?.json ?? null),
        startAt: isoTime(fact[2] ?? null),
        parentRunId: fact[3] ?? null,
        scheduleName: fact[4]?.name ?? null,
        slotAt: fact[4]?.slotAt ?? null,
        by: fact[5] ?? null,
      }];
    case "retried":
      return [{ type: "run:retry", newRunId: fact[2], by: fact[3] ?? null }];
    case "coalesced":
      return [{ type: "run:coalesced", status: fact[2], skippedInput: fact[3], skippedLabels: fact[4] }];
    case "claimed": {
      const [, , , leaseOwner, leaseExpiresAt, execution] = fact;
      return [
        { type: "run:leased", leaseOwner, leaseExpiresAt: isoTime(leaseExpiresAt) },
        { type: "run:start", execution },
      ];
    }
    case "step_started": {
      const [, , at, stepName, stepIndex, attempt] = fact;
      return [{ type: "step:start", stepName, stepIndex, attempt, at }];
    }
    case "progressed":
      return [{ type: "run:progress", progress: fact[3], at: fact[2] }];
    case "logged": {
      const [, , at, stepName, level, message, data] = fact;
      return [{ type: "log:write", stepName, level, message, data, at }];
    }
    case "step_completed": {
      const [, , stepName, stepIndex, attempt, startedAt, duration] = fact;
      const output = parseValue(value?.json ?? null);
      return withStart({ type: "step:complete", stepName, stepIndex, output, duration }, attempt, startedAt);
    }
    case "step_failed": {
      const [, , stepName, stepIndex, attempt, startedAt, error, retryAt] = fact;
      const text = error ?? value?.error ?? "";
      const failed = {
        type: "step:fail",
        stepName,
        stepIndex,
        attempt,
        error: text,
        retryAt: isoTime(retryAt),
      } as const;
      return withStart(failed, attempt, startedAt);
    }
    case "waiting":
      return [{ type: "run:waiting", waitId: fact[2], waitName: fact[3], deadlineAt: isoTime(fact[4]) }];
    case "held":
      return [{ type: "run:hold", code: fact[2], message: fact[3] }];
    case "resumed":
      return [{ type: "run:resume", by: fact[2] ?? null }];
    case "completed":
      return [{ type: "run:complete", output: parseValue(value?.json ?? null), duration: fact[2] }];
    case "failed":
      return [{
        type: "run:fail",
        error: value?.error ?? "",
        failedStepName: value?.failedStepName ?? null,
        failureKind: fact[2] ?? "error",
      }];
    case "step_cancelled":
      return [{ type: "step:cancel", stepName: fact[2], stepIndex: fact[3] }];
    case "cancelled":
      return [{ type: "run:cancel", by: fact[2] ?? null }];
    case "deleted":
      return [{ type: "run:delete", by: fact[5] ?? null }];
    case "streamed":
    case "erased":
      return [];
  }
}

function withStart(
  ended: RunHappening & { type: "step:complete" | "step:fail" },
  attempt: number,
  startedAt: number | null,
): Happening[] {
  if (startedAt === null) return [ended];
  const { stepName, stepIndex } = ended;
  return [{ type: "step:start", stepName, stepIndex, attempt, at: startedAt }, ended];
}

/** The error of an attempt that is not the last one, for a fact: 2 KiB at most, since all runs share the journal. */
export function attemptError({ message }: Failure): string {
  const cut = cutBytes(message, MAX_ERROR_BYTES);
  return cut.length === message.length ? message : `${cut}… (cut)`;
}

/** The facts of the reports that came with a recorded attempt at a step, and after them the fact of the attempt. */
export function stepFacts(
  run: number,
  { name, index, attempts, startedAgoMs, result }: StepWrite,
  reports: readonly Report[],
  { startedAt, retryAt }: { startedAt: number; retryAt: number | null },
): Fact[] {
  const last = reports.at(-1);
  // One fact states both the start and the end, if nothing else was reported between them.
  const isWhole = last?.kind === "start" && last.stepName === name && last.attempt === attempts;
  const before = (isWhole ? reports.slice(0, -1) : reports).map((report) => toFact(run, report));
  const start = isWhole ? startedAt : null;
  if (result.status === "completed") {
    return [...before, [run, "step_completed", name, index, attempts, start, Math.round(startedAgoMs)]];
  }
  const error = result.status === "retrying" ? attemptError(result.failure) : null;
  return [...before, [run, "step_failed", name, index, attempts, start, error, retryAt]];
}
