import type { EngineInternals } from "../engine/internals.ts";
import { HoldfastError } from "../error.ts";
import { isLastEvent, isToldToClients, type RunEvent } from "../event.ts";
import type { Host } from "../host.ts";
import { type ListFilter, matches } from "../run.ts";
import { deepFreeze } from "./deep_freeze.ts";
import { endedStream, EventStream, type Message } from "./event_stream.ts";
import { ProgressThrottle } from "./progress_throttle.ts";

const KEEP_ALIVE_MS = 15_000;

/** How streams are set up. */
export interface StreamSettings {
  /** How many may be open at once. */
  maxStreams: number;
  /** How many may be open at once for one tenant. */
  maxStreamsPerTenant: number;
  /** How long one may be open, in milliseconds; `Infinity`: as long as its reader likes. */
  maxStreamMs: number;
  /** How long progress is held back, in milliseconds; 0: not at all. */
  throttleMs: number;
  /** Time. */
  host: Host;
}

/** A stream that is open. `Context` is what `auth.authenticate` returns. */
export interface OpenStream<Context = unknown> {
  /** What `authenticate` returned for the request that opened it; `null` without `auth`. */
  readonly context: Context;
  /** The run that it shows; `null` if it shows all that match a filter. */
  readonly runId: string | null;
  /** Which runs it shows: what the client asked for, as far as the hooks allow it; `null` if it shows one run. */
  readonly filter: ListFilter | null;
}

/** A stream that its client may open. */
export interface PermittedStream extends OpenStream {
  /** The tenant; `null` if tenants have no names. */
  readonly tenant: string | null;
}

type Predicate = (stream: OpenStream) => boolean;

/**
 * All event streams of a handler. Those of one run share a channel, and so do those of lists: an event is throttled and
 * encoded once, whatever the number of its readers.
 */
export class Streams {
  readonly #internals: EngineInternals;
  readonly #settings: StreamSettings;
  readonly #open = new Map<EventStream, OpenStream>();
  /** How many are open, by tenant. */
  readonly #openOf = new Map<string, number>();
  readonly #runChannels = new Map<string, RunChannel>();
  #listChannel: ListChannel | null = null;
  #cancelTimer: (() => void) | null = null;
  /** The requests for streams that are being authorised, each with the predicates that were to end streams meanwhile. */
  readonly #authorising = new Set<Predicate[]>();

  /** None is open yet. */
  constructor(internals: EngineInternals, settings: StreamSettings) {
    this.#internals = internals;
    this.#settings = settings;
    internals.onStop(() => this.#closeAll());
  }

  /**
   * Opens a stream: of the events of one run (first its state, then what happens to it, up to its last event), or of all
   * runs that match a filter.
   *
   * @param authorise Asks the hooks. A stream that was to be closed meanwhile ends at once: they may have answered before
   * whatever was the reason for that.
   * @throws {HoldfastError} Too many streams are open (`unavailable`, or `too_many_streams` of one tenant).
   */
  async open(authorise: () => Promise<PermittedStream>): Promise<Response> {
    const closing: Predicate[] = [];
    this.#authorising.add(closing);
    try {
      const { tenant, ...shown } = await authorise();
      if (this.#internals.isStopped() || closing.some((predicate) => predicate(shown))) return endedStream();
      return shown.runId === null ? this.#openList(shown, tenant) : this.#openRun(shown, shown.runId, tenant);
    } finally {
      this.#authorising.delete(closing);
    }
  }

  #openRun(shown: OpenStream, runId: string, tenant: string | null): Response {
    const stream = this.#newStream(shown, tenant, () => channel.remove(stream));
    const channel = this.#runChannels.get(runId) ?? this.#newRunChannel(runId);
    channel.add(stream);
    return stream.toResponse();
  }

  #openList({ context, filter }: OpenStream, tenant: string | null): Response {
    const frozen = deepFreeze(filter ?? {});
    const stream = this.#newStream({ context, runId: null, filter: frozen }, tenant, () => channel.remove(stream));
    const channel = this.#listChannel ??= this.#newListChannel();
    channel.add(stream, frozen);
    return stream.toResponse();
  }

  /**
   * Ends the streams that a predicate chooses, and those that it chooses of the ones that are being authorised. If it
   * throws, none is ended.
   *
   * @returns How many were ended.
   * @throws {TypeError} The predicate returned something else than a boolean.
   */
  close(predicate: Predicate): number {
    const checked: Predicate = (shown) => {
      const isChosen: unknown = predicate(shown);
      if (typeof isChosen === "boolean") return isChosen;
      throw new TypeError("closeStreams(): the predicate must return true or false, at once");
    };
    const chosen = [...this.#open].filter(([, shown]) => checked(shown));
    for (const closing of this.#authorising) closing.push(checked);
    for (const [stream] of chosen) stream.close();
    return chosen.length;
  }

  /** The engine stops: nobody waits for a reader, not even for one who still reads the end of a run. */
  #closeAll(): void {
    for (const stream of [...this.#open.keys()]) stream.close();
  }

  #newStream(shown: OpenStream, tenant: string | null, onClose: () => void): EventStream {
    this.#checkRoom(tenant);
    const { maxStreamMs, host } = this.#settings;
    const stream = new EventStream(() => {
      cancelEnd();
      this.#open.delete(stream);
      if (tenant !== null) this.#count(tenant, -1);
      if (this.#open.size === 0) this.#stopKeepingAlive();
      onClose();
    });
    // Closed, not ended: what a slow reader has not read yet is not for it any more.
    const cancelEnd = maxStreamMs === Infinity ? () => {} : host.schedule(maxStreamMs, () => stream.close());
    this.#open.set(stream, Object.freeze(shown));
    if (tenant !== null) this.#count(tenant, 1);
    if (this.#cancelTimer === null) this.#keepAlive();
    return stream;
  }

  #checkRoom(tenant: string | null): void {
    const { maxStreams, maxStreamsPerTenant } = this.#settings;
    if (tenant !== null && (this.#openOf.get(tenant) ?? 0) >= maxStreamsPerTenant) {
      throw new HoldfastError("too_many_streams", `At most ${maxStreamsPerTenant} event streams can be open`);
    }
    if (this.#open.size >= maxStreams) throw new HoldfastError("unavailable", "Too many event streams are open");
  }

  #count(tenant: string, added: 1 | -1): void {
    const count = (this.#openOf.get(tenant) ?? 0) + added;
    if (count === 0) this.#openOf.delete(tenant);
    else this.#openOf.set(tenant, count);
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
      this.#cancelTimer = null;
      for (const stream of [...this.#open.keys()]) stream.keepAlive();
      if (this.#open.size > 0) this.#keepAlive();
    });
  }

  #stopKeepingAlive(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }
}

/** All streams of one run. */
class RunChannel {
  readonly #runId: string;
  readonly #internals: EngineInternals;
  readonly #onEmpty: () => void;
  /** The streams, each with the progress that it was told of when it came. */
  readonly #streams = new Map<EventStream, RunEvent | null>();
  readonly #throttle: ProgressThrottle;
  /** The number of the last event that was sent. */
  #sequence = 0;
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
    // They take the numbers before that of the next event, so that those of the other streams just go on.
    this.#sequence = Math.max(this.#sequence, standing.length);
    const before = this.#sequence - standing.length;
    for (const [at, event] of standing.entries()) stream.send(new Encoded(event).numbered(before + at + 1));
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
    const message = new Encoded(event).numbered(++this.#sequence);
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

/** The streams that show the same list. */
interface ListStreams {
  readonly filter: ListFilter;
  readonly streams: Set<EventStream>;
  /** The number of the last event that was sent. */
  sequence: number;
}

/** All streams of lists. Each list has numbers of its own: they do not count events that its readers may not see. */
class ListChannel {
  readonly #lists = new Map<string, ListStreams>();
  readonly #listOf = new Map<EventStream, string>();
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
    const key = JSON.stringify(filter);
    const list = this.#lists.get(key) ?? { filter, streams: new Set(), sequence: 0 };
    this.#lists.set(key, list);
    this.#listOf.set(stream, key);
    list.streams.add(stream);
  }

  remove(stream: EventStream): void {
    const key = this.#listOf.get(stream);
    const list = key === undefined ? undefined : this.#lists.get(key);
    if (key === undefined || list === undefined) return;
    this.#listOf.delete(stream);
    list.streams.delete(stream);
    if (list.streams.size === 0) this.#lists.delete(key);
    if (this.#lists.size === 0) this.#close();
  }

  #broadcast(event: RunEvent): void {
    let encoded: Encoded | null = null;
    for (const list of this.#lists.values()) {
      if (!matches(event, list.filter)) continue;
      encoded ??= new Encoded(withoutInputs(event));
      const message = encoded.numbered(++list.sequence);
      for (const stream of list.streams) stream.send(message);
    }
  }

  /** The engine stops. */
  #end(): void {
    for (const stream of [...this.#listOf.keys()]) stream.close();
    this.#close();
  }

  #close(): void {
    this.#throttle.stop();
    this.#stopWatching();
    this.#onEmpty();
  }
}

const encoder = new TextEncoder();

/** What is shown of an event. */
type ShownEvent = Pick<RunEvent, "type" | "runId" | "sequence">;

/** An event as it is sent, but for its number: it is encoded once, however many numbers it has. */
class Encoded {
  readonly #head: Uint8Array;
  readonly #subject: string | null;

  constructor({ sequence: _, ...event }: ShownEvent) {
    // A live error stays in the process; JSON leaves out what is undefined.
    const shown = "thrown" in event ? { ...event, thrown: undefined } : event;
    this.#head = encoder.encode(`data: ${JSON.stringify(shown).slice(0, -1)},"sequence":`);
    this.#subject = shown.type === "run:progress" ? shown.runId : null;
  }

  numbered(sequence: number): Message {
    const tail = encoder.encode(`${sequence}}\n\n`);
    const bytes = new Uint8Array(this.#head.length + tail.length);
    bytes.set(this.#head);
    bytes.set(tail, this.#head.length);
    return { bytes, subject: this.#subject };
  }
}

/** An event for lists, which do not tell what runs were triggered with. */
function withoutInputs(event: RunEvent): ShownEvent {
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
