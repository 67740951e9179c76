import { ConflictError, ValidationError } from "../../model/error.ts";
import { HOLD_CODES, type HoldCode } from "../../model/hold.ts";
import { derivedRunId } from "../../model/end.ts";
import type { BulkOperation, RetriggerFrom, StoredRun } from "../../model/run.ts";
import { readActor } from "../../model/origin.ts";
import type { NewRun } from "../../store/new_run.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import { checkContinues, type ResumeOptions, type RunChanges } from "../runs/run_changes.ts";
import { checkFrom, type Triggers } from "../triggers/triggers.ts";
import { checkRunFilter } from "../runs/run_filter.ts";
import {
  BULK_FILTER_FIELDS,
  BULK_OPTIONS,
  type BulkFilter,
  type BulkResumeOptions,
  type BulkRetriggerOptions,
  type BulkSelection,
  checkBulk,
} from "./bulk_selection.ts";
import { type BulkGuard, type BulkResult, performBulk } from "./perform_bulk.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import type { RequestRetry } from "../../execution/surroundings.ts";

/** Which held runs are resumed, and how. */
export interface ResumeAllOptions extends ResumeOptions {
  /** Those that match it. Default: all. */
  filter?: BulkFilter;
  /** Those of this job, or of any of these, as in a filter. Default: of all jobs. */
  jobName?: string | readonly string[];
  /** Those that are held for this reason. Default: for any. */
  code?: HoldCode;
}

const RESUME_ALL_OPTIONS = namesOf<keyof ResumeAllOptions>()("filter jobName code onDivergence by");

// How many runs are found at once.
const SLICE = 50;

type BulkOperationsDeps = Pick<ExecutionDeps, "store" | "host"> & {
  runs: RunChanges;
  triggers: Triggers;
  requestRetry: RequestRetry;
};

/** Cancels, retriggers, resumes and deletes many runs. */
export class BulkOperations {
  readonly #deps: BulkOperationsDeps;
  /** The retries that calls have published, while any call goes on. */
  readonly #retries = new Set<string>();
  #calls = 0;

  constructor(deps: BulkOperationsDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.resumeAll()`: call after call, to the end. */
  async resumeAll(options: ResumeAllOptions): Promise<{ resumed: number }> {
    checkOptionNames(options, RESUME_ALL_OPTIONS, "resumeAll()");
    const { filter: given = {}, jobName, code, ...others } = options;
    checkOptionNames(given, BULK_FILTER_FIELDS, "the filter of resumeAll()");
    if (given.held === false) throw new ValidationError("resumeAll() resumes held runs: the filter says held: false");
    if (jobName !== undefined && given.jobName !== undefined) {
      throw new ValidationError("resumeAll() takes jobName once: beside the filter, or in it");
    }
    if (code !== undefined && !HOLD_CODES.includes(code)) {
      throw new ValidationError(`code of resumeAll() must be one of ${HOLD_CODES.join(", ")}`);
    }
    const { error, ...filter } = { ...given, held: true, ...(jobName === undefined ? {} : { jobName }) };
    checkRunFilter(filter);
    const resumed = code === undefined
      ? await this.#resumeEach({ filter: error === undefined ? filter : { ...filter, error } }, others)
      : await this.#resumeHeldFor(code, { ...given, jobName: filter.jobName }, others);
    return { resumed };
  }

  /** Resumes those that are held for a reason, which no other filter knows. */
  async #resumeHeldFor(code: HoldCode, filter: BulkFilter, options: ResumeOptions): Promise<number> {
    const { jobName, held: _, ...others } = filter;
    if (Object.keys(others).length > 0) throw new ValidationError("code of resumeAll() goes with jobName alone");
    const jobNames = typeof jobName === "string" ? [jobName] : jobName;
    let resumed = 0;
    for (let after = 0;;) {
      const { ids, seqs } = await this.#deps.store.findHeld({ jobNames, code, after, limit: SLICE });
      if (ids.length > 0) resumed += await this.#resumeEach({ runIds: ids }, options);
      if (ids.length < SLICE) return resumed;
      after = seqs.at(-1)!; // a full slice has a last run
    }
  }

  /** Resumes all held runs of a selection, by as many calls as that takes: how many it has resumed. */
  async #resumeEach(selection: BulkSelection, options: ResumeOptions): Promise<number> {
    let resumed = 0;
    for (let place = {};;) {
      const { done, next } = await this.perform("resume", selection, { ...options, ...place }, null);
      resumed += done;
      if (next === null) return resumed;
      place = { cursor: next };
    }
  }

  /** Does `Engine.cancelRuns()`, `retriggerRuns()`, `resumeRuns()` or `deleteRuns()`, as far as a guard allows it. */
  async perform(
    operation: BulkOperation,
    selection: BulkSelection,
    options: BulkRetriggerOptions & BulkResumeOptions,
    guard: BulkGuard | null,
  ): Promise<BulkResult> {
    checkOptionNames(options, BULK_OPTIONS[operation], `${operation}Runs()`);
    const { from, onDivergence, by, ...others } = options;
    const bulk = checkBulk(selection, others, `${operation}Runs()`);
    const how = { from: checkFrom({ from }), continues: checkContinues({ onDivergence }), by: readActor({ by }) };
    this.#calls += 1;
    try {
      return await performBulk(operation, bulk, {
        store: this.#deps.store,
        host: this.#deps.host,
        guard,
        prepare: (runId) => this.#prepare(operation, runId, how),
      });
    } finally {
      this.#calls -= 1;
      if (this.#calls === 0) this.#retries.clear();
    }
  }

  /** Prepares an operation on one of many runs. */
  async #prepare(
    operation: BulkOperation,
    runId: string,
    { from, continues, by }: { from: RetriggerFrom; continues: boolean; by: string | null },
  ): Promise<() => Promise<unknown>> {
    const { runs, requestRetry } = this.#deps;
    if (operation === "resume") return () => runs.resume(runId, continues, by);
    if (operation === "cancel") return () => runs.cancel(runId, by);
    if (operation === "delete") return () => runs.delete(runId, by);
    const { request, old } = await requestRetry(runId, from, by);
    if (old.retriggeredAs !== null) throw new ConflictError(`Run "${runId}" was retriggered before`);
    // The same id each time: of calls at the same time, all find the one run that the first has made.
    return () => this.#addRetry({ ...request, id: derivedRunId(runId, `bulk retrigger of ${runId}`) }, old);
  }

  /** Adds a retry, and publishes it unless another call has done so a moment ago. */
  async #addRetry(request: NewRun, old: StoredRun): Promise<void> {
    const { triggers } = this.#deps;
    const enqueued = await triggers.enqueue(request);
    if (enqueued.run.id !== request.id) {
      throw new ConflictError(`Run "${enqueued.run.id}" retries the same run already`);
    }
    if (this.#retries.has(request.id)) return;
    this.#retries.add(request.id);
    triggers.publishRetry(enqueued, request, old);
  }
}
