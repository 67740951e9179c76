import { ConflictError, NotFoundError, ValidationError } from "../../model/error.ts";
import { endRunId } from "../../model/end.ts";
import type { Job } from "../../model/job.ts";
import type { StepTriggerResult } from "../../model/job/step_calls.ts";
import { type CatalogJob, type JobCatalog, UnknownJobError } from "../../model/job/job_catalog.ts";
import { andThen, type Soon } from "../../values/at_once.ts";
import { decode, parseValue } from "../../values/json.ts";
import { kindOf, propertyOf } from "../../values/unknown_values.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import { isTerminal, type Labels, type RetriggerFrom, type StoredRun } from "../../model/run.ts";
import type { Schema } from "../../model/schema.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import { addAround } from "./add_around.ts";
import {
  newRun,
  parseLabels,
  type RetryParts,
  type SchemaLabels,
  type TriggerGuard,
  type TriggerOptions,
} from "./new_run.ts";
import { retryFlow } from "./trigger_flow.ts";
import { untilKnown } from "../../events/retry_store_call.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import type { ActorOptions } from "../../model/origin.ts";

type TriggersDeps = Pick<ExecutionDeps, "store" | "hub" | "host" | "maxValueBytes" | "around" | "recorder"> & {
  jobs: JobCatalog;
  /** Checks the labels of each trigger; `undefined`: any labels. It receives unchecked labels. */
  labels: Schema<unknown, SchemaLabels> | undefined;
  /** The label whose value is the default fairness key; `null`: none. */
  fairnessLabel: string | null;
};

/** The names of the options of a trigger. */
export const TRIGGER_OPTIONS: Readonly<Record<keyof TriggerOptions, true>> = namesOf<keyof TriggerOptions>()(
  "idempotencyKey idempotencyUntil concurrencyKey coalesce labels startAt delay priority fairnessKey startWithin",
  "finishWithin by",
);

/** How a run is triggered again. */
export interface RetriggerOptions extends ActorOptions {
  /**
   * `start` (default): from the beginning. `failure`: with the completed steps, finished sleeps, resolved waits and
   * completed children of the old run; a wait whose answer or timeout is the last record, and after which the run has not parked, is prepared again, and children
   * that failed are retried from their failure. The steps keep their `idempotencyKey`.
   */
  from?: RetriggerFrom;
}

/** The names of the options of a retrigger. */
export const RETRIGGER_OPTIONS: Record<keyof RetriggerOptions, true> = { from: true, by: true };

/** Checks where a retry begins. */
export function checkFrom({ from = "start" }: RetriggerOptions): RetriggerFrom {
  if (from === "start" || from === "failure") return from;
  throw new ValidationError('from must be "start" or "failure"');
}

const BATCH_ITEM_OPTIONS: Record<keyof TriggerOptions | "input", true> = { input: true, ...TRIGGER_OPTIONS };

/** Adds runs to the store and publishes that it did: from triggers, retriggers, schedules, and the steps of other runs. */
export class Triggers {
  readonly #deps: TriggersDeps;

  constructor(deps: TriggersDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.trigger()`, if a guard allows it. */
  async trigger(
    job: string | Job,
    input: unknown,
    options: TriggerOptions<unknown>,
    guard: TriggerGuard | null,
  ): Promise<Enqueued> {
    const checked = await this.request(job, input, options, guard !== null);
    const request = guard === null ? checked : await guard.beforeAdding(checked, this.#find(job).job.flow);
    const check = guard?.beforeJoining ?? null;
    if (check === null) return this.publish(await this.enqueue(request), request);
    return this.publish(await this.#addAround(request, (run) => this.#enqueueIf(check, run)), request);
  }

  /** Adds a run. One that it would join is checked before. */
  async #enqueueIf(check: (found: StoredRun) => Promise<void>, request: NewRun): Promise<Enqueued> {
    for (let joinOnly = "";;) { // none, until one was checked
      const enqueued = await this.#enqueue({ ...request, joinOnly });
      const { run, disposition } = enqueued;
      if (disposition === "created" || run.id === joinOnly) return enqueued;
      await check(run);
      joinOnly = run.id; // joins this run if it still exists
    }
  }

  /** Triggers several runs of a job: all of them, or none. */
  async triggerBatch(
    job: Job,
    items: readonly ({ input: unknown } & TriggerOptions<unknown>)[],
  ): Promise<Enqueued[]> {
    if (!Array.isArray(items)) throw new TypeError(`batchTrigger() takes an array of items, not ${kindOf(items)}`);
    for (const item of items) checkOptionNames(item, BATCH_ITEM_OPTIONS, "An item of batchTrigger()");
    const requests = await Promise.all(items.map(({ input, ...options }) => this.request(job, input, options)));
    const add = (runs: readonly NewRun[]) => untilKnown(() => this.#deps.store.enqueue(runs));
    const enqueued = await addAround(requests, add, (added) => added, this.#deps);
    return enqueued.map((one, position) => this.publish(one, requests[position]!)); // one for each request
  }

  /** The request for a run that has the checked options of a trigger. `isJson`: see {@linkcode newRun}. */
  async request(
    job: string | Job,
    input: unknown,
    options: TriggerOptions<unknown>,
    isJson = false,
  ): Promise<NewRun> {
    return await this.requestNow(job, input, options, isJson);
  }

  /** As {@linkcode Triggers.request}, and answers at once if the schemas do. */
  requestNow(job: string | Job, input: unknown, options: TriggerOptions<unknown>, isJson = false): Soon<NewRun> {
    checkOptionNames(options, TRIGGER_OPTIONS, "trigger()");
    const { labels = {}, ...rest } = options;
    const { labels: schema, host } = this.#deps;
    const found = this.#find(job);
    if (found.job.endOf !== null) {
      throw new ValidationError(
        `Job "${found.job.name}" cannot be triggered: its runs clean up after those of another`,
      );
    }
    // Without a schema, newRun() checks them.
    const parsed = schema === undefined ? labels as Labels : parseLabels(schema, labels, host);
    return andThen(
      parsed,
      (labels) => newRun(found, input, { ...rest, labels }, this.#deps, { isJson }),
    );
  }

  /** The request for a run with labels that were checked before: those of another run. */
  requestChecked(job: string | Job, input: unknown, options: TriggerOptions, retry?: RetryParts): Soon<NewRun> {
    return newRun(this.#find(job), input, options, this.#deps, { retry });
  }

  /** The request for the retry of a run that has ended, and that run. */
  async requestRetry(
    runId: string,
    from: RetriggerFrom,
    by: string | null,
  ): Promise<{ request: NewRun; old: StoredRun }> {
    const state = await this.#deps.store.getRunState(runId);
    if (state === null) throw new NotFoundError(`There is no run "${runId}"`);
    const old = state.run;
    if (!isTerminal(old.status)) {
      throw new ConflictError(`Cannot retrigger run "${runId}": it is ${old.status}`);
    }
    const { job } = this.#find(old.jobName);
    const run = await this.requestChecked(old.jobName, decode(old.payload), {
      labels: old.labels,
      ...(by === null ? {} : { by }),
    }, {
      retriggerOf: { runId, from },
      flow: retryFlow(old, { job: job.flow, hasKey: old.concurrencyKey !== null }),
    });
    // A stored key was checked by the first trigger, and may be longer now: it has the tenant as its prefix.
    const schedule = old.scheduleName === null ? null : { name: old.scheduleName, slotAt: old.slotAt };
    // What a later version has recorded is not for this one, if this process is behind.
    const version = from === "failure" ? Math.max(run.version, old.version) : run.version;
    return { request: { ...run, version, concurrencyKey: old.concurrencyKey, schedule }, old };
  }

  /** Whether plugins are asked before runs are added. */
  get asksPlugins(): boolean {
    return this.#deps.around.trigger !== null;
  }

  /** Adds runs in one commit, or none of them, without asking plugins. */
  async addTogether(requests: readonly NewRun[]): Promise<Enqueued[]> {
    const enqueued = await untilKnown(() => this.#deps.store.enqueue(requests));
    return enqueued.map((one, position) => this.publish(one, requests[position]!)); // one for each request
  }

  /** Adds a run. `isTraced`: plugins were asked before. */
  async add(request: NewRun, isTraced = false): Promise<Enqueued> {
    return this.publish(await this.enqueue(request, isTraced), request);
  }

  /** Adds the retry of a run. */
  async addRetry(request: NewRun, old: StoredRun): Promise<Enqueued> {
    return this.publishRetry(await this.enqueue(request), request, old);
  }

  /** Publishes what the store did with the request for a retry. */
  publishRetry(enqueued: Enqueued, request: NewRun, old: StoredRun): Enqueued {
    const result = this.publish(enqueued, request);
    if (result.disposition === "created") {
      this.#deps.hub.publish(old, { type: "run:retry", newRunId: result.run.id, by: result.run.triggeredBy });
    }
    return result;
  }

  /** Adds the run that a step triggers. */
  async addFromStep(request: NewRun): Promise<StepTriggerResult> {
    try {
      const { run, disposition } = await this.add(request);
      return { runId: run.id, disposition };
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
      return { runId: request.id, disposition: "created" }; // by an earlier attempt, and deleted since
    }
  }

  /** Publishes what the store did with a request. */
  publish(enqueued: Enqueued, request: Pick<NewRun, "payload" | "labels">): Enqueued {
    const { run, disposition } = enqueued;
    this.#deps.recorder.noteTrigger(run.jobName, disposition);
    if (disposition === "created") {
      const { startAt, parentRunId, scheduleName, slotAt, triggeredBy: by } = run;
      this.#deps.hub.publish(run, {
        type: "run:trigger",
        input: this.#deps.hub.hears("run:trigger") ? parseValue(request.payload) : null,
        startAt,
        parentRunId,
        scheduleName,
        slotAt,
        by,
      });
    }
    if (disposition === "coalesced") {
      this.#deps.hub.publish(run, {
        type: "run:coalesced",
        status: run.status,
        get skippedInput() {
          return parseValue(request.payload);
        },
        skippedLabels: request.labels,
      });
    }
    return enqueued;
  }

  /**
   * The newest version of a job.
   *
   * @throws {UnknownJobError} The engine does not have it.
   */
  findJob(name: string): Job {
    return this.#find(name).job;
  }

  /** Publishes the triggers of runs that clean up: the store adds them in the commits that this process makes of ends. */
  publishEnds(): void {
    const { hub, jobs, store } = this.#deps;
    if (![...jobs.newest.values()].some((job) => [job, ...job.previous].some(({ onEnd }) => onEnd !== null))) return;
    for (const type of ["run:complete", "run:fail", "run:cancel"] as const) {
      hub.on(type, async ({ runId, jobName }) => {
        if (jobs.find(jobName)?.job.endOf !== null) return;
        const state = await store.getRunState(endRunId(runId)).catch(() => null);
        if (state !== null) this.publish({ run: state.run, disposition: "created" }, state.run);
      });
    }
  }

  #find(job: string | Job): CatalogJob {
    const { jobs } = this.#deps;
    if (typeof job !== "string" && propertyOf(job, "changes") === undefined) {
      throw new TypeError(`A trigger needs a job: what defineJob() makes, or its name, not ${kindOf(job)}`);
    }
    const found = jobs.find(job);
    if (found !== undefined) return found;
    const name = typeof job === "string" ? job : job.name;
    if (typeof job === "string" || !jobs.newest.has(name)) throw new UnknownJobError(name, jobs.newest.keys());
    throw new NotFoundError(
      `This engine has no definition of version ${job.changes.version} of job "${name}": name it in previous`,
    );
  }

  /** Adds a run, and publishes nothing yet. `isTraced`: plugins were asked before. */
  enqueue(request: NewRun, isTraced = false): Promise<Enqueued> {
    return isTraced ? this.#enqueue(request) : this.#addAround(request, (run) => this.#enqueue(run));
  }

  #addAround(request: NewRun, add: (run: NewRun) => Promise<Enqueued>): Promise<Enqueued> {
    if (!this.asksPlugins) return add(request); // as addAround() does, with one promise less
    return addAround([request], ([run]) => add(run!), (enqueued) => [enqueued], this.#deps); // one for each request
  }

  async #enqueue(run: NewRun): Promise<Enqueued> {
    const [enqueued] = await untilKnown(() => this.#deps.store.enqueue([run]));
    return enqueued!; // one for each request
  }
}
