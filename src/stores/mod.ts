/**
 * What an implementation of `Store` needs, and a user of the stores of this package does not: the requests and results
 * of its methods, and the rules that all stores share.
 *
 * ```ts ignore
 * import { LeaseLostError, type Lease, type Report, stepFacts, type Store, type StepWrite } from "@holdfast/jobs/store";
 *
 * class MyStore implements Store {
 *   async saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]) { ... }
 *   ...
 * }
 * ```
 *
 * The comments of {@linkcode Store} say what a store promises, and `storeContract()` of `@holdfast/jobs/testing/store`
 * tests it. The source of `MemoryStore` is the shortest example.
 *
 * @module
 */

export type * from "../store/store.ts";
export type * from "../store/blockers.ts";
export type * from "../store/claim.ts";
export type * from "../store/hold_record.ts";
export type * from "../store/operate.ts";
export type * from "../store/new_run.ts";
export type * from "../store/operator_reads.ts";
export type * from "../store/pause_request.ts";
export type * from "../store/run_query.ts";
export type * from "../store/schedule_record.ts";
export type * from "../store/send_request.ts";
export type * from "../store/transaction.ts";

// What the methods take and return.
export type { EndedPause } from "../model/around.ts";
export type { Report } from "../model/execution_report.ts";
export type { Fact, FactValue, FactValueRef } from "../model/fact.ts";
export type { Failure, FailureKind } from "../model/failure.ts";
export type { Flow, KnownJob, Rate } from "../model/flow.ts";
export type { Held, HoldCode, HoldDetails, RecordName, StrandedJob } from "../model/hold.ts";
export type { Host } from "../model/host.ts";
export type { Cursor, JournalPage, JournalRow } from "../model/journal.ts";
export type { Json, JsonText, LargeText, Stored, StoredValue } from "../values/json.ts";
export type { Lease, SeenLease } from "../model/lease.ts";
export type { LogEntry, LogLevel, LogText, NewLogEntry } from "../model/log.ts";
export type { Inbox, Message, MessageRecord, MessageText, Receive } from "../model/message.ts";
export type {
  Coalesce,
  Disposition,
  Labels,
  ListFilter,
  Progress,
  Retention,
  RetriggerFrom,
  Run,
  RunFilter,
  RunIdentity,
  RunPage,
  RunStatus,
  RunText,
  StoredRun,
  TerminalStatus,
} from "../model/run.ts";
export type {
  ExecutingStep,
  RetryTime,
  SavedStep,
  Step,
  StepRecord,
  StepStatus,
  StepText,
  StepWrite,
} from "../model/step.ts";
export type { Chunk, StreamInfo, StreamPlace } from "../model/stream.ts";
export type { OriginText } from "../model/origin.ts";
export type { DataSource } from "../model/data_source.ts";
export type {
  ChildResult,
  Deadline,
  PauseKind,
  PauseRecord,
  ResumedPause,
  Signal,
  SignalOutcome,
  SignalReceipt,
  Wait,
  WaitResult,
  WaitStatus,
  WaitText,
} from "../model/wait.ts";

// What the methods throw.
export {
  ConflictError,
  HoldfastError,
  LeaseLostError,
  NotFoundError,
  StoreError,
  WaitExpiredError,
  WorkError,
} from "../model/error.ts";
export { StoreClosedError } from "../model/store_closed_error.ts";

// Rules of the model.
export {
  describeTarget,
  isSameMessage,
  MAX_MESSAGES,
  messageIdError,
  messageStatus,
  runEndedError,
  tooManyMessagesError,
} from "../model/message.ts";
export { deadlineFailure } from "../model/failure.ts";
export { latestProgress } from "../model/execution_report.ts";
export { actorOf, withActor } from "../model/origin.ts";
export { coalescedFacts, factBy, failedFact, stepFacts, toFact, triggeredFact } from "../model/fact.ts";
export { failureText } from "../model/failure.ts";
export { endRunId, type NewEnd, undoName, undoneSteps } from "../model/end.ts";
export { positionOf } from "../model/flow.ts";
export { systemHost } from "../model/host.ts";
export { isoTime } from "../values/iso_time.ts";
export { droppedLines, fitLine, MAX_LOG_LINES, parseLog } from "../model/log.ts";
export { noRuns } from "../statistics/no_runs.ts";
export { DEFAULT_RUN_LIMIT, isTerminal, matches, parseRun } from "../model/run.ts";
export { parseStep, retryTime, startedAt, stepId } from "../model/step.ts";
export { deadlineAt, MAX_COUNTED_WAITS, nextDeadlineInMs, parseWait } from "../model/wait.ts";

// Rules that stores share.
export { countsByNewestRetry, countsForKey } from "./idempotency.ts";
export {
  cleaningMessage,
  type EndedRun,
  endRunIdOf,
  orphanMessage,
  retriedMessage,
  toEndRun,
  toOnEnd,
  undoersOf,
  type UndoingRun,
} from "./end_runs.ts";
export {
  abandonedFailure,
  ALONE_FROM,
  aloneDelayMs,
  DELETED_RUNS_KNOWN_MS,
  END_LEAD,
  HEAD_START,
  LISTED_LEASES,
  MAX_CHUNKS_READ,
  MAX_COUNTED_HELD,
  MAX_HOLDERS,
  MAX_OFFERS,
  MAX_PURGED_STREAMS,
  MAX_TIMERS,
  STARTS_KEPT_MS,
} from "./rules.ts";
export { MAX_FAILURES } from "./operate/timeline_rows.ts";
export { aloneQueue, isAloneQueue, queueName } from "./queue_name.ts";
export { slotAt, STATISTICS_SPANS } from "./operate/numbers.ts";
