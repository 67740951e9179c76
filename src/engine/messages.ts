import type { Worker } from "../execution/worker.ts";
import type { ExecutionDeps } from "../execution/execution.ts";
import { refused, runAround, type SendEnd, type SendInfo } from "../model/around.ts";
import { NotFoundError, StoreError, ValidationError } from "../model/error.ts";
import type { JobFlow } from "../model/flow.ts";
import { type JobCatalog, UnknownJobError } from "../model/job/job_catalog.ts";
import type { Job } from "../model/job.ts";
import { type KeyedRun, parseMessagePayload } from "../model/job/job_messages.ts";
import { describeTarget, MAX_MESSAGE_ID, type SendResult, type SentMessage } from "../model/message.ts";
import {
  actorOf,
  type ActorOptions,
  encodeOrigin,
  type OriginText,
  readActor,
  type TraceContext,
  traceOf,
} from "../model/origin.ts";
import type { Labels, RunText } from "../model/run.ts";
import type { NewRun } from "../store/new_run.ts";
import type { SendOutcome, SendReceipt, SendRequest } from "../store/send_request.ts";
import type { FindRun } from "../store/transaction.ts";
import { andThen, explained, type Soon } from "../values/at_once.ts";
import { decode, encode, type Json, type JsonText } from "../values/json.ts";
import { kindOf } from "../values/unknown_values.ts";
import { checkName } from "../values/name.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { refuseUnknownRun } from "./runs/read_run.ts";
import type { WaitOptions } from "./runs/wait_for_run.ts";
import type { TriggerOptions } from "./triggers/new_run.ts";
import type { Triggers } from "./triggers/triggers.ts";
import { untilKnown } from "../events/retry_store_call.ts";

/** The run to start for a message: its input, and options of its trigger. */
export type StartOptions<L = Labels, Input = unknown> =
  & Omit<TriggerOptions<L>, "idempotencyKey" | "idempotencyUntil" | "coalesce">
  & {
    /** The input. */
    input: Input;
  };

/** Options of `Engine.send()`. */
export interface SendOptions<L = Labels, Input = unknown> extends ActorOptions {
  /**
   * Identifies the message: 1 to 200 characters. The same id with the same name and payload is a duplicate, also after the
   * run has ended. Default: a new one, so that each call sends another message.
   */
  id?: string;
  /**
   * Only for a message to the run of a key: if there is none that takes messages, a new one is started in the same commit,
   * which gets the key and the message.
   */
  start?: StartOptions<L, Input>;
}

/** Options of `Engine.ask()`. */
export interface AskOptions<L = Labels, Input = unknown> extends SendOptions<L, Input>, WaitOptions {}

/** A message that is to be sent. */
interface AskedMessage {
  /** Its name. */
  name: string;
  /** Its payload, as it was given. */
  payload: unknown;
  /** Its id; left out: a new one. */
  id?: string | undefined;
  /** Who sends it; `null`: nobody says so. */
  by: string | null;
}

/** Checks that are called before a message is stored. If one throws, it is refused: nothing is stored or published. */
export interface MessageGuard {
  /** The key as it is stored. */
  ownKey(key: string): Promise<string>;
  /** Before a message to the run of an id is looked at. It throws if there is no such run. */
  beforeReading(runId: string): Promise<void>;
  /** Before a run is started: returns the run to start, perhaps with other keys. */
  beforeStarting(run: NewRun, start: StartOptions, job: JobFlow): Promise<NewRun>;
  /**
   * Before a message is stored that is no duplicate.
   *
   * @param runId Its run; `null`: one is started for it.
   * @returns Who sends it; `null`: nobody says so.
   */
  beforeSending(runId: string | null, message: { id: string; name: string; payload: Json }): Promise<string | null>;
}

/** The names of the options of `Engine.send()`. */
export const SEND_OPTIONS: Record<keyof SendOptions, true> = { id: true, start: true, by: true };
const KEYED_RUN: Record<keyof KeyedRun, true> = { job: true, key: true };

// How often the checks are made again, because another run has the key by then.
const MAX_CHANGES = 5;

type MessagesDeps = Pick<ExecutionDeps, "store" | "host" | "maxValueBytes" | "around"> & {
  jobs: JobCatalog;
  triggers: Triggers;
  /** The current worker. */
  worker: () => Pick<Worker, "nudge" | "wake">;
};

/** Sends messages to runs. */
export class Messages {
  readonly #deps: MessagesDeps;

  constructor(deps: MessagesDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.send()`, if a guard allows it. `jobNames`: the run of an id must be of this job; left out: of any. */
  async send(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    options: SendOptions<unknown>,
    guard: MessageGuard | null = null,
    jobNames?: readonly string[],
  ): Promise<SendResult> {
    const findRun = (runId: string) => this.#findRun(runId, guard, jobNames);
    const asked = await this.request(to, name, payload, options, findRun, guard !== null);
    const request = guard === null ? asked : await this.#withOwnKeys(asked, options, guard);
    const outcome = await this.#sendAround(
      request,
      (traced) => guard === null ? this.#post(traced) : this.#postGuarded(to, traced, guard),
    );
    if ("changed" in outcome) throw new TypeError("A message without an expected run cannot find another one");
    const result = this.noteSent(outcome, request);
    // A call without an id has sent a message of its own, also if the store knows it from the first try.
    return options.id === undefined ? { ...result, disposition: "accepted" } : result;
  }

  /**
   * The checked request for a message: at once, if the run is found at once and the schemas answer at once.
   *
   * @param findRun Finds the run of an id. `null`: nobody can look yet, so the payload of a message to it is not checked.
   * @param isJson Of the input of the run to start: see {@linkcode newRun}.
   */
  request(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    options: SendOptions<unknown>,
    findRun: FindRun | null,
    isJson = false,
  ): Soon<SendRequest> {
    checkOptionNames(options, SEND_OPTIONS, "send()");
    const start = readStart(options);
    const asked: AskedMessage = { name, payload, id: options.id, by: readActor(options) };
    return typeof to === "string" ? this.#toRun(to, asked, start, findRun) : this.#toKey(to, asked, start, isJson);
  }

  /** Publishes the run that a message has started, and looks at once for what the message makes due. */
  noteSent({ run: { id: runId }, disposition, started }: SendReceipt, { message, start }: SendRequest): SendResult {
    const { triggers, worker } = this.#deps;
    worker().nudge(runId);
    worker().wake();
    if (started !== null && start !== null) triggers.publish(started, start);
    return {
      runId,
      messageId: message.id,
      disposition: started === null ? disposition : "accepted",
      started: started !== null,
    };
  }

  /** Sends the message of a step. */
  async sendFromStep(to: string | KeyedRun, name: string, payload: unknown, id: string): Promise<SentMessage> {
    const { runId, messageId } = await explained(
      () => this.send(to, name, payload, { id }),
      (error) => explainUnknownJob(error, "step.send()"),
    );
    return { runId, messageId };
  }

  async #findRun(runId: string, guard: MessageGuard | null, jobNames?: readonly string[]): Promise<RunText> {
    await guard?.beforeReading(runId);
    const [found] = await this.#deps.store.readRuns([runId], 1); // its values are not needed
    const run = found ?? await refuseUnknownRun(this.#deps.store, runId);
    if (jobNames?.includes(run.jobName) === false) {
      throw new NotFoundError(`There is no run "${runId}" of job "${jobNames[0]}"`);
    }
    return run;
  }

  #toRun(runId: string, asked: AskedMessage, start: unknown, findRun: FindRun | null): Soon<SendRequest> {
    if (start !== undefined) {
      throw new ValidationError("start needs a key: a run that is named by its id is not started");
    }
    const toRequest = (message: SendRequest["message"]): SendRequest => ({ to: { runId }, message, start: null });
    if (findRun === null) return andThen(this.#check(null, asked), toRequest);
    return andThen(findRun(runId), (run) => {
      if (run === null) throw noSuchTarget(runId);
      return andThen(this.#check(this.#jobOf(run), asked), toRequest);
    });
  }

  #toKey(
    to: KeyedRun,
    asked: AskedMessage,
    start: StartOptions<unknown> | undefined,
    isJson: boolean,
  ): Soon<SendRequest> {
    if (typeof to !== "object" || to === null) {
      throw new TypeError(`A message is sent to the id of a run, or to { job, key }, not to ${kindOf(to)}`);
    }
    checkOptionNames(to, KEYED_RUN, "The address of a message");
    checkName(to.key, "The key of a run");
    const { jobs, triggers } = this.#deps;
    const job = triggers.findJob(typeof to.job === "string" ? to.job : to.job?.name);
    const { aliases } = jobs.find(job.name)!; // it was found
    const target = { jobNames: [job.name, ...aliases], key: to.key };
    const checked = this.#check(job, asked);
    if (start === undefined) return andThen(checked, (message) => ({ to: target, message, start: null }));
    const { input, ...options } = start;
    for (const name of ["idempotencyKey", "idempotencyUntil", "coalesce"]) {
      if (Object.hasOwn(options, name)) throw new ValidationError(`start cannot have ${name}: the run gets the key`);
    }
    const keyed = { ...options, idempotencyKey: to.key, idempotencyUntil: "ended" as const };
    return andThen(checked, (message) => {
      const built = triggers.requestNow(job, input, keyed, isJson);
      return andThen(built, (run) => ({ to: target, message, start: run }));
    });
  }

  /** A checked request with the keys that a guard makes of those that were given. */
  async #withOwnKeys(request: SendRequest, options: SendOptions<unknown>, guard: MessageGuard): Promise<SendRequest> {
    const { to, start: run } = request;
    if ("runId" in to) return request;
    const { jobNames, key } = to;
    if (run === null) return { ...request, to: { jobNames, key: await guard.ownKey(key) } };
    const { flow } = this.#deps.triggers.findJob(jobNames[0]!);
    const start = await guard.beforeStarting(run, readStart(options) as StartOptions, flow);
    return { ...request, to: { jobNames, key: start.idempotencyKey ?? key }, start };
  }

  /** Sends a message, and calls the plugins' hooks around messages. */
  #sendAround(request: SendRequest, send: (traced: SendRequest) => Promise<SendOutcome>): Promise<SendOutcome> {
    const { send: around } = this.#deps.around;
    if (around === null) return send(request);
    const info = newSendInfo(request);
    return runAround(around, info, async (end) => {
      const outcome = await send(withTrace(request, info.trace));
      if (!("changed" in outcome)) end(toSendEnd(outcome));
      return outcome;
    }, refused);
  }

  /**
   * Sends a message once the guard has allowed it for the very run that then takes it.
   *
   * @param to The address as it was given: a guard may have made another key of it.
   */
  async #postGuarded(to: string | KeyedRun, request: SendRequest, guard: MessageGuard): Promise<SendOutcome> {
    const { id, name, payload } = request.message;
    let outcome = await this.#post({ ...request, expect: "" }); // no run: only a duplicate is answered
    for (let changes = 0; "changed" in outcome; changes++) {
      const runId = outcome.found?.id ?? null;
      // It is not sent to a run that there is by now: the guard was not asked about that.
      if (runId === null && request.start === null) throw noSuchTarget(to);
      if (changes === MAX_CHANGES) {
        throw new StoreError(`The run of a message has changed ${MAX_CHANGES} times meanwhile`);
      }
      const by = await guard.beforeSending(runId, { id, name, payload: decode(payload) as Json }); // it is no `undefined`
      const message = { ...request.message, trace: encodeOrigin(traceOf(request.message.trace), by) };
      outcome = await this.#post({ ...request, message, expect: runId });
    }
    if (outcome.disposition === "duplicate" && !("runId" in request.to)) await guard.beforeReading(outcome.run.id);
    return outcome;
  }

  #post(request: SendRequest): Promise<SendOutcome> {
    return untilKnown(() => this.#deps.store.send(request));
  }

  /** Checks a message by the schema of its job; `null`: that is not known yet. */
  #check(job: Job | null, { name, payload, id, by }: AskedMessage): Soon<SendRequest["message"]> {
    checkName(name, "The name of a message");
    if (id !== undefined) checkMessageId(id);
    const given = this.#encode(payload, `The payload of message "${name}"`);
    if (given === null) throw new ValidationError("A message must have a payload, which may be null");
    const value = decode(given) as Json; // it is no `undefined`
    const parsed = job === null ? value : parseMessagePayload(job, { name, payload: value }, this.#deps.host);
    return andThen(parsed, (parsed) => {
      const input = this.#encode(parsed, `What the schema of message "${name}" has made of its payload`);
      return { id: id ?? this.#deps.host.newId(), name, payload: given, input, trace: encodeOrigin(null, by) };
    });
  }

  #encode(value: unknown, subject: string): JsonText | null {
    return encode(value, { subject, maxBytes: this.#deps.maxValueBytes });
  }

  /** The definition that says which messages a run takes: that of its version, or the newest one. */
  #jobOf({ jobName, version }: Pick<RunText, "jobName" | "version">): Job {
    const { jobs } = this.#deps;
    const found = jobs.executing(jobName, version) ?? jobs.find(jobName);
    if (found === undefined) throw new UnknownJobError(jobName, jobs.newest.keys());
    return found.job;
  }
}

/** The run that is started for a message: by who sends it, unless that says otherwise. */
function readStart({ start, by }: SendOptions<unknown>): StartOptions<unknown> | undefined {
  if (start === undefined) return undefined;
  if (start === null || typeof start !== "object") {
    throw new ValidationError(`start must be an object with the input of a run, not ${kindOf(start)}`);
  }
  return by === undefined || by === null ? start : { by, ...start };
}

/** What plugins receive for a message that is to be sent. */
export function newSendInfo({ to, message: { name, id: messageId } }: SendRequest): SendInfo {
  return { to: "runId" in to ? to : { jobName: to.jobNames[0]!, key: to.key }, name, messageId, trace: null };
}

/** What plugins receive for a message that was sent. */
export function toSendEnd({ run: { id: runId, jobName }, disposition: kind, started }: SendReceipt): SendEnd {
  return { kind, runId, jobName, started: started !== null };
}

/** A message with the trace that a plugin has set, also for the run that is started for it. */
export function withTrace(request: SendRequest, trace: TraceContext | null): SendRequest {
  const traced = <T extends { trace: OriginText | null }>(given: T): T => {
    return { ...given, trace: encodeOrigin(trace, actorOf(given.trace)) };
  };
  const { message, start } = request;
  return { ...request, message: traced(message), start: start && traced(start) };
}

/** Replaces the error of an unknown job, which lists those of the engine: clients see the error of a run. */
export function explainUnknownJob(error: unknown, call: string): never {
  if (!(error instanceof UnknownJobError)) throw error;
  throw new TypeError(
    `${call} cannot send to a run of job "${error.jobName}": the engine that executes it has no such job`,
  );
}

/** The refusal of a message to a run that does not exist. */
function noSuchTarget(to: string | KeyedRun): NotFoundError {
  if (typeof to === "string") return new NotFoundError(`There is no ${describeTarget({ runId: to })}`);
  const jobName = typeof to.job === "string" ? to.job : to.job.name;
  return new NotFoundError(`There is no ${describeTarget({ jobNames: [jobName], key: to.key })}`);
}

/**
 * Checks the id of a message.
 *
 * @throws {ValidationError} It is not a string of 1 to 200 characters, or is only white space.
 */
function checkMessageId(id: unknown): asserts id is string {
  checkName(id, "The id of a message", MAX_MESSAGE_ID);
  if (id.trim() === "") throw new ValidationError("The id of a message must have a character that is not white space");
}
