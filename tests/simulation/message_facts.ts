import { ConflictError } from "../../src/model/error.ts";
import type { Message, Receive, ReceivedMessage } from "../../src/model/message.ts";
import type { PauseRecord } from "../../src/model/wait.ts";
import type { Enqueued, NewRun } from "../../src/store/new_run.ts";
import { getMessages } from "../../src/store/reads.ts";
import type { SendOutcome, SendRequest } from "../../src/store/send_request.ts";
import type { Store } from "../../src/store/store.ts";
import { actorOf } from "../../src/model/origin.ts";
import { deed } from "./actor_facts.ts";
import { endingOf } from "./child_facts.ts";
import { noteRecord } from "./change_facts.ts";
import type { Facts, RunFacts } from "./facts.ts";

/** What is known of the inbox of a run. */
export interface InboxFacts {
  /** The messages that it has accepted, by id, in their order. */
  accepted: Map<string, { name: string; payload: string; by: string | null }>;
  /** What its receives take, by their names. */
  receives: Map<string, Receive>;
  /** The receives that have ended, by the ids of their pauses. */
  over: Set<string>;
  /** Its messages as they were read last, by id. */
  seen: Map<string, Pick<Message, "status" | "receivedBy">>;
  /** Whether it was seen closed. */
  isClosed: boolean;
}

/** The inbox of a run: that of a retry begins with the messages of the run before it. */
export function inboxOf(facts: Facts, run: RunFacts): InboxFacts {
  if (run.inbox !== null) return run.inbox;
  const { retriggerOf } = run.request;
  const old = retriggerOf === null ? undefined : facts.runs.get(retriggerOf.runId);
  const before = old === undefined ? null : inboxOf(facts, old);
  const seen = retriggerOf?.from !== "failure" ? [] : [...before?.seen ?? []];
  const inbox: InboxFacts = {
    accepted: new Map(before?.accepted),
    receives: new Map(run.source === null ? [] : before?.receives),
    over: new Set(),
    seen: new Map(seen.filter(([, { status }]) => status === "received")),
    isClosed: false,
  };
  if (inbox.accepted.size > 0) facts.notice("a retry began with the messages of its run");
  if (inbox.seen.size > 0) facts.notice("a retry began with messages that were received");
  return run.inbox = inbox;
}

/** Whether a run certainly, or perhaps, counts for a key whose runs count until they have ended, or failed. */
export function countsFor(facts: Facts, holder: RunFacts, until: NewRun["idempotencyUntil"]): "yes" | "no" | "perhaps" {
  if (until === undefined) return "yes";
  const newest = newestRetryOf(facts, holder);
  if (until === "ended") {
    if (newest.hasEnded) return "no";
    const { isClosed } = inboxOf(facts, newest);
    return isClosed ? "no" : mayBeClosed(facts, newest) ? "perhaps" : "yes";
  }
  if (!newest.hasEnded || newest.isUnread) return newest.hasEnded ? "perhaps" : "yes";
  let hasCompleted = false;
  for (let run: RunFacts | null = holder; run !== null; run = run.retry) {
    hasCompleted ||= run.hasEnded && !run.isUnread && endingOf(run).status === "completed";
  }
  return hasCompleted ? "yes" : "no";
}

/** The newest retry of a run, as far as it exists: after one that was deleted, the newest run with the same steps. */
export function newestRetryOf(facts: Facts, run: RunFacts): RunFacts {
  if (run.retry === null) return run;
  const retry = run.retry.isDeleted
    ? facts.existing().findLast(({ originId, order }) => originId === run.originId && order > run.order)
    : run.retry;
  return retry === undefined ? run : newestRetryOf(facts, retry);
}

/** A retry of a run that has not ended: its newest one, or one with the same steps. */
export function openRetryOf(facts: Facts, run: RunFacts): RunFacts | undefined {
  const newest = newestRetryOf(facts, run);
  if (newest !== run && !newest.hasEnded) return newest;
  return facts.open().find((other) => other !== run && other.originId === run.originId);
}

/** Whether a run is a retry of another one, or of a retry of it, and so on, or has the same steps. */
export function isRetryOf(facts: Facts, runId: string, old: RunFacts): boolean {
  const run = facts.runs.get(runId);
  const before = run?.request.retriggerOf;
  if (run === undefined || before == null) return false;
  return before.runId === old.request.id || run.originId === old.originId || isRetryOf(facts, before.runId, old);
}

/** A deadline that nobody has seen pass yet can have closed an inbox. */
function mayBeClosed(facts: Facts, run: RunFacts): boolean {
  return [...inboxOf(facts, run).receives.values()].some(({ close }) => close !== null);
}

/**
 * Judges a message that was sent, and takes note of it.
 *
 * @param enqueued Judges a run that was started for it.
 */
export function checkSend(
  facts: Facts,
  [request]: [SendRequest],
  outcome: { value: SendOutcome } | { error: unknown },
  enqueued: (request: NewRun, enqueued: Enqueued) => void,
): string[] {
  const { message: { id, name, payload }, to, start } = request;
  const sent = `message ${id} (${name} ${payload}) to ${JSON.stringify(to)}`;
  if ("error" in outcome) return checkRefused(facts, request, outcome.error, sent);
  if ("changed" in outcome.value) return facts.violate("M3", `${sent} found another run, and expected none`), [];
  const { run: { id: runId }, disposition, started } = outcome.value;
  const isNew = started !== null && !facts.runs.has(started.run.id);
  if (started !== null && start !== null && isNew) {
    enqueued(start, started);
    facts.notice("a message started a run");
  }
  const run = facts.run(runId);
  const inbox = inboxOf(facts, run);
  const known = inbox.accepted.get(id);
  const by = actorOf(request.message.trace);
  if (disposition === "duplicate") {
    facts.expect(known?.name === name && known.payload === payload, "M3", () => `${sent} is said to be repeated`);
    facts.notice(run.hasEnded ? "a message was repeated after the end of its run" : "a message was repeated");
    return [runId];
  }
  facts.expect(known === undefined, "M3", () => `${sent} was accepted by ${runId}, which has ${JSON.stringify(known)}`);
  facts.expect(
    facts.deeds.has(deed(`send ${name} ${payload}`, by)),
    "A1",
    () => `${sent} was accepted from ${by}, and nobody has sent it`,
  );
  facts.expect(!run.isDeleted && !run.hasEnded, "M4", () => `${sent} was accepted by ${runId}, which has ended`);
  facts.expect(
    !inbox.isClosed,
    start === null ? "M4" : "M5",
    () => `${sent} was accepted by ${runId}, which is closed`,
  );
  if (!("runId" in to)) facts.notice("a message was sent to the run of a key");
  if (run.state === null || run.state.run.status === "pending") facts.notice("a message came before its run began");
  inbox.accepted.set(id, { name, payload, by });
  return [runId];
}

function checkRefused(facts: Facts, { to, message, start }: SendRequest, error: unknown, sent: string): string[] {
  if (!(error instanceof ConflictError)) return [];
  const runs = "runId" in to
    ? [facts.run(to.runId)]
    : facts.existing().filter(({ request }) => request.idempotencyKey === to.key)
      .map((run) => newestRetryOf(facts, run));
  const hasAnother = (run: RunFacts) => {
    const known = inboxOf(facts, run).accepted.get(message.id);
    return known !== undefined && (known.name !== message.name || known.payload !== message.payload);
  };
  const isTrue = error.code === "run_ended"
    ? start === null && runs.some((run) => run.hasEnded || inboxOf(facts, run).isClosed || mayBeClosed(facts, run))
    : runs.some(hasAnother) || /was deleted/.test(error.message);
  facts.expect(isTrue, error.code === "run_ended" ? "M4" : "M3", () => `${sent} was refused: ${error.message}`);
  facts.notice(error.code === "run_ended" ? "a message came after the end" : "a message had the id of another one");
  return runs.map(({ request }) => request.id);
}

/** Compares the inboxes of runs with what they have accepted, and with what their receives have taken. */
export async function checkInboxes(facts: Facts, truth: Store, runs: Iterable<RunFacts>): Promise<void> {
  for (const run of runs) {
    if (run.isDeleted) continue;
    const inbox = inboxOf(facts, run);
    if (inbox.accepted.size === 0 && inbox.receives.size === 0) continue;
    const { id } = run.request;
    const history = await truth.getHistory(id);
    const messages = await getMessages(truth, id);
    const receives = history!.pauses.filter(({ kind }) => kind === "receive") // a run that exists has one
      .sort((left, right) => recordedNo(left) - recordedNo(right));
    checkMessages(facts, run, inbox, messages);
    checkTaken(facts, run, inbox, messages, receives);
    checkClosing(facts, run, inbox, messages, receives);
  }
}

function recordedNo({ resolution }: PauseRecord): number {
  return resolution?.recordedNo ?? Infinity;
}

/** Each accepted message is there once, in its order, and what is received stays so. */
function checkMessages(facts: Facts, run: RunFacts, inbox: InboxFacts, messages: readonly Message[]): void {
  const { id } = run.request;
  const { accepted, seen } = inbox;
  const kept = messages.map(({ id, name, payload, sentBy }) => [id, name, JSON.stringify(payload), sentBy]);
  const expected = [...accepted].map(([id, { name, payload, by }]) => [id, name, payload, by]);
  facts.expect(
    JSON.stringify(kept) === JSON.stringify(expected),
    run.request.retriggerOf === null ? "M1" : "M6",
    () => `${id} has the messages ${JSON.stringify(kept)}, it has accepted ${JSON.stringify(expected)}`,
  );
  for (const { id: messageId, status, receivedBy } of messages) {
    const before = seen.get(messageId);
    const isSame = before?.status !== "received" || (status === "received" && receivedBy === before.receivedBy);
    const rule = run.source === null ? "M1" : "M6";
    facts.expect(
      isSame && (status === "received" || (status === "closed") === run.hasEnded),
      rule,
      () => `message ${messageId} of ${id} was ${JSON.stringify(before)}, and is ${status} by ${receivedBy}`,
    );
    if (status === "received" && before?.status !== "received") noteRecord(run, "certainly");
    if (status === "closed" && before?.status !== "closed") facts.notice("a run ended with unread messages");
    seen.set(messageId, { status, receivedBy });
  }
}

/** Receives have taken the oldest messages of their names that were unread, and no open one has left any. */
function checkTaken(
  facts: Facts,
  run: RunFacts,
  { receives: asked, over }: InboxFacts,
  messages: readonly Message[],
  receives: readonly PauseRecord[],
): void {
  const { id } = run.request;
  const taken = new Set<string>();
  for (const { id: pauseId, name, resolution, messages: got = [] } of receives) {
    const receive = asked.get(name);
    if (receive === undefined) {
      facts.violate("M1", `${id} has the receive ${name}, for which nobody has asked`);
      continue;
    }
    const unread = messages.filter((message) => !taken.has(message.id) && receive.names.includes(message.name));
    const tell = () =>
      `receive ${name} of ${id} (${JSON.stringify(receive)}) took ${JSON.stringify(got)} of ${
        JSON.stringify(messages)
      }`;
    if (resolution === null) {
      const isPending = run.hasEnded || unread.length === 0;
      facts.expect(isPending, "M2", () => `${tell()}, and waits`);
      continue;
    }
    if (!over.has(pauseId)) {
      over.add(pauseId);
      if (resolution.outcome === "timeout") facts.notice("a receive found no message in time");
      if (got.length > 1) facts.notice("a receive took several messages");
    }
    const isOldest = got.every((one, at) => one.id === unread[at]?.id) && got.length <= receive.max;
    facts.expect(isOldest && (got.length > 0) === (resolution.outcome === "messages"), "M1", tell);
    for (const message of got) {
      const { status, receivedBy } = messages.find((one) => one.id === message.id)!; // it is one of them
      facts.expect(status === "received" && receivedBy === name, "M1", tell);
      taken.add(message.id);
    }
  }
  const received = messages.filter(({ status }) => status === "received");
  facts.expect(received.length === taken.size, "M1", () => `${received.length} messages of ${id} were received`);
}

/** Takes note of an inbox that is closed: from then on it accepts nothing, and no receive waits. */
function checkClosing(
  facts: Facts,
  run: RunFacts,
  inbox: InboxFacts,
  messages: readonly Message[],
  receives: readonly PauseRecord[],
): void {
  const closing = receives.find(({ name, resolution }) => {
    const close = inbox.receives.get(name)?.close ?? null;
    if (close === null || resolution === null) return false;
    if (resolution.outcome === "timeout") return true;
    const isLater = (pause: PauseRecord) => recordedNo(pause) > resolution.recordedNo && pause.resolution !== null;
    return close === "always" &&
      messages.every(({ status, receivedBy }) =>
        status === "received" && !receives.some((pause) => pause.name === receivedBy && isLater(pause))
      );
  });
  if (!inbox.isClosed && closing !== undefined) {
    inbox.isClosed = true;
    facts.notice("a receive closed the inbox of its run");
  }
  const open = receives.find(({ resolution }) => resolution === null);
  facts.expect(
    !inbox.isClosed || open === undefined || run.hasEnded,
    "M4",
    () => `receive ${open!.name} of ${run.request.id} waits, and the inbox is closed`,
  );
}

/** A program is given what its receive has taken. */
export function checkReceived(
  facts: Facts,
  run: RunFacts,
  name: string,
  received: ReceivedMessage | ReceivedMessage[] | null,
): void {
  const got = Array.isArray(received) ? received : received === null ? [] : [received];
  const { accepted, seen } = inboxOf(facts, run);
  const isOwn = got.every(({ id, name: of, payload }) => {
    const known = accepted.get(id);
    return known?.name === of && known.payload === JSON.stringify(payload) &&
      (seen.get(id)?.receivedBy ?? name) === name;
  });
  const count = [...seen.values()].filter(({ receivedBy }) => receivedBy === name).length;
  // What was committed by this event is not read yet.
  const isAll = count === got.length || run.isUnread;
  facts.expect(
    isOwn && isAll,
    "M1",
    () => `${run.request.id} was given ${JSON.stringify(received)} by ${name}: ${JSON.stringify([...seen])}`,
  );
  if (got.length > 0) facts.notice("a program received a message");
}
