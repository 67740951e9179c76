import type { EngineInternals } from "../../engine/engine_internals.ts";
import { HoldfastError, NotFoundError } from "../../error.ts";
import { stateEvents } from "../../events/state_events.ts";
import type { Host } from "../../host.ts";
import type { Cursor } from "../../journal.ts";
import type { ListFilter } from "../../run.ts";
import { Channel } from "./channel.ts";
import { deepFreeze } from "../deep_freeze.ts";
import { endedStream } from "./event_stream.ts";
import { FollowedStream } from "./followed_stream.ts";
import { noMoreEvents } from "../response.ts";
import { hasProgressAfter, hasWholeRun, type Resume, type ResumeDeps } from "./resume.ts";

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
  readonly #open = new Map<FollowedStream, OpenStream>();
  /** How many are open, by tenant. */
  readonly #openOf = new Map<string, number>();
  /** The channels by the row number of their run; `null`: that of all lists. */
  readonly #channels = new Map<number | null, Channel>();
  #cancelTimer: (() => void) | null = null;
  /**
   * The requests for streams that are being authorised, each with the predicates that were to end streams meanwhile.
   */
  readonly #authorising = new Set<Predicate[]>();

  /** None is open yet. */
  constructor(internals: EngineInternals, settings: StreamSettings) {
    this.#internals = internals;
    this.#settings = settings;
    internals.onStop(() => this.#closeAll());
  }

  /**
   * Opens a stream: of the events of one run (first its state, then what happens to it, up to its last event), or of
   * all runs that match a filter. A client that resumes receives what came after the last id that it has, or learns
   * that events are missing and begins anew.
   *
   * @param authorise Asks the hooks. A stream that was to be closed meanwhile ends at once: they may have answered
   * before whatever was the reason for that.
   * @returns The stream; 204 if the client has the last event of the run already.
   * @throws {HoldfastError} Too many streams are open (`unavailable`, or `too_many_streams` of one tenant).
   */
  async open(resume: Resume, authorise: () => Promise<PermittedStream>): Promise<Response> {
    const closing: Predicate[] = [];
    this.#authorising.add(closing);
    try {
      const { tenant, ...shown } = await authorise();
      const { cursor } = resume;
      const mayBeOver = shown.runId !== null && cursor !== null;
      if (mayBeOver && await hasWholeRun(shown.runId!, cursor, await this.#resumeDeps())) return noMoreEvents();
      if (this.#internals.isStopped() || closing.some((predicate) => predicate(shown))) return endedStream();
      const filter = shown.runId === null ? deepFreeze(shown.filter ?? {}) : null;
      const stream = this.#newStream({ ...shown, filter }, tenant, resume);
      this.#follow(stream, shown.runId, resume);
      return stream.toResponse();
    } finally {
      this.#authorising.delete(closing);
    }
  }

  /** Brings a stream up to date; from then on it is one of those of its channel. */
  #follow(stream: FollowedStream, runId: string | null, { cursor }: Resume): void {
    const begin = () => runId === null ? this.#beginList(stream, cursor) : this.#beginRun(stream, runId, cursor);
    this.#internals.reader.catchUp(stream, begin, (place) => {
      stream.noteUpToDate(place);
      this.#channelOf(stream.runSeq, place).add(stream);
    });
  }

  async #resumeDeps(): Promise<ResumeDeps> {
    return { store: await this.#internals.store(), host: this.#settings.host };
  }

  async #beginList(stream: FollowedStream, cursor: Cursor | null): Promise<Cursor> {
    const store = await this.#internals.store();
    const known = cursor === null ? null : await store.findCursor(cursor);
    const place = known ?? (await store.findCursor(null))!; // the end is always known
    if (known === null && cursor !== null) stream.sendGap();
    return place;
  }

  async #beginRun(stream: FollowedStream, runId: string, cursor: Cursor | null): Promise<Cursor> {
    const deps = await this.#resumeDeps();
    const { store } = deps;
    const state = await store.getRunState(runId);
    if (state === null) throw new NotFoundError(`There is no run "${runId}"`);
    stream.runSeq = state.seq;
    const known = cursor === null ? null : await store.findCursor(cursor);
    if (known !== null) {
      // Progress that was held back when the client left may be older than its place.
      const latest = stateEvents({ ...state, place: known }).find(({ type }) => type === "run:progress");
      if (latest !== undefined && !await hasProgressAfter(known, state, deps)) stream.next(latest);
      return known;
    }
    if (cursor !== null) stream.sendGap();
    for (const event of stateEvents(state)) {
      stream.next(event);
      if (stream.isSlow) await stream.ready(); // a run can wait for any number of signals
    }
    stream.reach(state.place);
    return state.place;
  }

  #channelOf(runSeq: number | null, place: Cursor): Channel {
    const existing = this.#channels.get(runSeq);
    if (existing !== undefined) return existing;
    const channel = new Channel(runSeq, this.#settings, () => {
      detach();
      if (this.#channels.get(runSeq) === channel) this.#channels.delete(runSeq);
    });
    // Streams that join later may not have come as far as this one: each leaves out what it has already.
    const { reader } = this.#internals;
    const detach = reader.attach(channel, reader.readPlace ?? place);
    this.#channels.set(runSeq, channel);
    return channel;
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

  #newStream(shown: OpenStream, tenant: string | null, { hasIds }: Resume): FollowedStream {
    this.#checkRoom(tenant);
    const { maxStreamMs, throttleMs, host } = this.#settings;
    const stream = new FollowedStream({ filter: shown.filter, hasIds, isCounted: tenant !== null, throttleMs, host });
    // Closed, not ended: what a slow reader has not read yet is not for it any more.
    const cancelEnd = maxStreamMs === Infinity ? () => {} : host.schedule(maxStreamMs, () => stream.close());
    this.#open.set(stream, Object.freeze(shown));
    if (tenant !== null) this.#count(tenant, 1);
    if (this.#cancelTimer === null) this.#keepAlive();
    stream.onClose(() => {
      cancelEnd();
      this.#open.delete(stream);
      if (tenant !== null) this.#count(tenant, -1);
      if (this.#open.size === 0) this.#stopKeepingAlive();
    });
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

  #keepAlive(): void {
    this.#cancelTimer = this.#settings.host.schedule(KEEP_ALIVE_MS, () => {
      this.#cancelTimer = null;
      const { publishedPlace } = this.#internals.reader;
      for (const stream of [...this.#open.keys()]) stream.keepAlive(publishedPlace);
      if (this.#open.size > 0) this.#keepAlive();
    });
  }

  #stopKeepingAlive(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }
}
