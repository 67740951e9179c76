import type { BulkSelection } from "../../engine/bulk/bulk_selection.ts";
import type { BulkGuard } from "../../engine/bulk/perform_bulk.ts";
import type { Engine } from "../../engine/engine.ts";
import type { EngineParts } from "../../engine/assemble_engine.ts";
import type { Health } from "../../engine/operate/health.ts";
import type { JobInfo } from "../../engine/operate/job_info.ts";
import { currentWait } from "../../engine/runs/retried_waits.ts";
import { MAX_RUN_LIMIT } from "../../engine/runs/run_filter.ts";
import type { MessageGuard } from "../../engine/messages.ts";
import type { TriggerGuard, TriggerOptions } from "../../engine/triggers/new_run.ts";
import { withKeys } from "../../engine/triggers/trigger_flow.ts";
import { ConflictError, HoldfastError, NotFoundError } from "../../model/error.ts";
import type { Host } from "../../model/host.ts";
import { type ActorOptions, encodeOrigin } from "../../model/origin.ts";
import type { BulkOperation, ListFilter, Run, RunFilter } from "../../model/run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { isInstance } from "../../values/unknown_values.ts";
import { isName, NAME_RULE } from "../../values/name.ts";
import { isEndedBy, type Signal, type Wait } from "../../model/wait.ts";
import { deepFreeze, readTriggerKeys, toRequested, toSeenRun } from "./seen_by_hooks.ts";
import type { ListSource } from "../json_lists.ts";
import { noSuchRun } from "../response.ts";
import { endedItems, followItems, itemsNow, type ItemsQuery } from "../streams/item_stream.ts";
import type { Resume } from "../requests/parameters.ts";
import type { PermittedStream, Streams } from "../streams/streams.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import type { HandlerAuth, HookName, Operation, RequestedOperation, RunOperation } from "./auth_hooks.ts";
import { callAuthHook, nothing } from "./caller.ts";
import { addedBy, canBeLookedUp, copyFilter, narrow, narrowList, readScope, withoutLookUps } from "./list_scope.ts";
import { asGiven, checkNotOfSchedule, ofTenant, tenantPrefix } from "./tenant_keys.ts";

type Hooks = HandlerAuth<unknown>;

/** The dependencies of {@linkcode Access}. */
export interface AccessDeps {
  /** The hooks; `null`: every caller may do everything. */
  auth: Hooks | null;
  /** The timer for the time limits of hooks. */
  host: Host;
  /** What is served. */
  served: Served;
  /** Whether stacks are shown without hooks. */
  showFailures: boolean;
}

/** What a handler serves. */
interface Served {
  /** The engine that is served. */
  readonly engine: Engine;
  /** Its internals. */
  readonly internals: EngineParts;
  /** The event streams of the handler. */
  readonly streams: Streams;
  /** Where lists are read. */
  readonly source: ListSource;
}

/** What a route works with, once its guard has let the request pass. */
export interface Admitted extends Served {
  /** What else the sender may do. */
  readonly access: Access;
}

/** What the sender of a request may do, as the hooks say. */
export class Access {
  /** What `authenticate` has returned; `null` without `auth`. */
  readonly context: unknown;
  /** Whether it was not authenticated, since the host has opened what it asks for. */
  readonly isAnonymous: boolean;
  readonly #deps: AccessDeps;
  #actor: Promise<string | null> | undefined;

  constructor(context: unknown, isAnonymous: boolean, deps: AccessDeps) {
    this.context = context;
    this.isAnonymous = isAnonymous;
    this.#deps = deps;
  }

  /** Calls a hook, and parses its result; `null` without the hook. */
  async #ask<Name extends Exclude<HookName, "authenticate">, T>(
    name: Name,
    call: (hook: NonNullable<Hooks[Name]>) => unknown,
    read: (returned: unknown) => T,
  ): Promise<T | null> {
    const hook = this.#deps.auth?.[name] ?? null;
    return hook === null ? null : await callAuthHook(name, () => call(hook), read, this.#deps.host);
  }

  /**
   * Calls the hook for an operation that does not concern one run.
   *
   * @throws {HoldfastError} `forbidden`: there are hooks, but not this one.
   */
  async checkOperation(access: RequestedOperation): Promise<void> {
    const { auth } = this.#deps;
    if (auth !== null && auth.onOperate === undefined) {
      const what = NOT_SERVED[access.operation];
      throw new HoldfastError("forbidden", `${what} not served: the handler has no onOperate hook`);
    }
    await this.#ask("onOperate", (hook) => hook(this.context, deepFreeze(access)), nothing);
  }

  /** The timer for time limits. */
  get host(): Host {
    return this.#deps.host;
  }

  /** Whether there are no hooks: every caller may do everything. */
  get isUnrestricted(): boolean {
    return this.#deps.auth === null;
  }

  /** What a route works with: for guards. */
  get admitted(): Admitted {
    return { ...this.#deps.served, access: this };
  }

  /**
   * The run, if it exists and the caller may perform the operation on it. Its values are read only for the hook: they may
   * be large.
   */
  async findRun(operation: RunOperation, runId: string, maxLength?: number): Promise<Readonly<Run>> {
    if (operation === "waits" || operation === "signal") this.checkServed("Waits are");
    if (operation === "messages" || operation === "send") this.checkServed("Messages are");
    const run = await this.#readRun(runId, maxLength);
    if (run === null) throw noSuchRun();
    await this.#checkAccess(run, operation);
    return run;
  }

  /** Whether there is a run on which the caller may perform an operation. */
  async may(runId: string, operation: RunOperation): Promise<boolean> {
    const run = await this.#readRun(runId);
    return run !== null && await this.#isAdmitted(run, operation);
  }

  /** A wait of this run; a wait of another run counts as not found. */
  async findWait(run: Run, waitId: string): Promise<Wait> {
    const wait = await this.#deps.served.engine.getWait(waitId);
    if (wait?.runId !== run.id) throw new NotFoundError("There is no such wait");
    return wait;
  }

  /** The wait that a signal to this one is for. */
  findCurrentWait(wait: Wait): Promise<Wait> {
    return currentWait(this.#deps.served.internals, wait);
  }

  /** Calls the hook for a signal, unless the same one was accepted before. */
  async checkSignal(run: Readonly<Run>, wait: Wait, signal: Signal): Promise<void> {
    if (isEndedBy(wait, signal)) return;
    await this.#deps.served.internals.runs.checkPayload(wait, signal); // as an input is checked before its hook
    await this.#ask("onSignal", (hook) => hook(this.context, run, deepFreeze(wait), deepFreeze(signal)), nothing);
  }

  /** The filter that matches both a filter and what the caller may list; `null` without `scopeRuns`. */
  async scopeOf(filter: RunFilter): Promise<RunQuery | null> {
    const scope = await this.#scope("scopeRuns", filter);
    return scope === null ? null : await this.#toQuery(filter, scope);
  }

  /** The place of a run in lists, which the caller has to be able to read. */
  async placeOf(before: string | undefined): Promise<Pick<RunQuery, "before">> {
    if (before === undefined) return {};
    const { id } = await this.findRun("read", before);
    const state = await this.#deps.served.internals.store.getRunState(id);
    if (state === null) throw noSuchRun();
    return { before: state.seq };
  }

  /** The filter of a stream of events that matches both a filter and what the caller may follow. */
  async streamFilter(filter: ListFilter): Promise<ListFilter> {
    const name = this.#deps.auth?.scopeRunsSubscribe === undefined ? "scopeRuns" : "scopeRunsSubscribe";
    const scope = await this.#scope(name, filter);
    return scope === null ? filter : narrowList(filter, scope);
  }

  /** Opens a stream of events, once it is known what it may show. */
  async openStream(
    resume: Resume,
    authorise: () => Promise<Pick<PermittedStream, "runId" | "filter" | "stream">>,
  ): Promise<Response> {
    return await this.#deps.served.streams.open(resume, async () => {
      const shown = await authorise();
      return { context: this.context, tenant: await this.#tenant(), ...shown };
    });
  }

  /** Answers a request for the items of a stream. */
  async readItems(query: ItemsQuery): Promise<Response> {
    const { internals, streams } = this.#deps.served;
    const findRun = async () => (await this.findRun("read", query.runId)).id;
    if (query.live === undefined) {
      await findRun();
      return await itemsNow(internals.store, query);
    }
    return await streams.openItems(
      async () => ({
        runId: await findRun(),
        filter: null,
        stream: query.name,
        context: this.context,
        tenant: await this.#tenant(),
      }),
      (register) => followItems({ ...internals, items: internals.lifecycle.streams, host: this.host }, query, register),
      () => endedItems(query),
    );
  }

  /** Calls the hook for a trigger, before a run is added; and `onRunAccess`, before an existing one is returned. */
  triggerGuard(options: TriggerOptions): TriggerGuard {
    return {
      beforeAdding: async (asked, job) => {
        const call = () => toRequested(asked, options);
        const keys = await this.#ask("onTrigger", (hook) => hook(this.context, call()), readTriggerKeys);
        const run = keys === null ? asked : withKeys(asked, keys, job);
        const tenant = await this.#tenant();
        if (tenant === null) checkNotOfSchedule(run.idempotencyKey);
        const own = tenant === null ? run : ofTenant(tenant, run);
        return { ...own, trace: encodeOrigin(null, await this.actor()) };
      },
      beforeJoining: this.#deps.auth?.onRunAccess === undefined ? null : async (found) => {
        if (await this.#isAdmitted(toSeenRun(found), "read")) return;
        throw new ConflictError("The key is in use", { code: "key_in_use" });
      },
    };
  }

  /** Calls the hooks for a message; `null`: there are none. */
  messageGuard(): MessageGuard | null {
    if (this.#deps.auth === null) return null;
    const triggerGuard = (options: TriggerOptions) => this.triggerGuard(options);
    let known: Readonly<Run> | null = null; // it was asked for
    return {
      ownKey: async (key) => await this.ownKey(key) ?? key,
      beforeReading: async (runId) => {
        known = await this.findRun("send", runId);
      },
      beforeStarting: (run, { input: _, ...options }, job) => triggerGuard(options).beforeAdding(run, job),
      beforeSending: async (runId, message) => {
        const run = runId === null ? null : known?.id === runId ? known : await this.findRun("send", runId);
        await this.#ask("onSend", (hook) => hook(this.context, run, deepFreeze(message)), nothing);
        return await this.actor();
      },
    };
  }

  /** Restricts an operation on many runs: to those that the caller may list, and on which it may perform it. */
  async bulkGuard(operation: BulkOperation, selection: BulkSelection): Promise<BulkGuard> {
    const filter = selection.filter === undefined ? undefined : copyFilter(selection.filter);
    await this.checkOperation({ operation: "bulk", runOperation: operation, ...withoutUndefined({ filter }) });
    const isRestricted = this.#deps.auth?.onRunAccess !== undefined;
    return {
      narrow: async (asked) => {
        const scope = await this.#scope("scopeRuns", asked);
        return scope === null ? asked : await this.#toQuery({ ...asked, limit: MAX_RUN_LIMIT }, scope);
      },
      mayChange: isRestricted ? (run) => this.#isAdmitted(toSeenRun(run), operation) : null,
    };
  }

  /** Who acts, as the hook names them; `null`: it names nobody. Ask it last: a request that is refused has no actor. */
  actor(): Promise<string | null> {
    return this.#actor ??= this.#ask("actor", (hook) => hook(this.context), readActorOf);
  }

  /** The same as an option of the engine's methods. */
  async actorOptions(): Promise<ActorOptions> {
    return withoutUndefined({ by: await this.actor() ?? undefined });
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

  /** The health of the process: the status alone for a caller that is not authenticated. */
  shownHealth(health: Health): Health | Pick<Health, "status"> {
    return this.isAnonymous ? { status: health.status } : health;
  }

  /** A job without the id of a run that the caller may not read. */
  async shownJob(job: JobInfo): Promise<JobInfo> {
    const runId = job.oldestDue?.runId ?? null;
    const isShown = runId === null || this.#deps.auth?.onRunAccess === undefined || await this.may(runId, "read");
    return isShown ? job : withoutRun(job);
  }

  /** The same for a job that was changed: a hook that fails cannot undo that. */
  changedJob(job: JobInfo): Promise<JobInfo> {
    return this.shownJob(job).catch(() => withoutRun(job));
  }

  /**
   * Refuses what `onRunAccess` has to admit, if there are hooks, but not this one.
   *
   * @param what For the message: `Waits are`.
   * @throws {HoldfastError} `forbidden`.
   */
  checkServed(what: string): void {
    const { auth } = this.#deps;
    if (auth === null || auth.onRunAccess !== undefined) return;
    throw new HoldfastError("forbidden", `${what} not served: the handler has no onRunAccess hook`);
  }

  /**
   * Refuses stacks.
   *
   * @throws {HoldfastError} `forbidden`: there is no `auth`, and `showFailures` is not set; or `onRunAccess` is missing.
   */
  checkStacksServed(): void {
    if (this.#deps.auth === null && !this.#deps.showFailures) {
      throw new HoldfastError("forbidden", "Stacks are not served: the handler has neither auth nor showFailures");
    }
    this.checkServed("Stacks are");
  }

  /** Whether the caller may see how many runs of all callers there are: it may read them, or see statistics. */
  async mayCount(): Promise<boolean> {
    return this.#deps.auth?.onRunAccess === undefined || await this.maySee("stats");
  }

  /** The same for runs that the caller may list: `scopeRuns` says which are counted. */
  async mayCountListed(): Promise<boolean> {
    return this.#deps.auth?.scopeRuns !== undefined || await this.mayCount();
  }

  /** Whether the caller may see what concerns more than its own runs: workers, or numbers. */
  async maySee(operation: "debug" | "stats"): Promise<boolean> {
    if (this.#deps.auth === null) return true;
    if (this.#deps.auth.onOperate === undefined) return false;
    return await isPermitted(this.checkOperation({ operation }));
  }

  /** Whether the hook lets the caller perform an operation on a run. */
  #isAdmitted(run: Readonly<Run>, operation: RunOperation): Promise<boolean> {
    return isPermitted(this.#checkAccess(run, operation));
  }

  /** Calls the hook for an operation on a run, with the run frozen. */
  async #checkAccess(run: Readonly<Run>, operation: RunOperation): Promise<void> {
    await this.#ask("onRunAccess", (hook) => hook(this.context, run, Object.freeze({ operation })), nothing);
  }

  /** A run; `null` if there is none. */
  async #readRun(
    runId: string,
    maxLength = this.#deps.auth?.onRunAccess === undefined ? 1 : Infinity,
  ): Promise<Readonly<Run> | null> {
    const [run] = await this.#deps.served.internals.store.readRuns([runId], maxLength);
    return run === undefined || run === null ? null : toSeenRun(run);
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

  async #scope(name: "scopeRuns" | "scopeRunsSubscribe", filter: RunFilter): Promise<RunFilter | null> {
    const copy = copyFilter(filter);
    const isUnchanged = (answer: unknown) =>
      answer === copy && JSON.stringify(copy) === JSON.stringify(copyFilter(filter));
    return await this.#ask(
      name,
      (hook) => hook(this.context, copy),
      (answer) => isUnchanged(answer) ? null : readScope(answer),
    );
  }

  /** The tenant of the caller; `null` without the `tenant` hook. */
  async #tenant(): Promise<string | null> {
    return await this.#ask("tenant", (hook) => hook(this.context), readTenant);
  }
}

/** Whether a hook has let something pass: a `Response` that it throws says no. */
async function isPermitted(check: Promise<void>): Promise<boolean> {
  try {
    await check;
    return true;
  } catch (thrown) {
    if (!isInstance(thrown, Response)) throw thrown;
    return false;
  }
}

function readActorOf(name: unknown): string | null {
  if (name === null || isName(name)) return name;
  throw new TypeError(`What auth.actor returns ${NAME_RULE}, or null`);
}

function readTenant(name: unknown): string {
  if (isName(name)) return name;
  throw new TypeError(`What auth.tenant returns ${NAME_RULE}`);
}

function withoutRun(job: JobInfo): JobInfo {
  return { ...job, oldestDue: job.oldestDue && { ...job.oldestDue, runId: null } };
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
