import { ValidationError } from "../error.ts";
import type { CloseInbox, ReceivedMessage } from "../message.ts";
import { type ParseLimits, parseNow, type Schema, type SchemaOutput } from "../schema.ts";
import { andThen, type Soon } from "../../values/at_once.ts";
import type { Duration } from "../../values/duration.ts";
import type { Json, Jsonify } from "../../values/json.ts";

/** The messages that a job takes: a Standard Schema of the payload for each name. */
export type MessageSchemas = { readonly [name: string]: Schema };

/** The messages of a job that takes none. */
export type NoMessages = Record<never, never>;

/** A message of a job, as it receives it: one type for each of its names. */
export type JobMessage<M extends MessageSchemas, Name extends string = keyof M & string> = {
  [N in Name]: ReceivedMessage<N, N extends keyof M ? Jsonify<SchemaOutput<M[N]>> : Json>;
}[Name];

/** The run of a job with this idempotency key, or the newest retry of that run. */
export interface KeyedRun<J = string | { readonly name: string }> {
  /** The job, or its name. */
  job: J;
  /** The idempotency key. */
  key: string;
}

/** Options of {@linkcode StepContext.receive}. */
export interface ReceiveOptions {
  /** The names of the messages that it takes: 1 to 50. Default: the name of the receive. */
  names?: readonly string[];
  /** How long to wait for a message: `"1h"`, or milliseconds. `0`: take what is there now. Not together with `deadline`. */
  timeout?: Duration;
  /** Until when to wait for one. Not together with `timeout`. */
  deadline?: Date | string;
  /** How many messages to take at most, from 1 to 1,000; the result is an array then. */
  max?: number;
  /**
   * When to close the inbox of the run, so that no message is accepted that the run would not see: with a timeout, or also
   * when this takes the last unread message. Default: never.
   */
  close?: CloseInbox;
}

/** What a receive returns: a message, or `null` if there was none in time; with `max` an array. */
export type ReceiveResult<Message, Options extends ReceiveOptions> = Options extends { max: number } ? Message[]
  : Message | null;

/** Says which messages a job takes, for a name that is none of them. */
export function describeUnknownMessage(job: { name: string; messages: MessageSchemas }, name: string): string {
  const known = Object.keys(job.messages).map((name) => `"${name}"`);
  if (known.length === 0) return `Job "${job.name}" takes no messages`;
  return `Job "${job.name}" has no message "${name}": its messages are ${known.join(", ")}`;
}

/**
 * Parses the payload of a message by the schema of its job: at once, if that answers at once.
 *
 * @throws {ValidationError} The job has no such message, or the payload does not fit its schema.
 */
export function parseMessagePayload(
  job: { name: string; messages: MessageSchemas },
  { name, payload }: { name: string; payload: Json },
  host: ParseLimits["host"],
): Soon<unknown> {
  const schema = Object.hasOwn(job.messages, name) ? job.messages[name] : undefined;
  if (schema === undefined) throw new ValidationError(describeUnknownMessage(job, name));
  const subject = `The payload of message "${name}" of job "${job.name}"`;
  return andThen(parseNow(schema, payload, { host, subject: `The schema of message "${name}"` }), (parsed) => {
    if (parsed.ok) return parsed.value;
    const { ok: _, ...refusal } = parsed;
    throw new ValidationError(`${subject} does not fit its schema`, { ...refusal, code: "invalid_input" });
  });
}
