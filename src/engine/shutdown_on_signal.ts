import { constants } from "node:os";
import process from "node:process";
import { checkDuration } from "../duration.ts";
import { kindOf } from "../kind_of.ts";
import { checkOptionNames } from "../option_names.ts";
import type { Engine } from "./engine.ts";

/** A server that can end: what `Deno.serve()` answers, or an `http.Server` of Node. */
export type StoppableServer =
  | {
    /** Refuses new connections, and resolves when all others have ended. */
    shutdown(): Promise<void>;
  }
  | {
    /** Refuses new connections, and calls back when all others have ended. */
    close(callback: (error?: Error) => void): unknown;
    /** Closes connections over which no request is being answered. */
    closeIdleConnections?(): void;
  };

/** What {@linkcode shutdownOnSignal} takes besides the engine. */
export interface ShutdownOptions {
  /** A server that serves the engine. Default: none. */
  server?: StoppableServer;
  /** The names of the signals. Default: `SIGINT` and `SIGTERM`. */
  signals?: readonly string[];
  /** The `timeout` of `engine.stop()`, in milliseconds. Default 8,000. */
  timeout?: number;
}

const SHUTDOWN_OPTIONS: Record<keyof ShutdownOptions, true> = { server: true, signals: true, timeout: true };
const CLOSE_IDLE_EVERY_MS = 100;

/**
 * Stops an engine, and the server that serves it, when the process gets a signal: on Deno and on Node.
 *
 * First the server refuses new connections. Then the engine stops: jobs come to their next checkpoint, leases are
 * released, and event streams end. A server would wait for those permanently, so that its own end comes last. When
 * nothing else keeps it busy, the process then ends by itself. A second signal ends it at once, with the exit code that
 * a shell gives it (128 and the number of the signal).
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
 * @throws {TypeError} An option is not of its kind.
 */
export async function shutdownOnSignal(
  engine: Pick<Engine, "stop">,
  options: ShutdownOptions = {},
): Promise<void> {
  checkOptions(options);
  const { server, signals = ["SIGINT", "SIGTERM"], timeout } = options;
  const first = Promise.withResolvers<void>();
  let isStopping = false;
  const listeners = signals.map((signal) => {
    const listener = () => {
      if (isStopping) process.exit(128 + numberOf(signal)!);
      isStopping = true;
      first.resolve();
    };
    process.on(signal as "SIGTERM", listener); // the names have been checked
    return { signal, listener };
  });
  try {
    await first.promise;
    const closing = server === undefined ? Promise.resolve() : close(server);
    closing.catch(() => {}); // it is awaited below
    await engine.stop(timeout === undefined ? {} : { timeout });
    await closing;
  } finally {
    for (const { signal, listener } of listeners) process.off(signal, listener);
  }
}

/** Refuses new connections at once, and resolves when the others have ended. */
async function close(server: StoppableServer): Promise<void> {
  if ("shutdown" in server) return await server.shutdown();
  // A connection that is kept alive becomes idle after the last answer: Node notices that only when it is asked again.
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
  if (timeout !== undefined) checkDuration(timeout, "The timeout of shutdownOnSignal()");
  if (server !== undefined && !isStoppable(server)) {
    throw new TypeError(
      `The server of shutdownOnSignal() must be that of Deno.serve() or an http.Server of Node, not ${kindOf(server)}`,
    );
  }
  for (const signal of signals ?? []) {
    if (numberOf(signal) === undefined) throw new TypeError(`shutdownOnSignal() knows no signal "${signal}"`);
  }
}

function isStoppable(server: unknown): boolean {
  const { shutdown, close } = Object(server) as { shutdown?: unknown; close?: unknown };
  return typeof shutdown === "function" || typeof close === "function";
}

function numberOf(signal: string): number | undefined {
  return (constants.signals as Record<string, number | undefined>)[signal];
}
