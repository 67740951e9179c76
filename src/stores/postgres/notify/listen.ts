import { checkDatabaseUrl, loadDriver } from "../database/client.ts";
import { Servers } from "../database/servers.ts";

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
        await client.query(channels.map((channel) => `listen ${channel}`).join("; "));
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
