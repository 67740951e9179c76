import { StoreError } from "../model/error.ts";
import { type Host, nextTurn } from "../model/host.ts";
import type { Cursor, JournalPage, JournalRow } from "../model/journal.ts";
import type { EventConsumer, FactEvents, Receiver } from "./fact_events.ts";

/** The dependencies of {@linkcode CatchUp}. */
interface CatchUpDeps {
  /** Reads what was committed after a position; `null`: some of it is missing. */
  read: (place: Cursor, abortSignal: AbortSignal) => Promise<JournalPage | null>;
  /** Makes and publishes the events. */
  events: FactEvents;
  /** The position that consumers have reached that are up to date; `null`: there are none. */
  livePlace: () => Cursor | null;
  /** Lets the event loop turn. */
  host: Host;
}

/** A consumer that is not up to date. */
interface Member extends Receiver {
  /** The last row of which it has received everything. */
  place: Cursor;
  /** Called when there is nothing after its position. */
  attach: (place: Cursor) => void;
}

// Each page is read for the consumers that are farthest behind, so that those who come later soon share the pages of the
// others. But one in so many is read for those who are nearest to the end: old positions do not keep them waiting.
const PAGES_A_ROUND = 4;
// After so long the event loop turns within a page, too.
const SLICE_MS = 3;

/**
 * Brings consumers up to date, all of them together: a page of the journal is read, parsed and made events of once, for
 * all that are before its end. Between two pages the event loop turns.
 */
export class CatchUp {
  readonly #deps: CatchUpDeps;
  readonly #members = new Map<EventConsumer, Member>();
  #pages = 0;
  /** When the event loop turned last. */
  #turnedAt = 0;
  /** Fires when nobody is left for whom something is read; `null`: nothing is read. */
  #reading: AbortController | null = null;

  constructor(deps: CatchUpDeps) {
    this.#deps = deps;
  }

  /** Publishes everything after a position to a consumer, and then calls `attach`, unless it has ended. */
  add(consumer: EventConsumer, place: Cursor, attach: (place: Cursor) => void): void {
    consumer.abortSignal.addEventListener("abort", () => this.#remove(consumer), { once: true });
    this.#join({ consumer, place, after: place.position, isPaused: false, attach });
  }

  #join(member: Member): void {
    if (member.consumer.abortSignal.aborted) return;
    this.#members.set(member.consumer, member);
    if (this.#reading === null) this.#readOn();
  }

  #remove(consumer: EventConsumer): void {
    this.#members.delete(consumer);
    if (this.#members.size === 0) this.#reading?.abort();
  }

  async #readOn(): Promise<void> {
    const { signal } = this.#reading = new AbortController();
    while (!signal.aborted) {
      this.#attachReady();
      const { place } = this.#choose() ?? {};
      if (place === undefined) break;
      await this.#readPage(place, signal);
      await this.#turn();
    }
    this.#reading = null;
    if (this.#members.size > 0) this.#readOn(); // somebody came after it was aborted
  }

  /** Attaches those who have reached the consumers that are up to date. */
  #attachReady(): void {
    for (const { consumer, place, attach } of [...this.#members.values()]) {
      const live = this.#deps.livePlace();
      if (live === null || place.position < live.position) continue;
      this.#members.delete(consumer);
      attach(place);
    }
  }

  #choose(): Member | undefined {
    const isForLast = ++this.#pages % PAGES_A_ROUND === 0;
    const isBefore = (one: Member, other: Member) => one.place.position < other.place.position;
    return [...this.#members.values()].reduce<Member | undefined>(
      (chosen, member) => chosen === undefined || isBefore(member, chosen) !== isForLast ? member : chosen,
      undefined,
    );
  }

  async #readPage(place: Cursor, abortSignal: AbortSignal): Promise<void> {
    try {
      const page = await this.#deps.read(place, abortSignal);
      if (abortSignal.aborted) return;
      const end = page?.rows.at(-1);
      if (page === null) this.#endAt(place, missingError());
      else if (end !== undefined) await this.#publish(page.rows, place, toPlace(end), abortSignal);
      else if (this.#deps.livePlace() === null) this.#attachAt(place);
    } catch (error) {
      if (!abortSignal.aborted) this.#endAt(place, error);
    }
  }

  async #publish(rows: readonly JournalRow[], from: Cursor, to: Cursor, abortSignal: AbortSignal): Promise<void> {
    const members = [...this.#members.values()]
      .filter(({ place: { position } }) => position >= from.position && position < to.position);
    const receivers = {
      ofRuns: Map.groupBy(members.filter(({ consumer }) => consumer.runSeq !== null), (one) => one.consumer.runSeq),
      ofLists: members.filter(({ consumer }) => consumer.runSeq === null),
    };
    const breathe = async (bytes: number) => {
      const isLong = this.#deps.host.monotonic() - this.#turnedAt > SLICE_MS;
      if (isLong || members.some(({ consumer }) => consumer.ready(bytes) !== null)) await this.#turn();
      for (const member of members) if (!member.isPaused) this.#pauseIfSlow(member, rows, bytes);
    };
    const shown = { ofRun: (seq: number) => receivers.ofRuns.get(seq) ?? [], ofLists: receivers.ofLists };
    await this.#deps.events.publish(rows, shown, breathe, abortSignal);
    for (const member of members) if (!member.isPaused) Object.assign(member, { place: to, after: to.position });
  }

  /** Leaves a consumer out until it can receive more: nobody waits for a slow reader. */
  #pauseIfSlow(member: Member, rows: readonly JournalRow[], bytes: number): void {
    const ready = member.consumer.ready(bytes);
    if (ready === null) return;
    member.isPaused = true;
    this.#members.delete(member.consumer);
    const whole = rows.findLast(({ position }) => position <= member.after);
    const later = { ...member, place: whole === undefined ? member.place : toPlace(whole), isPaused: false };
    ready.then(() => this.#join(later));
  }

  #at(place: Cursor): Member[] {
    return [...this.#members.values()].filter((member) => member.place.position === place.position);
  }

  #attachAt(place: Cursor): void {
    for (const { consumer, attach } of this.#at(place)) {
      this.#members.delete(consumer);
      attach(place);
    }
  }

  #endAt(place: Cursor, error: unknown): void {
    for (const { consumer } of this.#at(place)) {
      this.#members.delete(consumer);
      consumer.end(error);
    }
  }

  async #turn(): Promise<void> {
    const { host } = this.#deps;
    await nextTurn(host);
    this.#turnedAt = host.monotonic();
  }
}

/** The position of a row. */
export function toPlace({ position, at }: Cursor): Cursor {
  return { position, at };
}

/** Says that consumers cannot be brought up to date. */
export function missingError(): StoreError {
  return new StoreError(
    "The journal no longer has all events since that position: subscribe again",
  );
}
