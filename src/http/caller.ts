import type { Engine } from "../engine/engine.ts";
import { internalsOf } from "../engine/internals.ts";
import type { TriggerOptions, TriggerResult } from "../engine/trigger.ts";
import { ConflictError, HoldfastError, isInstance, NotFoundError } from "../error.ts";
import type { Host } from "../host.ts";
import { decode, type Json } from "../json.ts";
import type { Labels, ListFilter, Run, RunFilter, RunPage } from "../run.ts";
import type { NewRun } from "../store.ts";
import { isEndedBy, type Signal, type SignalReceipt, type Wait } from "../wait.ts";
import type { HandlerAuth, RequestedTrigger, RunOperation } from "./auth.ts";
import { deepFreeze } from "./deep_freeze.ts";
import { callHook } from "./hook.ts";
import { narrow, narrowList, readScope } from "./scope.ts";
import type { Streams } from "./streams.ts";

/** What {@linkcode Caller} works with. */
export interface CallerDeps {
  /** Where everything is done. */
  engine: Engine;
  /** The event streams of the handler. */
  streams: Streams;
  /** Who may do what; `null`: everybody everything. */
  auth: HandlerAuth<unknown> | null;
  /** Time. */
  host: Host;
}

/** A run that somebody may access, with what that takes. */
export interface AccessedRun {
  /** The run. */
  run: Run;
  /** Where things are done to it. */
  engine: Engine;
  /** Where it can be followed. */
  streams: Streams;
}

/**
 * Whoever sent a request, and the only way from it to the engine: whatever a route shows or does, it has to ask here
 * for, and here every hook is asked.
 */
export class Caller {
  readonly #context: unknown;
  readonly #deps: CallerDeps;

  private constructor(context: unknown, deps: CallerDeps) {
    this.#context = context;
    this.#deps = deps;
  }

  /**
   * Finds out who sent a request.
   *
   * @throws {Response} It is not let in.
   */
  static async of(request: Request, deps: CallerDeps): Promise<Caller> {
    const { auth, host } = deps;
    const authenticate = () => auth?.authenticate(request);
    return new Caller(auth === null ? null : await callAuthHook("authenticate", authenticate, host), deps);
  }

  /**
   * Asks for a run.
   *
   * @throws {ConflictError} A key leads to a run that the caller may not read (`key_in_use`).
   */
  async trigger(jobName: string, input: Json, options: TriggerOptions): Promise<TriggerResult> {
    return await internalsOf(this.#deps.engine).trigger(jobName, input, options, {
      beforeAdding: async (run) => {
        await this.#ask("onTrigger", (hook) => hook(this.#context, deepFreeze(toRequested(run))));
      },
      beforeJoining: (found, asked) => this.#checkFound(found, asked),
    });
  }

  /**
   * Finds a run.
   *
   * @throws {NotFoundError} There is none.
   * @throws {HoldfastError} `forbidden`: nobody says who may see waits.
   */
  async findRun(operation: RunOperation, runId: string): Promise<AccessedRun> {
    const { auth, engine, streams } = this.#deps;
    if (auth !== null && auth.onRunAccess === undefined && (operation === "waits" || operation === "signal")) {
      throw new HoldfastError("forbidden", "Waits are not served: nothing says who may access which run");
    }
    const run = await engine.getRun(runId);
    if (run === null) throw new NotFoundError(`There is no run "${runId}"`);
    await this.#checkAccess(run, operation);
    return { run, engine, streams };
  }

  /**
   * Finds a wait of a run.
   *
   * @throws {NotFoundError} There is none: one of another run is as good as that.
   */
  async findWait(operation: "waits" | "signal", runId: string, waitId: string): Promise<{ run: Run; wait: Wait }> {
    const { run, engine } = await this.findRun(operation, runId);
    const wait = await engine.getWait(waitId);
    if (wait?.runId !== run.id) throw new NotFoundError(`There is no wait "${waitId}"`);
    return { run, wait };
  }

  /** Ends a wait by a signal. */
  async signal(runId: string, waitId: string, signal: Signal): Promise<SignalReceipt> {
    const { run, wait } = await this.findWait("signal", runId, waitId);
    if (!isEndedBy(wait, signal)) {
      await this.#ask("onSignal", (hook) => hook(this.#context, run, deepFreeze(wait), deepFreeze(signal)));
    }
    return await this.#deps.engine.signal(waitId, signal);
  }

  /** Lists the runs that match a filter, as far as the caller may see them. */
  async listRuns(filter: RunFilter): Promise<RunPage> {
    const scope = await this.#ask(
      "scopeRuns",
      async (hook) => readScope(await hook(this.#context, deepFreeze(filter))),
    );
    return await this.#deps.engine.getRuns(scope === null ? filter : narrow(filter, scope));
  }

  /** Streams what happens to the runs that match a filter, as far as the caller may see them. */
  async followRuns(filter: ListFilter): Promise<Response> {
    const scope = await this.#ask(
      this.#deps.auth?.scopeRunsSubscribe === undefined ? "scopeRuns" : "scopeRunsSubscribe",
      async (hook) => readScope(await hook(this.#context, deepFreeze(filter))),
    );
    return this.#deps.streams.openList(scope === null ? filter : narrowList(filter, scope));
  }

  /** Calls a hook; without it, answers `null`. */
  async #ask<Name extends Exclude<keyof HandlerAuth<unknown>, "authenticate">, T>(
    name: Name,
    call: (hook: NonNullable<HandlerAuth<unknown>[Name]>) => T | Promise<T>,
  ): Promise<T | null> {
    const hook = this.#deps.auth?.[name] ?? null;
    return hook === null ? null : await callAuthHook(name, () => call(hook), this.#deps.host);
  }

  async #checkAccess(run: Run, operation: RunOperation): Promise<void> {
    await this.#ask("onRunAccess", (hook) => hook(this.#context, deepFreeze(run), Object.freeze({ operation })));
  }

  /** Labels say whose a run is: one that has others may be somebody else's. */
  async #checkFound(found: Run, { labels }: NewRun): Promise<void> {
    if (hasSameLabels(found.labels, labels)) return;
    try {
      await this.#checkAccess(found, "read");
    } catch (thrown) {
      if (!isInstance(thrown, Response)) throw thrown;
      throw new ConflictError("The key is in use", { code: "key_in_use" });
    }
  }
}

/** Calls a hook that may refuse. Whoever writes `return` for `throw` would let everybody in: that is a mistake. */
async function callAuthHook<T>(name: string, hook: () => T | Promise<T>, host: Host): Promise<T> {
  return await callHook(name, async () => {
    const returned = await hook();
    if (!isInstance(returned, Response) && !isInstance(returned, Error)) return returned;
    throw new TypeError(`auth.${name} returned what it has to throw`, { cause: returned });
  }, host);
}

function toRequested(run: NewRun): RequestedTrigger {
  const { jobName, labels, idempotencyKey, concurrencyKey, coalesce } = run;
  return {
    jobName,
    input: decode(run.payload) ?? null,
    labels,
    ...(idempotencyKey === null ? {} : { idempotencyKey }),
    ...(concurrencyKey === null ? {} : { concurrencyKey }),
    ...(coalesce === null ? {} : { coalesce }),
  };
}

function hasSameLabels(one: Labels, other: Labels): boolean {
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => one[key] === other[key]);
}
