import { deadlineFailure, type Failure } from "../../model/failure.ts";
import type { JsonText } from "../../values/json.ts";
import { fitLine, MAX_LOG_LINES, type NewLogEntry } from "../../model/log.ts";
import type { Lease } from "../../model/lease.ts";
import type { MessageRecord, Receive } from "../../model/message.ts";
import type { RunStatus } from "../../model/run.ts";
import type { StepRecord } from "../../model/step.ts";
import type { Chunk } from "../../model/stream.ts";
import type { CopiedHistory, HoldRecord } from "../../store/hold_record.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { Interruption } from "../../store/operator_reads.ts";
import type { OriginText } from "../../model/origin.ts";
import type { UndoingRun } from "../end_runs.ts";
import { aloneQueue, queueName } from "../queue_name.ts";
import { deadlineAt, type PauseRecord } from "../../model/wait.ts";

/** A run in a memory store, with its history. It never leaves the store: callers receive copies. */
export interface KeptRun extends Omit<NewRun, "retriggerOf"> {
  /** The run after which it cleans up. */
  endOf: string | null;
  /** The run of which it is a retry. */
  retriggerOf: string | null;
  /** Whether another run has its idempotency key now. It still shows the key. */
  isKeyTaken: boolean;
  /** Its newest retry. */
  retriggeredAs: string | null;
  /** The first of its retries, or of theirs, that completed. */
  completedAs: string | null;
  /** The first run of its chain of retries from the failure. */
  originId: string;
  /** Its end runs that were deleted. */
  deletedEnds: readonly UndoingRun[];
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
  /** When it becomes due, if its start is delayed; `null`: it is due, and stays so even if the clock is set back. */
  dueAt: number | null;
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
  /** How often its worker held no other run then. */
  abandonmentsAlone: number;
  /** Whether it is claimed alone. */
  isClaimedAlone: boolean;
  /** The request that cancelled it, and who sent it. */
  cancelRequest: string | null;
  /** The position of the last record. */
  lastRecordedNo: number;
  /** What that was when the run last parked. */
  parkedNo: number;
  /** The recorded steps, by name. */
  steps: Map<string, KeptStep>;
  /** The run that waits for it, and the pause; `null`: it is no child. */
  parent: { run: KeptRun; pause: KeptPause } | null;
  /** How many parents it has above it. */
  depth: number;
  /** The pauses that it is a child of: also those of retries of its parent. */
  memberships: KeptChild[];
  /** The waits, sleeps, pauses on children, receives and patches, in the order in which they were prepared. */
  pauses: KeptPause[];
  /** The chunks of its streams, by the name of the stream: `items` is `null` if one is void. */
  streams: Map<string, KeptChunk[]>;
  /** The messages that were sent to it, by id, in the order in which they were accepted. */
  messages: Map<string, KeptMessage>;
  /** The log lines by id, in the order in which they were added. */
  logs: Map<string, NewLogEntry>;
  /** The number of lines, including dropped ones. */
  lineCount: number;
}

/** A chunk of a stream. */
export interface KeptChunk extends Omit<Chunk, "stream" | "items" | "isPermanent"> {
  /** The items; `null` if it is void. */
  items: JsonText | null;
  /** That of the lease under which it was written; `null` if it is permanent. */
  generation: number | null;
  /** When it was committed. */
  at: number;
}

/** The hold of a run. */
export interface KeptHold extends Pick<HoldRecord, "code" | "message" | "details"> {
  /** Since when it is held. */
  since: number;
}

/** What a waiting run waits for. */
interface Parking {
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
  pastAttempts: readonly KeptAttempt[];
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

/** A message that was sent to a run. */
export interface KeptMessage extends MessageRecord {
  /** Its value, as it was given. */
  payload: JsonText;
  /** The trace of its sending. */
  trace: OriginText | null;
  /** The receive that took it; `null`: it is unread. */
  takenBy: KeptPause | null;
}

/** A wait, a sleep, a pause on children, a receive or a patch. A patch is never resolved. */
export interface KeptPause
  extends Omit<PauseRecord, "resolution" | "childCount" | "childTotal" | "child" | "firstResumedAt" | "messages"> {
  /** Its children, in the order of their numbers; `null` for a wait or a sleep. */
  children: { total: number; unfinished: number; members: KeptChild[] } | null;
  /** What it takes, if it is a receive. */
  receive: Receive | null;
  /** The messages that it took. */
  taken: readonly KeptMessage[];
  /** Whether it has closed the inbox of its run. */
  hasClosedInbox: boolean;
  /** The order in which it was prepared, among the pauses of all runs. */
  seq: number;
  /** The JSON schema of the payload that it asks for; `null`: it is not known. */
  payloadSchema: JsonText | null;
  /** When the run first paused on it. */
  suspendedAt: number | null;
  /** When the run first resumed after it was resolved. */
  firstResumedAt: number | null;
  /** The trace of its signal, or of the first message that it took. */
  trace: OriginText | null;
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
    dueAt: startAt !== null && startAt > now ? startAt : null,
    endOf: null,
    retriggerOf: request.retriggerOf?.runId ?? null,
    isKeyTaken: false,
    retriggeredAs: null,
    completedAs: null,
    originId: request.id,
    deletedEnds: [],
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
    abandonmentsAlone: 0,
    isClaimedAlone: false,
    cancelRequest: null,
    lastRecordedNo: 0,
    parkedNo: 0,
    steps: new Map(),
    parent: null,
    depth: 0,
    memberships: [],
    pauses: [],
    streams: new Map(),
    messages: new Map(),
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
export function queueOf({ jobName, version, offeredTo, isClaimedAlone }: KeptRun): string {
  if (isClaimedAlone) return aloneQueue(queueName(jobName, version));
  return queueName(jobName, version, offeredTo ?? undefined);
}

/** The prints of the code that has held a run since its last record. */
export function triedPrints({ tried: { prints, recordedNo }, lastRecordedNo }: KeptRun): readonly string[] {
  return recordedNo === lastRecordedNo ? prints : [];
}

/**
 * Whether a lease was the last one of a run.
 *
 * @param later How often the generation was raised since.
 */
export function hadLease(run: KeptRun, { generation, claimId }: Lease, later = 0): boolean {
  return run.generation === generation + later && run.claimId === claimId;
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

/** From when on a run could be claimed: its trigger, or the end of its delay. */
export function dueFrom({ createdAt, startAt }: Pick<KeptRun, "createdAt" | "startAt">): number {
  return Math.max(createdAt, startAt ?? createdAt);
}

/** Recorded steps in the order of their index. */
export function byIndex(steps: ReadonlyMap<string, KeptStep>): KeptStep[] {
  return [...steps.values()].sort((left, right) => left.index - right.index);
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

/** Why a run that is not under a lease fails now: it missed the deadline for its start or for its end, or `null`. */
export function missedDeadline(run: KeptRun, now: number): Failure | null {
  const { startWithin, finishWithin } = run.flow;
  if (startWithin !== null && (openStartBy(run) ?? Infinity) <= now) return deadlineFailure("expired", startWithin);
  if (finishWithin !== null && (finishBy(run) ?? Infinity) <= now) return deadlineFailure("timeout", finishWithin);
  return null;
}

/** When a run that is not under a lease fails, unless it starts or ends before; `null`: it has no deadline. */
export function nextDeadline(run: KeptRun): number | null {
  return earliest([openStartBy(run), finishBy(run)]);
}

function openStartBy(run: KeptRun): number | null {
  return run.startedAt === null ? startBy(run) : null;
}
