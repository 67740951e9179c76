import { errorMessage } from "../../../values/unknown_values.ts";
import { StoreError } from "../../../model/error.ts";
import { type Host, pause, within } from "../../../model/host.ts";
import type { ChangeListener, StoreWatch } from "../../../store/store.ts";
import { checkDatabaseUrl, loadDriver } from "../database/client.ts";
import { Servers } from "../database/servers.ts";

/** The dependencies of a {@linkcode NotifyListener}. */
interface NotifyListenerDeps {
  /** Listens on a connection of its own. */
  listen: Listen;
  /** Sends a notification as a commit does: on another connection. */
  notify: (channel: string) => Promise<void>;
  /** The channel of the changes. */
  changeChannel: string;
  /** The channel of new rows of the outbox. */
  outboxChannel: string;
  /** The channel of its tests. */
  testChannel: string;
  /** Time and timers. */
  host: Host;
}

// Both bound how long a connection that is broken and does not say so is trusted.
const TEST_EVERY_MS = 8_000;
const TEST_LIMIT_MS = 2_000;
const LISTEN_LIMIT_MS = 10_000;
const NOTHING_ARRIVES =
  "no notification arrives, as through a pooler in transaction mode; set listenUrl to a direct address of the server";
const FIRST_PAUSE_MS = 250;
const MAX_PAUSE_MS = 30_000;

/**
 * Reports notifications to those who watch. It listens while somebody does. It is live once a notification that it has
 * sent to itself has arrived, and sends another one every eight seconds. When one does not arrive within two seconds, or
 * the connection breaks, it is not live, and tries again with growing pauses.
 */
export class NotifyListener {
  readonly #deps: NotifyListenerDeps;
  readonly #watchers = new Set<ChangeListener>();
  #isLive = false;
  /** The watchers that know why it is not live. */
  readonly #informed = new Set<ChangeListener>();
  #stopping: AbortController | null = null;
  #running: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(deps: NotifyListenerDeps) {
    this.#deps = deps;
  }

  /** Watches until the watch is stopped. */
  watch(watcher: ChangeListener): StoreWatch {
    const own: ChangeListener = {
      onChange: () => watcher.onChange(),
      onOutboxRow: () => watcher.onOutboxRow?.(),
      onError: (error) => watcher.onError(error),
    };
    this.#watchers.add(own);
    this.#start();
    const isLive = () => this.#isLive;
    return {
      get isLive() {
        return isLive();
      },
      stop: () => {
        this.#watchers.delete(own);
        this.#informed.delete(own);
        if (this.#watchers.size === 0) this.#stop();
      },
    };
  }

  /** Ends all watches. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stop();
    await this.#running;
  }

  #start(): void {
    if (this.#stopping !== null || this.#isClosed) return;
    const stopping = this.#stopping = new AbortController();
    this.#running = this.#running.then(() => this.#run(stopping.signal));
  }

  #stop(): void {
    this.#stopping?.abort();
    this.#stopping = null;
    this.#isLive = false;
  }

  async #run(abortSignal: AbortSignal): Promise<void> {
    const { host } = this.#deps;
    for (let failures = 0; !abortSignal.aborted; failures++) {
      try {
        await this.#listen(abortSignal);
      } catch (error) {
        if (abortSignal.aborted) return;
        if (this.#isLive) failures = 0;
        this.#setLive(false);
        this.#reportOnce(error);
      }
      const longest = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures);
      await pause(host, longest * (0.5 + host.random() / 2), abortSignal);
    }
  }

  /** Listens until that fails or the signal fires, and throws why. */
  async #listen(abortSignal: AbortSignal): Promise<never> {
    const { listen, notify, changeChannel, outboxChannel, testChannel, host } = this.#deps;
    const ending = Promise.withResolvers<never>();
    ending.promise.catch(() => {}); // it may end while nothing waits for that
    const stop = () => ending.reject(abortSignal.reason);
    abortSignal.addEventListener("abort", stop);
    let noteTest = () => {};
    const onNotify = (channel: string) => {
      if (channel === testChannel) noteTest();
      else if (channel === changeChannel) this.#reportChange();
      else for (const { onOutboxRow } of [...this.#watchers]) onOutboxRow?.();
    };
    const channels = [changeChannel, outboxChannel, testChannel];
    const listening = listen(channels, onNotify, ending.reject, abortSignal);
    try {
      await inTime(host, LISTEN_LIMIT_MS, Promise.race([listening, ending.promise]), "the server does not answer");
      while (true) {
        const arrival = new Promise<void>((resolve) => noteTest = resolve);
        const test = Promise.race([Promise.all([notify(testChannel), arrival]), ending.promise]);
        await inTime(host, TEST_LIMIT_MS, test, NOTHING_ARRIVES);
        // It may have been stopped at the moment at which the test arrived.
        abortSignal.throwIfAborted();
        this.#setLive(true);
        await within(host, TEST_EVERY_MS, ending.promise);
      }
    } finally {
      abortSignal.removeEventListener("abort", stop);
      listening.then((end) => end(), () => {});
    }
  }

  #setLive(isLive: boolean): void {
    if (isLive === this.#isLive) return;
    this.#isLive = isLive;
    if (isLive) this.#informed.clear();
    // What was committed before it was live was not reported.
    this.#reportChange();
  }

  #reportChange(): void {
    for (const { onChange } of [...this.#watchers]) onChange();
  }

  /** Reports why it is not live to the watchers that do not know. */
  #reportOnce(error: unknown): void {
    const reason = errorMessage(error);
    const message = `Changes of other processes are found by polling until LISTEN succeeds: ${reason}`;
    for (const watcher of [...this.#watchers]) {
      if (this.#informed.has(watcher)) continue;
      this.#informed.add(watcher);
      watcher.onError(new StoreError(message, { cause: error }));
    }
  }
}

/** Waits for something, and throws if it has not come in time. */
async function inTime(host: Host, ms: number, work: Promise<unknown>, message: string): Promise<void> {
  let isDone = false;
  await within(host, ms, work.then(() => isDone = true));
  if (!isDone) throw new Error(message);
}

/**
 * Listens to a channel of the database, on a connection that is not shared through a pooler in transaction mode.
 *
 * `npm:postgres`: `(channel, onNotify) => sql.listen(channel, onNotify).then(({ unlisten }) => unlisten)`. PGlite:
 * `(channel, onNotify) => pglite.listen(channel, onNotify)`.
 *
 * @returns Resolves when it listens, with a function that ends that.
 */
export type PostgresListen = (channel: string, onNotify: () => void) => Promise<() => unknown>;

/**
 * Listens to channels, until the returned function is called. `onLost` is called when it has ended before. When the signal
 * fires, nobody waits any more until it listens.
 */
export type Listen = (
  channels: readonly string[],
  onNotify: (channel: string) => void,
  onLost: (error: Error) => void,
  abortSignal: AbortSignal,
) => Promise<() => void>;

const CONNECT_TIMEOUT_MS = 5_000;
// A session that listens is idle most of the time. Nothing is set without need: a pooler would keep it.
const STAY_IDLE = "select pg_catalog.set_config('idle_session_timeout', '0', false) " +
  "where pg_catalog.current_setting('idle_session_timeout') <> '0'";

/** Listens on a connection of `npm:pg` that it opens, to the server that takes writes: a standby refuses to listen. */
export function listenAt(url: string): Listen {
  return async (channels, onNotify, onLost, abortSignal) => {
    await checkDatabaseUrl(url);
    const pg = await loadDriver();
    return await new Servers(url).connect(async (connectionString) => {
      const client = new pg.Client({
        connectionString,
        connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
        query_timeout: CONNECT_TIMEOUT_MS,
        keepAlive: true,
        application_name: "holdfast_listen",
      });
      const destroy = () => {
        // A graceful end waits for the server, which may never answer.
        const { connection } = client as unknown as { connection: { stream: { destroy(): void } } };
        connection.stream.destroy();
      };
      let isListening = false;
      const lose = (error: Error) => isListening && onLost(error);
      client.on("error", lose);
      client.on("end", () => lose(new Error("the connection has ended")));
      client.on("notification", ({ channel }) => onNotify(channel));
      abortSignal.addEventListener("abort", destroy);
      try {
        abortSignal.throwIfAborted();
        await client.connect();
        await client.query([STAY_IDLE, ...channels.map((channel) => `listen ${channel}`)].join("; "));
        isListening = true;
      } catch (error) {
        destroy();
        throw error;
      } finally {
        abortSignal.removeEventListener("abort", destroy);
      }
      return destroy;
    });
  };
}

/** Listens with a function of the caller. If it fails for one of the channels, it ends the others. */
export function listenWith(listen: PostgresListen): Listen {
  return async (channels, onNotify) => {
    const results = await Promise.allSettled(channels.map(async (channel) => {
      return await listen(channel, () => onNotify(channel));
    }));
    const ends = results.flatMap((result) => result.status === "fulfilled" ? [result.value] : []);
    const endAll = () => {
      // It may return a promise, and fail because the connection is gone.
      for (const end of ends) Promise.resolve().then(end).catch(() => {});
    };
    const failure = results.find((result) => result.status === "rejected");
    if (failure === undefined) return endAll;
    endAll();
    throw failure.reason;
  };
}
