import { AsyncLocalStorage } from "node:async_hooks";
import { HoldfastError } from "../model/error.ts";
import { Recorder } from "../statistics/recorder.ts";
import { Hub } from "../events/hub.ts";
import { executeRun, type Outcome } from "../execution/execute_run.ts";
import { AroundHooks } from "../model/around.ts";
import { Execution, type ExecutionDeps } from "../execution/execution.ts";
import { PRODUCTION } from "../execution/surroundings.ts";
import type { ExportedHistory } from "../model/exported_history.ts";
import type { RecordName } from "../model/hold.ts";
import { type CatalogJob, JobCatalog } from "../model/job/job_catalog.ts";
import { newRun, type TriggerOptions } from "../engine/triggers/new_run.ts";
import type { NewRun } from "../store/new_run.ts";
import type { Job } from "../model/job.ts";
import type { Soon } from "../values/at_once.ts";
import { ANSWER_PREFIX } from "../model/message.ts";
import { toLogger } from "../model/logger.ts";
import { claimOfHistory } from "./claim_of_history.ts";
import { type NeededChanges, ObservedGuard, ObservedHistory } from "./observed_replay.ts";
import { ReplayHost } from "./replay_host.ts";
import { ReplayStore } from "./replay_store.ts";

/** How a replay ended. */
export interface ReplayEnd {
  /**
   * How the execution ended. `new`: the job began something new, whose result nobody knows. `hung`: it awaits something
   * outside of its steps.
   */
  outcome: Exclude<Outcome, { kind: "interrupted" }> | { kind: "new"; isNew: RecordName | null } | { kind: "hung" };
  /** What the job has not asked for, in the order of the records. */
  unasked: RecordName[];
  /** The first new thing that had to wait until the job asks for the rest; `null`: there was none. */
  heldBack: RecordName | null;
  /** Whether something new has begun although the job had not asked for all that is recorded, as it may. */
  beganEarly: boolean;
  /** The entries of `changes` without which it would not have come as far. */
  needed: NeededChanges;
}

/** The limits of a replay, in milliseconds of real time. */
export interface ReplayLimits {
  /** For how long the job must do nothing before the replay counts as complete. */
  patience: number;
  /** For how long it may await something outside of its steps. */
  timeout: number;
}

/** Executes a job against a history: calls no function of a step, ends no pause, and stops where something new begins. */
export async function executeHistory(
  history: ExportedHistory,
  definition: CatalogJob,
  limits: ReplayLimits,
): Promise<ReplayEnd> {
  return await new HistoryExecution(history, definition, limits).execute();
}

class HistoryExecution {
  readonly #host: ReplayHost;
  readonly #execution: Execution;
  readonly #records: ObservedHistory;
  readonly #guard: ObservedGuard;
  readonly #timeout: number;
  /** What a replay cannot go on with, since it does not know the result. */
  #blockedBy: { isNew: RecordName | null } | null = null;
  #stoppedBy: { kind: "new"; isNew: RecordName | null } | { kind: "hung" } | null = null;
  #heldBack: RecordName | null = null;
  /** Answers whether the run parks. */
  #answerPark: ((parks: boolean) => void) | null = null;

  constructor(history: ExportedHistory, definition: CatalogJob, { patience, timeout }: ReplayLimits) {
    const claim = claimOfHistory(history);
    this.#timeout = timeout;
    this.#host = new ReplayHost(patience, () => this.#onQuiet());
    const store = new ReplayStore(history, claim, () => this.#untilMayPark());
    const deps: ExecutionDeps = {
      store: store.asStore,
      hub: new Hub(this.#host, toLogger(null)),
      host: this.#host,
      currentStep: new AsyncLocalStorage(),
      storesStacks: true,
      maxValueBytes: Infinity,
      maxStreamBytes: Infinity,
      runs: {
        create: (job, input, options) => this.#newChild(job as Job, input, options), // no step calls anything
        add: () => this.#blocked(null),
      },
      send: () => this.#blocked(null),
      onDivergence: "hold",
      recorder: new Recorder(),
      warn: () => {},
      around: new AroundHooks(() => {}),
      surroundings: {
        ...PRODUCTION,
        callStep: ({ stepName: name, work }) =>
          name.startsWith(ANSWER_PREFIX) ? this.#blocked({ kind: "step", name }) : work(),
      },
      transactions: { perform: () => this.#blocked(null) }, // never called: no step calls anything
    };
    const options = {
      slot: { isTaken: true, giveUp() {}, take: () => Promise.resolve(), noteFit() {}, noteEnding() {}, end() {} },
      leaseSureUntil: Infinity,
      renewLease: () => Promise.resolve(),
      onReport: () => {},
      onItems: () => {},
      onStep: () => {},
      onEnding: () => {},
      info: null,
    };
    this.#execution = new Execution(claim, { ...options, definition: this.#observed(definition) }, deps);
    const { definition: { job: { changes } }, onDivergence } = this.#execution;
    this.#records = new ObservedHistory(claim, changes, () => this.#onAsked());
    this.#guard = new ObservedGuard(this.#execution, this.#records, changes, onDivergence, (isNew) => {
      this.#stop({ kind: "new", isNew });
    });
  }

  async execute(): Promise<ReplayEnd> {
    // The timer also keeps the process alive while a job awaits a promise that never settles.
    const timer = setTimeout(() => this.#stop({ kind: "hung" }), this.#timeout);
    try {
      const { outcome } = await executeRun(this.#execution, { history: this.#records, guard: this.#guard });
      return {
        outcome: outcome.kind === "interrupted" ? this.#stoppedBy ?? { kind: "hung" } : outcome,
        unasked: this.#records.unasked(),
        heldBack: this.#heldBack,
        beganEarly: this.#guard.beganEarly,
        needed: { ...this.#records.needed, added: this.#guard.added },
      };
    } finally {
      clearTimeout(timer);
      this.#host.close();
    }
  }

  /** The definition with a function whose steps call nothing. */
  #observed(definition: CatalogJob): CatalogJob {
    const { job } = definition;
    const run: Job["run"] = (step, input) => {
      const call = (name: string, _work: unknown, options?: object) =>
        step.run(name, () => this.#blocked({ kind: "step", name }), options);
      const transaction = (name: string) => call(name, null);
      // They never return what they have not recorded.
      return job.run({ ...step, run: call as typeof step.run, transaction: transaction as never }, input);
    };
    return { ...definition, job: { ...job, run } };
  }

  /** The request for a child run, as an engine makes it: it throws what the engine would throw. */
  #newChild(job: Job, input: unknown, options: TriggerOptions): Soon<NewRun> {
    const definition = new JobCatalog([job]).find(job)!; // its only job
    return newRun(definition, input, options, { host: this.#host, maxValueBytes: Infinity, fairnessLabel: null });
  }

  /** Never resolves: the result of something new. */
  #blocked(isNew: RecordName | null): Promise<never> {
    this.#blockedBy ??= { isNew };
    if (this.#guard.isClear) this.#stop({ kind: "new", isNew });
    return new Promise<never>(() => {});
  }

  #onAsked(): void {
    this.#host.noteActivity();
    this.#answer(false);
    if (this.#blockedBy !== null && this.#guard.isClear) this.#stop({ kind: "new", ...this.#blockedBy });
  }

  /** Lets the run park, but not while another branch of the job may still ask for something recorded. */
  #untilMayPark(): Promise<boolean> {
    if (this.#guard.isClear) return Promise.resolve(true);
    return new Promise((resolve) => this.#answerPark = resolve);
  }

  #answer(parks: boolean): boolean {
    const answer = this.#answerPark;
    this.#answerPark = null;
    answer?.(parks);
    return answer !== null;
  }

  /** Called when the job has done nothing for a while. */
  #onQuiet(): boolean {
    if (this.#blockedBy === null) return this.#answer(true);
    this.#stop({ kind: "new", ...this.#blockedBy });
    return true;
  }

  #stop(by: { kind: "new"; isNew: RecordName | null } | { kind: "hung" }): void {
    if (this.#stoppedBy !== null) return;
    this.#stoppedBy = by;
    this.#heldBack = this.#guard.heldBack; // before the guard releases it
    this.#answer(false); // an execution that is being parked cannot be interrupted
    this.#execution.state.interrupt(new HoldfastError("unavailable", "The replay is complete"));
  }
}
