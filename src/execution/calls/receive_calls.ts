import { describeUnknownMessage, type ReceiveOptions } from "../../model/job/job_messages.ts";
import type { MessageRecord, Receive, ReceivedMessage } from "../../model/message.ts";
import { isoTime } from "../../values/iso_time.ts";
import { decode } from "../../values/json.ts";
import { kindOf } from "../../values/kind_of.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Execution } from "../execution.ts";
import type { RecordedHistory } from "../replay/recorded_history.ts";
import { StepNameNumbers } from "../replay/step_name_numbers.ts";
import type { PauseCalls } from "./pause_calls.ts";
import { namesOf } from "../../values/names_of.ts";

const OPTIONS = namesOf<keyof ReceiveOptions>()("names timeout deadline max close");
const MAX_NAMES = 50;
const MAX_TAKEN = 1_000;

/** Implements the receives of a job. */
export class ReceiveCalls {
  readonly #execution: Execution;
  readonly #pauses: PauseCalls;
  readonly #history: RecordedHistory;
  readonly #names = new StepNameNumbers("receive");

  constructor(execution: Execution, pauses: PauseCalls, history: RecordedHistory) {
    this.#execution = execution;
    this.#pauses = pauses;
    this.#history = history;
  }

  /** See `StepContext.receive()`. */
  async receive(givenName: string, options: ReceiveOptions): Promise<ReceivedMessage | ReceivedMessage[] | null> {
    this.#pauses.check();
    checkOptionNames(options, OPTIONS, "step.receive()");
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
}

function toReceived({ id, name, input, acceptedAt }: MessageRecord): ReceivedMessage {
  // What the schema has made of the payload can be `undefined`, although the payload is not.
  return { id, name, payload: decode(input) as ReceivedMessage["payload"], acceptedAt: isoTime(acceptedAt) };
}
