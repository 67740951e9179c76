import type { Cursor } from "../../model/journal.ts";
import { failureText } from "../../model/failure.ts";
import type { Held } from "../../model/hold.ts";
import { actorOf } from "../../model/origin.ts";
import { decode } from "../../values/json.ts";
import { droppedLines, type LogText, MAX_LOG_LINES, type NewLogEntry } from "../../model/log.ts";
import { type MessageRecord, messageStatus, type MessageText } from "../../model/message.ts";
import { isTerminal, type Run, type RunIdentity, type StoredRun } from "../../model/run.ts";
import { retryTime, stepId, type StepRecord, type StepText } from "../../model/step.ts";
import type { Claim } from "../../store/claim.ts";
import type { HoldRecord, RunHistory } from "../../store/hold_record.ts";
import type { AwaitedPause, RunState } from "../../store/run_query.ts";
import { isoTime } from "../../values/iso_time.ts";
import { endRunIdOf, toOnEnd } from "../end_runs.ts";
import { firstResumed } from "../record_rules.ts";
import {
  type ChildResult,
  parseWait,
  type PauseRecord,
  type ResumedPause,
  type Wait,
  type WaitText,
} from "../../model/wait.ts";
import {
  byIndex,
  dueFrom,
  finishBy,
  type KeptChild,
  type KeptHold,
  type KeptMessage,
  type KeptPause,
  type KeptRun,
  type KeptStep,
  startBy,
  triedPrints,
} from "./records.ts";
import { namesOfPrints } from "../holds.ts";

/** A copy of a run for callers, with its values as stored JSON. */
export function toRunText(run: KeptRun): StoredRun {
  return {
    ...toIdentity(run),
    status: run.status,
    payload: run.payload,
    output: run.output,
    error: run.failure === null ? null : failureText(run.failure),
    failedStepName: run.failedStepName,
    failure: structuredClone(run.failure),
    progress: (decode(run.progress) ?? null) as Run["progress"], // only `Report.progress` is stored there
    idempotencyKey: run.idempotencyKey,
    concurrencyKey: run.concurrencyKey,
    leaseOwner: run.lease?.owner ?? null,
    leaseExpiresAt: isoTime(run.lease?.expiresAt ?? null),
    leaseGeneration: run.generation,
    createdAt: isoTime(run.createdAt),
    updatedAt: isoTime(run.updatedAt),
    startedAt: isoTime(run.startedAt),
    completedAt: isoTime(run.completedAt),
    startAt: isoTime(run.startAt),
    priority: run.flow.priority,
    fairnessKey: run.flow.fairnessKey,
    startBy: isoTime(startBy(run)),
    finishBy: isoTime(finishBy(run)),
    failureKind: run.failure?.kind ?? null,
    parentRunId: run.parent?.run.id ?? null,
    scheduleName: run.schedule?.name ?? null,
    slotAt: run.schedule?.slotAt ?? null,
    version: run.version,
    held: run.hold === null ? null : toHeld(run.hold),
    endOf: run.endOf,
    endRunId: endRunIdOf(toOnEnd(run), run.status),
    retriggerOf: run.retriggerOf,
    retriggeredAs: run.retriggeredAs,
    completedAs: run.completedAs,
    triggeredBy: actorOf(run.trace),
    cancelledBy: actorOf(run.cancelRequest),
  };
}

function toHeld({ code, message, since }: KeptHold): Held {
  return { code, message, since: isoTime(since) };
}

/** The hold of a run; `null` if it is not held. */
export function toHoldRecord(run: KeptRun): HoldRecord | null {
  if (run.hold === null) return null;
  return { ...toHeld(run.hold), details: structuredClone(run.hold.details), prints: namesOfPrints(triedPrints(run)) };
}

/** A run and its position in the journal. */
export function toRunState(run: KeptRun, place: Cursor): RunState {
  return {
    run: toRunText(run),
    seq: run.seq,
    place,
    trace: run.trace,
    execution: run.interruptions + 1,
    pauses: toAwaitedPauses(run),
  };
}

/** What a run has parked on: pauses, then other attempts at steps. */
function toAwaitedPauses(run: KeptRun): AwaitedPause[] {
  const { parking } = run;
  if (parking === null) return [];
  const awaited = run.pauses.filter((pause) => parking.awaited.includes(pause));
  return [...awaited.map(toAwaitedPause), ...retriesOf(run)]
    .map(({ deadlineAt, ...pause }) => ({ ...pause, deadlineAt: isoTime(deadlineAt) }));
}

/** A pause in the form for `run:wait` events. */
export function toAwaitedPause({ kind, id, name, deadlineAt, children }: KeptPause): AwaitedPause<number> {
  const counts = children === null ? {} : { children: { total: children.total, unfinished: children.unfinished } };
  return { waitId: kind === "wait" ? id : null, name, deadlineAt, ...counts };
}

/** The attempts that a run waits for: one for each step that is between two attempts. */
export function retriesOf({ steps }: KeptRun): AwaitedPause<number>[] {
  return byIndex(steps).flatMap(({ name, result }) =>
    result.status === "retrying" ? [{ waitId: null, name, deadlineAt: result.retryAt }] : []
  );
}

/** The identity of a run. */
export function toIdentity(run: KeptRun): RunIdentity {
  return { id: run.id, jobName: run.jobName, labels: Object.freeze({ ...run.labels }) };
}

/** A claimed run with its history for the replay. */
export function toClaim(run: KeptRun, now: number): Claim {
  const finishAt = finishBy(run);
  return {
    run: toIdentity(run),
    lease: {
      runId: run.id,
      generation: run.generation,
      claimId: run.claimId!, // that claim
      recorded: run.lastRecordedNo,
      concurrencyKey: run.concurrencyKey,
    },
    leaseExpiresAt: run.lease!.expiresAt, // a claim has given the run its lease
    input: run.input,
    execution: run.interruptions + 1,
    startedAgoMs: Math.max(0, now - run.startedAt!), // and has started it
    startDelayMs: run.generation > 1 ? null : Math.max(0, run.startedAt! - dueFrom(run)),
    priority: run.flow.priority,
    fairnessKey: run.flow.fairnessKey,
    depth: run.depth,
    slotAt: run.schedule?.slotAt ?? null,
    slot: run.schedule?.slot ?? null,
    trace: run.trace,
    finishInMs: finishAt === null ? null : Math.max(0, finishAt - now),
    version: run.version,
    schemaPrint: run.schemaPrint,
    isResumed: run.lease!.isResumed,
    continues: run.continues,
    copied: structuredClone(run.copied),
    originId: run.originId,
    steps: [...run.steps.values()].map((step) => toStepRecord(step, now)),
    pauses: run.pauses.map(toPauseRecord),
    resumed: run.pauses.map(toResumedPause).filter((pause) => pause !== null),
  };
}

/** All that a replay of a run needs. */
export function toHistory(run: KeptRun, now: number): RunHistory {
  const steps = [...run.steps.values()].filter(({ result }) => result.status !== "cancelled");
  return {
    run: toRunText(run),
    input: run.input,
    schemaPrint: run.schemaPrint,
    slot: run.schedule?.slot ?? null,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: run.pauses.map(toPauseRecord),
    copied: structuredClone(run.copied),
    originId: run.originId,
    onEnd: run.onEnd ?? null,
  };
}

function toStepRecord({ name, index, attempts, result, recordedNo }: KeptStep, now: number): StepRecord {
  if (result.status === "cancelled") throw new TypeError("A replay has no cancelled steps");
  const record = { name, index, attempts, recordedNo };
  if (result.status !== "retrying") return { ...record, result: structuredClone(result) };
  const { status, failure, retryAt } = result;
  return { ...record, result: { status, failure: structuredClone(failure), retry: retryTime(retryAt, now) } };
}

/** A copy of a recorded step for callers, with its output as stored JSON. */
export function toStep(runId: string, step: KeptStep): StepText {
  const { result } = step;
  const failure = result.status === "completed" ? null : result.failure;
  return {
    id: stepId(runId, step.name),
    runId,
    name: step.name,
    index: step.index,
    status: result.status === "retrying" ? "failed" : result.status,
    output: result.status === "completed" ? result.output : null,
    error: failure?.message ?? null,
    failure: structuredClone(failure),
    attempts: step.attempts,
    startedAt: isoTime(step.startedAt),
    completedAt: isoTime(step.completedAt),
  };
}

/** A pause as a replay needs it. */
export function toPauseRecord(pause: KeptPause): PauseRecord {
  const { id, kind, name, metadata, children, deadlineAt, createdAt, preparedNo, state } = pause;
  const resolution = state.status === "resolved" ? { ...state.resolution } : null;
  const [childCount, childTotal] = [children?.members.length ?? 0, children?.total ?? 0];
  const child = children?.total === 1 && resolution !== null ? resultOf(children.members[0]!) : null;
  const { outcome = null } = resolution ?? {};
  return {
    id,
    kind,
    name,
    metadata,
    childCount,
    childTotal,
    child,
    deadlineAt,
    ...firstResumed(kind, outcome, pause.firstResumedAt),
    createdAt,
    preparedNo,
    ...(kind !== "receive" || outcome !== "messages" ? {} : { messages: pause.taken.map(toMessageRecord) }),
    resolution,
  };
}

function toMessageRecord({ id, name, input, acceptedAt }: KeptMessage): MessageRecord {
  return { id, name, input, acceptedAt };
}

/** A copy of a message for callers, with its value as stored JSON. */
export function toMessageText(
  { status }: KeptRun,
  { id, name, payload, trace, acceptedAt, takenBy }: KeptMessage,
): MessageText {
  return {
    id,
    name,
    payload,
    status: messageStatus(takenBy !== null, isTerminal(status)),
    acceptedAt: isoTime(acceptedAt),
    sentBy: actorOf(trace),
    receivedAt: isoTime(takenBy?.state.status === "resolved" ? takenBy.state.resolvedAt : null),
    receivedBy: takenBy?.name ?? null,
  };
}

function toResumedPause(pause: KeptPause): ResumedPause | null {
  const { id, kind, name, suspendedAt, firstResumedAt, trace, state } = pause;
  if (state.status !== "resolved" || suspendedAt === null || firstResumedAt === null) return null;
  const { resolvedAt, resolution: { outcome } } = state;
  return { id, kind, name, outcome, suspendedAt, resolvedAt, firstResumedAt, trace };
}

/** How a child ended; `null` if it has not, or the result is lost. */
export function resultOf({ child, isLost }: KeptChild): ChildResult | null {
  if (isLost || !isTerminal(child.status)) return null;
  return {
    run: toIdentity(child),
    status: child.status,
    output: child.output,
    failure: structuredClone(child.failure),
    failedStepName: child.failedStepName,
  };
}

/** A copy of a wait for callers. */
export function toWait(runId: string, pause: KeptPause): Wait {
  return parseWait(toWaitText(runId, pause));
}

/** A copy of a wait for callers, with its values as stored JSON. */
export function toWaitText(runId: string, pause: KeptPause): WaitText {
  const resolved = pause.state.status === "resolved" ? pause.state : null;
  const outcome = resolved?.resolution.outcome;
  const signal = resolved?.resolution.outcome === "signal" ? resolved.resolution : null;
  return {
    id: pause.id,
    runId,
    name: pause.name,
    metadata: pause.metadata,
    status: pause.state.status,
    outcome: outcome === "signal" || outcome === "timeout" ? outcome : null,
    payload: signal?.payload ?? null,
    signalId: signal?.signalId ?? null,
    signalledBy: actorOf(pause.trace),
    createdAt: isoTime(pause.createdAt),
    deadlineAt: isoTime(pause.deadlineAt),
    suspendedAt: isoTime(pause.suspendedAt),
    resolvedAt: isoTime(resolved?.resolvedAt ?? null),
    firstResumedAt: isoTime(pause.firstResumedAt),
    ...(pause.payloadSchema === null ? {} : { payloadSchema: JSON.parse(pause.payloadSchema) }),
  };
}

/**
 * A copy of a log line for callers, with its data as stored JSON. If lines were dropped, the first kept line becomes the
 * line that reports how many.
 */
export function toLogText({ lineCount }: KeptRun, { writtenAt, ...kept }: NewLogEntry, isFirst: boolean): LogText {
  const line = { ...kept, timestamp: isoTime(writtenAt) };
  return isFirst && lineCount > MAX_LOG_LINES ? droppedLines(line, lineCount - MAX_LOG_LINES) : line;
}
