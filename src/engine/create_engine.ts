import { endedStream, subscribe } from "../events/run_event_stream.ts";
import { PRODUCTION, type Surroundings } from "../execution/surroundings.ts";
import { NotFoundError } from "../model/error.ts";
import type { ExportedHistory } from "../model/exported_history.ts";
import type { Job } from "../model/job.ts";
import type { KeyedRun, MessageSchemas } from "../model/job/job_messages.ts";
import { checkActor, readActor } from "../model/origin.ts";
import { type Labels, parseRun, type RunFilter, type RunPage, type UncountedPage } from "../model/run.ts";
import { parsePlace, type ReadStreamOptions, streamName } from "../model/stream.ts";
import { getLogs, getMessages, getRun, getRuns, getSteps, getWaits } from "../store/reads.ts";
import type { Json } from "../values/json.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { tidyText } from "../values/text.ts";
import { kindOf } from "../values/unknown_values.ts";
import { assembleEngine, type EngineParts } from "./assemble_engine.ts";
import type { Engine } from "./engine.ts";
import { INTERNALS } from "./engine_internals.ts";
import type { EngineOptions } from "./engine_options.ts";
import type { JobHandle, Jobs } from "./job_handle.ts";
import { type AskOptions, SEND_OPTIONS } from "./messages.ts";
import { listChildren } from "./operate/children.ts";
import { readCauses, toExplanation } from "./operate/explanation.ts";
import { ALL_VISIBLE } from "./operate/reason.ts";
import { checkSearch, findRuns, MAX_FOUND } from "./operate/found_runs.ts";
import { listOpenWaits } from "./operate/open_waits.ts";
import { listFailures, listHeld, type ReadNewest, readNewestRuns } from "./operate/run_groups.ts";
import { readTimeline } from "./operate/timeline.ts";
import { checkPlugin } from "./plugin.ts";
import { exportHistory, type ExportHistoryOptions } from "./runs/export_history.ts";
import { checkPurge, purgeInSlices } from "./runs/purge_loop.ts";
import { readRun, refuseUnknownRun } from "./runs/read_run.ts";
import { checkContinues, RESUME_OPTIONS } from "./runs/run_changes.ts";
import { RunReader } from "./runs/run_reader.ts";
import { checkRunFilter, FILTER_FIELDS } from "./runs/run_filter.ts";
import { readTimeout, waitForAnswer, waitForRun } from "./runs/wait_for_run.ts";
import { toTriggerResult } from "./triggers/new_run.ts";
import { checkFrom, RETRIGGER_OPTIONS, TRIGGER_OPTIONS } from "./triggers/triggers.ts";

/**
 * Creates an engine: it triggers runs, and executes them once it is started.
 *
 * @example
 * ```ts
 * import { createEngine, defineJob, MemoryStore } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   run: (step, { name }) => step.run("compose", () => `Hello, ${name}!`),
 * });
 *
 * await using store = new MemoryStore();
 * await using engine = createEngine({ store, jobs: { greet } });
 * await engine.start();
 * const run = await engine.jobs.greet.triggerAndWait({ name: "Ada" });
 * console.log(run.output); // Hello, Ada!
 * ```
 *
 * @throws {TypeError} An option is unknown, the store is not a store, a job is not a job, two jobs have the same
 * name, or the logger lacks a function.
 * @throws {RangeError} A setting of the worker, a retention or `maxValueBytes` is out of range.
 */
export function createEngine<const J extends Jobs, L = Labels>(options: EngineOptions<J, L>): Engine<J, L> {
  return createEngineIn(PRODUCTION, options);
}

const LIST_FIELDS = { ...FILTER_FIELDS, limit: true, offset: true, total: true } satisfies Record<
  keyof RunFilter | "total",
  unknown
>;

const READ_STREAM_OPTIONS: Record<keyof ReadStreamOptions, true> = { after: true, follow: true };

/** Creates an engine in other surroundings than those of production. See {@linkcode createEngine}. */
export function createEngineIn<const J extends Jobs, L = Labels>(
  surroundings: Surroundings,
  options: EngineOptions<J, L>,
): Engine<J, L> {
  const parts = assembleEngine(options, surroundings);
  const { deps, host, store, triggers, requestRetry, transactions, schedules, runs, messages, bulk, pauses } = parts;
  const { operator, monitor, lifecycle, plugins } = parts;
  const waiting = { ...deps, changes: lifecycle.changes, reader: new RunReader(deps.store) };
  const readAll: ReadNewest = (filter) => readNewestRuns(filter, { store, host, mayShow: null });

  /** Reads a list that belongs to a run. If it is empty, checks afterwards that the run exists. */
  const listOf = async <T>(runId: string, read: () => Promise<T[]>): Promise<T[]> => {
    const list = await read();
    if (list.length === 0) await readRun(store, runId);
    return list;
  };

  /** Refuses to wait for a run inside the function of a step: the step would hold a slot of the worker meanwhile. */
  const checkOutsideStep = (call: string, instead = "call step.invoke()"): void => {
    const step = deps.currentStep.getStore();
    if (step === undefined) return;
    throw new TypeError(
      `${call} cannot wait for a run inside the function of step "${step}": ${instead} outside of it`,
    );
  };

  const ask = async (
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    given: AskOptions<unknown>,
    jobNames?: readonly string[],
  ): Promise<Json> => {
    checkOutsideStep("ask()", "use step.send(), and step.receive() for what comes back,");
    checkOptionNames(given, { ...SEND_OPTIONS, timeout: true }, "ask()");
    const timeout = readTimeout(given, "ask()");
    const { timeout: _, ...options } = given;
    return await waitForAnswer(await messages.send(to, name, payload, options, null, jobNames), timeout, waiting);
  };

  const engine: Engine<Jobs, unknown> & { [INTERNALS]: EngineParts } = {
    [INTERNALS]: parts as unknown as EngineParts, // its schedules take the labels of the engine
    jobs: {},
    schedules,
    on: deps.hub.on.bind(deps.hub),
    migrate: () => lifecycle.migrate(),
    start: () => lifecycle.start(),
    stop: (options = {}) => lifecycle.stop(options),
    [Symbol.asyncDispose]: () => engine.stop(),
    runUntilIdle: (options = {}) => lifecycle.runUntilIdle(options),
    trigger: async (job: string | Job, input: unknown, options = {}) =>
      toTriggerResult(await triggers.trigger(job, input, options, null)),
    // The source gives the function what it says, and the function returns what the caller gets.
    transaction: (source, work, options = {}) =>
      transactions.transact(source, work as (tx: object) => unknown, options) as never,
    inTransaction: (source, client) => transactions.inTransaction(source, client),
    getRun: (runId) => getRun(store, runId),
    // A page without a total was asked for without one.
    getRuns: getPage as Engine["getRuns"],
    getSteps: (runId) => listOf(runId, () => getSteps(store, runId)),
    getWaits: (runId) => listOf(runId, () => getWaits(store, runId)),
    getMessages: (runId) => listOf(runId, () => getMessages(store, runId)),
    getLogs: (runId) => listOf(runId, () => getLogs(store, runId)),
    getStreams: (runId) => listOf(runId, () => store.getStreams(runId)),
    getWait: async (waitId) => await store.getWait(waitId),
    signal: async (waitId, signal, options = {}) => await runs.signal(waitId, signal, checkActor(options, "signal()")),
    send: (to, name, payload, options = {}) => messages.send(to, name, payload, options),
    // The caller knows what the job answers.
    ask: async (to, name, payload, options = {}) => await ask(to, name, payload, options) as never,
    retrigger: async (runId, options = {}) => {
      checkOptionNames(options, RETRIGGER_OPTIONS, "retrigger()");
      const { request, old } = await requestRetry(runId, checkFrom(options), readActor(options));
      return toTriggerResult(await triggers.addRetry(request, old));
    },
    cancel: async (runId, options = {}) => parseRun(await runs.cancel(runId, checkActor(options, "cancel()"))),
    deleteRun: async (runId, options = {}) => await runs.delete(runId, checkActor(options, "deleteRun()")),
    resume: async (runId, options = {}) => {
      checkOptionNames(options, RESUME_OPTIONS, "resume()");
      return parseRun(await runs.resume(runId, checkContinues(options), readActor(options)));
    },
    cancelRuns: (selection, options = {}) => bulk.perform("cancel", selection, options, null),
    retriggerRuns: (selection, options = {}) => bulk.perform("retrigger", selection, options, null),
    resumeRuns: (selection, options = {}) => bulk.perform("resume", selection, options, null),
    deleteRuns: (selection, options = {}) => bulk.perform("delete", selection, options, null),
    resumeAll: (options = {}) => bulk.resumeAll(options),
    waitForRun: async (runId, options = {}) => {
      checkOutsideStep("waitForRun()");
      return await waitForRun(runId, options, waiting);
    },
    subscribe: (runId) =>
      lifecycle.isStopped ? endedStream() : subscribe(runId, { reader: lifecycle.reader, store, host }),
    readStream: (runId, stream, options = {}) => {
      checkOptionNames(options, READ_STREAM_OPTIONS, "readStream()");
      const { after, follow = true } = options;
      const place = after === undefined ? null : parsePlace(after);
      if (after !== undefined && place === null) {
        throw new TypeError(`after of readStream() must be the position of a part, not ${tidyText(String(after), 64)}`);
      }
      const isFollowed = follow && !lifecycle.isStopped;
      // The items have the type of the stream.
      return lifecycle.streams.read(runId, streamName(stream), { after: place, follow: isFollowed }) as never;
    },
    use: (plugin) => {
      checkPlugin(plugin);
      if (plugins.has(plugin.name)) return engine;
      plugins.add(plugin.name);
      const installed: unknown = plugin.install({
        on: engine.on,
        appendLogs: (entries) => lifecycle.inBackground(store.appendLogs(entries)),
        newId: () => host.newId(),
        around: (around) => deps.around.add(around),
      });
      // An asynchronous one that fails does not end the process.
      Promise.resolve(installed).catch((error) => deps.hub.publishError(error));
      return engine;
    },
    getStats: () => operator.getStats(),
    getSeries: (query) => operator.getSeries(query),
    getJobs: () => operator.getJobs(),
    getWorkers: () => operator.getWorkers(),
    getStoreInfo: () => operator.getStoreInfo(),
    health: () => monitor.health(),
    pauseJob: (jobName, options = {}) => pauses.pause(jobName, options),
    resumeJob: (jobName) => pauses.resume(jobName),
    exportHistory: exportKnown,
    explain: async (runId) => {
      const causes = await readCauses(store, runId);
      return causes === null ? await refuseUnknownRun(store, runId) : toExplanation(causes, ALL_VISIBLE);
    },
    getTimeline: async (runId, options = {}) =>
      await readTimeline(store, runId, options) ?? await refuseUnknownRun(store, runId),
    getChildren: async (runId, query = {}) => await listChildren(await readRun(store, runId), query, { store, host }),
    getOpenWaits: (query = {}) => listOpenWaits(query, { store, host, access: null }),
    getFailures: (query = {}) => listFailures(query, readAll),
    getHeld: (query = {}) => listHeld(query, readAll),
    findRuns: async (query) => await findRuns(store, await store.searchRuns(checkSearch(query), MAX_FOUND), null),
    stranded: async () => await store.getStrandedJobs(),
    purgeRuns: async (options) => {
      const { retention, limit } = checkPurge(options);
      return { deleted: await purgeInSlices(store, retention, deps, { limit }) };
    },
  };

  async function getPage(given: RunFilter & { total?: boolean } = {}): Promise<RunPage | UncountedPage> {
    checkOptionNames(given, LIST_FIELDS, "getRuns()");
    const { total: isCounted = true, ...filter } = given;
    if (typeof isCounted !== "boolean") throw new TypeError(`total must be a boolean, not ${kindOf(isCounted)}`);
    const checked = checkRunFilter(filter);
    if (isCounted) return await getRuns(store, checked);
    const { runs, hasMore } = await getRuns(store, { ...checked, countUpTo: 0 });
    return { runs, hasMore };
  }

  async function exportKnown(runId: string, options: ExportHistoryOptions = {}): Promise<ExportedHistory> {
    const history = await exportHistory(store, runId, options);
    if (history !== null) return history;
    await readRun(store, runId);
    throw new NotFoundError(`There was no run "${runId}" when its history was read`);
  }

  function handleOf(job: Job): JobHandle<unknown, unknown, unknown, MessageSchemas> {
    const names = [job.name, ...job.changes.aliases];
    return {
      trigger: (input, options) => engine.trigger(job, input, options),
      triggerAndWait: async (input, given = {}) => {
        checkOutsideStep("triggerAndWait()");
        checkOptionNames(given, { ...TRIGGER_OPTIONS, timeout: true }, "triggerAndWait()");
        readTimeout(given, "triggerAndWait()");
        const { timeout, ...options } = given;
        const { id, disposition } = await engine.trigger(job, input, options);
        return { ...await engine.waitForRun(id, timeout === undefined ? {} : { timeout }), disposition };
      },
      send: (to, name, payload, options = {}) =>
        messages.send(typeof to === "string" ? to : { ...to, job }, name, payload, options, null, names),
      ask: async (to, name, payload, options = {}) =>
        await ask(typeof to === "string" ? to : { ...to, job }, name, payload, options, names) as never,
      batchTrigger: async (items) => (await triggers.triggerBatch(job, items)).map(toTriggerResult),
      getRun: async (runId) => {
        const run = await getRun(store, runId);
        return run !== null && names.includes(run.jobName) ? run : null;
      },
      getRuns: ((filter = {}) => engine.getRuns({ ...filter, jobName: names })) as JobHandle<
        unknown,
        unknown
      >["getRuns"],
    };
  }

  const handles = Object.fromEntries(Object.entries(options.jobs).map(([key, job]) => [key, handleOf(job)]));
  // Each handle passes its arguments on, so it has the types of its job.
  return Object.assign(engine, { jobs: Object.freeze(handles) }) as unknown as Engine<J, L>;
}
