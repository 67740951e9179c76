import {
  type AroundFunction,
  type AroundHooks,
  newTriggerInfo,
  refused,
  runAround,
  toSignalResult,
} from "../../model/around.ts";
import type { Job, StepTriggerOptions } from "../../model/job.ts";
import {
  actorOf,
  type ActorOptions,
  checkActor,
  encodeOrigin,
  type TraceContext,
  traceOf,
} from "../../model/origin.ts";
import type { TransactionCalls, TransactionTrigger } from "../../model/transaction.ts";
import type { DataSource } from "../../model/data_source.ts";
import { checkSignal, type Signal, type SignalOutcome } from "../../model/wait.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { FindWait, TransactionSignal, WaitOfJob } from "../../store/transaction.ts";
import { andThen, isPromise, type Soon } from "../../values/at_once.ts";
import { Mistake, unwrapped } from "../../execution/transactions.ts";
import type { NewOutboxRow } from "../../model/effects.ts";
import type { TriggerOptions } from "../triggers/new_run.ts";

/** The dependencies of {@linkcode Requests}. */
export interface RequestsDeps {
  /** Builds the request for a run. */
  create: (job: Job | string, input: unknown, options: StepTriggerOptions) => Soon<NewRun>;
  /** The step whose run the new runs inherit from; `null`: none. */
  step: object | null;
  /** What plugins do around triggers and signals. */
  around: AroundHooks;
  /** Finds a wait that is signalled; `null`: the signal goes through an outbox, and is checked when it is relayed. */
  findWait: FindWait | null;
  /** Refuses a signal whose payload does not fit the schema of its wait. */
  checkPayload: (found: WaitOfJob, signal: Signal) => Soon<void>;
  /** The maximum size of a payload, in bytes of JSON. */
  maxValueBytes: number;
}

/** The options of a row of the outbox that triggers a run. */
export type RowOptions = TriggerOptions & {
  /** What a plugin has set at the trigger, so that none is asked again; left out: none was asked. */
  trace?: TraceContext | null;
  /** Whether a step has started the run: the labels are those of its run, which its own trigger has checked. */
  isOfStep?: boolean;
};

/** What has become of requests. */
export interface CommittedRequests {
  /** In the order of the requests; `null`: not known yet, or deleted since. */
  runs: readonly (Enqueued | null)[];
  /** In the order of the signals; none if they go through an outbox. */
  signals: readonly SignalOutcome[];
}

/** What one execution of the function of a transaction asks the store for. */
export class Requests {
  /** The runs to add. */
  readonly runs: NewRun[] = [];
  /** The options of each run, as they were given. */
  readonly options: object[] = [];
  /** Who sends each signal. */
  readonly signalsBy: (string | null)[] = [];
  /** The signals to deliver. */
  readonly signals: TransactionSignal[] = [];
  readonly #deps: RequestsDeps;
  readonly #answers = Promise.withResolvers<CommittedRequests>();
  /** The checks of payloads that are under way. */
  readonly #checks: Promise<void>[] = [];
  #hasEnded = false;

  constructor(deps: RequestsDeps) {
    this.#deps = deps;
    this.#answers.promise.catch(() => {}); // there may be no plugin
  }

  /** What the function is given beside what its database can do. */
  calls(kind: DataSource["kind"]): { trigger: unknown; signal: unknown } {
    if (kind === "sqlite") return { trigger: this.#trigger, signal: this.signalNow };
    const trigger = async (...given: Parameters<Requests["triggerSoon"]>) => await this.triggerSoon(...given);
    const signal = (...given: Parameters<TransactionCalls["signal"]>) => {
      const check = (async () => await this.#signalSoon(...given))();
      this.#checks.push(check);
      return check;
    };
    return { trigger, signal };
  }

  /** Builds the request for a run: at once, if the schemas answer at once. */
  triggerSoon(
    job: Job | string,
    input: unknown,
    options: StepTriggerOptions & ActorOptions = {},
  ): Soon<TransactionTrigger> {
    this.#check();
    return andThen(this.#deps.create(job, input, options), (run) => {
      this.#check();
      return this.#add(run, options);
    });
  }

  readonly #trigger = (
    job: Job | string,
    input: unknown,
    options: StepTriggerOptions & ActorOptions = {},
  ): TransactionTrigger => {
    this.#check();
    const run = this.#deps.create(job, input, options);
    if (!isPromise(run)) return this.#add(run, options);
    return this.#refuse(run, `job "${typeof job === "string" ? job : job.name}"`);
  };

  /** Sends a signal; the schema of its wait has to answer at once. */
  readonly signalNow = (waitId: string, signal: Signal, options?: ActorOptions): void => {
    const sent = this.#signalSoon(waitId, signal, options);
    if (isPromise(sent)) this.#refuse(sent, `the payload of wait "${waitId}"`);
  };

  /** Waits for the signals that the function has not awaited. */
  async checked(): Promise<void> {
    await Promise.allSettled(this.#checks);
  }

  #signalSoon(waitId: string, signal: Signal, options: ActorOptions = {}): Soon<void> {
    this.#check();
    const by = checkActor(options, "signal()");
    const { maxValueBytes, findWait, checkPayload } = this.#deps;
    const checked = checkSignal(signal, maxValueBytes);
    const found = findWait === null ? null : findWait(waitId);
    const current = andThen(
      found,
      (found) => found === null ? waitId : andThen(checkPayload(found, checked), () => found.wait.id),
    );
    return andThen(current, (waitId) => {
      this.#check();
      const signal = findWait === null ? null : this.#deps.around.signal; // otherwise the relay asks
      const index = this.signals.length;
      const info = { waitId, signalId: checked.signalId, trace: null };
      const trace = signal && this.#traceOf(signal, info, ({ signals }) => toSignalResult(signals[index]!));
      this.signalsBy.push(by);
      this.signals.push({ waitId, signal: checked, trace: encodeOrigin(trace, by) });
    });
  }

  /** Refuses what a transaction on SQLite cannot wait for. */
  #refuse(answer: Promise<unknown>, subject: string): never {
    answer.catch(() => {}); // it is refused in any case
    throw new TypeError(
      `The schema of ${subject} is asynchronous: a transaction on SQLite cannot wait for it, since other writes ` +
        "share its commit",
    );
  }

  /** Refuses further calls. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Tells plugins that the transaction was committed. */
  commit(answers: CommittedRequests): void {
    this.#answers.resolve(answers);
  }

  /** Tells plugins that nothing was committed. */
  rollBack(error: unknown): void {
    this.#hasEnded = true;
    this.#answers.reject(unwrapped(error));
  }

  #check(): void {
    if (this.#hasEnded) throw new TypeError("The transaction has ended");
  }

  #add(run: NewRun, options: object): TransactionTrigger {
    const { trigger } = this.#deps.around;
    const index = this.runs.length;
    const trace = trigger && this.#traceOf(trigger, newTriggerInfo(run.jobName), ({ runs }) => {
      // There is none while it is in the outbox.
      const { run: { id }, disposition } = runs[index] ?? { run, disposition: "created" as const };
      return { kind: "triggered" as const, runs: [{ id, disposition, trace: null }] };
    });
    this.options.push(options);
    this.runs.push({ ...run, trace: encodeOrigin(trace, actorOf(run.trace)) });
    return { runId: run.id };
  }

  /** The trace that a plugin has set before it has called `next()`, which settles with the commit. */
  #traceOf<Info extends { trace: TraceContext | null }, Outcome>(
    around: AroundFunction<Info, Outcome>,
    info: Info,
    toOutcome: (answers: CommittedRequests) => Outcome,
  ): TraceContext | null {
    let trace: TraceContext | null = null;
    runAround<Info, Outcome, void>(around, info, async (end) => {
      trace = info.trace;
      end(toOutcome(await this.#answers.promise));
    }, refused as (error: unknown) => Outcome) // one of the outcomes of a trigger and of a signal
      .catch(() => {}); // the outcome has the error
    return trace;
  }

  /** What was asked for as rows of the outbox: as it was given, with what the run inherits from that of the step. */
  toRows(storeId: string | null, at: number): NewOutboxRow[] {
    const place = { storeId, at };
    const { around, step } = this.#deps;
    const isTraced = around.trigger !== null;
    return [
      ...this.runs.map(
        ({ id, jobName, payload, labels, flow: { priority, fairnessKey }, trace }, index): NewOutboxRow => {
          const inherited = { labels, priority, ...(fairnessKey === null ? {} : { fairnessKey }), isOfStep: true };
          const given: RowOptions = {
            ...this.options[index],
            ...(step === null ? {} : inherited),
            ...(isTraced ? { trace: traceOf(trace) } : {}),
          };
          if (given.coalesce !== undefined) {
            throw new Mistake(new TypeError("coalesce needs a data source that is joined"));
          }
          return { id, kind: "trigger", name: jobName, value: payload, options: JSON.stringify(given), ...place };
        },
      ),
      ...this.signals.map(({ waitId, signal: { signalId: id, payload } }, index): NewOutboxRow => {
        const by = this.signalsBy[index] ?? null;
        const options = by === null ? null : JSON.stringify({ by });
        return { id, kind: "signal", name: waitId, value: JSON.stringify(payload), options, ...place };
      }),
    ];
  }
}
