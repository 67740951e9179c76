import type { Engine } from "../../engine/engine.ts";
import { internalsOf } from "../../engine/engine_internals.ts";
import { type Explanation, namedRuns, toExplanation } from "../../engine/operate/explain/explanation.ts";
import type { Visibility } from "../../engine/operate/explain/visibility.ts";
import { failedRunsFilter, readFailedRuns } from "../../engine/operate/failed_runs.ts";
import { type FailureGroups, type FailuresQuery, groupFailures } from "../../engine/operate/failure_groups.ts";
import { checkSearch, findRuns, MAX_FOUND } from "../../engine/operate/found_runs.ts";
import {
  listOpenWaits,
  listOwnWaits,
  type OpenWaitsPage,
  type OpenWaitsQuery,
  type WaitAccess,
} from "../../engine/operate/open_waits.ts";
import { readTimeline, type Timeline, type TimelineOptions } from "../../engine/operate/timeline.ts";
import { HoldfastError } from "../../error.ts";
import type { Host } from "../../host.ts";
import { isInstance } from "../../values/is_instance.ts";
import { type ClientRun, toClientRun } from "../../client_run.ts";
import { matches } from "../../run.ts";
import type { FoundBy } from "../../store/operator_reads.ts";
import type { RunBlockers } from "../../store/blockers.ts";
import type { RunFailures } from "../../store/timeline_records.ts";
import { noSuchRun } from "../response.ts";
import type { HandlerAuth } from "./auth_hooks.ts";
import type { AuthorizedEngine } from "./authorized_engine.ts";
import type { Caller } from "./caller.ts";
import { findOpenRuns, findOwnRuns, idsInScope } from "./own_runs.ts";

/** The dependencies of {@linkcode AuthorizedReads}. */
export interface AuthorizedReadsDeps {
  /** The engine that is served. */
  engine: Engine;
  /** The same, restricted to what the caller may do. */
  runs: AuthorizedEngine;
  /** The hooks; `null`: every caller may do everything. */
  auth: HandlerAuth<unknown> | null;
  /** Whether stacks are shown without hooks. */
  showFailures: boolean;
  /** The time for lists that end after a while. */
  host: Host;
}

// How many runs of all callers a search looks at, if `scopeRuns` says which are the caller's own.
const MAX_SEARCHED = 1_000;
// Without it, `onRunAccess` is asked for each run that is found, up to this many.
const MAX_ASKED = 200;

/** What operators read of runs, restricted to what the sender of a request may read. */
export class AuthorizedReads {
  readonly #caller: Caller;
  readonly #deps: AuthorizedReadsDeps;

  constructor(caller: Caller, deps: AuthorizedReadsDeps) {
    this.#caller = caller;
    this.#deps = deps;
  }

  /** Why a run is not executed. Other runs and workers are named and counted only for those who may see them. */
  async explain(runId: string): Promise<Explanation> {
    const run = await this.#deps.runs.findRun("read", runId);
    const blockers = await this.#store.getBlockers(run.id);
    if (blockers === null) throw noSuchRun();
    const readable = new Set<string>();
    for (const id of namedRuns(blockers)) if (await this.#deps.runs.may(id, "read")) readable.add(id);
    const concurrencyKey = await this.#deps.runs.givenKey(blockers.run.concurrencyKey);
    const visibility: Visibility = {
      workers: await this.#maySee("debug"),
      counts: await this.#mayCount(blockers) ? "all" : concurrencyKey === blockers.run.concurrencyKey ? "none" : "key",
      mayRead: (id) => readable.has(id),
    };
    return toExplanation({ ...blockers, run: { ...blockers.run, concurrencyKey } }, visibility);
  }

  /** What has happened in a run. */
  async getTimeline(runId: string, options: TimelineOptions): Promise<Timeline> {
    const { id } = await this.#deps.runs.findRun("steps", runId);
    const timeline = await readTimeline(this.#store, id, options);
    if (timeline === null) throw noSuchRun();
    const showsWorkers = await this.#maySee("debug");
    const rows = [];
    for (const { workerId, childRunId, ...row } of timeline.rows) {
      rows.push({
        ...row,
        ...(workerId !== undefined && showsWorkers ? { workerId } : {}),
        ...(childRunId !== undefined && await this.#deps.runs.may(childRunId, "read") ? { childRunId } : {}),
      });
    }
    return { ...timeline, rows };
  }

  /**
   * The failures of a run, with stacks and causes.
   *
   * @throws {HoldfastError} `forbidden`: there is no `auth`, and `showFailures` is not set; or a hook is missing that
   * would have to admit the caller.
   */
  async getFailure(runId: string): Promise<RunFailures> {
    if (this.#deps.auth === null && !this.#deps.showFailures) {
      throw new HoldfastError("forbidden", "Stacks are not served: the handler has neither auth nor showFailures");
    }
    this.#checkServed("Stacks are");
    await this.#caller.checkOperation({ operation: "debug" });
    const { id } = await this.#deps.runs.findRun("read", runId);
    const failures = await this.#store.getFailures(id);
    if (failures === null) throw noSuchRun();
    return failures;
  }

  /** Waits that nobody has signalled yet. */
  async getOpenWaits(query: OpenWaitsQuery): Promise<OpenWaitsPage> {
    this.#checkServed("Waits are");
    const { auth, host } = this.#deps;
    const { limit: _, cursor: __, ...filter } = query;
    const store = this.#store;
    if (auth === null) return await listOpenWaits(query, { store, host, access: null });
    const scope = await this.#deps.runs.scopeOf(filter);
    const mayShow: WaitAccess["mayShow"] = ({ run }) => this.#deps.runs.may(run.id, "waits");
    // Otherwise it would look through the waits of all others.
    const own = scope === null ? null : await findOpenRuns(store, scope);
    if (own !== null) return await listOwnWaits(query, own, { store, host, mayShow });
    const access: WaitAccess = {
      // Most runs of others are left out by their labels and jobs, without being read.
      isInScope: async (run) =>
        scope === null || (matches(run, scope) && (await idsInScope(store, [run.id], scope)).has(run.id)),
      mayShow,
    };
    return await listOpenWaits(query, { store, host, access });
  }

  /** What runs failed of lately. */
  async getFailures(query: FailuresQuery): Promise<FailureGroups> {
    this.#checkServed("Failures are");
    const { auth, host } = this.#deps;
    const filter = failedRunsFilter(query);
    const runs = await readFailedRuns(await this.#deps.runs.scopeOf(filter) ?? filter, {
      store: this.#store,
      host,
      mayShow: auth === null ? null : (runId) => this.#deps.runs.may(runId, "read"),
    });
    return groupFailures(runs);
  }

  /** Finds runs by an id, a key or a label. */
  async findRuns(query: string): Promise<{ run: ClientRun; by: FoundBy }[]> {
    this.#checkServed("Searches are");
    const text = checkSearch(query);
    const { auth, runs } = this.#deps;
    const store = this.#store;
    const scope = auth === null ? null : await runs.scopeOf({});
    const limit = auth === null ? MAX_FOUND : scope === null ? MAX_ASKED : MAX_SEARCHED;
    const hits = await store.searchRuns(text, limit);
    const ownKey = await runs.ownKey(text);
    if (ownKey !== null) hits.push(...await store.searchRuns(ownKey, limit));
    if (scope !== null) hits.push(...await findOwnRuns(text, { store, scopeOf: (filter) => runs.scopeOf(filter) }));
    const ids = scope === null ? null : await idsInScope(store, hits.map(({ runId }) => runId), scope);
    const found = await findRuns(
      store,
      ids === null ? hits : hits.filter(({ runId }) => ids.has(runId)),
      auth === null ? null : (runId) => runs.may(runId, "read"),
    );
    return found.map(({ run, by }) => ({ run: toClientRun(run), by }));
  }

  #checkServed(what: string): void {
    const { auth } = this.#deps;
    if (auth === null || auth.onRunAccess !== undefined) return;
    throw new HoldfastError("forbidden", `${what} not served: the handler has no onRunAccess hook`);
  }

  /** Whether the caller may see how many runs of all callers there are: it may read them, or see statistics. */
  async #mayCount({ blockers }: RunBlockers): Promise<boolean> {
    const isCounting = blockers.some((blocker) => "ahead" in blocker);
    return this.#deps.auth?.onRunAccess === undefined || !isCounting || await this.#maySee("stats");
  }

  /** Whether the caller may see what concerns more than its own runs: workers, or numbers. */
  async #maySee(operation: "debug" | "stats"): Promise<boolean> {
    if (this.#deps.auth === null) return true;
    if (this.#deps.auth.onOperate === undefined) return false;
    try {
      await this.#caller.checkOperation({ operation });
      return true;
    } catch (thrown) {
      if (!isInstance(thrown, Response)) throw thrown;
      return false;
    }
  }

  get #store() {
    return internalsOf(this.#deps.engine).store;
  }
}
