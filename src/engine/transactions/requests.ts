import {
  type AroundFunction,
  type AroundHooks,
  newTriggerInfo,
  refused,
  runAround,
  toSignalResult,
} from "../../model/around.ts";
import type { Job } from "../../model/job.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import type { StepTriggerOptions } from "../../model/job/step_calls.ts";
import {
  actorOf,
  type ActorOptions,
  checkActor,
  encodeOrigin,
  type TraceContext,
  traceOf,
} from "../../model/origin.ts";
import type {
  TransactionCalls,
  TransactionMessage,
  TransactionSendOptions,
  TransactionTrigger,
} from "../../model/transaction.ts";
import type { DataSource } from "../../model/data_source.ts";
import { checkSignal, type Signal, type SignalOutcome } from "../../model/wait.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { SendReceipt, SendRequest } from "../../store/send_request.ts";
import type { FindRun, FindWait, TransactionSignal, WaitOfJob } from "../../store/transaction.ts";
import { andThen, explained, isPromise, type Soon } from "../../values/at_once.ts";
import { isClosed, laterNamesOf } from "../runs/retried_waits.ts";
import { explainUnknownJob, type Messages, newSendInfo, toSendEnd, withTrace } from "../messages.ts";
import { Mistake, unwrapped } from "../../execution/transactions.ts";
import type { NewOutboxRow } from "../../model/effects.ts";
import { decode } from "../../values/json.ts";
import { WatchedPromise } from "../../values/watched_promise.ts";
import type { TriggerOptions } from "../triggers/new_run.ts";
import type { KeyedRun } from "../../model/job/job_messages.ts";

/** The dependencies of {@linkcode Requests}. */
export interface RequestsDeps {
  /** Builds the request for a run. */
  create: (job: Job | string, input: unknown, options: StepTriggerOptions) => Soon<NewRun>;
  /** The step whose run the new runs inherit from; `null`: none. */
  step: object | null;
  /** What plugins do around triggers, signals and messages. */
  around: AroundHooks;
  /** Finds a wait that is signalled; `null`: the signal goes through an outbox, and is checked when it is relayed. */
  findWait: FindWait | null;
  /** The jobs, which may have renamed their waits. */
  jobs: JobCatalog;
  /** Finds a run that a message is sent to; `null`: the message goes through an outbox. */
  findRun: FindRun | null;
  /** Builds the request for a message. */
  messages: () => Pick<Messages, "request">;
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

/** The options of a row of the outbox that sends a message. */
export type SendRowOptions = Omit<TransactionSendOptions, "id"> & {
  /** The id of the run, or its job and its key. */
  to: string | KeyedRun<string>;
};

/** What has become of requests. */
export interface CommittedRequests {
  /** In the order of the requests; `null`: not known yet, or deleted since. */
  runs: readonly (Enqueued | null)[];
  /** In the order of the signals; none if they go through an outbox. */
  signals: readonly SignalOutcome[];
  /** In the order of the messages; none if they go through an outbox. */
  messages: readonly SendReceipt[];
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
  /** The messages to send. */
  readonly messages: SendRequest[] = [];
  /** The options of each message, as they were given. */
  readonly messageOptions: TransactionSendOptions[] = [];
  readonly #deps: RequestsDeps;
  readonly #answers = Promise.withResolvers<CommittedRequests>();
  /** The calls that are checked asynchronously, and the answers at which the function has not looked. */
  readonly #checks: Promise<unknown>[] = [];
  readonly #unseen = new Set<WatchedPromise<unknown>>();
  #hasEnded = false;

  constructor(deps: RequestsDeps) {
    this.#deps = deps;
    this.#answers.promise.catch(() => {}); // there may be no plugin
  }

  /** What the function is given beside what its database can do. */
  calls(kind: DataSource["kind"]): { trigger: unknown; signal: unknown; send: unknown } {
    if (kind === "sqlite") return { trigger: this.#trigger, signal: this.signalNow, send: this.#send };
    const checked = <G extends unknown[], T>(ask: (...given: G) => Soon<T>) => (...given: G): Promise<T> =>
      this.#answerLater((async () => await ask(...given))());
    return {
      trigger: checked((...given: Parameters<Requests["triggerSoon"]>) => this.triggerSoon(...given)),
      signal: checked((...given: Parameters<TransactionCalls["signal"]>) => this.#signalSoon(...given)),
      send: checked((...given: Parameters<TransactionCalls["send"]>) => this.sendSoon(...given)),
    };
  }

  #answerLater<T>(check: Promise<T>): Promise<T> {
    if (this.#hasEnded) return check; // nobody waits for it but the caller
    const answer = new WatchedPromise<T>((resolve) => resolve(check));
    answer.catch(() => {}); // `checked()` throws it
    answer.unseen = this.#unseen;
    this.#unseen.add(answer);
    this.#checks.push(check);
    return answer;
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

  readonly #send = (...given: Parameters<TransactionCalls["send"]>): TransactionMessage => {
    const sent = this.sendSoon(...given);
    return isPromise(sent) ? this.#refuse(sent, `message "${given[1]}"`) : sent;
  };

  /** Sends a message: at once, if its run is found at once and the schemas answer at once. */
  sendSoon(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    options: TransactionSendOptions = {},
  ): Soon<TransactionMessage> {
    this.#check();
    const { messages, findRun, step } = this.#deps;
    const find = findRun && ((runId: string) => this.runs.find(({ id }) => id === runId) ?? findRun(runId));
    const request = explained(
      () => messages().request(to, name, payload, options, find),
      (error) => step === null ? raise(error) : explainUnknownJob(error, "tx.send()"),
    );
    return andThen(request, (request) => {
      this.#check();
      const send = findRun === null ? null : this.#deps.around.send; // otherwise the relay asks
      const index = this.messages.length;
      const trace = send &&
        this.#traceOf(send, newSendInfo(request), ({ messages }) => toSendEnd(messages[index]!));
      this.messageOptions.push(options);
      this.messages.push(withTrace(request, trace));
      return { messageId: request.message.id };
    });
  }

  /**
   * Waits for the calls that the function has not awaited, and refuses further calls.
   *
   * @throws What one of them was refused with, if the function has not looked at its answer.
   */
  async checked(): Promise<void> {
    for (let settled = -1; settled < this.#checks.length;) {
      settled = this.#checks.length;
      await Promise.allSettled(this.#checks); // meanwhile the function can have made more calls
    }
    this.end();
    for (const answer of this.#unseen) await answer;
  }

  #signalSoon(waitId: string, signal: Signal, options: ActorOptions = {}): Soon<void> {
    this.#check();
    const by = checkActor(options, "signal()");
    const { maxValueBytes, findWait, jobs, checkPayload } = this.#deps;
    const checked = checkSignal(signal, maxValueBytes);
    const found = findWait === null ? null : andThen(findWait(waitId), (found) => {
      if (found === null || !isClosed(found.wait)) return found;
      const names = laterNamesOf(found.wait.name, found, jobs);
      return names.length === 0 ? found : findWait(waitId, names);
    });
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
      ...this.messages.map(({ to, message: { id, name, payload }, start }, index): NewOutboxRow => {
        const { id: _, ...given } = this.messageOptions[index]!; // one for each
        const options: SendRowOptions = {
          ...given,
          to: "runId" in to ? to.runId : { job: to.jobNames[0]!, key: to.key },
          ...(start === null ? {} : { start: { ...given.start, input: decode(start.payload) } }),
        };
        return { id, kind: "send", name, value: payload, options: JSON.stringify(options), ...place };
      }),
    ];
  }
}

function raise(error: unknown): never {
  throw error;
}
