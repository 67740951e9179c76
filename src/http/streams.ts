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

/** Who opens a stream. */
export interface Subscriber {
  /** What `authenticate` returned; `null` without `auth`. */
  context: unknown;
  /** The tenant; `null` if tenants have no names. */
  tenant: string | null;
}

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

  /** None is open yet. */
  constructor(internals: EngineInternals, settings: StreamSettings) {
    this.#internals = internals;
    this.#settings = settings;
  }

  /**
   * Streams the events of a run: first how it stands, then what happens to it, up to its last event.
   *
   * @throws {HoldfastError} Too many streams are open (`unavailable`, or `too_many_streams` of one tenant).
   */
  openRun(runId: string, { context, tenant }: Subscriber): Response {
    if (this.#internals.isStopped()) return endedStream();
    const stream = this.#newStream({ context, runId, filter: null }, tenant, () => channel.remove(stream));
    const channel = this.#runChannels.get(runId) ?? this.#newRunChannel(runId);
    channel.add(stream);
    return stream.toResponse();
  }

  /**
   * Streams what happens to all runs that match a filter.
   *
   * @throws {HoldfastError} Too many streams are open (`unavailable`, or `too_many_streams` of one tenant).
   */
  openList(filter: ListFilter, { context, tenant }: Subscriber): Response {
    if (this.#internals.isStopped()) return endedStream();
    const shown = { context, runId: null, filter: deepFreeze(filter) };
    const stream = this.#newStream(shown, tenant, () => channel.remove(stream, tenant));
    const channel = this.#listChannel ??= this.#newListChannel();
    channel.add(stream, filter, tenant);
    return stream.toResponse();
  }

  /**
   * Ends the streams that a predicate chooses. If it throws, none is ended.
   *
   * @returns How many were ended.
   * @throws {TypeError} The predicate returned something else than a boolean.
   */
  close(predicate: (stream: OpenStream) => boolean): number {
    const chosen = [...this.#open].filter(([, shown]) => {
      const isChosen: unknown = predicate(shown);
      if (typeof isChosen === "boolean") return isChosen;
      throw new TypeError("closeStreams(): the predicate must return true or false, at once");
    });
    for (const [stream] of chosen) stream.close();
    return chosen.length;
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
      for (const stream of this.#open.keys()) stream.keepAlive();
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

/** The streams of one tenant that show lists. */
interface TenantStreams {
  readonly filters: Map<EventStream, ListFilter>;
  /** The number of the last event that was sent. */
  sequence: number;
}

/** Everybody who watches lists. Each tenant has numbers of its own: they do not count what others are sent. */
class ListChannel {
  readonly #tenants = new Map<string | null, TenantStreams>();
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

  add(stream: EventStream, filter: ListFilter, tenant: string | null): void {
    const streams = this.#tenants.get(tenant) ?? { filters: new Map(), sequence: 0 };
    this.#tenants.set(tenant, streams);
    streams.filters.set(stream, filter);
  }

  remove(stream: EventStream, tenant: string | null): void {
    const streams = this.#tenants.get(tenant);
    streams?.filters.delete(stream);
    if (streams?.filters.size === 0) this.#tenants.delete(tenant);
    if (this.#tenants.size === 0) this.#close();
  }

  #broadcast(event: RunEvent): void {
    let encoded: Encoded | null = null;
    for (const streams of this.#tenants.values()) {
      let message: Message | null = null;
      for (const [stream, filter] of streams.filters) {
        if (!matches(event, filter)) continue;
        encoded ??= new Encoded(withoutInputs(event));
        stream.send(message ??= encoded.numbered(++streams.sequence));
      }
    }
  }

  /** The engine stops. */
  #end(): void {
    const all = [...this.#tenants.values()].flatMap(({ filters }) => [...filters.keys()]);
    for (const stream of all) stream.close();
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
