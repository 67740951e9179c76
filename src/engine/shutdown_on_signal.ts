import { constants } from "node:os";
import process from "node:process";
import { type Duration, readDuration } from "../values/duration.ts";
import { kindOf, propertyOf } from "../values/unknown_values.ts";
import { checkOptionNames } from "../values/option_names.ts";
import type { Engine } from "./engine.ts";

/** A server that can shut down: that of `Deno.serve()`, or an `http.Server` of Node. */
export type StoppableServer =
  | {
    /** Refuses new connections, and resolves when all others have ended. */
    shutdown(): Promise<void>;
  }
  | {
    /** Refuses new connections, and calls back when all others have ended. */
    close(callback: (error?: Error) => void): unknown;
    /** Closes idle connections. */
    closeIdleConnections?(): void;
    /** Closes all connections. */
    closeAllConnections?(): void;
  };

/** Options of {@linkcode shutdownOnSignal}. */
export interface ShutdownOptions {
  /** A server that serves the engine. Default: none. */
  server?: StoppableServer;
  /** The names of the signals. Default: `SIGINT` and `SIGTERM`; on Windows `SIGINT` and `SIGBREAK`. */
  signals?: readonly string[];
  /** The `timeout` of `engine.stop()`. Default: 8 seconds. */
  timeout?: Duration;
}

const SHUTDOWN_OPTIONS: Record<keyof ShutdownOptions, true> = { server: true, signals: true, timeout: true };
const SIGNAL_NUMBERS: ReadonlyMap<string, number> = new Map(Object.entries(constants.signals));
const CLOSE_IDLE_EVERY_MS = 100;
// `deno task`, a shell and systemd can send one signal twice: to the process group, and again to each process.
const ONE_SIGNAL_MS = 1_000;
// How long responses that began before the engine stopped may take: a client that does not read would keep them open.
const LAST_ANSWERS_MS = 2_000;

/**
 * Stops an engine, and the server that serves it, when the process gets a signal: on Deno and on Node.
 *
 * First the server refuses new connections. Then the engine stops: jobs reach their next checkpoint, leases are
 * released, and event streams end. A server would wait for open streams permanently, so it shuts down last; it does
 * not wait for clients that have not read their responses two seconds later. When nothing else keeps it busy, the
 * process then ends; call `Deno.exit()` if code of your own, or a connection of such a client, may keep it busy.
 * Another signal more than a second later ends it at once, with the exit code that a shell gives it (128 and the
 * number of the signal).
 *
 * On Windows a process can end another one only at once: there, Ctrl-C and Ctrl-Break stop the engine.
 *
 * With `deno serve --parallel` each thread has an engine of its own, and each has to call this.
 *
 * @example
 * ```ts
 * import { createEngine, createHandler, MemoryStore, shutdownOnSignal } from "@holdfast/jobs";
 *
 * export async function serve() {
 *   await using store = new MemoryStore();
 *   const engine = createEngine({ store, jobs: {} });
 *   await engine.start();
 *   const server = Deno.serve(createHandler(engine).fetch);
 *   await shutdownOnSignal(engine, { server });
 * }
 * ```
 *
 * @returns Resolves when all have stopped, after a signal.
 * @throws {TypeError} It is no engine, or an option has the wrong type.
 */
export async function shutdownOnSignal(
  engine: Pick<Engine, "stop">,
  options: ShutdownOptions = {},
): Promise<void> {
  if (typeof propertyOf(engine, "stop") !== "function") {
    throw new TypeError(`shutdownOnSignal() needs an engine, not ${kindOf(engine)}`);
  }
  checkOptions(options);
  const { server, signals = defaultSignals(process.platform), timeout } = options;
  const first = Promise.withResolvers<void>();
  let firstAt = -Infinity;
  const listeners: { signal: string; listener: () => void }[] = [];
  try {
    for (const signal of signals) {
      const listener = () => {
        const isSecond = performance.now() - firstAt > ONE_SIGNAL_MS;
        if (isSecond && firstAt !== -Infinity) process.exit(128 + (numberOf(signal) ?? 0));
        if (firstAt === -Infinity) firstAt = performance.now();
        first.resolve();
      };
      process.on(signal as "SIGTERM", listener); // the type of the names that Deno and Node share
      listeners.push({ signal, listener });
    }
    await first.promise;
    const closing = server === undefined ? Promise.resolve() : close(server);
    closing.catch(() => {}); // it is awaited below
    await engine.stop(timeout === undefined ? {} : { timeout });
    if (server !== undefined) await endAnswers(server, closing);
  } finally {
    for (const { signal, listener } of listeners) process.off(signal, listener);
  }
}

/** Windows has no SIGTERM: Ctrl-C is SIGINT there, and Ctrl-Break, which services are stopped with, SIGBREAK. */
export function defaultSignals(platform: string): readonly string[] {
  return platform === "win32" ? ["SIGINT", "SIGBREAK"] : ["SIGINT", "SIGTERM"];
}

/** Waits for the last responses of a server, but not for clients that do not read them. */
async function endAnswers(server: StoppableServer, closing: Promise<void>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(() => {
      if (!("shutdown" in server)) server.closeAllConnections?.();
      resolve();
    }, LAST_ANSWERS_MS);
  });
  await Promise.race([closing, late]);
  clearTimeout(timer);
}

/** Refuses new connections at once, and resolves when the existing ones have ended. */
async function close(server: StoppableServer): Promise<void> {
  if ("shutdown" in server) return await server.shutdown();
  // A keep-alive connection becomes idle after its last response: Node closes it only on another call.
  const timer = setInterval(() => server.closeIdleConnections?.(), CLOSE_IDLE_EVERY_MS);
  try {
    await new Promise<void>((resolve, reject) =>
      server.close((error) => error === undefined ? resolve() : reject(error))
    );
  } finally {
    clearInterval(timer);
  }
}

function checkOptions(options: ShutdownOptions): void {
  checkOptionNames(options, SHUTDOWN_OPTIONS, "shutdownOnSignal()");
  const { server, signals, timeout } = options;
  if (timeout !== undefined) readDuration(timeout, "The timeout of shutdownOnSignal()");
  if (server !== undefined && !isStoppable(server)) {
    throw new TypeError(
      `The server of shutdownOnSignal() must be that of Deno.serve() or an http.Server of Node, not ${kindOf(server)}`,
    );
  }
  for (const signal of signals ?? []) {
    if (numberOf(signal) === undefined) throw new TypeError(`shutdownOnSignal(): unknown signal "${signal}"`);
  }
}

function isStoppable(server: unknown): boolean {
  return typeof propertyOf(server, "shutdown") === "function" || typeof propertyOf(server, "close") === "function";
}

function numberOf(signal: string): number | undefined {
  return SIGNAL_NUMBERS.get(signal);
}
