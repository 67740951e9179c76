import type { ClientRun } from "../model/client_run.ts";
import type { Host } from "../model/host.ts";
import type { Retention } from "../model/run.ts";
import type { Wait } from "../model/wait.ts";
import type { Json } from "../values/json.ts";

/** The routes that MCP asks. */
export type McpRoute =
  | "trigger"
  | "run"
  | "signal"
  | "cancel"
  | "retrigger"
  | "runs"
  | "explain"
  | "failures";

/** What MCP works with: a request that the handler has let pass, and the routes of the same handler. */
export interface McpCall {
  /** The request; its body has not been read. */
  readonly request: Request;
  /** What `auth.authenticate` has returned; `null` without `auth`. */
  readonly context: unknown;
  /** Time and timers. */
  readonly host: Host;
  /** How long runs are kept after their end, in milliseconds. */
  readonly retention: Retention;
  /** The limits of the body. */
  readonly limits: { readonly maxBodyBytes: number; readonly maxJsonDepth: number };
  /**
   * Asks a route of the handler for the same caller: all its hooks are called.
   *
   * @throws {Response} A hook refuses.
   * @throws {HoldfastError} The route does.
   */
  ask(route: McpRoute, query: Readonly<Record<string, string>>, body?: Json): Promise<Json>;
  /** Shows a run, as the route does. The same hooks are called, and it throws the same. */
  readRun(runId: string): Promise<ClientRun>;
  /** Shows the waits of a run, as the route does. The same hooks are called, and it throws the same. */
  readWaits(runId: string): Promise<Wait[]>;
  /** Makes a link that answers a wait; `null`: the handler has none. */
  readonly linkTo: ((wait: Wait, options?: { expiresAt?: Date }) => Promise<string>) | null;
  /** Waits until a run has ended, but not longer than this. */
  waitForEnd(runId: string, ms: number): Promise<void>;
}

/** What a handler serves under `mcp`: `mcp()` of `@holdfast/jobs/mcp` makes it. */
export interface HandlerMcp {
  /** The names of the jobs of its tools. */
  readonly jobNames: readonly string[];
  /** Answers a request. */
  readonly answer: (call: McpCall) => Promise<Response>;
}
