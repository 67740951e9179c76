import type { EngineParts } from "../../engine/assemble_engine.ts";
import { HoldfastError, NotFoundError } from "../../model/error.ts";
import { openingEvents } from "../../events/opening_events.ts";
import type { Host } from "../../model/host.ts";
import type { RunEvent } from "../../model/event.ts";
import type { Fact } from "../../model/fact.ts";
import type { Cursor } from "../../model/journal.ts";
import { ENDED, isTerminal, type ListFilter } from "../../model/run.ts";
import type { RunState } from "../../store/run_query.ts";
import type { Store } from "../../store/store.ts";
import { FanOut } from "./fan_out.ts";
import { deepFreeze } from "../access/seen_by_hooks.ts";
import { endedStream } from "./event_stream.ts";
import { ClientStream } from "./client_stream.ts";
import { noMoreEvents } from "../response.ts";
import { isInstance } from "../../values/unknown_values.ts";
import type { Resume } from "../requests/parameters.ts";

const KEEP_ALIVE_MS = 15_000;

/** Settings of the streams. */
interface StreamSettings {
  /** How many may be open at once. */
  maxStreams: number;
  /** How many may be open at once for one tenant. */
  maxStreamsPerTenant: number;
  /** How long one may be open, in milliseconds; `Infinity`: no limit. */
  maxStreamMs: number;
  /** The minimum interval between two progress events of a run, in milliseconds; 0: no throttling. */
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
  /** The filter of its runs: that of the client and the hooks combined; `null` if it shows one run. */
  readonly filter: ListFilter | null;
  /** The name of the stream of items that it shows; `null` if it shows events. */
  readonly stream: string | null;
}

/** A stream that its client may open. */
export interface PermittedStream extends OpenStream {
  /** The tenant; `null` without the `tenant` hook. */
  readonly tenant: string | null;
}

/** What is sent to one client, and counted. */
export interface SentStream {
  /** Ends it now. */
  close(): void;
  /** Sends something to keep the connection alive, unless data is buffered. */
  keepAlive(place: Cursor | null): void;
}

type Predicate = (stream: OpenStream) => boolean;

/**
 * All event streams of a handler. The streams of one run share a fan-out, and so do all streams of several runs: an
 * event is throttled and encoded once for all its readers.
 */
export class Streams {
  readonly #internals: EngineParts;
  readonly #settings: StreamSettings;
  readonly #open = new Map<SentStream, OpenStream>();
  /** How many are open, by tenant. */
  readonly #openOf = new Map<string, number>();
  /** The fan-outs by the row number of their run; `null`: that of the streams of several runs. */
  readonly #fanOuts = new Map<number | null, FanOut>();
  #cancelTimer: (() => void) | null = null;
  /**
   * The requests for streams that are being authorised, each with the predicates that were passed to `closeStreams()`
   * meanwhile.
   */
  readonly #authorising = new Set<Predicate[]>();

  constructor(internals: EngineParts, settings: StreamSettings) {
    this.#internals = internals;
    this.#settings = settings;
    internals.lifecycle.onStop(() => this.#closeAll());
  }

  /** How many are open: of one run, and of several. */
  count(): { run: number; list: number } {
    const run = [...this.#open.values()].filter(({ runId }) => runId !== null).length;
    return { run, list: this.#open.size - run };
  }

  /**
   * Opens a stream: of the events of one run (first its state, then its events, up to the last one), or of all runs
   * that match a filter. A client that resumes receives the events after its last id, or a message that events are
   * missing.
   *
   * @param authorise Calls the hooks. A stream that `closeStreams()` has chosen meanwhile ends at once: the hooks may
   * have decided before the right was revoked.
   * @returns The stream; 204 if the client already has the last event of the run.
   * @throws {HoldfastError} Too many streams are open (`unavailable`, or `too_many_streams` of one tenant).
   */
  open(resume: Resume, authorise: () => Promise<PermittedStream>): Promise<Response> {
    return this.#authorise(authorise, async ({ tenant, ...shown }) => {
      const { runId } = shown;
      const filter = runId === null ? deepFreeze(shown.filter ?? {}) : null;
      const stream = this.#newStream({ ...shown, filter }, tenant, resume); // it counts before it reads
      // What a client does after it has the response is after the beginning of its stream.
      return await this.#follow(stream, runId, resume) === "whole" ? noMoreEvents() : stream.toResponse();
    });
  }

  /**
   * Opens a stream of items, or a request that waits for some.
   *
   * @param authorise See {@linkcode Streams.open}.
   * @param answer Makes the response. It is given what registers the stream: that counts it, ends it in time, and returns
   * a function to call when it has ended.
   * @param answerEnded Makes the response if the stream has ended before it began.
   */
  openItems(
    authorise: () => Promise<PermittedStream>,
    answer: (register: (stream: SentStream) => () => void) => Promise<Response>,
    answerEnded: () => Response,
  ): Promise<Response> {
    return this.#authorise(
      authorise,
      ({ tenant, ...shown }) => answer((stream) => this.#register(stream, shown, tenant)),
      answerEnded,
    );
  }

  async #authorise(
    authorise: () => Promise<PermittedStream>,
    open: (permitted: PermittedStream) => Promise<Response>,
    answerEnded = endedStream,
  ): Promise<Response> {
    const closing: Predicate[] = [];
    this.#authorising.add(closing);
    try {
      const permitted = await authorise();
      const { tenant: _, ...shown } = permitted;
      if (this.#internals.lifecycle.isStopped || closing.some((predicate) => predicate(shown))) return answerEnded();
      return await open(permitted);
    } finally {
      this.#authorising.delete(closing);
    }
  }

  /**
   * Brings a stream up to date; then adds it to its fan-out.
   *
   * @returns Resolves when the store has been asked for its beginning, whether or not it has answered; for a run that is
   * resumed, when it has. `whole`: the stream is closed, since its client has the last event of the run.
   * @throws {NotFoundError} There is no such run.
   */
  #follow(stream: ClientStream, runId: string | null, { cursor }: Resume): Promise<"whole" | "begun"> {
    const { promise: begun, resolve, reject } = Promise.withResolvers<"whole" | "begun">();
    const begin = async () => {
      try {
        if (runId === null) return await this.#beginList(stream, cursor);
        return await this.#beginRun(stream, { runId, cursor, noteRead: resolve });
      } catch (error) {
        if (isInstance(error, NotFoundError)) reject(error);
        throw error;
      } finally {
        // Whether a client that resumes has everything is not known before the store has answered.
        if (runId === null || cursor === null) resolve("begun");
      }
    };
    this.#internals.lifecycle.reader.catchUp(stream, begin, (place) => {
      stream.noteUpToDate(place);
      this.#fanOutOf(stream.runSeq, runId, place).add(stream);
    }).finally(() => resolve("begun"));
    return begun;
  }

  async #beginList(stream: ClientStream, cursor: Cursor | null): Promise<Cursor> {
    const { store } = this.#internals;
    const known = cursor === null ? null : await store.findCursor(cursor);
    const place = known ?? (await store.findCursor(null))!; // the end is always known
    if (known === null && cursor !== null) stream.sendGap();
    return place;
  }

  /** @param noteRead Called before anything is sent, which may have to wait for the reader. */
  async #beginRun(
    stream: ClientStream,
    { runId, cursor, noteRead }: { runId: string; cursor: Cursor | null; noteRead: (how: "whole" | "begun") => void },
  ): Promise<Cursor> {
    const { store } = this.#internals;
    const state = await store.getRunState(runId);
    if (state === null) throw new NotFoundError(`There is no run "${runId}"`);
    stream.runSeq = state.seq;
    stream.awaitsChildren = state.pauses.some(({ children }) => children !== undefined);
    const known = cursor === null ? null : await store.findCursor(cursor);
    let resumed = known === null ? null : { known, ...await resumeRun(state, known, store) };
    // The journal may have been trimmed since: then what was looked for in it may be gone.
    const reliesOnJournal = resumed !== null && (resumed.place !== known || resumed.progress !== null);
    if (reliesOnJournal && await store.findCursor(known) === null) resumed = null;
    noteRead(resumed?.place === null ? "whole" : "begun");
    if (resumed !== null) { // from here on the store is not asked: nothing is sent twice
      if (resumed.place === null) stream.close();
      if (resumed.progress !== null) stream.next(resumed.progress);
      return resumed.place ?? resumed.known;
    }
    if (cursor !== null) stream.sendGap();
    for (const event of openingEvents(state)) {
      stream.next(event);
      const ready = stream.ready(); // a run can wait for any number of signals
      if (ready !== null) await ready; // otherwise the reader receives the last event and its id at once
    }
    stream.reach(state.place);
    return state.place;
  }

  #fanOutOf(runSeq: number | null, runId: string | null, place: Cursor): FanOut {
    const existing = this.#fanOuts.get(runSeq);
    if (existing !== undefined) return existing;
    const { store, lifecycle: { reader } } = this.#internals;
    const run = runId === null || runSeq === null ? null : { id: runId, seq: runSeq };
    const fanOut = new FanOut(run, { ...this.#settings, store }, () => {
      detach();
      if (this.#fanOuts.get(runSeq) === fanOut) this.#fanOuts.delete(runSeq);
    });
    // Streams of a fan-out can have different positions: each skips what it has sent already.
    const detach = reader.attach(fanOut, reader.readPlace ?? place);
    this.#fanOuts.set(runSeq, fanOut);
    return fanOut;
  }

  /**
   * Ends the streams that a predicate chooses, including those that are still being authorised. If it throws, none is
   * ended.
   *
   * @returns How many were ended.
   * @throws {TypeError} The predicate returned something other than a boolean.
   */
  close(predicate: Predicate): number {
    const checked: Predicate = (shown) => {
      const isChosen: unknown = predicate(shown);
      if (typeof isChosen === "boolean") return isChosen;
      throw new TypeError("closeStreams(): the predicate must return true or false, synchronously");
    };
    const chosen = [...this.#open].filter(([, shown]) => checked(shown));
    for (const closing of this.#authorising) closing.push(checked);
    for (const [stream] of chosen) stream.close();
    return chosen.length;
  }

  /** Closes all streams when the engine stops, without waiting for readers. */
  #closeAll(): void {
    for (const stream of [...this.#open.keys()]) stream.close();
  }

  #newStream(shown: OpenStream, tenant: string | null, { hasIds, digestMs }: Resume): ClientStream {
    const { throttleMs, host } = this.#settings;
    const { filter } = shown;
    const isCounted = tenant !== null;
    const stream = new ClientStream({ filter, hasIds, isCounted, throttleMs, host, digestMs: filter && digestMs });
    stream.onClose(this.#register(stream, shown, tenant));
    return stream;
  }

  /** Counts a stream, and closes it in time. Returns a function to call when it is closed. */
  #register(stream: SentStream, shown: OpenStream, tenant: string | null): () => void {
    this.#checkRoom(tenant);
    const { maxStreamMs, host } = this.#settings;
    // Closed, not ended: unread events are dropped.
    const cancelEnd = maxStreamMs === Infinity ? () => {} : host.schedule(maxStreamMs, () => stream.close());
    this.#open.set(stream, Object.freeze(shown));
    if (tenant !== null) this.#count(tenant, 1);
    if (this.#cancelTimer === null) this.#keepAlive();
    return () => {
      cancelEnd();
      if (!this.#open.delete(stream)) return;
      if (tenant !== null) this.#count(tenant, -1);
      if (this.#open.size === 0) this.#stopKeepingAlive();
    };
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
      const { publishedPlace } = this.#internals.lifecycle.reader;
      for (const stream of [...this.#open.keys()]) stream.keepAlive(publishedPlace);
      if (this.#open.size > 0) this.#keepAlive();
    });
  }

  #stopKeepingAlive(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }
}

const PROGRESS: readonly Fact[1][] = ["progressed"];

/** How the stream of one run begins after a cursor. */
interface Resumed {
  /** Where to read on: at the end of the journal if nothing has happened to the run; `null`: the client has its last event. */
  place: Cursor | null;
  /** The latest progress, if the client may lack it. */
  progress: RunEvent | null;
}

/** Finds out how to begin the stream of one run after a cursor, without reading the journal. */
async function resumeRun(state: RunState, known: Cursor, store: Store): Promise<Resumed> {
  const has = async (kinds: readonly Fact[1][] | null) =>
    await store.findLastFact(state.seq, known.position, kinds) !== null;
  const isNew = await has(null);
  if (isTerminal(state.run.status) && !(isNew && await has(ENDED))) return { place: null, progress: null };
  // Progress that was delayed when the client left may be older than its cursor.
  const latest = openingEvents({ ...state, place: known }).find(({ type }) => type === "run:progress");
  const progress = latest !== undefined && !(isNew && await has(PROGRESS)) ? latest : null;
  return { place: isNew || known.position > state.place.position ? known : state.place, progress };
}
