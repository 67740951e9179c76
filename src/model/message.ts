import { ConflictError } from "./error.ts";
import { isSameJson, type Json, type JsonText, parseValue, type Stored } from "../values/json.ts";
import type { RunStatus } from "./run.ts";

/** The status of a message: `closed` if its run has ended, and no receive has taken it. */
export type MessageStatus = "unread" | "received" | "closed";

/** A named value that was sent to a run. Times are ISO 8601 in UTC. */
export interface Message {
  /** Identifies a repeated sending: 1 to 200 characters, unique in its run. */
  id: string;
  /** What it is: one of the `messages` of the job. */
  name: string;
  /** Its value, as it was given. */
  payload: Json;
  /** Its status. */
  status: MessageStatus;
  /** When it was accepted. */
  acceptedAt: string;
  /** Who sent it, if somebody said so (`by`). */
  sentBy: string | null;
  /** When a receive took it. */
  receivedAt: string | null;
  /** The name of that receive, with its occurrence. */
  receivedBy: string | null;
}

/** The fields of a message that hold JSON values. */
export const MESSAGE_VALUES = ["payload"] as const;

/** A message with its value as stored JSON. */
export type MessageText = Stored<Message, "payload">;

/** Parses the value of a stored message. */
export function parseMessage(message: MessageText): Message {
  return { ...message, payload: parseValue(message.payload) };
}

/** A message as it is shown over HTTP: who sent it is left out while nobody said so. */
export type ClientMessage = Omit<Message, "sentBy"> & { sentBy?: string };

/** Shows a message over HTTP. */
export function toClientMessage<M extends Pick<Message, "sentBy">>(
  { sentBy, ...message }: M,
): Omit<M, "sentBy"> & Pick<ClientMessage, "sentBy"> {
  return sentBy === null ? message : { ...message, sentBy };
}

/** A message that a receive took, as a replay needs it. */
export interface MessageRecord {
  /** Its id. */
  id: string;
  /** Its name. */
  name: string;
  /** What the schema made of its value; `null` for `undefined`. */
  input: JsonText | null;
  /** When it was accepted, by the store's clock. */
  acceptedAt: number;
}

/** A message, as the job receives it. */
export interface ReceivedMessage<Name extends string = string, Payload = Json> {
  /** Its id: the sender's own, or one that the engine made. */
  id: string;
  /** Its name. */
  name: Name;
  /** Its value, as the schema of the job's `messages` made it. */
  payload: Payload;
  /** When it was accepted: ISO 8601 in UTC. */
  acceptedAt: string;
}

/** What became of a message. */
export interface SendResult {
  /** The run that has it. */
  runId: string;
  /** Its id. */
  messageId: string;
  /** Whether it is new. */
  disposition: "accepted" | "duplicate";
  /** Whether it has started the run. */
  started: boolean;
}

/** What begins the name of a step that answers a message. No other step has such a name. */
export const ANSWER_PREFIX = "respond:";

/** The name of the step that answers a message. */
export function answerName(messageId: string): string {
  return `${ANSWER_PREFIX}${messageId}`;
}

/** A message that a step has sent. */
export interface SentMessage {
  /** The run that has it. */
  runId: string;
  /** Its id. */
  messageId: string;
}

/** When a receive closes the inbox of its run: with a timeout, or also when it takes the last unread message. */
export type CloseInbox = "timeout" | "always";

/** What a receive takes. */
export interface Receive {
  /** The names of the messages that it takes. */
  names: readonly string[];
  /** How many of them at most. */
  max: number;
  /** When it closes the inbox; `null`: never. */
  close: CloseInbox | null;
}

/** The most messages that a run has. */
export const MAX_MESSAGES = 100_000;

/** The most characters of the id of a message. */
export const MAX_MESSAGE_ID = 200;

/** Whether a message that is sent is the one that was accepted before. */
export function isSameMessage(
  known: { name: string; payload: JsonText },
  sent: { name: string; payload: JsonText },
): boolean {
  return known.name === sent.name &&
    (known.payload === sent.payload || isSameJson(JSON.parse(known.payload), JSON.parse(sent.payload)));
}

/** The status of a message of a run. */
export function messageStatus(isTaken: boolean, hasEnded: boolean): MessageStatus {
  return isTaken ? "received" : hasEnded ? "closed" : "unread";
}

/** The run to which a message is sent, as far as it says whether the run takes one. */
export interface Inbox {
  /** The id of the run. */
  runId: string;
  /** Its status. */
  status: RunStatus;
  /** Its newest retry; `null`: it has none. */
  retriggeredAs: string | null;
}

/** The refusal of a message by a run that has ended, or has closed its inbox. */
export function runEndedError({ runId, status, retriggeredAs }: Inbox, hasEnded: boolean): ConflictError {
  const why = !hasEnded
    ? "it has closed its inbox"
    : retriggeredAs !== null
    ? `it was retried as run "${retriggeredAs}"`
    : `it is ${status}`;
  return new ConflictError(`Cannot send to run "${runId}": ${why}`, { code: "run_ended" });
}

/** The refusal of a message whose id another message of the run has. */
export function messageIdError(runId: string, id: string): ConflictError {
  return new ConflictError(`Run "${runId}" has another message with the id "${id}"`);
}

/** The refusal of a message by a run that has too many. */
export function tooManyMessagesError(runId: string): ConflictError {
  return new ConflictError(`Run "${runId}" has ${MAX_MESSAGES.toLocaleString("en-US")} messages`);
}

/** Names the run to which a message is sent, for messages. */
export function describeTarget(to: { runId: string } | { jobNames: readonly string[]; key: string }): string {
  return "runId" in to ? `run "${to.runId}"` : `run of job "${to.jobNames[0]}" with the key "${to.key}"`;
}
