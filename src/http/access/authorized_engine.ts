import type { BulkRetriggerOptions, BulkSelection } from "../../engine/bulk/bulk_selection.ts";
import type { BulkResult } from "../../engine/bulk/perform_bulk.ts";
import type { Engine } from "../../engine/engine.ts";
import type { RetriggerOptions } from "../../engine/triggers/retrigger_options.ts";
import { internalsOf } from "../../engine/engine_internals.ts";
import type { TriggerOptions, TriggerResult } from "../../engine/triggers/new_run.ts";
import { checkPayload } from "../../engine/runs/check_payload.ts";
import { withKeys } from "../../engine/triggers/trigger_flow.ts";
import { MAX_RUN_LIMIT } from "../../engine/runs/run_filter.ts";
import { ConflictError, HoldfastError, NotFoundError } from "../../error.ts";
import { isInstance } from "../../values/is_instance.ts";
import type { Host } from "../../host.ts";
import type { Json } from "../../values/json.ts";
import { isName, NAME_RULE } from "../../values/name.ts";
import type { BulkOperation, ListFilter, Run, RunFilter, StoredRun } from "../../run.ts";
import type { Enqueued } from "../../store/new_run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { isEndedBy, type Signal, type SignalReceipt, type Wait } from "../../wait.ts";
import type { HandlerAuth, RunOperation } from "./auth_hooks.ts";
import { type Caller, nothing } from "./caller.ts";
import { deepFreeze } from "../deep_freeze.ts";
import { withoutUndefined } from "../without_undefined.ts";
import { type JsonPieces, type ListSource, logsJson, runsJson, stepsJson, waitsJson } from "../lists/json_lists.ts";
import { addedBy, canBeLookedUp, copyFilter, narrow, narrowList, readScope, withoutLookUps } from "./list_scope.ts";
import { readTriggerKeys, toRequested } from "./requested_trigger.ts";
import { toSeenRun } from "./seen_run.ts";
import { asGiven, checkNotOfSchedule, ofTenant, tenantPrefix } from "./tenant_keys.ts";
import { noSuchRun } from "../response.ts";
import type { ListView } from "../lists/list_view.ts";
import type { Resume } from "../streams/resume.ts";
import type { Streams } from "../streams/streams.ts";

/** The dependencies of {@linkcode AuthorizedEngine}. */
export interface AuthorizedEngineDeps {
  /** The engine that is served. */
  engine: Engine;
  /** The event streams of the handler. */
  streams: Streams;
  /** The hooks; `null`: every caller may do everything. */
  auth: HandlerAuth<unknown> | null;
  /** The timer for the time limits. */
  host: Host;
}

/**
 * The engine, restricted to what the sender of a request may do. Routes have no other access to an engine: each
 * operation calls its hook here.
 */
export class AuthorizedEngine {
  readonly #caller: Caller;
  readonly #deps: AuthorizedEngineDeps;

  constructor(caller: Caller, deps: AuthorizedEngineDeps) {
    this.#caller = caller;
    this.#deps = deps;
  }

  /**
   * Asks for a run.
   *
   * @throws {ConflictError} A key leads to a run that the caller may not read (`key_in_use`).
   */
  async trigger(jobName: string, input: Json | undefined, options: TriggerOptions): Promise<Enqueued> {
    return await internalsOf(this.#deps.engine).trigger(jobName, input, options, {
      beforeAdding: async (asked, job) => {
        const keys = await this.#caller.ask(
          "onTrigger",
          (hook) => hook(this.#caller.context, toRequested(asked, options)),
          readTriggerKeys,
        );
        const run = keys === null ? asked : withKeys(asked, keys, job);
        const tenant = await this.#tenant();
        if (tenant !== null) return ofTenant(tenant, run);
        checkNotOfSchedule(run.idempotencyKey);
        return run;
      },
      beforeJoining: this.#deps.auth?.onRunAccess === undefined ? null : (found) => this.#checkFound(found),
    });
  }

  /** The run, if it exists and the caller may perform the operation on it. */
  async findRun(operation: RunOperation, runId: string): Promise<Readonly<Run>> {
    return await this.#findRun(operation, runId);
  }

  /** Whether there is a run on which the caller may perform an operation. Its values are read only for the hook. */
  async may(runId: string, operation: RunOperation): Promise<boolean> {
    const run = await this.#readRun(runId);
    return run !== null && await this.#isAdmitted(run, operation);
  }

  /** The filter that matches both a filter and what the caller may list; `null` without `scopeRuns`. */
  async scopeOf(filter: RunFilter): Promise<RunQuery | null> {
    const scope = await this.#scope("scopeRuns", filter);
    return scope === null ? null : await this.#toQuery(filter, scope);
  }

  /** A string as a key of the caller's tenant; `null` without the `tenant` hook. */
  async ownKey(text: string): Promise<string | null> {
    const tenant = await this.#tenant();
    return tenant === null ? null : tenantPrefix(tenant) + text;
  }

  /** A stored key as the caller's tenant gave it. */
  async givenKey(key: string | null): Promise<string | null> {
    const tenant = key === null ? null : await this.#tenant();
    return key === null || tenant === null ? key : asGiven(tenant, key);
  }

  /** A run. */
  getRun(runId: string): Promise<Readonly<Run>> {
    return this.#findRun("read", runId, Infinity);
  }

  /** The recorded steps of a run. */
  async listSteps(runId: string): Promise<JsonPieces> {
    return stepsJson(await this.#checkList("steps", runId), runId);
  }

  /** The log lines of a run. */
  async listLogs(runId: string): Promise<JsonPieces> {
    return logsJson(await this.#checkList("read", runId), runId);
  }

  /** The waits of a run. */
  async listWaits(runId: string): Promise<JsonPieces> {
    return waitsJson(await this.#checkList("waits", runId), runId);
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
      await checkPayload(wait, signal, this.#deps.host); // as an input is checked before its hook
      await this.#caller.ask(
        "onSignal",
        (hook) => hook(this.#caller.context, run, deepFreeze(wait), deepFreeze(signal)),
        nothing,
      );
    }
    return await internalsOf(this.#deps.engine).signal(waitId, signal);
  }

  /** Retriggers a run that has ended. */
  async retrigger(runId: string, options: RetriggerOptions): Promise<TriggerResult> {
    const { id } = await this.#findRun("retrigger", runId);
    return await this.#deps.engine.retrigger(id, options);
  }

  /** Cancels a run. */
  async cancel(runId: string): Promise<void> {
    const { id } = await this.#findRun("cancel", runId);
    await internalsOf(this.#deps.engine).cancel(id);
  }

  /** Lets a held run be tried again. */
  async resume(runId: string): Promise<void> {
    const { id } = await this.#findRun("resume", runId);
    await this.#deps.engine.resume(id);
  }

  /** Deletes a run. */
  async deleteRun(runId: string): Promise<void> {
    const { id } = await this.#findRun("delete", runId);
    await this.#deps.engine.deleteRun(id);
  }

  /** Streams the events of a run. */
  async followRun(runId: string, resume: Resume): Promise<Response> {
    return await this.#deps.streams.open(resume, async () => {
      const { id } = await this.#findRun("subscribe", runId);
      return { context: this.#caller.context, tenant: await this.#tenant(), runId: id, filter: null };
    });
  }

  /** Lists the runs that match a filter and that the caller may see. */
  async listRuns(filter: RunFilter, { before, isSummary }: ListView): Promise<JsonPieces> {
    const scope = await this.#scope("scopeRuns", filter);
    const query = scope === null ? filter : await this.#toQuery(filter, scope);
    const lists = this.#lists();
    const found = await lists.store.findRuns({ ...query, ...await this.#placeOf(before) });
    return runsJson(lists, found, { status: query.status, isSummary });
  }

  /** The place of a run in lists, which the caller has to be able to read. */
  async #placeOf(before: string | undefined): Promise<Pick<RunQuery, "before">> {
    if (before === undefined) return {};
    const { id } = await this.#findRun("read", before);
    const state = await internalsOf(this.#deps.engine).store.getRunState(id);
    if (state === null) throw noSuchRun();
    return { before: state.seq };
  }

  /** Streams the events of the runs that match a filter and that the caller may see. */
  async followRuns(filter: ListFilter, resume: Resume): Promise<Response> {
    const name = this.#deps.auth?.scopeRunsSubscribe === undefined ? "scopeRuns" : "scopeRunsSubscribe";
    return await this.#deps.streams.open(resume, async () => {
      const scope = await this.#scope(name, filter);
      const narrowed = scope === null ? filter : narrowList(filter, scope);
      return { context: this.#caller.context, tenant: await this.#tenant(), runId: null, filter: narrowed };
    });
  }

  /** Performs an operation on many runs: as far as the caller may list them, and perform it on each of them. */
  async performBulk(
    operation: BulkOperation,
    selection: BulkSelection,
    options: BulkRetriggerOptions,
  ): Promise<BulkResult> {
    const filter = selection.filter === undefined ? undefined : copyFilter(selection.filter);
    await this.#caller.checkOperation({ operation: "bulk", runOperation: operation, ...withoutUndefined({ filter }) });
    const isRestricted = this.#deps.auth?.onRunAccess !== undefined;
    return await internalsOf(this.#deps.engine).performBulk(operation, selection, options, {
      narrow: async (asked) => {
        const scope = await this.#scope("scopeRuns", asked);
        return scope === null ? asked : await this.#toQuery({ ...asked, limit: MAX_RUN_LIMIT }, scope);
      },
      mayChange: isRestricted ? (run) => this.#isAdmitted(toSeenRun(run), operation) : null,
    });
  }

  /** Whether the hook lets the caller perform an operation on a run. */
  async #isAdmitted(run: Readonly<Run>, operation: RunOperation): Promise<boolean> {
    try {
      await this.#checkAccess(run, operation);
      return true;
    } catch (thrown) {
      if (!isInstance(thrown, Response)) throw thrown;
      return false;
    }
  }

  /** The run, if it exists and the caller may perform the operation on it. */
  async #findRun(operation: RunOperation, runId: string, maxLength?: number): Promise<Readonly<Run>> {
    this.#checkServed(operation);
    const run = await this.#readRun(runId, maxLength);
    if (run === null) throw noSuchRun();
    await this.#checkAccess(run, operation);
    return run;
  }

  /** A run; `null` if there is none. By default its values are read only for the hook: they may be large. */
  async #readRun(
    runId: string,
    maxLength = this.#deps.auth?.onRunAccess === undefined ? 1 : Infinity,
  ): Promise<Readonly<Run> | null> {
    const { store } = this.#lists();
    const [run] = await store.readRuns([runId], maxLength);
    return run === undefined || run === null ? null : toSeenRun(run);
  }

  /** Where lists that belong to a run are read, if the caller may perform the operation on it. */
  async #checkList(operation: RunOperation, runId: string): Promise<ListSource> {
    await this.#findRun(operation, runId);
    return this.#lists();
  }

  #checkServed(operation: RunOperation): void {
    const { auth } = this.#deps;
    if (auth !== null && auth.onRunAccess === undefined && (operation === "waits" || operation === "signal")) {
      throw new HoldfastError("forbidden", "Waits are not served: the handler has no onRunAccess hook");
    }
  }

  /** A wait of this run; a wait of another run counts as not found. */
  async #findWait(run: Run, waitId: string): Promise<Wait> {
    const wait = await this.#deps.engine.getWait(waitId);
    if (wait?.runId !== run.id) throw new NotFoundError("There is no such wait");
    return wait;
  }

  /**
   * The filter that matches both filters, with what the hook has added for the lookup. If it added nothing, the
   * client may have asked for the labels that the hook adds: the hook is called once more, without the client's
   * labels and jobs. It has already allowed this list, so a refusal of the second call is ignored.
   */
  async #toQuery(filter: RunFilter, scope: RunFilter): Promise<RunQuery> {
    const alone = () => this.#scope("scopeRuns", withoutLookUps(filter)).catch(() => null);
    const added = addedBy(scope, filter) ?? (canBeLookedUp(scope) ? addedBy(await alone() ?? {}, {}) : null);
    return { ...narrow(filter, scope), ...withoutUndefined({ scope: added ?? undefined }) };
  }

  #lists(): ListSource {
    const { engine, host } = this.#deps;
    const nextTurn = () => new Promise<void>((resolve) => host.defer(resolve));
    return { store: internalsOf(engine).store, nextTurn };
  }

  /** Calls the hook for an operation on a run, with the run frozen. */
  async #checkAccess(run: Readonly<Run>, operation: RunOperation): Promise<void> {
    await this.#caller.ask(
      "onRunAccess",
      (hook) => hook(this.#caller.context, run, Object.freeze({ operation })),
      nothing,
    );
  }

  /**
   * Refuses a trigger whose key belongs to a run that the caller may not read.
   */
  async #checkFound(found: StoredRun): Promise<void> {
    try {
      await this.#checkAccess(toSeenRun(found), "read");
    } catch (thrown) {
      if (!isInstance(thrown, Response)) throw thrown;
      throw new ConflictError("The key is in use", { code: "key_in_use" });
    }
  }

  /** The tenant of the caller; `null` without the `tenant` hook. */
  async #tenant(): Promise<string | null> {
    return await this.#caller.ask("tenant", (hook) => hook(this.#caller.context), readTenant);
  }

  async #scope(name: "scopeRuns" | "scopeRunsSubscribe", filter: RunFilter): Promise<RunFilter | null> {
    const copy = copyFilter(filter);
    const isUnchanged = (answer: unknown) =>
      answer === copy && JSON.stringify(copy) === JSON.stringify(copyFilter(filter));
    return await this.#caller.ask(
      name,
      (hook) => hook(this.#caller.context, copy),
      (answer) => isUnchanged(answer) ? null : readScope(answer),
    );
  }
}

function readTenant(name: unknown): string {
  if (isName(name)) return name;
  throw new TypeError(`What auth.tenant returns ${NAME_RULE}`);
}
