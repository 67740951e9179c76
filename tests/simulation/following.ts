import { isLastEvent, type RunEvent } from "../../src/model/event.ts";
import { isOfRun, toEvents } from "../../src/model/fact.ts";
import { openingEvents } from "../../src/events/opening_events.ts";
import type { Cursor } from "../../src/model/journal.ts";
import type { RunState } from "../../src/store/run_query.ts";
import type { Facts, RunFacts } from "./facts.ts";
import type { Entry, History } from "./history.ts";
import type { Incarnation } from "./incarnation.ts";

// Publishing pauses after 16 KiB, in the middle of a row too: a message has about 400 characters.
const MANY_AT_ONCE = 30;

/** How a stream is followed. */
export interface FollowingOptions {
  /** The run, or of whom all runs are shown. */
  shows: { run: RunFacts } | { org: string };
  /** `web`: progress is held back, and may come later than what follows it. */
  over: "process" | "web";
  /** Whether events are numbered by themselves. */
  isCounted: boolean;
  /** Whether the stream carries ids. */
  hasIds: boolean;
}

/** What may come next on a stream. */
interface Expected {
  event: RunEvent;
  run: RunFacts;
  /** Its fact; `null`: it belongs to the state with which the stream begins. */
  entry: Entry | null;
}

// So long no process fails to look at the store, or to publish what it has read.
const LONG_MS = 2_000;

/**
 * What a client receives of a stream, over all its connections: the state of the run, then each fact that is for it, once
 * and in order, whatever breaks. Only progress may be left out, and facts of runs that were deleted meanwhile.
 */
export class Following {
  readonly #facts: Facts;
  readonly #history: History;
  readonly #options: FollowingOptions;
  #connection: Connection | null = null;
  /** The last id that was received. */
  #cursor: Cursor | null = null;
  /** The number of the last fact of which an event was received. */
  #lastNumber = 0;
  #isOver = false;
  #wasReset = false;
  /** The process that has sent the last event. */
  #label: string | null = null;
  #heard = 0;

  /** @param cursor The id that the client has from the beginning, of this journal or another. */
  constructor(facts: Facts, history: History, options: FollowingOptions, cursor: Cursor | null = null) {
    this.#facts = facts;
    this.#history = history;
    this.#options = options;
    this.#cursor = cursor;
  }

  /** The last id that was received. */
  get cursor(): Cursor | null {
    return this.#cursor;
  }

  /** How many events were received. */
  get heard(): number {
    return this.#heard;
  }

  /** Whether the last event of the run was received. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Whether a client that reconnects has nothing more to receive: it has the last event of the run, and its id. */
  get isWhole(): boolean {
    return this.#isOver && this.#cursor !== null && this.#cursor.position >= this.#lastNumber &&
      this.#history.isPlace(this.#cursor);
  }

  /** Whether the newest connection has said that events are missing. */
  get wasReset(): boolean {
    return this.#wasReset;
  }

  /** Whether the store can still tell where it is. */
  get isCursorKept(): boolean {
    return this.#cursor !== null && this.#history.isKept(this.#cursor);
  }

  /** Asks a process for the stream: from the last id on, if there is one. */
  connect(incarnation: Incarnation): void {
    this.#wasReset = false;
    this.#connection = new Connection(this.#facts, this.#history, this.#options, incarnation, this.#cursor);
  }

  /** The connection is broken, or has ended. */
  disconnect(): void {
    this.#connection = null;
  }

  /** Receives an event. */
  hear(event: RunEvent): void {
    this.#heard += 1;
    const connection = this.#connection!;
    const number = connection.hear(event);
    this.#lastNumber = Math.max(this.#lastNumber, number);
    this.#noticeWhatHappened(event, connection.incarnation);
    if ("run" in this.#options.shows && isLastEvent(event)) this.#isOver = true;
  }

  #noticeWhatHappened(event: RunEvent, { label }: Incarnation): void {
    const { shows, hasIds } = this.#options;
    if (hasIds && this.#cursor !== null && this.#label !== null && this.#label !== label && !this.#wasReset) {
      this.#facts.notice("a stream was resumed in another process");
    }
    this.#label = label;
    if ("org" in shows) return;
    if (event.type === "run:delete") this.#facts.notice("a run was deleted while it was followed");
    if (event.type !== "step:start") return;
    const { state, steps } = shows.run;
    const isElsewhere = state?.run.leaseOwner != null && !state.run.leaseOwner.includes(label);
    const isEnded = (steps.get(event.stepName)?.attempts ?? 0) >= event.attempt;
    if (isElsewhere && !isEnded) this.#facts.notice("a report reached another process before its step ended");
  }

  /** Receives an id. */
  hearId(cursor: Cursor): void {
    this.#connection!.hearId(cursor);
    this.#cursor = cursor;
  }

  /** Receives that events are missing. */
  hearGap(): void {
    this.#connection!.hearGap();
    this.#wasReset = true;
    this.#isOver = false;
  }

  /** A part of the stream was received to its end. @param size How many messages it had. */
  endPart(size: number): void {
    this.#connection?.endPart(size);
  }

  /** When nothing goes wrong: what was committed a while ago has been received. */
  checkLate(): void {
    const connection = this.#connection;
    const { calmSince } = this.#facts;
    if (connection === null || calmSince === null || this.#isOver) return;
    const { world, pausedUntil } = connection.incarnation.process;
    const before = world.now - LONG_MS;
    const isSteady = connection.since <= before && calmSince <= before && pausedUntil <= before &&
      connection.incarnation.isWorking;
    if (isSteady) connection.checkLate(before);
  }
}

/** One connection. Which state it began with is not known before it has told something: each that was read is tried. */
class Connection {
  readonly incarnation: Incarnation;
  readonly since: number;
  readonly #facts: Facts;
  readonly #history: History;
  readonly #options: FollowingOptions;
  /** The id with which it resumes; `null`: it begins anew. */
  #cursor: Cursor | null;
  /** How many states and places the process had read when it was asked. */
  readonly #readBefore: { states: number; places: number; pages: number };
  #paths: Path[] | null = null;
  #sequence = 0;
  #lastId = 0;
  /** How many events have come that no id covers. */
  #uncovered = 0;
  /** The number of the newest fact that was received. */
  #newest = 0;

  constructor(
    facts: Facts,
    history: History,
    options: FollowingOptions,
    incarnation: Incarnation,
    cursor: Cursor | null,
  ) {
    this.#facts = facts;
    this.#history = history;
    this.#options = options;
    this.#cursor = cursor;
    this.incarnation = incarnation;
    this.since = incarnation.process.world.now;
    const { states, places, partialPages } = incarnation;
    this.#readBefore = { states: states.length, places: places.length, pages: partialPages.length };
  }

  /** Receives an event, and answers the number of its fact. */
  hear(event: RunEvent): number {
    if (this.#paths === null && this.#cursor !== null) {
      const isPaged = this.incarnation.partialPages.slice(this.#readBefore.pages)
        .some(({ after }) => after === this.#cursor!.position);
      if (isPaged) this.#facts.notice("a stream caught up over several pages");
    }
    const paths = this.#open();
    const before = this.#sequence;
    this.#sequence = event.sequence;
    // It is no fact: a look at the run made it.
    if (isOfChildren(event)) {
      this.#facts.expect(event.sequence > before, "I9", () => `${JSON.stringify(event)} came after ${before}`);
      return 0;
    }
    let number = 0;
    this.#paths = paths.filter((path) => {
      const taken = path.take(event);
      if (taken === null || !this.#isNumberedSo(event, taken, before, path.takeLeftOut(taken))) return false;
      number = taken.entry?.number ?? 0;
      return true;
    });
    if (event.type !== "run:progress") this.#uncovered += 1;
    this.#newest = number;
    this.#expectPath(paths, `received is ${JSON.stringify(event)}`);
    return number;
  }

  /** @param leftOut How many events were left out, each of which may have had a number already. */
  #isNumberedSo({ sequence }: RunEvent, expected: Expected, before: number, leftOut: number): boolean {
    const { over, isCounted } = this.#options;
    if (over === "process") return sequence === expected.event.sequence;
    const lowest = isCounted ? before + 1 : Math.max(expected.event.sequence, before + 1);
    return sequence >= lowest && sequence <= lowest + leftOut;
  }

  hearId(cursor: Cursor): void {
    const { position } = cursor;
    this.#facts.expect(
      this.#options.hasIds && this.#history.isPlace(cursor) && position >= this.#lastId,
      "J5",
      () => `${this.incarnation.label} sent the id of ${JSON.stringify(cursor)} after that of ${this.#lastId}`,
    );
    this.#lastId = position;
    this.#uncovered = 0;
    const paths = this.#open();
    this.#paths = paths.filter((path) => path.passTo(position));
    this.#expectPath(paths, `received is the id of ${position}`);
  }

  hearGap(): void {
    const cursor = this.#cursor;
    this.#facts.expect(
      this.#options.hasIds && cursor !== null && this.#paths === null && !this.#history.isKept(cursor),
      "J5",
      () => `${this.incarnation.label} says that events are missing after ${JSON.stringify(cursor)}`,
    );
    this.#facts.notice("a client was told of a gap");
    this.#cursor = null;
  }

  /** What is sent at once ends with an id, unless the reader, which may have sent much to others, was in the middle of a row. */
  endPart(size: number): void {
    this.#facts.expect(
      !this.#options.hasIds || this.#uncovered <= (size === 1 ? 1 : 0) || size >= MANY_AT_ONCE ||
        this.#history.sharesRow(this.#newest),
      "J5",
      () => `${this.incarnation.label} sent ${this.#uncovered} events without an id`,
    );
  }

  checkLate(before: number): void {
    if (this.#paths === null && !this.#mayOpen()) return;
    const readUpTo = this.#readUpTo(before);
    const late = this.#open().map((path) => path.findLate(before, readUpTo));
    this.#facts.expect(
      late.includes(null),
      "I17",
      () => `${this.incarnation.label} has not sent ${JSON.stringify(late[0]!.event)}, committed before ${before}`,
    );
  }

  /**
   * What the process has read by an instant, if it has read page after page since then: as long as commits come faster
   * than it reads its short pages over a slow way, it falls behind. `Infinity`: it has read everything.
   */
  #readUpTo(instant: number): number {
    const pages = this.incarnation.partialPages.filter(({ at }) => at >= instant);
    return Math.min(...pages.map(({ upTo }) => upTo));
  }

  #mayOpen(): boolean {
    return this.#cursor !== null || this.#candidates().length > 0;
  }

  #expectPath(paths: readonly Path[], what: string): void {
    this.#facts.expect(
      this.#paths!.length > 0,
      "J4",
      () =>
        `${this.incarnation.label}: ${what}, and expected ${
          paths.length === 0 ? "nothing" : paths.map((path) => path.text).join("\nor ")
        }`,
    );
  }

  #open(): Path[] {
    if (this.#paths !== null) return this.#paths;
    const { shows, over } = this.#options;
    const parts = { history: this.#history, shows, mayHoldBack: over === "web" };
    if (this.#cursor === null) {
      return this.#candidates().map(([state, { position }]) => new Path(parts, position, state, false));
    }
    const cursor = this.#cursor;
    this.#facts.expect(
      this.#history.isPlace(cursor),
      "J5",
      () => `${this.incarnation.label} goes on after ${JSON.stringify(cursor)}, which is no place in this journal`,
    );
    if ("org" in shows) return [new Path(parts, cursor.position, null, true)];
    return this.#states().map((state) => {
      const { position } = state.place;
      // It adds the latest progress unless there is newer: the client may have left before it was sent.
      const hasNewer = shows.run.entries.some(({ fact, number }) =>
        fact[1] === "progressed" && number > cursor.position && number <= position
      );
      return new Path(parts, cursor.position, hasNewer ? null : { ...state, place: cursor }, true);
    });
  }

  /** With what the stream may begin, and where. */
  #candidates(): [RunState | null, Cursor][] {
    if ("run" in this.#options.shows) return this.#states().map((state) => [state, state.place]);
    return this.incarnation.places.slice(this.#readBefore.places).map((place) => [null, place]);
  }

  #states(): RunState[] {
    const { shows } = this.#options;
    if (!("run" in shows)) return [];
    const { id } = shows.run.request;
    return this.incarnation.states.slice(this.#readBefore.states).filter(({ run }) => run.id === id);
  }
}

/** What is expected of a connection that began at a place. */
class Path {
  readonly #history: History;
  readonly #shows: FollowingOptions["shows"];
  readonly #mayHoldBack: boolean;
  readonly #standing: Expected[];
  /** The place of the next entry of the journal, and what is left of the one before. */
  #next: number;
  #ahead: Expected[] = [];
  /** Progress that was passed over, by run: it may still come. */
  readonly #held = new Map<RunFacts, Expected[]>();
  /** How many reports of progress were passed over since the last event, or may still come. */
  #leftOut = 0;
  #isOver = false;

  constructor(
    { history, shows, mayHoldBack }: { history: History; shows: FollowingOptions["shows"]; mayHoldBack: boolean },
    position: number,
    state: RunState | null,
    isResumed: boolean,
  ) {
    this.#history = history;
    this.#shows = shows;
    this.#mayHoldBack = mayHoldBack;
    this.#next = history.indexAfter(position);
    const events = state === null ? [] : openingEvents(state).filter((event) => !isOfChildren(event));
    this.#standing = events.filter(({ type }) => !isResumed || type === "run:progress")
      .map((event) => ({ event, run: (shows as { run: RunFacts }).run, entry: null }));
  }

  /** What is expected next, for a report. */
  get text(): string {
    const next = this.#peek();
    return next === null ? `nothing after ${this.#next}` : `${JSON.stringify(next.event)} (${next.entry?.number})`;
  }

  /** Takes an event if it is expected now; `null` if it is not. */
  take(event: RunEvent): Expected | null {
    if (event.type === "run:progress") {
      const held = [...this.#held].find(([{ request }]) => request.id === event.runId)?.[1] ?? [];
      const at = held.findIndex((expected) => isSame(expected, event, this.#shows));
      if (at >= 0) {
        this.#leftOut -= 1;
        return held.splice(0, at + 1)[at]!;
      }
    }
    for (let next = this.#peek(); next !== null; next = this.#peek()) {
      if (isSame(next, event, this.#shows)) {
        // Progress that is held back comes right before the next event of the run itself, unless it is superseded.
        if (event.type.startsWith("run:")) {
          if (event.type !== "run:progress" && !this.#isSuperseded(next.run)) return null;
          this.#held.delete(next.run);
        }
        this.#shift();
        this.#isOver = "run" in this.#shows && isLastEvent(event);
        return next;
      }
      if (!this.#pass(next)) return null;
    }
    return null;
  }

  /** How many events may have had a number since the last one, and were left out. */
  takeLeftOut({ event, run }: Expected): number {
    let leftOut = this.#leftOut;
    // While progress of one run is held back, later progress of others is numbered, and may be superseded.
    for (const later of event.type === "run:progress" ? this.#upcoming() : []) {
      if (later.event.type === "run:progress" && later.run !== run) leftOut += 1;
    }
    this.#leftOut = [...this.#held.values()].reduce((sum, { length }) => sum + length, 0);
    return leftOut;
  }

  /** Passes to a position, up to which nothing is left that has to come; answers whether that is so. */
  passTo(position: number): boolean {
    for (let next = this.#peek(); next !== null && (next.entry?.number ?? 0) <= position; next = this.#peek()) {
      if (!this.#pass(next)) return false;
    }
    return true;
  }

  /** What was committed before an instant, up to a position, and has to have come; `null` if there is nothing. */
  findLate(before: number, upTo: number): Expected | null {
    if (this.#isOver) return null;
    for (const next of this.#upcoming()) {
      if (next.entry !== null && (next.entry.committedAt > before || next.entry.number > upTo)) return null;
      if (next.event.type !== "run:progress" && !isGone(next)) return next;
    }
    return null;
  }

  /** Passes over what need not come. */
  #pass(next: Expected): boolean {
    const isProgress = next.event.type === "run:progress";
    if (!isProgress && !isGone(next)) return false;
    this.#shift();
    if (!isProgress) return true;
    this.#leftOut += 1;
    const held = this.#held.get(next.run) ?? [];
    this.#held.set(next.run, [...held, next]);
    if (isGone(next)) return true;
    // In a process progress is only left out if the next event is progress, too; that of a state is never held back.
    if (!this.#mayHoldBack) return this.#peek()?.event.type === "run:progress";
    return next.entry !== null || this.#isSuperseded(next.run);
  }

  /** Whether the progress that has not come need not come any more, if there is any. */
  #isSuperseded(run: RunFacts): boolean {
    const held = this.#held.get(run) ?? [];
    if (held.length === 0 || run.isDeleted) return true;
    for (const { event, run: other } of this.#upcoming()) {
      if (other === run && event.type === "run:progress") return true;
    }
    return false;
  }

  #peek(): Expected | null {
    if (this.#isOver) return null;
    if (this.#standing.length > 0) return this.#standing[0]!;
    while (this.#ahead.length === 0) {
      const entry = this.#history.entries[this.#next];
      if (entry === undefined) return null;
      this.#next += 1;
      this.#ahead = expectedOf(entry, this.#shows);
    }
    return this.#ahead[0]!;
  }

  #shift(): void {
    if (this.#standing.length > 0) this.#standing.shift();
    else this.#ahead.shift();
  }

  *#upcoming(): Iterable<Expected> {
    yield* this.#standing;
    yield* this.#ahead;
    for (let at = this.#next; at < this.#history.entries.length; at++) {
      yield* expectedOf(this.#history.entries[at]!, this.#shows);
    }
  }
}

/** The events of a fact, if it is for the stream. */
function expectedOf(entry: Entry, shows: FollowingOptions["shows"]): Expected[] {
  const { fact, number, at, run, value } = entry;
  const { id, jobName, labels } = run.request;
  const isShown = "run" in shows ? run === shows.run : labels.org === shows.org && isOfRun(fact);
  if (!isShown) return [];
  return toEvents(fact, { number, at }, { id, jobName, labels }, value).map((event) => ({ event, run, entry }));
}

/** Of a run that was deleted only that has to come. */
function isGone({ event, run, entry }: Expected): boolean {
  return run.isDeleted && event.type !== "run:delete" && entry !== null;
}

function isSame({ event }: Expected, received: RunEvent, shows: FollowingOptions["shows"]): boolean {
  const { sequence: _number, ...expected } = "run" in shows ? event : withoutInputs(event);
  const { sequence: _sequence, ...rest } = received;
  return JSON.stringify(expected) === JSON.stringify(rest);
}

/** Lists do not show what runs were triggered with. */
function withoutInputs(event: RunEvent): RunEvent {
  const hidden = new Set(event.type === "run:trigger" ? ["input"] : ["skippedInput", "skippedLabels"]);
  return Object.fromEntries(Object.entries(event).filter(([key]) => !hidden.has(key))) as RunEvent;
}

/** Whether an event counts the children of a run. */
function isOfChildren(event: RunEvent): boolean {
  return event.type === "run:progress" && event.of === "children";
}
