import { HoldfastError, TimeoutError } from "../../model/error.ts";
import type { Host } from "../../model/host.ts";
import { isInstance } from "../../values/unknown_values.ts";
import { deepFreeze } from "../deep_freeze.ts";
import type { HandlerAuth, HookName, Operation, RequestedOperation } from "./auth_hooks.ts";

type Hooks = HandlerAuth<unknown>;

/** What a caller is made of. */
export interface CallerOptions {
  /** The hooks; `null`: every caller may do everything. */
  auth: Hooks | null;
  /** The timer for the time limits of hooks. */
  host: Host;
}

/** The sender of a request, and the hooks that decide what it may do. */
export class Caller {
  /** What `authenticate` has returned; `null` without `auth`. */
  readonly context: unknown;
  /** Whether it was not authenticated, since the host has opened what it asks for. */
  readonly isAnonymous: boolean;
  readonly #options: CallerOptions;

  constructor(context: unknown, isAnonymous: boolean, options: CallerOptions) {
    this.context = context;
    this.isAnonymous = isAnonymous;
    this.#options = options;
  }

  /** Calls a hook, and parses its result; `null` without the hook. */
  async ask<Name extends Exclude<HookName, "authenticate">, T>(
    name: Name,
    call: (hook: NonNullable<Hooks[Name]>) => unknown,
    read: (returned: unknown) => T,
  ): Promise<T | null> {
    const hook = this.#options.auth?.[name] ?? null;
    return hook === null ? null : await callAuthHook(name, () => call(hook), read, this.#options.host);
  }

  /**
   * Calls the hook for an operation that does not concern one run.
   *
   * @throws {HoldfastError} `forbidden`: there are hooks, but not this one.
   */
  async checkOperation(access: RequestedOperation): Promise<void> {
    const { auth } = this.#options;
    if (auth !== null && auth.onOperate === undefined) {
      const what = NOT_SERVED[access.operation];
      throw new HoldfastError("forbidden", `${what} not served: the handler has no onOperate hook`);
    }
    await this.ask("onOperate", (hook) => hook(this.context, deepFreeze(access)), nothing);
  }
}

const NOT_SERVED: Record<Operation, string> = {
  stats: "Statistics are",
  jobs: "Jobs are",
  workers: "Workers are",
  health: "Health is",
  metrics: "Metrics are",
  docs: "Documents are",
  ui: "The dashboard is",
  debug: "Stacks and workers are",
  schedules: "Schedules are",
  pause: "Pauses are",
  resume: "Pauses are",
  trigger: "Schedules are",
  bulk: "Bulk operations are",
  tick: "Ticks are",
};

/**
 * Authenticates the sender of a request.
 *
 * @returns What `authenticate` returned; `null` without hooks.
 * @throws {Response} It refuses the request.
 */
export async function authenticate(request: Request, { auth, host }: CallerOptions): Promise<unknown> {
  return auth === null
    ? null
    : await callAuthHook("authenticate", () => auth.authenticate(request), (returned) => returned, host);
}

/** Ignores the result of a hook that can only refuse. */
export function nothing(): void {}

/**
 * Calls a hook that may refuse. Returning a refusal instead of throwing it is an error: it would allow every caller.
 */
async function callAuthHook<T>(
  name: string,
  hook: () => unknown,
  read: (returned: unknown) => T,
  host: Host,
): Promise<T> {
  return await callHook(name, async () => {
    const returned = await hook();
    // A hook that returns `false` instead of throwing would allow all callers.
    if (returned === false) throw new TypeError(`auth.${name} returned false: to refuse, it must throw a Response`);
    if (!isInstance(returned, Response) && !isInstance(returned, Error)) return read(returned);
    throw new TypeError(`auth.${name} returned a value that it must throw`, { cause: returned });
  }, host);
}

/** A hook of the host failed. The original error is the `cause`. */
export class HookError extends Error {}

const HOOK_TIMEOUT_MS = 30_000;

/**
 * Calls a hook of the host, sync or async.
 *
 * @throws {Response} The response that it throws.
 * @throws {HookError} It threw something else, or took too long.
 */
export async function callHook<T>(name: string, hook: () => T | Promise<T>, host: Host): Promise<T> {
  const late = Promise.withResolvers<never>();
  const cancelTimer = host.schedule(
    HOOK_TIMEOUT_MS,
    () => late.reject(new TimeoutError(`${name} takes more than ${HOOK_TIMEOUT_MS} ms`)),
  );
  try {
    return await Promise.race([hook(), late.promise]);
  } catch (thrown) {
    if (isInstance(thrown, Response)) throw checkSendable(thrown, name);
    throw new HookError(`${name} failed`, { cause: thrown });
  } finally {
    cancelTimer();
  }
}

function checkSendable(response: Response, name: string): Response {
  if (!response.bodyUsed && !response.body?.locked && response.status >= 200) return response;
  const cause = new TypeError(`${name} threw a Response that cannot be sent: make a new one for each request`);
  throw new HookError(`${name} failed`, { cause });
}
