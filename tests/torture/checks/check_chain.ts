import { isLastEvent, type RunEvent } from "../../../src/model/event.ts";
import { formatCursor, parseCursor } from "../../../src/model/journal.ts";
import { type ListFilter, matches } from "../../../src/model/run.ts";
import { gistOf, hashEvent, type KnownEvent, type KnownJournal } from "../known_journal.ts";

/** The place before the first fact: that of a stream which was opened before anything had happened. */
const BEGINNING = "0-0";

// Progress that was held back may be that many events older than what came first.
const BEFORE = 1_000;
const MOST_ABOVE = 100;
const AT_ONCE_MS = 100;

/** A message of an event stream. */
export type Message =
  | { kind: "event"; event: RunEvent; heardAt: number }
  | { kind: "id"; id: string }
  | { kind: "gap" };

/** One connection of somebody who follows. */
export interface Connection {
  /** The last id that it had before, if it has sent one. */
  lastId: string | null;
  /** What it was answered. */
  status: number;
  messages: Message[];
  /** When it was asked for, and when the last of it was read: `performance.now()`. */
  askedAt: number;
  readAt: number;
  /** When it was answered: `Date.now()`. */
  openedAt: number;
  /** The process that served it. */
  pid: number;
  /** The worker of that process, if that has claimed anything. */
  owner: string | null;
}

/** What somebody received who followed a run or a list over HTTP, and connected again after each break. */
export interface Chain {
  /** `null`: a list. */
  runId: string | null;
  /** Which runs the list shows. */
  filter: ListFilter;
  /** Whether it asked for ids. */
  hasIds: boolean;
  connections: Connection[];
}

/**
 * Checks that a chain of connections has received what the journal tells: in each connection all events after its last id
 * that pass its filter, each once and in their order, without a gap up to the next id. Only progress may be thinned, and
 * of deleted runs anything may be missing.
 *
 * @param onHeard Is called with each event that the journal has.
 * @returns What is wrong.
 */
export function checkChain(
  chain: Chain,
  journal: KnownJournal,
  onHeard: (known: KnownEvent, heardAt: number, connection: Connection) => void = () => {},
): string[] {
  const expected = expectedBy(chain, journal);
  return chain.connections.flatMap((connection, at) => {
    if (connection.status === 204) return checkWhole(chain, connection, journal);
    const problems = new ConnectionCheck(chain, connection, { journal, expected, onHeard }).check();
    return problems.map((problem) => `connection ${at + 1} of ${chain.connections.length}: ${problem}`);
  });
}

/** What the journal has for a chain. Of a list only the part that matters, since it has a lot. */
function expectedBy({ runId, filter, connections }: Chain, journal: KnownJournal): readonly KnownEvent[] {
  if (runId !== null) return journal.runOf(runId)?.events ?? [];
  const numbers = connections.flatMap(({ lastId, messages }) => [
    ...(lastId === null ? [] : [2 * parseCursor(lastId)!.position]),
    ...messages.flatMap((message) => message.kind === "event" ? [message.event.sequence] : []),
  ]);
  const lowest = numbers.reduce((lowest, number) => Math.min(lowest, number), Infinity);
  return journal.events.slice(Math.max(0, indexOf(journal.events, lowest) - BEFORE))
    .filter(({ isListed, run }) => isListed && matches(run, filter));
}

/** The client has the last event of the run. */
function checkWhole({ runId }: Chain, { lastId }: Connection, journal: KnownJournal): string[] {
  const last = runId === null ? undefined : journal.runOf(runId)?.events.find(isEnd);
  const cursor = parseCursor(lastId);
  if (last !== undefined && cursor !== null && cursor.position >= last.number) return [];
  return [`204 was answered to ${lastId}, the last event of the run is that of fact ${last?.number}`];
}

/** What the connections of a chain are checked with. */
interface CheckDeps {
  journal: KnownJournal;
  /** What the journal has for this stream. */
  expected: readonly KnownEvent[];
  onHeard: (known: KnownEvent, heardAt: number, connection: Connection) => void;
}

class ConnectionCheck {
  readonly #chain: Chain;
  readonly #connection: Connection;
  readonly #journal: KnownJournal;
  readonly #onHeard: CheckDeps["onHeard"];
  readonly #problems: string[] = [];
  readonly #expected: readonly KnownEvent[];
  /** Which of it comes next; `null`: nobody knows where the stream has begun. */
  #next: number | null = null;
  /** With which of it the stream has begun, if nobody knows why with this one. */
  #first = 0;
  /** Of each run the latest progress that was passed over. */
  readonly #held = new Map<string, KnownEvent>();
  /** Of each run the progress that is missing, unless a later one comes in what the reader was sent at the same time. */
  readonly #owed = new Map<string, { problem: string; heardAt: number }>();
  /** How often progress was passed over. */
  #heldBack = 0;
  #sequence = 0;
  #highest = 0;

  constructor(chain: Chain, connection: Connection, { journal, expected, onHeard }: CheckDeps) {
    this.#chain = chain;
    this.#connection = connection;
    this.#journal = journal;
    this.#expected = expected;
    this.#onHeard = onHeard;
  }

  check(): string[] {
    const { messages, lastId } = this.#connection;
    const cursor = parseCursor(lastId);
    const isGap = messages[0]?.kind === "gap";
    this.#checkGap(isGap);
    if (cursor !== null && !isGap) this.#beginAfter(cursor.position);
    const rest = this.#takeState(isGap ? messages.slice(1) : messages, isGap ? null : cursor?.position ?? null);
    for (const message of rest) {
      if (this.#problems.length > 0) break;
      if (message.kind === "event") this.#takeEvent(message.event, message.heardAt);
      else if (message.kind === "id") this.#takeId(message.id);
      else this.#fail("a gap came within the stream");
    }
    return this.#problems;
  }

  #fail(problem: string): void {
    this.#problems.push(problem);
  }

  #checkGap(isGap: boolean): void {
    const { lastId, askedAt, readAt, messages } = this.#connection;
    const cursor = parseCursor(lastId);
    if (cursor === null) {
      if (isGap) this.#fail("a gap was told to somebody who had nothing");
      return;
    }
    const { mayBeGone, mustBeGone } = this.#journal.placeOf(cursor, askedAt, readAt);
    if (isGap && !mayBeGone) this.#fail(`a gap was told after ${lastId}, and nothing is missing there`);
    if (!isGap && mustBeGone && messages.length > 0) this.#fail(`no gap was told after ${lastId}, which is trimmed`);
  }

  #beginAfter(position: number): void {
    const next = this.#expected.findIndex(({ number }) => number > position);
    this.#next = next === -1 ? this.#expected.length : next;
    this.#highest = position;
  }

  /** Takes the state of the run with which a stream begins: it is no part of the journal. Answers what follows. */
  #takeState(messages: readonly Message[], resumedAt: number | null): readonly Message[] {
    if (this.#chain.runId === null) return messages;
    const until = messages.findIndex((message, at) => {
      if (message.kind !== "event") return true;
      const { event } = message;
      // Progress has no number of its own in the journal: a state has it right after the start of the run.
      if (event.type !== "run:progress") return this.#find(event, 0) !== null;
      if (resumedAt !== null) return at > 0 || event.sequence > 2 * resumedAt;
      const before = messages[at - 1];
      return before?.kind !== "event" || before.event.sequence + 1 !== event.sequence ||
        this.#find(before.event, 0) !== null;
    });
    const state = messages.slice(0, until === -1 ? undefined : until)
      .flatMap((message) => message.kind === "event" ? [message.event] : []);
    if (state.length === 0) return messages;
    const position = state.at(-1)!.sequence / 2;
    const isNumbered = state.every(({ sequence }, at) => sequence === 2 * position - (state.length - 1 - at));
    this.#sequence = 2 * position;
    const past = this.#expected.filter(({ number }) => number <= position);
    const gists = state.map(gistOf);
    const isRight = resumedAt === null
      ? statesAt(past).some((possible) =>
        possible.length === gists.length && possible.every((gist) => isIn(gists, gist))
      )
      : resumedAt === position && gists.length === 1 && gists[0] === past.findLast(isProgress)?.gist;
    if (!isRight || !isNumbered) this.#fail(`the state of the run at ${position} is not ${JSON.stringify(state)}`);
    if (resumedAt === null) this.#beginAfter(position);
    return messages.slice(state.length);
  }

  /** The event of the journal that was received; `null`: there is none. */
  #find(event: RunEvent, mostAbove: number): KnownEvent | null {
    const hash = hashEvent(event);
    const isSame = (known: KnownEvent) => {
      return known.run.id === event.runId && known.type === event.type && (known.hash ?? hash) === hash;
    };
    if (event.type === "run:progress") return this.#expected.findLast(isSame) ?? null;
    const from = indexOf(this.#expected, event.sequence - mostAbove);
    return this.#expected.slice(from, indexOf(this.#expected, event.sequence + 1)).findLast(isSame) ?? null;
  }

  #takeEvent(event: RunEvent, heardAt: number): void {
    const { runId } = this.#chain;
    const known = this.#find(event, MOST_ABOVE);
    if (known === null) return this.#fail(`the journal has no ${JSON.stringify(event)}`);
    this.#checkNumber(event, known);
    if (runId === null && showsInput(event)) this.#fail(`${event.type} shows an input`);
    const at = this.#expected.indexOf(known, Math.max(0, indexOf(this.#expected, known.sequence)));
    if (this.#next === null) this.#next = this.#first = at;
    const isHeld = this.#held.get(known.run.id) === known || (at < this.#first && known.type === "run:progress");
    if (at < this.#next && !isHeld) {
      return this.#fail(`${event.type} of fact ${known.number} came twice, or too late`);
    }
    this.#pass(at);
    this.#next = Math.max(this.#next, at + 1);
    for (const { problem, heardAt: owedAt } of this.#owed.values()) {
      if (heardAt > owedAt + AT_ONCE_MS) this.#fail(problem);
    }
    if (known.type === "run:progress") this.#owed.delete(known.run.id);
    else if (known.type.startsWith("run:")) this.#checkHeld(known, heardAt);
    if (known.type.startsWith("run:")) this.#held.delete(known.run.id);
    this.#highest = Math.max(this.#highest, known.number);
    this.#onHeard(known, heardAt, this.#connection);
  }

  /** Progress that was held back takes the next number that is free, and what comes right after it the one after that. */
  #checkNumber({ type, sequence }: RunEvent, known: KnownEvent): void {
    if (sequence <= this.#sequence) this.#fail(`${type} with the number ${sequence} came after ${this.#sequence}`);
    const above = sequence - known.sequence;
    const isRight = above === 0 || (above > 0 && (known.type === "run:progress" || above <= this.#heldBack));
    if (!isRight) this.#fail(`${type} has the number ${sequence}, not ${known.sequence}`);
    this.#sequence = sequence;
  }

  /** The stream has come as far as that without what is before it. */
  #pass(until: number): void {
    for (let at = this.#next!; at < until; at++) {
      const passed = this.#expected[at]!;
      if (passed.type === "run:progress") {
        this.#heldBack += 1;
        this.#held.set(passed.run.id, passed);
      } else if (!passed.run.isDeleted) {
        this.#fail(`${passed.type} of fact ${passed.number}, run ${passed.run.id}, is missing`);
        return;
      }
    }
  }

  /** The latest progress comes before the next event of its run itself, unless a slow reader is spared it. */
  #checkHeld({ run, number, type }: KnownEvent, heardAt: number): void {
    const held = this.#held.get(run.id);
    if (held === undefined || held.number > number || run.isDeleted) return;
    const problem = `the latest progress, of fact ${held.number}, is missing before ${type} of fact ${number}`;
    this.#owed.set(run.id, { problem, heardAt });
  }

  #takeId(id: string): void {
    const cursor = parseCursor(id);
    if (!this.#chain.hasIds) return this.#fail(`the id ${id} was sent to somebody who had not asked for any`);
    const isPlace = cursor !== null && (id === BEGINNING || this.#journal.isCursor(cursor));
    if (cursor === null || formatCursor(cursor) !== id || !isPlace) {
      return this.#fail(`the id ${id} is no place in the journal`);
    }
    if (cursor.position < this.#highest) this.#fail(`the id ${id} came after an event of fact ${this.#highest}`);
    this.#highest = Math.max(this.#highest, cursor.position);
    if (this.#next === null) return this.#beginAfter(cursor.position);
    const next = this.#expected.findIndex(({ number }, at) => at >= this.#next! && number > cursor.position);
    this.#pass(next === -1 ? this.#expected.length : next);
    this.#next = next === -1 ? this.#expected.length : next;
  }
}

/** The states that a stream may begin with when a run has these events, each as what its events say. */
function statesAt(past: readonly KnownEvent[]): (number | null)[][] {
  const end = past.find(isEnd);
  if (end !== undefined) return [[end.gist]];
  const last = past.findLastIndex(({ kind }) => kind === "claimed" || kind === "waiting");
  if (last === -1) return [];
  if (past[last]!.kind === "waiting") {
    const waits = past.slice(past.findLastIndex(({ kind }) => kind === "claimed")).filter(({ kind }) =>
      kind === "waiting"
    );
    // One of them may be over.
    return subsetsOf(waits.map(({ gist }) => gist));
  }
  const claim = past.slice(last - 1, last + 1);
  return [[...claim, past.findLast(isProgress)].flatMap((event) => event === undefined ? [] : [event.gist])];
}

function subsetsOf<T>(items: readonly T[]): T[][] {
  return items.reduce<T[][]>((subsets, item) => [...subsets, ...subsets.map((subset) => [...subset, item])], [[]])
    .slice(1);
}

function isIn(gists: readonly (number | null)[], gist: number | null): boolean {
  return gist === null || gists.includes(gist);
}

function isProgress({ type }: KnownEvent): boolean {
  return type === "run:progress";
}

function isEnd({ type }: KnownEvent): boolean {
  return isLastEvent({ type } as RunEvent) && type !== "run:delete";
}

function showsInput(event: RunEvent): boolean {
  return (event.type === "run:trigger" && event.input !== undefined) ||
    (event.type === "run:coalesced" && (event.skippedInput !== undefined || event.skippedLabels !== undefined));
}

/** Where the event with a number, or the next one after it, is. */
function indexOf(events: readonly KnownEvent[], sequence: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle]!.sequence < sequence) low = middle + 1;
    else high = middle;
  }
  return low;
}
