import type { Engine, RetriggerOptions } from "../engine/engine.ts";
import { internalsOf } from "../engine/internals.ts";
import type { TriggerOptions, TriggerResult } from "../engine/trigger.ts";
import { ConflictError, HoldfastError, isInstance, NotFoundError } from "../error.ts";
import type { Host } from "../host.ts";
import { decode, type Json } from "../json.ts";
import type { LogEntry } from "../log.ts";
import { isName, NAME_RULE } from "../name.ts";
import type { ListFilter, Run, RunFilter, RunPage } from "../run.ts";
import type { Step } from "../step.ts";
import type { NewRun } from "../store.ts";
import { isEndedBy, type Signal, type SignalReceipt, type Wait } from "../wait.ts";
import type { HandlerAuth, RequestedTrigger, RunOperation } from "./auth.ts";
import { deepFreeze } from "./deep_freeze.ts";
import { callHook } from "./hook.ts";
import { copyFilter, narrow, narrowList, readScope } from "./scope.ts";
import { noSuchRun } from "./response.ts";
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

/**
 * Whoever sent a request, and the engine as far as they may use it. Routes have no other way to an engine: whatever is
 * shown or done has its hook here.
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
    if (auth === null) return new Caller(null, deps);
    const context = await callAuthHook("authenticate", () => auth.authenticate(request), (returned) => returned, host);
    return new Caller(context, deps);
  }

  /**
   * Asks for a run.
   *
   * @throws {ConflictError} A key leads to a run that the caller may not read (`key_in_use`).
   */
  async trigger(jobName: string, input: Json, options: TriggerOptions): Promise<TriggerResult> {
    return await internalsOf(this.#deps.engine).trigger(jobName, input, options, {
      beforeAdding: async (run) => {
        await this.#ask("onTrigger", (hook) => hook(this.#context, deepFreeze(toRequested(run))), nothing);
        const tenant = await this.#tenant();
        return tenant === null ? run : withKeysOf(tenant, run);
      },
      beforeJoining: (found) => this.#checkFound(found),
    });
  }

  /** A run. */
  getRun(runId: string): Promise<Run> {
    return this.#findRun("read", runId);
  }

  /** The recorded steps of a run. */
  async getSteps(runId: string): Promise<Step[]> {
    const { id } = await this.#findRun("steps", runId);
    return await this.#deps.engine.getSteps(id);
  }

  /** What a run has logged. */
  async getLogs(runId: string): Promise<LogEntry[]> {
    const { id } = await this.#findRun("read", runId);
    return await this.#deps.engine.getLogs(id);
  }

  /** The waits of a run. */
  async getWaits(runId: string): Promise<Wait[]> {
    const { id } = await this.#findRun("waits", runId);
    return await this.#deps.engine.getWaits(id);
  }

  /** A wait of a run. */
  async getWait(runId: string, waitId: string): Promise<Wait> {
    return await this.#findWait(await this.#findRun("waits", runId), waitId);
  }

  /** Ends a wait by a signal. */
  async signal(runId: string, waitId: string, signal: Signal): Promise<SignalReceipt> {
    const run = await this.#findRun("signal", runId);
    const wait = await this.#findWait(run, waitId);
    if (!isEndedBy(wait, signal)) {
      await this.#ask("onSignal", (hook) => hook(this.#context, run, deepFreeze(wait), deepFreeze(signal)), nothing);
    }
    return await this.#deps.engine.signal(waitId, signal);
  }

  /** Makes a new run of one that has ended. */
  async retrigger(runId: string, options: RetriggerOptions): Promise<TriggerResult> {
    const { id } = await this.#findRun("retrigger", runId);
    return await this.#deps.engine.retrigger(id, options);
  }

  /** Cancels a run. */
  async cancel(runId: string): Promise<void> {
    const { id } = await this.#findRun("cancel", runId);
    await this.#deps.engine.cancel(id);
  }

  /** Deletes a run. */
  async deleteRun(runId: string): Promise<void> {
    const { id } = await this.#findRun("delete", runId);
    await this.#deps.engine.deleteRun(id);
  }

  /** Streams what happens to a run. */
  async followRun(runId: string): Promise<Response> {
    return await this.#deps.streams.open(async () => {
      const { id } = await this.#findRun("subscribe", runId);
      return { context: this.#context, tenant: await this.#tenant(), runId: id, filter: null };
    });
  }

  /** Lists the runs that match a filter, as far as the caller may see them. */
  async listRuns(filter: RunFilter): Promise<RunPage> {
    const scope = await this.#scope("scopeRuns", filter);
    return await this.#deps.engine.getRuns(scope === null ? filter : narrow(filter, scope));
  }

  /** Streams what happens to the runs that match a filter, as far as the caller may see them. */
  async followRuns(filter: ListFilter): Promise<Response> {
    const name = this.#deps.auth?.scopeRunsSubscribe === undefined ? "scopeRuns" : "scopeRunsSubscribe";
    return await this.#deps.streams.open(async () => {
      const scope = await this.#scope(name, filter);
      const narrowed = scope === null ? filter : narrowList(filter, scope);
      return { context: this.#context, tenant: await this.#tenant(), runId: null, filter: narrowed };
    });
  }

  /** The run, if there is one and the caller may do this with it. */
  async #findRun(operation: RunOperation, runId: string): Promise<Run> {
    const { auth, engine } = this.#deps;
    if (auth !== null && auth.onRunAccess === undefined && (operation === "waits" || operation === "signal")) {
      throw new HoldfastError("forbidden", "Waits are not served: the handler has no onRunAccess hook");
    }
    const run = await engine.getRun(runId);
    if (run === null) throw noSuchRun();
    await this.#checkAccess(run, operation);
    return run;
  }

  /** A wait of this run: one of another run is as good as none. */
  async #findWait(run: Run, waitId: string): Promise<Wait> {
    const wait = await this.#deps.engine.getWait(waitId);
    if (wait?.runId !== run.id) throw new NotFoundError("There is no such wait");
    return wait;
  }

  async #checkAccess(run: Run, operation: RunOperation): Promise<void> {
    await this.#ask(
      "onRunAccess",
      (hook) => hook(this.#context, deepFreeze(run), Object.freeze({ operation })),
      nothing,
    );
  }

  /**
   * A key leads to whatever run has it, which may be one that the caller may not read.
   *
   * @returns Whether a hook was asked.
   */
  async #checkFound(found: Run): Promise<boolean> {
    if (this.#deps.auth?.onRunAccess === undefined) return false;
    try {
      await this.#checkAccess(found, "read");
      return true;
    } catch (thrown) {
      if (!isInstance(thrown, Response)) throw thrown;
      throw new ConflictError("The key is in use", { code: "key_in_use" });
    }
  }

  /** The tenant of the caller; `null` if tenants have no names here. */
  async #tenant(): Promise<string | null> {
    return await this.#ask("tenant", (hook) => hook(this.#context), readTenant);
  }

  async #scope(name: "scopeRuns" | "scopeRunsSubscribe", filter: RunFilter): Promise<RunFilter | null> {
    return await this.#ask(name, (hook) => hook(this.#context, copyFilter(filter)), readScope);
  }

  /** Calls a hook, and reads what it returned; without the hook, answers `null`. */
  async #ask<Name extends Exclude<keyof HandlerAuth<unknown>, "authenticate">, T>(
    name: Name,
    call: (hook: NonNullable<HandlerAuth<unknown>[Name]>) => unknown,
    read: (returned: unknown) => T,
  ): Promise<T | null> {
    const hook = this.#deps.auth?.[name] ?? null;
    return hook === null ? null : await callAuthHook(name, () => call(hook), read, this.#deps.host);
  }
}

/** What a hook returned that can only refuse is of no interest. */
function nothing(): void {}

/** Calls a hook that may refuse. Whoever writes `return` for `throw` would let everybody in: that is a mistake. */
async function callAuthHook<T>(
  name: string,
  hook: () => unknown,
  read: (returned: unknown) => T,
  host: Host,
): Promise<T> {
  return await callHook(name, async () => {
    const returned = await hook();
    // A hook that is written as a question would let everybody pass.
    if (returned === false) throw new TypeError(`auth.${name} returned false: to refuse, it has to throw a Response`);
    if (!isInstance(returned, Response) && !isInstance(returned, Error)) return read(returned);
    throw new TypeError(`auth.${name} returned what it has to throw`, { cause: returned });
  }, host);
}

function readTenant(name: unknown): string {
  if (isName(name)) return name;
  throw new TypeError(`What auth.tenant returns ${NAME_RULE}`);
}

/** Keys that no other tenant can have. The name ends at the first "/". */
function withKeysOf(tenant: string, run: NewRun): NewRun {
  const prefix = `${tenant.replaceAll(/[%/]/g, encodeURIComponent)}/`;
  const own = (key: string | null) => key === null ? null : prefix + key;
  return { ...run, idempotencyKey: own(run.idempotencyKey), concurrencyKey: own(run.concurrencyKey) };
}

function toRequested(run: NewRun): RequestedTrigger {
  const { jobName, labels, idempotencyKey, concurrencyKey, coalesce } = run;
  return {
    jobName,
    input: decode(run.payload) ?? null,
    parsed: decode(run.input) ?? null,
    labels,
    ...(idempotencyKey === null ? {} : { idempotencyKey }),
    ...(concurrencyKey === null ? {} : { concurrencyKey }),
    ...(coalesce === null ? {} : { coalesce }),
  };
}
