import type { Cursor } from "../../journal.ts";
import { type Failure, failureText } from "../../failure.ts";
import type { Held } from "../../hold.ts";
import { decode, type JsonText } from "../../values/json.ts";
import { droppedLines, fitLine, type LogText, MAX_LOG_LINES, type NewLogEntry } from "../../log.ts";
import { isTerminal, parseRun, type Run, type RunIdentity, type RunStatus, type RunText } from "../../run.ts";
import { retryTime, stepId, type StepRecord, type StepText } from "../../step.ts";
import type { Claim } from "../../store/claim.ts";
import type { CopiedHistory, HoldRecord, RunHistory } from "../../store/hold_record.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { Interruption } from "../../store/timeline_records.ts";
import type { AwaitedPause, RunState } from "../../store/run_state.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { TraceText } from "../../trace_context.ts";
import { firstResumed } from "../first_resumed.ts";
import { queueName } from "../queue_name.ts";
import {
  type ChildResult,
  deadlineAt,
  parseWait,
  type PauseRecord,
  type ResumedPause,
  type Wait,
  type WaitText,
} from "../../wait.ts";

/** A run in a memory store, with its history. It never leaves the store: callers receive copies. */
export interface KeptRun extends Omit<NewRun, "retriggerOf"> {
  /** The run of which it is a retry. */
  retriggerOf: string | null;
  /** Its newest retry. */
  retriggeredAs: string | null;
  /** The first run of its chain of retries from the failure. */
  originId: string;
  /** Its status; `leased` is never used, since a claimed run is `running` at once. */
  status: RunStatus;
  /** What its function returned. */
  output: JsonText | null;
  /** Why it failed. */
  failure: Failure | null;
  /** The step that made it fail. */
  failedStepName: string | null;
  /** The latest stored progress. */
  progress: JsonText | null;
  /**
   * The lease, with the number of the last report under it, whether the run was held before, and when it was given; set
   * exactly while the run is running.
   */
  lease: { owner: string; expiresAt: number; lastReportNo: number; isResumed: boolean; since: number } | null;
  /** The number of the newest lease. */
  generation: number;
  /** The claim that gave the newest lease; `null`: none has. */
  claimId: string | null;
  /** What it waits for; set exactly while the run is waiting. */
  parking: Parking | null;
  /** Its position in the order of the triggers. */
  seq: number;
  /** Not claimed before this instant. */
  startAt: number | null;
  /** Whether it waits for its start. It stays due even if the clock is set back. */
  isDelayed: boolean;
  /** When it was triggered. */
  createdAt: number;
  /** When it last changed. */
  updatedAt: number;
  /** When its function was first called. */
  startedAt: number | null;
  /** When it ended. */
  completedAt: number | null;
  /** Why it is held; `null`: it is not. */
  hold: KeptHold | null;
  /** The print of the code to which it is offered while it is held; `null`: it is not due. */
  offeredTo: string | null;
  /** The prints of the code that held it, and its last record then: they count until there is another one. */
  tried: { prints: readonly string[]; recordedNo: number };
  /** Whether it is never held again. */
  continues: boolean;
  /** What it has as copies; `null`: it is no retry from the failure. */
  copied: CopiedHistory | null;
  /** Its input as parsed by schemas with other prints, by print. */
  inputs: Map<string, JsonText | null>;
  /** The executions that lost their lease without an end. */
  interrupted: Interruption[];
  /** How often an execution was interrupted. */
  interruptions: number;
  /** How often its lease was revoked since the last record. */
  abandonments: number;
  /** The request that cancelled it. */
  cancelledBy: string | null;
  /** The position of the last record. */
  lastRecordedNo: number;
  /** The recorded steps, by name. */
  steps: Map<string, KeptStep>;
  /** The run that waits for it, and the pause; `null`: it is no child. */
  parent: { run: KeptRun; pause: KeptPause } | null;
  /** How many parents it has above it. */
  depth: number;
  /** The pauses that it is a child of: also those of retries of its parent. */
  memberships: KeptChild[];
  /** The waits, sleeps, pauses on children and patches, in the order in which they were prepared. */
  pauses: KeptPause[];
  /** The log lines by id, in the order in which they were added. */
  logs: Map<string, NewLogEntry>;
  /** The number of lines, including dropped ones. */
  lineCount: number;
}

/** The hold of a run. */
export interface KeptHold extends Pick<HoldRecord, "code" | "message" | "details"> {
  /** Since when it is held. */
  since: number;
}

/** What a waiting run waits for. */
export interface Parking {
  /** The pauses that it waits on: the first of them to be over wakes it. */
  awaited: KeptPause[];
  /** When its earliest retry is due. */
  retryAt: number | null;
  /** Whether it is due again. It stays due even if the clock is set back. */
  isWoken: boolean;
  /** When it parked. */
  since: number;
}

/** A recorded step. */
export interface KeptStep extends Omit<StepRecord, "result"> {
  /** How its last attempt ended. */
  result:
    | Exclude<StepRecord["result"], { status: "retrying" }>
    | { status: "retrying"; failure: Failure; retryAt: number }
    | { status: "cancelled"; failure: Failure | null };
  /** When its first recorded attempt began. */
  startedAt: number;
  /** When it ended. */
  completedAt: number | null;
  /** The attempts, if it needed more than one. */
  trail: readonly KeptAttempt[];
}

/** An attempt at a step that needed more than one. */
export interface KeptAttempt {
  /** Its number, from 1. */
  attempt: number;
  /** When it began. */
  startedAt: number;
  /** When it ended. */
  endedAt: number;
  /** When the next one could begin; `null`: none followed. */
  retryAt: number | null;
  /** What it failed of; `null`: it completed. */
  failure: Failure | null;
}

/** A child of a pause. */
export interface KeptChild {
  /** The run, also after it was deleted. */
  child: KeptRun;
  /** The run of the pause. */
  owner: KeptRun;
  /** Whether the child was deleted after the run of the pause had ended. */
  isLost: boolean;
}

/** A wait, a sleep, a pause on children or a patch. A patch is never resolved. */
export interface KeptPause
  extends Omit<PauseRecord, "resolution" | "childCount" | "childTotal" | "child" | "firstResumedAt"> {
  /** Its children, in the order of their numbers; `null` for a wait or a sleep. */
  children: { total: number; unfinished: number; members: KeptChild[] } | null;
  /** The order in which it was prepared, among the pauses of all runs. */
  seq: number;
  /** The JSON schema of the payload that it asks for; `null`: it is not known. */
  payloadSchema: JsonText | null;
  /** When the run first paused on it. */
  suspendedAt: number | null;
  /** When the run first resumed after it was resolved. */
  firstResumedAt: number | null;
  /** The trace of its signal. */
  trace: TraceText | null;
  /** Its status, and when and by what it was resolved. */
  state:
    | { status: "pending" | "cancelled" | "closed" }
    | { status: "resolved"; resolvedAt: number; resolution: NonNullable<PauseRecord["resolution"]> };
}

/** A run without a history. */
export function newKeptRun(request: NewRun, seq: number, now: number): KeptRun {
  const startAt = deadlineAt(request.flow.start, now);
  return {
    ...request,
    aliases: [...request.aliases],
    labels: { ...request.labels },
    flow: {
      ...request.flow,
      start: request.flow.start && { ...request.flow.start },
      keyRate: request.flow.keyRate && { ...request.flow.keyRate },
    },
    startAt,
    isDelayed: startAt !== null && startAt > now,
    retriggerOf: request.retriggerOf?.runId ?? null,
    retriggeredAs: null,
    originId: request.id,
    status: "pending",
    output: null,
    failure: null,
    failedStepName: null,
    progress: null,
    lease: null,
    claimId: null,
    generation: 0,
    parking: null,
    seq,
    createdAt: now,
    updatedAt: now,
    startedAt: null,
    completedAt: null,
    hold: null,
    offeredTo: null,
    tried: { prints: [], recordedNo: 0 },
    continues: false,
    copied: null,
    inputs: new Map(),
    interrupted: [],
    interruptions: 0,
    abandonments: 0,
    cancelledBy: null,
    lastRecordedNo: 0,
    steps: new Map(),
    parent: null,
    depth: 0,
    memberships: [],
    pauses: [],
    logs: new Map(),
    lineCount: 0,
  };
}

/** When a run fails unless it has started: its `startWithin` counts from its start, or from its trigger if that is later. */
export function startBy({ flow: { startWithin }, startAt, createdAt }: KeptRun): number | null {
  return startWithin === null ? null : Math.max(startAt ?? createdAt, createdAt) + startWithin;
}

/** When a run fails unless it has ended: its `finishWithin` counts from its first claim. */
export function finishBy({ flow: { finishWithin }, startedAt }: KeptRun): number | null {
  return finishWithin === null || startedAt === null ? null : startedAt + finishWithin;
}

/** The queue in which a run waits for a worker. */
export function queueOf({ jobName, version, offeredTo }: KeptRun): string {
  return queueName(jobName, version, offeredTo ?? undefined);
}

/** The prints of the code that has held a run since its last record. */
export function triedPrints({ tried: { prints, recordedNo }, lastRecordedNo }: KeptRun): readonly string[] {
  return recordedNo === lastRecordedNo ? prints : [];
}

/** Increments the record counter of a run: a replay delivers results in this order. */
export function nextRecordedNo(run: KeptRun): number {
  run.lastRecordedNo += 1;
  return run.lastRecordedNo;
}

/** The first of several instants, where `null` means never. */
export function earliest(instants: readonly (number | null)[]): number | null {
  return instants.reduce((first, at) => first === null || (at !== null && at < first) ? at : first, null);
}

/** A copy of a run for callers. */
export function toRun(run: KeptRun): Run {
  return parseRun(toRunText(run));
}

/** A copy of a run for callers, with its values as stored JSON. */
export function toRunText(run: KeptRun): RunText {
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
    retriggerOf: run.retriggerOf,
    retriggeredAs: run.retriggeredAs,
  };
}

function toHeld({ code, message, since }: KeptHold): Held {
  return { code, message, since: isoTime(since) };
}

/** The hold of a run; `null` if it is not held. */
export function toHoldRecord(run: KeptRun): HoldRecord | null {
  if (run.hold === null) return null;
  return { ...toHeld(run.hold), details: structuredClone(run.hold.details), prints: [...triedPrints(run)] };
}

/** A run and its position in the journal. */
export function toRunState(run: KeptRun, place: Cursor): RunState {
  return {
    run: toRun(run),
    seq: run.seq,
    place,
    payload: run.payload,
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
export function toAwaitedPause({ kind, id, name, deadlineAt }: KeptPause): AwaitedPause<number> {
  return { waitId: kind === "wait" ? id : null, name, deadlineAt };
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

/** From when on a run could be claimed: its trigger, or the end of its delay. */
export function dueFrom({ createdAt, startAt }: Pick<KeptRun, "createdAt" | "startAt">): number {
  return Math.max(createdAt, startAt ?? createdAt);
}

/** All that a replay of a run needs. */
export function toHistory(run: KeptRun, now: number): RunHistory {
  const steps = [...run.steps.values()].filter(({ result }) => result.status !== "cancelled");
  return {
    run: toRun(run),
    payload: run.payload,
    input: run.input,
    schemaPrint: run.schemaPrint,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: run.pauses.map(toPauseRecord),
    copied: structuredClone(run.copied),
  };
}

function toStepRecord({ name, index, attempts, result, recordedNo }: KeptStep, now: number): StepRecord {
  if (result.status === "cancelled") throw new TypeError("A replay has no cancelled steps");
  const record = { name, index, attempts, recordedNo };
  if (result.status !== "retrying") return { ...record, result: structuredClone(result) };
  const { status, failure, retryAt } = result;
  return { ...record, result: { status, failure: structuredClone(failure), retry: retryTime(retryAt, now) } };
}

/** Recorded steps in the order of their index. */
export function byIndex(steps: ReadonlyMap<string, KeptStep>): KeptStep[] {
  return [...steps.values()].sort((left, right) => left.index - right.index);
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
    resolution,
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
    outcome: outcome === undefined || outcome === "children" ? null : outcome,
    payload: signal?.payload ?? null,
    signalId: signal?.signalId ?? null,
    createdAt: isoTime(pause.createdAt),
    deadlineAt: isoTime(pause.deadlineAt),
    suspendedAt: isoTime(pause.suspendedAt),
    resolvedAt: isoTime(resolved?.resolvedAt ?? null),
    firstResumedAt: isoTime(pause.firstResumedAt),
  };
}

/**
 * Stores a log line, unless it is stored already. One line more than the maximum is kept: the newest dropped line,
 * whose id and time are used for the line that reports how many were dropped.
 */
export function addLine(run: KeptRun, line: NewLogEntry): boolean {
  if (run.logs.has(line.id)) return false;
  run.logs.set(line.id, { ...fitLine(line) });
  run.lineCount += 1;
  const [oldest] = run.logs.keys();
  if (oldest !== undefined && run.logs.size > MAX_LOG_LINES + 1) run.logs.delete(oldest);
  return true;
}

/**
 * A copy of a log line for callers, with its data as stored JSON. If lines were dropped, the first kept line becomes the
 * line that reports how many.
 */
export function toLogText({ lineCount }: KeptRun, { writtenAt, ...kept }: NewLogEntry, isFirst: boolean): LogText {
  const line = { ...kept, timestamp: isoTime(writtenAt) };
  return isFirst && lineCount > MAX_LOG_LINES ? droppedLines(line, lineCount - MAX_LOG_LINES) : line;
}
