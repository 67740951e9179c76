import { AsyncLocalStorage } from "node:async_hooks";
import { activityListenersOf, ChangeWatch } from "../events/change_watch.ts";
import { Hub } from "../events/hub.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import type { RequestRetry, Surroundings } from "../execution/surroundings.ts";
import { workerSettings } from "../execution/worker_settings.ts";
import { AroundHooks } from "../model/around.ts";
import { systemHost } from "../model/host.ts";
import { JobCatalog } from "../model/job/job_catalog.ts";
import { toLogger, warnOnce } from "../model/logger.ts";
import type { Labels } from "../model/run.ts";
import type { Schema } from "../model/schema.ts";
import { measuredStore } from "../statistics/measured_store.ts";
import { Recorder } from "../statistics/recorder.ts";
import { BulkOperations } from "./bulk/bulk_operations.ts";
import { debuggedStore, readDebugVariable } from "./debugged_store.ts";
import { logFailures, logUnread, OutageLog } from "./engine_log.ts";
import {
  checkEngineOptions,
  checkSchedules,
  type EngineOptions,
  readDataSources,
  readRetention,
} from "./engine_options.ts";
import type { Jobs } from "./job_handle.ts";
import { JobPauses } from "./job_pauses.ts";
import { Lifecycle } from "./lifecycle.ts";
import { Messages } from "./messages.ts";
import { Operator } from "./operate/operator.ts";
import { Monitor } from "./operate/statistics/monitor.ts";
import { RunChanges } from "./runs/run_changes.ts";
import { ScheduleRegistry } from "./schedules/schedule_registry.ts";
import { Scheduler } from "./schedules/scheduler.ts";
import { Relay } from "./transactions/relay.ts";
import { EngineTransactions } from "./transactions/transactions.ts";
import type { SchemaLabels } from "./triggers/new_run.ts";
import { Triggers } from "./triggers/triggers.ts";

const DEFAULT_MAX_VALUE_BYTES = 1_048_576;
const DEFAULT_MAX_STREAM_BYTES = 16_777_216;

/** The parts of an engine, which the engine, the handler and the test kit call. */
export type EngineParts<L = Labels> = ReturnType<typeof assembleEngine<Jobs, L>>;

/**
 * Checks the options of an engine, makes its parts, and gives each what it needs of the others.
 *
 * @throws {TypeError} See {@linkcode createEngine}.
 * @throws {RangeError} See {@linkcode createEngine}.
 */
export function assembleEngine<J extends Jobs, L>(options: EngineOptions<J, L>, surroundings: Surroundings) {
  checkEngineOptions(options);
  const host = options.host ?? systemHost;
  const logger = toLogger(options.logger);
  const hub = new Hub(host, logger, activityListenersOf(options.store));
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
  const sources = readDataSources(options.dataSources ?? {});
  const retention = readRetention(options.retention ?? {});
  const settings = workerSettings(options.worker);
  const maxValueBytes = options.maxValueBytes ?? DEFAULT_MAX_VALUE_BYTES;
  const shared = { store, hub, host, recorder, around, jobs, maxValueBytes, warn: warnOnce(logger) };
  const triggers = new Triggers({
    ...shared,
    labels: options.labels as Schema<unknown, SchemaLabels> | undefined, // receives unchecked labels
    fairnessLabel: options.fairnessLabel ?? null,
  });
  const transactions = new EngineTransactions({
    ...shared,
    given: options.store,
    sources,
    triggers,
    runs: () => runs,
    messages: () => messages,
    relay: () => relay,
  });
  const deps: ExecutionDeps = {
    ...shared,
    currentStep: new AsyncLocalStorage(),
    maxStreamBytes: options.maxStreamBytes ?? DEFAULT_MAX_STREAM_BYTES,
    storesStacks: options.errors?.stack ?? true,
    runs: {
      // Inherited labels were checked by the first trigger.
      create: (job, input, options) => triggers.requestChecked(job, input, options),
      add: (run) => triggers.addFromStep(run),
    },
    send: (to, name, payload, id) => messages.sendFromStep(to, name, payload, id),
    onDivergence: options.onDivergence ?? "hold",
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
  const schedules = new ScheduleRegistry<L>({ ...shared, declared, triggers, onChange: () => scheduler.wake() });
  const operator = new Operator({ catalog: jobs, store, host });
  const inBackground = (work: Promise<unknown>) => lifecycle.inBackground(work);
  const monitor: Monitor = new Monitor({
    ...shared,
    operator,
    storeCondition,
    lookAtEngine: () => lifecycle.condition,
    slots: () => lifecycle.worker.slots,
    inBackground,
  });
  const worker = () => lifecycle.worker;
  const runs: RunChanges = new RunChanges({ ...shared, worker });
  const relay: Relay = new Relay({
    ...shared,
    sources,
    jobs: [...jobs.newest.values()].flatMap(({ name, changes: { aliases } }) => [name, ...aliases]),
    migrate: (source) => transactions.migrateOne(source),
    storeId: () => transactions.storeId(),
    intervalMs: settings.pollingInterval,
    triggers,
    runs,
    messages: () => messages,
  });
  const lifecycle: Lifecycle = new Lifecycle(
    { jobs, settings, watch, retention, schedules, scheduler, transactions, relay, monitor, logger },
    deps,
  );
  const messages: Messages = new Messages({ ...shared, triggers, worker });
  const requestRetry: RequestRetry = surroundings.requestRetry ??
    ((runId, from, by) => triggers.requestRetry(runId, from, by));
  const bulk = new BulkOperations({ store, host, runs, triggers, requestRetry });
  const pauses = new JobPauses({ ...shared, operator, worker });
  logUnread(shared, jobs, logger, inBackground);
  triggers.publishEnds();
  return {
    deps,
    host,
    /** Calls to this store are measured, and the first one creates its tables. */
    store,
    jobs,
    retention,
    triggers,
    requestRetry,
    transactions,
    schedules,
    scheduler,
    runs,
    messages,
    bulk,
    pauses,
    operator,
    monitor,
    lifecycle,
    outages,
    /** The names of the plugins that it uses. */
    plugins: new Set<string>(),
  };
}
