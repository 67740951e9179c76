import { answerName, MAX_MESSAGE_ID, type ReceivedMessage, type SentMessage } from "../../model/message.ts";
import type { KeyedRun } from "../../model/job/job_messages.ts";
import { retryStoreCall } from "../../events/retry_store_call.ts";
import { StoreError } from "../../model/error.ts";
import { isInstance } from "../../values/is_instance.ts";
import { kindOf } from "../../values/kind_of.ts";
import { isName } from "../../values/name.ts";
import { derivedRunId } from "./derived_run_id.ts";
import type { Execution } from "../execution.ts";
import type { StepCalls } from "./step_calls.ts";

/** Implements the steps that answer messages and send them. */
export class MessageCalls {
  readonly #execution: Execution;
  readonly #steps: StepCalls;
  readonly #answered = new Set<string>();

  constructor(execution: Execution, steps: StepCalls) {
    this.#execution = execution;
    this.#steps = steps;
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
          return { sent: await deps.messages.send(to, message, payload, id) };
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
