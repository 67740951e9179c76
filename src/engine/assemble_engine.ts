import { AsyncLocalStorage } from "node:async_hooks";
import { AroundHooks } from "../model/around.ts";
import { StoreError } from "../model/error.ts";
import { systemHost } from "../model/host.ts";
import { publishEndTriggers } from "./runs/end_triggers.ts";
import type { Job } from "../model/job.ts";
import { JobCatalog } from "../model/job/job_catalog.ts";
import { checkPayload } from "./runs/check_payload.ts";
import type { Schema } from "../model/schema.ts";
import { measuredStore } from "../statistics/measured_store.ts";
import { Recorder } from "../statistics/recorder.ts";
import { debuggedStore, readDebugVariable } from "./debugged_store.ts";
import { BulkOperations } from "./bulk/bulk_operations.ts";
import {
  checkEngineOptions,
  checkSchedules,
  type EngineOptions,
  readDataSources,
  readRetention,
} from "./engine_options.ts";
import { Lifecycle } from "./lifecycle.ts";
import type { Jobs } from "./job_handle.ts";
import { HeldRuns } from "./runs/held_runs.ts";
import { RunChanges } from "./runs/run_changes.ts";
import { RunReader } from "./runs/run_reader.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import { ChangeWatch } from "../events/change_watch.ts";
import { Hub } from "../events/hub.ts";
import type { EngineInternals } from "./engine_internals.ts";
import { toFailure } from "../model/failure/to_failure.ts";
import { describeFailedRun, failureReport } from "../model/failure.ts";
import { type Logger, toLogger, warnOnce } from "../model/logger.ts";
import { checkSignal, type Signal, type SignalReceipt } from "../model/wait.ts";
import { describeUnread, Messages } from "./messages.ts";
import { JobPauses } from "./job_pauses.ts";
import { OutageLog } from "./outage_log.ts";
import { isInstance } from "../values/is_instance.ts";
import { Monitor } from "./operate/statistics/monitor.ts";
import { Operator } from "./operate/operator.ts";
import type { SchemaLabels } from "./triggers/new_run.ts";
import { Scheduler } from "./schedules/scheduler.ts";
import { ScheduleRegistry } from "./schedules/schedule_registry.ts";
import { watchStrandedJobs } from "./runs/stranded_jobs.ts";
import { shortestOf } from "./runs/purge_loop.ts";
import { currentWait } from "./runs/current_wait.ts";
import { Relay } from "./transactions/relay.ts";
import { runSweeps, sweepAll } from "./transactions/sweep.ts";
import { EngineTransactions } from "./transactions/transactions.ts";
import { Triggers } from "./triggers/triggers.ts";
import type { Surroundings } from "../execution/surroundings.ts";
import { workerSettings } from "../execution/worker_settings.ts";

const DEFAULT_MAX_VALUE_BYTES = 1_048_576;
const DEFAULT_MAX_STREAM_BYTES = 16_777_216;

/** The parts of an engine. */
export interface EngineParts<L> {
  /** What all executions share: the store, the hub, the host and the settings. Calls to this store are measured. */
  deps: ExecutionDeps;
  /** Reads runs for those who wait for them. */
  reader: RunReader;
  /** Adds runs. */
  triggers: Triggers;
  /** Makes transactions. */
  transactions: EngineTransactions;
  /** The schedules of the store. */
  schedules: ScheduleRegistry<L>;
  /** Cancels, deletes and signals runs. */
  runs: RunChanges;
  /** Does `Engine.signal()`. */
  signal: (waitId: string, signal: Signal, by: string | null) => Promise<SignalReceipt>;
  /** Sends messages to runs. */
  messages: Messages;
  /** Cancels, retriggers and deletes many runs. */
  bulk: BulkOperations;
  /** Resumes held runs. */
  heldRuns: HeldRuns;
  /** Pauses jobs. */
  pauses: JobPauses;
  /** Reads the numbers of the store. */
  operator: Operator;
  /** Says whether the process works. */
  monitor: Monitor;
  /** Creates the tables, and starts and stops the worker, the schedules and the upkeep. */
  lifecycle: Lifecycle;
  /** What other parts of this package need. */
  internals: EngineInternals;
}

/**
 * Checks the options of an engine, makes its parts, and gives each what it needs of the others.
 *
 * @throws {TypeError} See {@linkcode createEngine}.
 * @throws {RangeError} See {@linkcode createEngine}.
 */
export function assembleEngine<J extends Jobs, L>(
  options: EngineOptions<J, L>,
  surroundings: Surroundings,
): EngineParts<L> {
  checkEngineOptions(options);
  const host = options.host ?? systemHost;
  const logger = toLogger(options.logger);
  const hub = new Hub(host, logger);
  const outages = new OutageLog(logger, host);
  logFailures(hub, logger, outages);
  const around = new AroundHooks((error) => hub.publishError(error));
  const recorder: Recorder = new Recorder(() => {
    if (surroundings.polls) monitor.noteRecord(); // else they are written by a stop
  });
  hub.observe((jobName, happening) => recorder.observe(jobName, happening));
  const debugged = debuggedStore(options.store, readDebugVariable());
  const onAnswer = () => outages.noteAnswer();
  const { store, condition: storeCondition } = measuredStore(debugged, recorder.metrics, host, onAnswer);
  const jobs = new JobCatalog(Object.values(options.jobs), options);
  const maxValueBytes = options.maxValueBytes ?? DEFAULT_MAX_VALUE_BYTES;
  const triggers = new Triggers({
    store,
    hub,
    host,
    jobs,
    labels: options.labels as Schema<unknown, SchemaLabels> | undefined, // receives unchecked labels
    fairnessLabel: options.fairnessLabel ?? null,
    maxValueBytes,
    around,
    recorder,
  });
  const sources = readDataSources(options.dataSources ?? {});
  const warn = warnOnce(logger);
  const transactions = new EngineTransactions({
    store,
    given: options.store,
    sources,
    host,
    around,
    maxValueBytes,
    warn,
    triggers,
    checkPayload: (found, signal) => checkPayload(found.wait, signal, { jobs, findRun: () => found, host }),
    runs: () => runs,
    relay: () => relay,
  });
  const settings = workerSettings(options.worker);
  const deps: ExecutionDeps = {
    store,
    hub,
    host,
    currentStep: new AsyncLocalStorage(),
    maxValueBytes,
    maxStreamBytes: options.maxStreamBytes ?? DEFAULT_MAX_STREAM_BYTES,
    storesStacks: options.errors?.stack ?? true,
    runs: {
      // Inherited labels were checked by the first trigger.
      create: (job, input, options) => triggers.requestChecked(job, input, options),
      add: (run) => triggers.addFromStep(run),
    },
    messages: { send: (to, name, payload, id) => messages.sendFromStep(to, name, payload, id) },
    onDivergence: options.onDivergence ?? "hold",
    recorder,
    warn,
    around,
    surroundings,
    transactions,
  };
  const declared = checkSchedules(options.schedules ?? {}, jobs, maxValueBytes);
  const watch = new ChangeWatch(options.store, deps);
  const scheduler = new Scheduler({
    ...deps,
    watch,
    findJob: (name) => jobs.find(name)?.job,
    declared: new Map(declared.map(({ name, inputOf }) => [name, inputOf])),
    requestRun: (job, input, options) => triggers.request(job, input, options),
    publishTrigger: (enqueued, request) => void triggers.publish(enqueued, request),
  });
  const schedules = new ScheduleRegistry<L>({
    store,
    host,
    declared,
    maxValueBytes,
    triggers,
    onChange: () => scheduler.wake(),
  });
  const operator = new Operator({ catalog: jobs, store, host });
  const monitor: Monitor = new Monitor({
    operator,
    recorder,
    store,
    host,
    storeCondition,
    lookAtEngine: () => lifecycle.condition,
    slots: () => lifecycle.worker.slots,
    inBackground: (work) => lifecycle.inBackground(work),
  });
  const retention = readRetention(options.retention ?? {});
  const sweepDeps = {
    ...deps,
    sources: transactions.unjoined,
    storeId: () => transactions.storeId(),
    shortestRetentionMs: shortestOf(retention),
  };
  const lifecycle: Lifecycle = new Lifecycle({
    jobs,
    settings,
    watch,
    retention,
    migrateSources: () => transactions.migrate(),
    relay: (abortSignal) => relay.run(abortSignal),
    relayDue: (abortSignal) => relay.relayDue(abortSignal),
    stuckRows: () => relay.stuck,
    sweep: (abortSignal) => runSweeps(sweepDeps, abortSignal),
    sweepDue: (abortSignal) => sweepAll(sweepDeps, abortSignal),
    declareSchedules: () => schedules.declare(),
    scheduler,
    watchStranded: (abortSignal) => watchStrandedJobs({ ...deps, logger }, abortSignal),
    monitor,
  }, deps);
  const onResume = () => lifecycle.worker.wake();
  const pauses = new JobPauses({ jobs, store, hub, operator, onResume });
  const heldRuns = new HeldRuns({ store, hub, onResume });
  const runs: RunChanges = new RunChanges({ ...deps, worker: () => lifecycle.worker });
  const findRun = async (runId: string) => (await store.readRuns([runId], Infinity))[0] ?? null;
  const checkStored: EngineInternals["checkPayload"] = async (wait, signal) =>
    await checkPayload(wait, signal, { jobs, findRun, host });
  const signal: EngineParts<L>["signal"] = async (waitId, given, by) => {
    const checked = checkSignal(given, maxValueBytes);
    const found = await store.getWait(waitId);
    const wait = found === null ? null : await currentWait(store, found);
    if (wait !== null) await checkStored(wait, checked);
    return await runs.signal(wait?.id ?? waitId, checked, by);
  };
  const relay: Relay = new Relay({
    store,
    host,
    hub,
    sources,
    jobs: [...jobs.newest.values()].flatMap(({ name, changes: { aliases } }) => [name, ...aliases]),
    storeId: () => transactions.storeId(),
    intervalMs: settings.pollingInterval,
    triggers,
    signal,
  });
  const messages: Messages = new Messages({ ...deps, jobs, triggers, worker: () => lifecycle.worker });
  logUnread(deps, jobs, { logger, inBackground: (work) => lifecycle.inBackground(work) });
  const bulk = new BulkOperations({ store, host, runs, triggers, heldRuns });
  publishEndTriggers({ hub, jobs, store, recorder });
  const internals: EngineInternals = {
    reader: lifecycle.reader,
    items: lifecycle.streams,
    host,
    store,
    retention,
    jobs: () => jobs.newest.values(),
    isStopped: () => lifecycle.isStopped,
    onStop: (listener) => lifecycle.onStop(listener),
    wake: () => {
      lifecycle.worker.wake();
      scheduler.wake();
    },
    runsInOwnCode: () => lifecycle.worker.runsInOwnCode(),
    discard: () => lifecycle.discard(),
    trigger: (jobName, input, options, guard) => triggers.trigger(jobName, input, options, guard),
    cancel: (runId, by) => runs.cancel(runId, by),
    checkPayload: checkStored,
    signal: async (waitId, signal, by) => await runs.signal(waitId, checkSignal(signal, deps.maxValueBytes), by),
    messages,
    performBulk: (operation, selection, options, guard) => bulk.perform(operation, selection, options, guard),
    outages,
    plugins: new Set(),
    liveness: () => monitor.liveness(),
    metrics: () => monitor.metrics(),
  };
  return {
    deps,
    reader: new RunReader(store),
    triggers,
    transactions,
    schedules,
    runs,
    signal,
    messages,
    bulk,
    heldRuns,
    pauses,
    operator,
    monitor,
    lifecycle,
    internals,
  };
}

/** Logs how many messages the runs that end in this process leave unread, of the jobs that take messages. */
function logUnread(
  deps: Pick<ExecutionDeps, "store" | "hub">,
  jobs: JobCatalog,
  { logger, inBackground }: { logger: Logger; inBackground: (work: Promise<unknown>) => void },
): void {
  // Who takes no messages does not pay for events that nobody else hears.
  if (![...jobs.newest.values()].some(takesMessages)) return;
  const look = async (id: string) => {
    const unread = await describeUnread(deps, id);
    if (unread !== null) logger.warn(unread);
  };
  const onEnd = ({ runId, jobName }: { runId: string; jobName: string }) => {
    const found = jobs.find(jobName);
    if (found !== undefined && takesMessages(found.job)) inBackground(look(runId));
  };
  deps.hub.on("run:complete", onEnd);
  deps.hub.on("run:fail", onEnd);
  deps.hub.on("run:cancel", onEnd);
}

function takesMessages({ messages }: Job): boolean {
  return Object.keys(messages).length > 0;
}

/** Logs the runs that fail or are held in this process, and the errors of the engine itself. */
function logFailures(hub: Hub, logger: Logger, outages: OutageLog): void {
  hub.on("run:fail", ({ runId, jobName, failedStepName: stepName, error, ...event }) => {
    const why = "thrown" in event ? failureReport(toFailure(event.thrown)) : error;
    logger.error(`${describeFailedRun({ runId, jobName, stepName })}: ${why}`);
  });
  hub.on("run:hold", ({ runId, jobName, message }) => {
    logger.warn(`Run "${runId}" of job "${jobName}" does not go on. ${message}`);
  });
  hub.on("worker:error", ({ error }) => {
    if (isInstance(error, StoreError) && error.code === "unavailable") return outages.noteFailure(error);
    logger.error(`The engine continues after an error: ${failureReport(toFailure(error))}`);
  });
}
