import { uuidV7 } from "../../../../model/host.ts";
import type { Lease } from "../../../../model/lease.ts";
import type { Message, Receive } from "../../../../model/message.ts";
import type { SendOutcome, SendRequest } from "../../../../store/send_request.ts";
import type { NewPause, PauseResult } from "../../../../store/pause_request.ts";
import type { PauseRecord } from "../../../../model/wait.ts";
import type { Store } from "../../../../store/store.ts";
import { getMessages } from "../../../../store/reads.ts";
import { FAKE_START } from "../../../fake_host.ts";
import { aPause } from "../../fixtures.ts";
import { NO_PAUSE } from "../../arrange.ts";

/** A message to send, and where. */
export function aMessage(runId: string, message: Partial<SendRequest["message"]> = {}): SendRequest {
  const { payload = '{"text":"hi"}' } = message;
  return {
    to: { runId },
    message: { id: uuidV7(FAKE_START), name: "text", payload, input: payload, trace: null, ...message },
    start: null,
  };
}

/** Sends messages with these ids, one after another, and answers the outcomes. */
export async function send(store: Store, runId: string, ...ids: string[]): Promise<SendOutcome[]> {
  const outcomes: SendOutcome[] = [];
  for (const id of ids) outcomes.push(await store.send(aMessage(runId, { id })));
  return outcomes;
}

/** A receive of messages "text", one at a time, without a deadline. */
export function aReceive(receive: Partial<Receive> = {}, pause: Partial<NewPause> = {}): NewPause {
  const names = receive.names ?? ["text"];
  return aPause({ kind: "receive", name: "next", ...pause, receive: { max: 1, close: null, ...receive, names } });
}

/** Prepares receives, without parking. */
export function receive(store: Store, lease: Lease, ...pauses: NewPause[]): Promise<PauseResult> {
  return store.pause(lease, { ...NO_PAUSE, pauses });
}

/** The ids of the messages that a pause took; what ended it otherwise. */
export function takenBy({ messages, resolution }: PauseRecord): string[] | string | null {
  return messages?.map(({ id }) => id) ?? resolution?.outcome ?? null;
}

/** The ids of the messages of a run, each with its status. */
export async function inboxOf(store: Store, runId: string): Promise<[string, Message["status"]][]> {
  return (await getMessages(store, runId)).map(({ id, status }) => [id, status]);
}
