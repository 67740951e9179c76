import type { EngineInternals } from "../engine/internals.ts";
import { HoldfastError } from "../error.ts";
import { isLastEvent, isToldToClients, type RunEvent } from "../event.ts";
import type { Host } from "../host.ts";
import { type ListFilter, matches } from "../run.ts";
import { endedStream, EventStream, type Message } from "./event_stream.ts";
import { ProgressThrottle } from "./progress_throttle.ts";

const KEEP_ALIVE_MS = 15_000;

/** How streams are set up. */
export interface StreamSettings {
  /** How many may be open at once. */
  maxStreams: number;
  /** How long progress is held back, in milliseconds; 0: not at all. */
  throttleMs: number;
  /** Time. */
  host: Host;
}

/**
 * All event streams of a handler. Those of one run share a channel, and so do those of lists: an event is throttled and
 * encoded once, whatever the number of its readers.
 */
export class Streams {
  readonly #internals: EngineInternals;
  readonly #settings: StreamSettings;
  readonly #open = new Set<EventStream>();
  readonly #runChannels = new Map<string, RunChannel>();
  #listChannel: ListChannel | null = null;
  #cancelTimer: (() => void) | null = null;

  /** None is open yet. */
  constructor(internals: EngineInternals, settings: StreamSettings) {
    this.#internals = internals;
    this.#settings = settings;
  }

  /**
   * Streams the events of a run: first how it stands, then what happens to it, up to its last event.
   *
   * @throws {HoldfastError} Too many streams are open (`unavailable`).
   */
  openRun(runId: string): Response {
    if (this.#internals.isStopped()) return endedStream();
    const stream = this.#newStream(() => channel.remove(stream));
    const channel = this.#runChannels.get(runId) ?? this.#newRunChannel(runId);
    channel.add(stream);
    return stream.toResponse();
  }

  /**
   * Streams what happens to all runs that match a filter.
   *
   * @throws {HoldfastError} Too many streams are open (`unavailable`).
   */
  openList(filter: ListFilter): Response {
    if (this.#internals.isStopped()) return endedStream();
    const stream = this.#newStream(() => channel.remove(stream));
    const channel = this.#listChannel ??= this.#newListChannel();
    channel.add(stream, filter);
    return stream.toResponse();
  }

  #newStream(onClose: () => void): EventStream {
    const { maxStreams } = this.#settings;
    if (this.#open.size >= maxStreams) throw new HoldfastError("unavailable", "Too many event streams are open");
    const stream = new EventStream(() => {
      this.#open.delete(stream);
      if (this.#open.size === 0) this.#stopKeepingAlive();
      onClose();
    });
    this.#open.add(stream);
    if (this.#cancelTimer === null) this.#keepAlive();
    return stream;
  }

  #newRunChannel(runId: string): RunChannel {
    const channel = new RunChannel(runId, this.#internals, this.#settings, () => {
      if (this.#runChannels.get(runId) === channel) this.#runChannels.delete(runId);
    });
    this.#runChannels.set(runId, channel);
    return channel;
  }

  #newListChannel(): ListChannel {
    const channel = new ListChannel(this.#internals, this.#settings, () => {
      if (this.#listChannel === channel) this.#listChannel = null;
    });
    return channel;
  }

  #keepAlive(): void {
    this.#cancelTimer = this.#settings.host.schedule(KEEP_ALIVE_MS, () => {
      for (const stream of this.#open) stream.keepAlive();
      this.#keepAlive();
    });
  }

  #stopKeepingAlive(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }
}

/** Everybody who watches one run. */
class RunChannel {
  readonly #runId: string;
  readonly #internals: EngineInternals;
  readonly #onEmpty: () => void;
  /** The streams, each with the progress that it was told of when it came. */
  readonly #streams = new Map<EventStream, RunEvent | null>();
  readonly #throttle: ProgressThrottle;
  #stopWatching: (() => void) | null = null;
  #isOver = false;
  #isClosed = false;

  constructor(runId: string, internals: EngineInternals, { throttleMs, host }: StreamSettings, onEmpty: () => void) {
    this.#runId = runId;
    this.#internals = internals;
    this.#onEmpty = onEmpty;
    this.#throttle = new ProgressThrottle(throttleMs, host, (event) => this.#broadcast(event));
  }

  add(stream: EventStream): void {
    if (this.#stopWatching === null) {
      this.#streams.set(stream, null);
      return this.#watch();
    }
    // Whoever comes later is told how the run stands, with progress that may be held back from the others.
    const standing = this.#internals.watches.standing(this.#runId);
    this.#streams.set(stream, standing.find(({ type }) => type === "run:progress") ?? null);
    for (const event of standing) stream.send(toMessage(event, event));
  }

  #watch(): void {
    this.#stopWatching = this.#internals.watches.watch(this.#runId, {
      next: (event) => isToldToClients(event) && this.#throttle.tell(event),
      end: () => this.#end(),
    });
    // The one reader may have been sent away by what it was told at once.
    if (this.#isClosed) this.#stopWatching();
  }

  remove(stream: EventStream): void {
    this.#streams.delete(stream);
    if (this.#streams.size === 0) this.#close();
  }

  #broadcast(event: RunEvent): void {
    this.#isOver = isLastEvent(event);
    const message = toMessage(event, event);
    for (const [stream, progress] of this.#streams) if (event !== progress) stream.send(message);
  }

  /** After the last event its readers may take their time; when the engine stops, nobody waits for them. */
  #end(): void {
    for (const stream of [...this.#streams.keys()]) {
      if (this.#isOver) stream.end();
      else stream.close();
    }
    this.#close();
  }

  #close(): void {
    this.#isClosed = true;
    this.#throttle.stop();
    this.#stopWatching?.();
    this.#onEmpty();
  }
}

/** Everybody who watches lists. */
class ListChannel {
  readonly #streams = new Map<EventStream, ListFilter>();
  readonly #onEmpty: () => void;
  readonly #throttle: ProgressThrottle;
  readonly #stopWatching: () => void;

  constructor({ feed }: EngineInternals, { throttleMs, host }: StreamSettings, onEmpty: () => void) {
    this.#onEmpty = onEmpty;
    this.#throttle = new ProgressThrottle(throttleMs, host, (event) => this.#broadcast(event));
    this.#stopWatching = feed.watch({
      next: (event) => this.#throttle.tell(event),
      end: () => this.#end(),
    });
  }

  add(stream: EventStream, filter: ListFilter): void {
    this.#streams.set(stream, filter);
  }

  remove(stream: EventStream): void {
    this.#streams.delete(stream);
    if (this.#streams.size === 0) this.#close();
  }

  #broadcast(event: RunEvent): void {
    let message: Message | null = null;
    for (const [stream, filter] of this.#streams) {
      if (matches(event, filter)) stream.send(message ??= toMessage(event, withoutInputs(event)));
    }
  }

  /** The engine stops. */
  #end(): void {
    for (const stream of [...this.#streams.keys()]) stream.close();
    this.#close();
  }

  #close(): void {
    this.#throttle.stop();
    this.#stopWatching();
    this.#onEmpty();
  }
}

const encoder = new TextEncoder();

function toMessage({ type, runId }: RunEvent, shown: object): Message {
  const subject = type === "run:progress" ? runId : null;
  // A live error stays in the process; JSON leaves out what is undefined.
  const told = "thrown" in shown ? { ...shown, thrown: undefined } : shown;
  return { bytes: encoder.encode(`data: ${JSON.stringify(told)}\n\n`), subject };
}

/** An event for lists, which do not tell what runs were triggered with. */
function withoutInputs(event: RunEvent): object {
  switch (event.type) {
    case "run:trigger": {
      const { input: _input, ...shown } = event;
      return shown;
    }
    case "run:coalesced": {
      const { skippedInput: _input, skippedLabels: _labels, ...shown } = event;
      return shown;
    }
    default:
      return event;
  }
}
