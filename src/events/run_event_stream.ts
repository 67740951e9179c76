import { NotFoundError, StoreError } from "../model/error.ts";
import { isLastEvent, type RunEvent } from "../model/event.ts";
import type { Host } from "../model/host.ts";
import type { Store } from "../store/store.ts";
import { ChildProgress } from "./child_progress.ts";
import type { EventConsumer } from "./fact_events.ts";
import type { JournalReader } from "./journal_reader.ts";
import { openingEvents } from "./opening_events.ts";

// The most unread events, and the most characters of JSON that they have together: beyond either the stream fails.
const MAX_UNREAD = 10_000;
const MAX_UNREAD_LENGTH = 4_194_304;

/**
 * The events of a run as a stream: first its state, then its events, up to the last one.
 *
 * Of unread progress events only the latest is kept. With more than 10,000 other unread events, or more than 4 MiB of
 * them, the stream fails with a {@linkcode StoreError}. One larger event alone is kept.
 */
export function subscribe(
  runId: string,
  { reader, store, host }: { reader: JournalReader; store: Store; host: Host },
): ReadableStream<RunEvent> {
  const unread: { event: RunEvent; length: number }[] = [];
  let unreadLength = 0;
  const ending = new AbortController();
  const { signal: abortSignal } = ending;
  let detach: () => void = () => {};
  let isWanted = false;
  let end: (() => void) | null = null;
  let controller: ReadableStreamDefaultController<RunEvent>;

  const stop = () => {
    ending.abort();
    children.stop();
    detach();
  };
  const take = (item: { event: RunEvent; length: number }) => {
    unreadLength -= item.length;
    return item.event;
  };
  /** Enqueues unread events as far as the reader asks for them. */
  const flush = () => {
    while (isWanted && unread.length > 0) {
      isWanted = false;
      controller.enqueue(take(unread.shift()!)); // it is not empty
    }
    if (unread.length === 0) end?.();
  };
  const endWith = (how: () => void) => {
    stop();
    end ??= () => {
      end = () => {};
      how();
    };
    flush();
  };
  const next = (event: RunEvent) => {
    if (abortSignal.aborted) return;
    children.note(event);
    if (event.type === "run:progress" && unread.at(-1)?.event.type === "run:progress") take(unread.pop()!);
    const isReadAtOnce = isWanted && unread.length === 0;
    const length = isReadAtOnce ? 0 : JSON.stringify(event).length;
    unread.push({ event, length });
    unreadLength += length;
    if (unread.length > MAX_UNREAD || (unread.length > 1 && unreadLength > MAX_UNREAD_LENGTH)) {
      unread.length = 0;
      return endWith(() => controller.error(new StoreError("The events of the run were not read fast enough")));
    }
    if (isLastEvent(event)) endWith(() => controller.close());
    else flush();
  };
  const children = new ChildProgress(runId, { store, host }, next);
  const fail = (error?: unknown) => {
    endWith(() => error === undefined ? controller.close() : controller.error(error));
  };
  const consumer: EventConsumer & { runSeq: number | null } = {
    runSeq: null,
    abortSignal,
    follows: () => true,
    next,
    reach: () => {},
    end: fail,
    ready: () => null,
  };
  const begin = async () => {
    const state = await store.getRunState(runId);
    if (state === null) throw new NotFoundError(`There is no run "${runId}"`);
    consumer.runSeq = state.seq;
    for (const event of openingEvents(state)) next(event);
    return state.place;
  };
  return new ReadableStream({
    start: (given) => {
      controller = given;
      reader.catchUp(consumer, begin, (place) => detach = reader.attach(consumer, place));
    },
    pull: () => {
      isWanted = true;
      flush();
    },
    cancel: stop,
  }, { highWaterMark: 0 });
}

/** The stream of an engine that has stopped. */
export function endedStream(): ReadableStream<RunEvent> {
  return new ReadableStream({ start: (controller) => controller.close() });
}
