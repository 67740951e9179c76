/**
 * Durable jobs: plain functions whose steps are recorded, so that a run goes on after its last completed step when
 * its process has died.
 *
 * @example
 * ```ts
 * import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   async run(step, input) {
 *     const text = await step.run("compose", () => `Hello, ${input.name}!`);
 *     await step.run("deliver", () => console.log(text));
 *     return { text };
 *   },
 * });
 *
 * await using store = await SqliteStore.open(":memory:");
 * await using engine = createEngine({ store, jobs: { greet } });
 * await engine.start();
 * const run = await engine.jobs.greet.triggerAndWait({ name: "Ada" });
 * console.log(run.output.text);
 * ```
 *
 * @module
 */

export type {
  Around,
  AroundFunction,
  EndedPause,
  ExecutionInfo,
  ExecutionOutcome,
  SendEnd,
  SendInfo,
  SignalInfo,
  SignalResult,
  StepInfo,
  StepOutcome,
  TriggerInfo,
  TriggerOutcome,
} from "./src/model/around.ts";
export { createEngine } from "./src/engine/create_engine.ts";
export type {
  BulkFilter,
  BulkOptions,
  BulkResumeOptions,
  BulkRetriggerOptions,
  BulkSelection,
} from "./src/engine/bulk/bulk_selection.ts";
export type { ResumeAllOptions } from "./src/engine/bulk/bulk_operations.ts";
export type { BulkResult, SkippedRun } from "./src/engine/bulk/perform_bulk.ts";
export type { BatchItem, CompletedRun, JobHandle, JobHandles, Jobs } from "./src/engine/job_handle.ts";
export type { DeclaredSchedule, EngineOptions, RetentionOptions } from "./src/engine/engine_options.ts";
export type { Engine } from "./src/engine/engine.ts";
export type { IdleOptions } from "./src/engine/lifecycle.ts";
export {
  collect,
  type Collector,
  type CollectorDefinition,
  defineCollector,
  type Taking,
} from "./src/engine/collector.ts";
export type { AskOptions, SendOptions, StartOptions } from "./src/engine/messages.ts";
export type { ResumeOptions } from "./src/engine/runs/run_changes.ts";
export type { RetriggerOptions } from "./src/engine/triggers/triggers.ts";
export type { WaitOptions } from "./src/engine/runs/wait_for_run.ts";
export type { ExportHistoryOptions, RedactedValue } from "./src/engine/runs/export_history.ts";
export { persistLogs } from "./src/engine/plugin.ts";
export type { PauseJobOptions } from "./src/engine/job_pauses.ts";
export type { ChildCounts, Children, ChildrenQuery, ChildRun } from "./src/model/children.ts";
export type { Explanation } from "./src/engine/operate/explanation.ts";
export type { Reason, WorkerRef } from "./src/engine/operate/reason.ts";
export type { FailureGroup, FailureGroups, FailuresQuery } from "./src/engine/operate/run_groups.ts";
export type { HeldGroup, HeldGroups, HeldRunsQuery } from "./src/engine/operate/run_groups.ts";
export type { FoundRun } from "./src/engine/operate/found_runs.ts";
export type { OpenWait, OpenWaitsPage, OpenWaitsQuery } from "./src/engine/operate/open_waits.ts";
export type { Timeline, TimelineOptions, TimelineRow, TimelineSpan } from "./src/engine/operate/timeline.ts";
export type { Health, HealthCheck, HealthStatus } from "./src/engine/operate/health.ts";
export type { HeldInfo, JobInfo, JobLimitsInfo } from "./src/engine/operate/job_info.ts";
export type { Stats } from "./src/engine/operate/operator.ts";
export type { Rates, Windows } from "./src/engine/operate/statistics/recent_statistics.ts";
export type { Sampled, Series, SeriesQuery } from "./src/engine/operate/statistics/series.ts";
export type { WorkerInfo, WorkerState } from "./src/engine/operate/worker_info.ts";
export type { Latency } from "./src/statistics/latencies.ts";
export type { FlowOptions, TriggerKeys } from "./src/engine/triggers/trigger_flow.ts";
export type { Logger } from "./src/model/logger.ts";
export type { Plugin, PluginContext } from "./src/engine/plugin.ts";
export { shutdownOnSignal, type ShutdownOptions, type StoppableServer } from "./src/engine/shutdown_on_signal.ts";
export type { Listen, Listener } from "./src/events/hub.ts";
export type { SchemaLabels, TriggerOptions, TriggerResult } from "./src/engine/triggers/new_run.ts";
export type { TransactionResult } from "./src/engine/transactions/transactions.ts";
export type { PurgeOptions } from "./src/engine/runs/purge_loop.ts";
export type { Schedule } from "./src/engine/schedules/schedule.ts";
export type {
  CatchUp,
  DeclaredScheduleOptions,
  Overlap,
  ScheduledTriggerOptions,
  ScheduleOptions,
  ScheduleTiming,
} from "./src/engine/schedules/schedule_options.ts";
export type { Schedules } from "./src/engine/schedules/schedule_registry.ts";
export type { WorkerOptions } from "./src/execution/worker_settings.ts";
export * from "./src/model/error.ts";
export type {
  EngineEvent,
  EventOf,
  EventType,
  JobEvent,
  JobHappening,
  RunEvent,
  RunEventBase,
  RunHappening,
  ScheduleSkip,
  ScheduleSkipEvent,
  WorkerErrorEvent,
  WorkerStrandedEvent,
} from "./src/model/event.ts";
export type {
  ChildHistory,
  ChildrenHistory,
  ExportedHistory,
  HistoryFailure,
  HistoryMessage,
  HistoryName,
  HistoryRecord,
  PatchHistory,
  PauseHistory,
  ReceiveHistory,
  StepHistory,
} from "./src/model/exported_history.ts";
export type { Failure, FailureKind } from "./src/model/failure.ts";
export type { FlowDefinition, JobFlow, JobLimits, KeyLimits, Rate, RateLimit } from "./src/model/flow.ts";
export { type Host, systemHost } from "./src/model/host.ts";
export type {
  HandlerAuth,
  OpenPart,
  Operation,
  RequestedMessage,
  RequestedOperation,
  RequestedTrigger,
  RunOperation,
  SeenLink,
} from "./src/http/access/auth_hooks.ts";
export type { IdleResult } from "./src/engine/lifecycle.ts";
export { createHandler, type Handler } from "./src/http/handler.ts";
export type {
  HandlerLimits,
  HandlerLinks,
  HandlerMcp,
  HandlerOptions,
  HandlerUi,
  McpCall,
  McpRoute,
} from "./src/http/handler_options.ts";
export { notFound } from "./src/http/response.ts";
export type { Respond } from "./src/http/route.ts";
export type { RouteFunctions } from "./src/http/routes.ts";
export type { OpenStream } from "./src/http/streams/streams.ts";
export type { Job, JobEnd, JobInput, JobOutput, StepContext } from "./src/model/job.ts";
export { defineJob, type EndDefinition, type JobDefinition } from "./src/model/job/define_job.ts";
export type {
  ChildOutcome,
  InvokeItem,
  InvokeOptions,
  PayloadOptions,
  PreparedWait,
  ScheduleSlot,
  StepLog,
  StepOptions,
  StepTools,
  StepTriggerOptions,
  StepTriggerResult,
  WaitForSignalOptions,
} from "./src/model/job/step_calls.ts";
export type { EndContext, NewEnd, UndoOptions, UndoTools } from "./src/model/end.ts";
export type { ChangeDefinition, Changes, JobChanges, StoredInput } from "./src/model/job/job_changes.ts";
export type {
  JobMessage,
  KeyedRun,
  MessageSchemas,
  NoMessages,
  ReceiveOptions,
  ReceiveResult,
} from "./src/model/job/job_messages.ts";
export type {
  CloseInbox,
  Message,
  MessageStatus,
  ReceivedMessage,
  SendResult,
  SentMessage,
} from "./src/model/message.ts";
export type { Duration } from "./src/values/duration.ts";
export type { RetryPolicy } from "./src/model/retry.ts";
export type { Json, Jsonify, JsonifyItem, JsonText, MethodOf, NotJson } from "./src/values/json.ts";
export type { Held, HoldCode, OnDivergence, RecordName, StrandedJob } from "./src/model/hold.ts";
export type { LogEntry, LogLevel, NewLogEntry } from "./src/model/log.ts";
export { type ClientRun, toClientRun } from "./src/model/client_run.ts";
export type {
  BulkOperation,
  Coalesce,
  Disposition,
  IdempotencyUntil,
  Labels,
  ListFilter,
  Progress,
  Retention,
  RetriggerFrom,
  Run,
  RunFilter,
  RunPage,
  RunStatus,
  TerminalStatus,
  UncountedPage,
} from "./src/model/run.ts";
export type { Schema, SchemaInput, SchemaIssue, SchemaOutput, SchemaResult, Schemas } from "./src/model/schema.ts";
export { type ClientStep, type Step, type StepStatus, toClientStep } from "./src/model/step.ts";
export {
  defineStream,
  type ReadStreamOptions,
  type Stream,
  type StreamInfo,
  type StreamPart,
  type StreamWriter,
} from "./src/model/stream.ts";
export type { Store } from "./src/store/store.ts";
export type { Counts, JobPause, StoreInfo, WorkerDetails } from "./src/store/operate.ts";
export type { FoundBy } from "./src/store/operator_reads.ts";
export { MemoryStore } from "./src/stores/memory/memory_store.ts";
export { SqliteStore, type SqliteStoreOptions } from "./src/stores/sqlite/sqlite_store.ts";
export type { SqliteDriver, SqliteDriverStatement } from "./src/stores/sqlite/sqlite_database.ts";
export type { SqliteValue } from "./src/stores/sqlite/statement.ts";
export type { SqliteParameter, SqliteTransaction } from "./src/stores/sqlite/transactions/sqlite_transaction.ts";
export type { DataSource, StepTransactionOptions, TransactionOptions } from "./src/model/data_source.ts";
export type {
  AsyncTransactionCalls,
  TransactionCalls,
  TransactionMessage,
  TransactionSendOptions,
  TransactionTrigger,
} from "./src/model/transaction.ts";
export type { ActorOptions, TraceContext } from "./src/model/origin.ts";
export { type SqliteDataSource, sqliteDataSource } from "./src/stores/sqlite/transactions/sqlite_data_source.ts";
export type { DataSourceOptions } from "./src/model/data_source.ts";
export type {
  EffectRequest,
  Effects,
  NewEffect,
  NewOutboxRow,
  Outbox,
  OutboxRequest,
  OutboxRow,
  SourceWrites,
  StoredEffect,
  StuckRows,
} from "./src/model/effects.ts";
export type { PauseKind, Signal, SignalReceipt, Wait, WaitResult, WaitStatus } from "./src/model/wait.ts";
