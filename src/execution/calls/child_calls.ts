import { newTriggerInfo, refused, runAround } from "../../model/around.ts";
import { encodeOrigin } from "../../model/origin.ts";
import { NotFoundError, RunCancelledError, RunFailedError, StoreError } from "../../model/error.ts";
import { retryStoreCall } from "../../events/retry_store_call.ts";
import { failureText } from "../../model/failure.ts";
import { nextTurn } from "../../model/host.ts";
import type { Job } from "../../model/job.ts";
import type {
  ChildOutcome,
  InvokeItem,
  InvokeOptions,
  StepTriggerOptions,
  StepTriggerResult,
} from "../../model/job/step_calls.ts";
import { decode, type Json } from "../../values/json.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { NewPause } from "../../store/pause_request.ts";
import type { ChildResult, PauseRecord } from "../../model/wait.ts";
import { derivedRunId } from "../../model/end.ts";
import type { Execution } from "../execution.ts";
import type { Parking } from "./parking.ts";
import type { PauseCalls } from "./pause_calls.ts";
import type { RecordedHistory } from "../replay/recorded_history.ts";
import type { Replay, ReplayGuard } from "../replay/replay_guard.ts";
import type { StepCalls } from "./step_calls.ts";
import { StepNameNumbers } from "../replay/step_name_numbers.ts";
import { explained, type Soon } from "../../values/at_once.ts";
import { checkLabels } from "../../values/name.ts";

const INVOKE_OPTIONS = namesOf<keyof InvokeOptions>()(
  "concurrencyKey labels priority startAt delay startWithin finishWithin",
);
const ITEM_OPTIONS: Record<keyof InvokeItem<unknown>, true> = { input: true, ...INVOKE_OPTIONS };
/** The names of the options of a run that is started. */
export const STEP_TRIGGER_OPTIONS = {
  ...INVOKE_OPTIONS,
  ...namesOf<Exclude<keyof StepTriggerOptions, keyof InvokeOptions>>()(
    "fairnessKey idempotencyKey idempotencyUntil coalesce",
  ),
};

// The most children of one call.
const MAX_CHILDREN = 10_000;
// The most parents above a run. A job that invokes itself without end fails there.
const MAX_DEPTH = 32;
// How many children are added in one commit.
const SLICE = 100;
// The most that the results of one call may take together, in characters of JSON.
const MAX_RESULTS_LENGTH = 64 * 1_048_576;
// About how much of them is read at once.
const PAGE_LENGTH = 262_144;

/** Implements the calls of a job that start other runs. */
export class ChildCalls {
  readonly #execution: Execution;
  readonly #parking: Parking;
  readonly #pauses: PauseCalls;
  readonly #steps: StepCalls;
  readonly #history: RecordedHistory;
  readonly #guard: ReplayGuard;
  readonly #names = new StepNameNumbers("child run");

  constructor(execution: Execution, parking: Parking, calls: { pauses: PauseCalls; steps: StepCalls }, replay: Replay) {
    this.#execution = execution;
    this.#parking = parking;
    this.#pauses = calls.pauses;
    this.#steps = calls.steps;
    this.#history = replay.history;
    this.#guard = replay.guard;
  }

  /** See `StepContext.invoke()`. */
  async invoke(givenName: string, job: Job, input: unknown, options: InvokeOptions): Promise<Json | undefined> {
    checkOptionNames(options, INVOKE_OPTIONS, "step.invoke()");
    const pause = await this.#named(givenName, "invoke", job, [{ input, ...options }]);
    if (pause?.child == null) throw this.#lostError(givenName);
    return toOutput(pause.child);
  }

  /** See `StepContext.invokeAll()`. */
  async invokeAll(
    givenName: string,
    job: Job,
    items: readonly InvokeItem<unknown>[],
  ): Promise<ChildOutcome<Json | undefined>[]> {
    if (!Array.isArray(items)) throw new TypeError(`step.invokeAll() of "${givenName}" takes an array of items`);
    if (items.length > MAX_CHILDREN) {
      throw new RangeError(
        `step.invokeAll() of "${givenName}" takes at most ${MAX_CHILDREN} items, not ${items.length}: use several calls`,
      );
    }
    for (const item of items) checkOptionNames(item, ITEM_OPTIONS, "An item of step.invokeAll()");
    const pause = await this.#named(givenName, "invokeAll", job, items);
    if (pause === null) return [];
    // The turn is this call's: no later result is delivered before it has its own.
    return await this.#execution.track(this.#execution.order.hold(this.#readOutcomes(pause, givenName)));
  }

  /** See `StepContext.trigger()`. */
  async trigger(
    givenName: string,
    job: Job,
    input: unknown,
    options: StepTriggerOptions,
  ): Promise<StepTriggerResult> {
    const call = `step.trigger() of "${givenName}"`;
    checkJob(job, call);
    checkOptionNames(options, STEP_TRIGGER_OPTIONS, "step.trigger()");
    const { claim, deps, abortSignal } = this.#execution;
    const add = async ({ idempotencyKey: stepKey }: { idempotencyKey: string }): Promise<StepTriggerResult> => {
      const run = await startedRun(this.#execution, call, job, input, options);
      // The same id after a crash: the store recognizes the repetition, so there are never two runs.
      const id = derivedRunId(claim.originId, stepKey);
      return await retryStoreCall(() => deps.runs.add({ ...run, id }), deps, abortSignal);
    };
    return await this.#steps.run(givenName, add, { retry: {} }) as unknown as StepTriggerResult; // what `add` returns
  }

  /**
   * Resolves when the children of a call have ended, and makes them before, if that was not done yet. `null`: there are
   * none.
   */
  async #named(
    givenName: string,
    call: "invoke" | "invokeAll",
    job: Job,
    items: readonly InvokeItem<unknown>[],
  ): Promise<PauseRecord | null> {
    const { claim, deps } = this.#execution;
    checkJob(job, `step.${call}() of "${givenName}"`);
    const outer = deps.currentStep.getStore();
    if (outer !== undefined) {
      throw new TypeError(
        `step.${call}() of "${givenName}" cannot be called inside the function of step "${outer}": call it before or after that step`,
      );
    }
    const name = this.#names.begin(givenName);
    try {
      const known = this.#history.pause("children", name);
      // The children of a call whose slices were interrupted would otherwise be too few, and the run would never resume.
      if (known !== undefined && known.childTotal !== items.length) {
        throw new TypeError(
          `step.${call}() of "${givenName}" has ${items.length} items, but had ${known.childTotal} when it was first called`,
        );
      }
      if (items.length === 0) return null;
      if (known === undefined && claim.depth >= MAX_DEPTH) {
        throw new RangeError(
          `step.${call}() of "${givenName}" cannot start a child run: run "${claim.run.id}" has ${MAX_DEPTH} parents above it already`,
        );
      }
      const asked = known !== undefined && known.childCount === items.length ? known : await this.#addAll(
        known?.name ?? this.#history.unfinishedName("children", name),
        `step.${call}() of "${givenName}"`,
        job,
        items,
        known,
      );
      return await this.#pauses.over(asked);
    } finally {
      this.#names.end(givenName);
    }
  }

  /** Adds all slices of children but the last, which the returned pause brings with it. */
  async #addAll(
    name: string,
    call: string,
    job: Job,
    items: readonly InvokeItem<unknown>[],
    known: PauseRecord | undefined,
  ): Promise<NewPause> {
    const execution = this.#execution;
    const first = known?.childCount ?? 0;
    // All inputs are checked before the first child is made: a wrong one makes none.
    const runs = await this.#newRunsAround(call, job, items.slice(first));
    const isNew = { kind: "children", name } as const;
    // After the check of the inputs: what that throws is not recorded, and is thrown again by each replay.
    if (known === undefined && this.#guard.mustWait(isNew)) await this.#guard.untilMayBegin(isNew);
    execution.order.noteNew();
    let id = known?.id ?? execution.deps.host.newId();
    for (let from = first;; from += SLICE) {
      const pause: NewPause = {
        id,
        kind: "children",
        name,
        children: { total: items.length, from, runs: runs.slice(from - first, from - first + SLICE) },
        deadline: null,
        metadata: null,
        prepared: false,
      };
      if (from + SLICE >= items.length) return pause;
      ({ id } = await execution.begin(() => execution.track(this.#parking.prepare(pause))));
    }
  }

  /** Makes the requests for children, and calls the plugins' hooks around triggers. */
  #newRunsAround(call: string, job: Job, items: readonly InvokeItem<unknown>[]): Promise<NewRun[]> {
    const { claim: { run: { id: parentRunId } }, deps: { around } } = this.#execution;
    if (around.trigger === null) return this.#newRunsInSlices(call, job, items);
    const info = newTriggerInfo(job.name, items.length, parentRunId);
    return runAround(around.trigger, info, async (end) => {
      const trace = encodeOrigin(info.trace, null);
      const runs = (await this.#newRunsInSlices(call, job, items)).map((run) => ({ ...run, trace }));
      end({ kind: "triggered", runs: runs.map(({ id }) => ({ id, disposition: "created", trace: null })) });
      return runs;
    }, refused);
  }

  async #newRunsInSlices(call: string, job: Job, items: readonly InvokeItem<unknown>[]): Promise<NewRun[]> {
    const execution = this.#execution;
    const runs: NewRun[] = [];
    for (let from = 0; from < items.length; from += SLICE) {
      const slice = items.slice(from, from + SLICE);
      runs.push(...await execution.begin(() => execution.track(this.#newRuns(call, job, slice))));
    }
    return runs;
  }

  async #newRuns(call: string, job: Job, items: readonly InvokeItem<unknown>[]): Promise<NewRun[]> {
    const runs = await Promise.all(
      items.map(async ({ input, ...options }) => await startedRun(this.#execution, call, job, input, options)),
    );
    if (runs.length === SLICE) await nextTurn(this.#execution.deps.host); // there may be more of them
    return runs;
  }

  async #readOutcomes({ id, childCount }: PauseRecord, name: string): Promise<ChildOutcome<Json | undefined>[]> {
    const { deps, abortSignal } = this.#execution;
    const outcomes: ChildOutcome<Json | undefined>[] = [];
    let length = 0;
    while (true) {
      const read = () => deps.store.readChildren(id, outcomes.length, PAGE_LENGTH);
      const part = await retryStoreCall(read, deps, abortSignal);
      if (part === null || part.items.length === 0) throw this.#lostError(name);
      length = part.items.reduce((sum, { output }) => sum + (output?.length ?? 0), length);
      if (length > MAX_RESULTS_LENGTH) {
        throw new RangeError(
          `The results of step.invokeAll() of "${name}" take more than 64 MiB together: let the children store what is large elsewhere, or use several calls`,
        );
      }
      outcomes.push(...part.items.map(toOutcome));
      if (outcomes.length >= childCount) return outcomes;
      // A page is read and parsed without a break.
      await nextTurn(deps.host);
    }
  }

  #lostError(name: string): StoreError {
    const message = `The store has no result of the children of "${name}" of run "${this.#execution.claim.run.id}"`;
    return new StoreError(message, { code: "internal" });
  }
}

function checkJob(job: unknown, call: string): void {
  if (typeof job === "object" && job !== null && "name" in job && typeof job.name === "string") return;
  throw new TypeError(`${call} needs a job: what defineJob() makes, not ${kindOf(job)}`);
}

/** The output of a child, or the error that it ended with. */
function toOutput({ run, status, output, failure, failedStepName }: ChildResult): Json | undefined {
  if (status === "completed") return decode(output);
  if (failure === null) throw new RunCancelledError(run.id);
  throw new RunFailedError({ runId: run.id, jobName: run.jobName, stepName: failedStepName, failure });
}

function toOutcome({ run, status, output, failure }: ChildResult): ChildOutcome<Json | undefined> {
  if (status === "completed") return { runId: run.id, status, output: decode(output) };
  const error = failure === null ? `Run "${run.id}" was cancelled` : failureText(failure);
  return { runId: run.id, status, error };
}

/** The request for a run that a run starts: it inherits the labels, the priority and the fairness key. */
export function startedRun(
  { deps, claim: { run, priority, fairnessKey } }: Execution,
  call: string,
  job: Job | string,
  input: unknown,
  { labels = {}, ...options }: StepTriggerOptions,
): Soon<NewRun> {
  const explain = (error: unknown): never => {
    if (!(error instanceof NotFoundError)) throw error;
    const name = typeof job === "string" ? job : job.name;
    // The error lists the jobs of the engine. This one becomes that of the run, which clients see.
    throw new TypeError(`${call} cannot start a run of job "${name}": the engine that executes it has no such job`);
  };
  const create = () =>
    deps.runs.create(job, input, {
      priority,
      ...(fairnessKey === null ? {} : { fairnessKey }),
      ...options,
      labels: { ...run.labels, ...checkLabels(labels) },
    });
  return explained(create, explain);
}
