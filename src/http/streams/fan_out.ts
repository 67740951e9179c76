import { ChildProgress } from "../../events/child_progress.ts";
import type { EventConsumer } from "../../events/fact_events.ts";
import { isLastEvent, type RunEvent } from "../../model/event.ts";
import type { Host } from "../../model/host.ts";
import type { Cursor } from "../../model/journal.ts";
import { type ListFilter, matches, type RunIdentity } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import { type EncodedEvent, encodedOf } from "./event_stream.ts";
import { type ClientStream, placeMessage } from "./client_stream.ts";
import { ProgressThrottle } from "./progress_throttle.ts";

/** Streams that show the same runs. */
interface Group {
  readonly filter: ListFilter | null;
  readonly streams: Set<ClientStream>;
}

/**
 * All streams that follow one particular run, or all streams that each follow several runs: only those that have caught
 * up with the journal. An event is throttled and encoded once for all of them.
 */
export class FanOut implements EventConsumer {
  readonly runSeq: number | null;
  readonly #groups = new Map<string, Group>();
  readonly #throttle: ProgressThrottle;
  readonly #closing = new AbortController();
  readonly #onClose: () => void;
  /** Counts the children of the run; `null` for several runs. */
  readonly #children: ChildProgress | null;
  #isOver = false;

  /** @param run The run, with its row number; `null` for the streams of several runs. */
  constructor(
    run: { id: string; seq: number } | null,
    { throttleMs, host, store }: { throttleMs: number; host: Host; store: Pick<Store, "getRunState"> },
    onClose: () => void,
  ) {
    this.runSeq = run?.seq ?? null;
    this.#onClose = onClose;
    this.#children = run && new ChildProgress(run.id, { store, host }, (event) => this.#throttle.publish(event));
    this.#throttle = new ProgressThrottle(throttleMs, host, (event) => this.#broadcast(event));
  }

  /** Fires when its last stream is closed. */
  get abortSignal(): AbortSignal {
    return this.#closing.signal;
  }

  /** Adds a stream that has received everything so far. */
  add(stream: ClientStream): void {
    const key = JSON.stringify(stream.filter);
    const group = this.#groups.get(key) ?? { filter: stream.filter, streams: new Set() };
    this.#groups.set(key, group);
    group.streams.add(stream);
    stream.onClose(() => this.#remove(stream, key, group));
    if (stream.awaitsChildren) this.#children?.start();
  }

  #remove(stream: ClientStream, key: string, group: Group): void {
    group.streams.delete(stream);
    if (group.streams.size === 0 && this.#groups.get(key) === group) this.#groups.delete(key);
    if (this.#groups.size === 0) this.#close();
  }

  /** Whether the filter of a stream of several runs matches a run. */
  follows(run: RunIdentity): boolean {
    for (const { filter } of this.#groups.values()) if (filter !== null && matches(run, filter)) return true;
    return false;
  }

  /** Sends an event, or delays it. */
  next(event: RunEvent): void {
    if (this.#isOver) return;
    this.#children?.note(event);
    this.#throttle.publish(event);
  }

  #broadcast(event: RunEvent): void {
    this.#isOver = this.runSeq !== null && isLastEvent(event);
    let encoded: EncodedEvent | null = null;
    for (const { filter, streams } of this.#groups.values()) {
      if (filter !== null && !matches(event, filter)) continue;
      encoded ??= encodedOf(event, { isListed: this.runSeq === null });
      for (const stream of streams) stream.send(encoded);
    }
  }

  /** Sends the current cursor to the streams that have received events since the last cursor. */
  reach(place: Cursor): void {
    const message = placeMessage(place);
    for (const stream of this.#streams()) stream.reach(place, message);
    if (this.#isOver) this.end();
  }

  /**
   * Ends the streams. If the last event of the run was sent, each stream ends when its reader has received everything.
   * Otherwise the streams are closed at once.
   */
  end(): void {
    for (const stream of this.#streams()) {
      if (this.#isOver) stream.endWhenRead();
      else stream.close();
    }
    this.#close();
  }

  /** Never waits: a stream whose reader is too slow is closed, and its client resumes. */
  ready(): null {
    return null;
  }

  #streams(): ClientStream[] {
    return [...this.#groups.values()].flatMap(({ streams }) => [...streams]);
  }

  #close(): void {
    if (this.abortSignal.aborted) return;
    this.#closing.abort();
    this.#throttle.stop();
    this.#children?.stop();
    this.#onClose();
  }
}
