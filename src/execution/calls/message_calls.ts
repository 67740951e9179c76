import { retryStoreCall } from "../../events/retry_store_call.ts";
import { derivedRunId } from "../../model/end.ts";
import { StoreError } from "../../model/error.ts";
import { describeUnknownMessage, type KeyedRun, type ReceiveOptions } from "../../model/job/job_messages.ts";
import {
  answerName,
  MAX_MESSAGE_ID,
  type MessageRecord,
  type Receive,
  type ReceivedMessage,
  type SentMessage,
} from "../../model/message.ts";
import { isoTime } from "../../values/iso_time.ts";
import { decode } from "../../values/json.ts";
import { isName } from "../../values/name.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import { isInstance, kindOf } from "../../values/unknown_values.ts";
import type { Execution } from "../execution.ts";
import type { RecordedHistory } from "../replay/recorded_history.ts";
import { StepNameNumbers } from "../replay/step_name_numbers.ts";
import type { PauseCalls } from "./pause_calls.ts";
import type { StepCalls } from "./step_calls.ts";

const RECEIVE_OPTIONS = namesOf<keyof ReceiveOptions>()("names timeout deadline max close");
const MAX_NAMES = 50;
const MAX_TAKEN = 1_000;

/** Implements the calls of a job that receive messages, answer and send them. */
export class MessageCalls {
  readonly #execution: Execution;
  readonly #pauses: PauseCalls;
  readonly #steps: StepCalls;
  readonly #history: RecordedHistory;
  readonly #names = new StepNameNumbers("receive");
  readonly #answered = new Set<string>();

  constructor(execution: Execution, calls: { pauses: PauseCalls; steps: StepCalls }, history: RecordedHistory) {
    this.#execution = execution;
    this.#pauses = calls.pauses;
    this.#steps = calls.steps;
    this.#history = history;
  }

  /** See `StepContext.receive()`. */
  async receive(givenName: string, options: ReceiveOptions): Promise<ReceivedMessage | ReceivedMessage[] | null> {
    this.#pauses.check();
    checkOptionNames(options, RECEIVE_OPTIONS, "step.receive()");
    const receive = this.#readReceive(givenName, options);
    const deadline = this.#pauses.deadlineOf("receive", givenName, options);
    const name = this.#names.begin(givenName);
    try {
      const known = this.#history.pause("receive", name);
      const pause = known ?? { ...this.#pauses.newPause("receive", name, deadline, undefined), receive };
      const { messages = [] } = await this.#pauses.over(pause, receive);
      const received = messages.map(toReceived);
      return options.max === undefined ? received[0] ?? null : received;
    } finally {
      this.#names.end(givenName);
    }
  }

  #readReceive(givenName: string, { names = [givenName], max = 1, close }: ReceiveOptions): Receive {
    const { job } = this.#execution.definition;
    if (!Array.isArray(names) || names.length < 1 || names.length > MAX_NAMES) {
      throw new TypeError(`names of receive "${givenName}" must be an array of 1 to ${MAX_NAMES} names`);
    }
    for (const name of names) {
      if (typeof name !== "string") throw new TypeError(`A message has a name, a string, not ${kindOf(name)}`);
      if (!Object.hasOwn(job.messages, name)) throw new TypeError(describeUnknownMessage(job, name));
    }
    if (!Number.isInteger(max) || max < 1 || max > MAX_TAKEN) {
      throw new TypeError(`max of receive "${givenName}" must be an integer from 1 to ${MAX_TAKEN}`);
    }
    if (close !== undefined && close !== "timeout" && close !== "always") {
      throw new TypeError(`close of receive "${givenName}" must be "timeout" or "always"`);
    }
    return { names: [...new Set(names)], max, close: close ?? null };
  }

  /** See `StepContext.respond()`. */
  async respond(message: Pick<ReceivedMessage, "id">, value: unknown): Promise<void> {
    const id: unknown = (message as Partial<ReceivedMessage> | null | undefined)?.id;
    if (!isName(id) || id.length > MAX_MESSAGE_ID) {
      throw new TypeError(`step.respond() needs a message: what step.receive() returns, not ${kindOf(message)}`);
    }
    this.#steps.checkOutside(answerName(id));
    if (this.#answered.has(id)) throw new TypeError(`Message "${id}" has an answer: a message is answered once`);
    const answer = value === undefined ? null : value;
    this.#execution.encode(answer, `The answer to message "${id}"`);
    this.#answered.add(id);
    // The answer is what the step returns: `ask()` reads it there.
    await this.#steps.step(answerName(id), { work: () => answer, transact: null }, { retry: {} }, true);
  }

  /** See `StepContext.send()`. */
  async send(givenName: string, to: string | KeyedRun, message: string, payload: unknown): Promise<SentMessage> {
    const { claim, deps, abortSignal } = this.#execution;
    const send = async ({ idempotencyKey }: { idempotencyKey: string }): Promise<SentMessage> => {
      // The same id after a crash: the store recognizes the repetition, so the message is sent once.
      const id = derivedRunId(claim.originId, idempotencyKey);
      const settle = async () => {
        try {
          return { sent: await deps.send(to, message, payload, id) };
        } catch (error) {
          if (isInstance(error, StoreError)) throw error; // it is sent again
          return { error };
        }
      };
      const settled = await retryStoreCall(settle, deps, abortSignal);
      if ("error" in settled) throw settled.error;
      return settled.sent;
    };
    return await this.#steps.run(givenName, send, { retry: {} }) as unknown as SentMessage; // what `send` returns
  }
}

function toReceived({ id, name, input, acceptedAt }: MessageRecord): ReceivedMessage {
  // What the schema has made of the payload can be `undefined`, although the payload is not.
  return { id, name, payload: decode(input) as ReceivedMessage["payload"], acceptedAt: isoTime(acceptedAt) };
}
