import type { Engine } from "../../engine/engine.ts";
import { internalsOf } from "../../engine/engine_internals.ts";
import { type Explanation, namedRuns, toExplanation } from "../../engine/operate/explanation.ts";
import type { Sight } from "../../engine/operate/sight.ts";
import { failedRunsFilter, readFailedRuns } from "../../engine/operate/failed_runs.ts";
import { type FailureGroups, type FailuresQuery, groupFailures } from "../../engine/operate/failure_groups.ts";
import { checkSearch, findRuns } from "../../engine/operate/found_runs.ts";
import { listOpenWaits, type OpenWaitsPage, type OpenWaitsQuery } from "../../engine/operate/open_waits.ts";
import { readTimeline, type Timeline, type TimelineOptions } from "../../engine/operate/timeline.ts";
import { HoldfastError } from "../../error.ts";
import type { Host } from "../../host.ts";
import { isInstance } from "../../is_instance.ts";
import { type ClientRun, matches, type Run, type RunFilter, type RunIdentity, toClientRun } from "../../run.ts";
import type { FoundBy } from "../../store/operator_reads.ts";
import type { RunFailures } from "../../store/timeline_records.ts";
import { noSuchRun } from "../response.ts";
import type { HandlerAuth } from "./auth_hooks.ts";
import type { AuthorizedEngine } from "./authorized_engine.ts";
import type { Caller } from "./caller.ts";
import { isInScope } from "./run_scope.ts";

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

// How many runs a search looks at, of which the caller may not read some.
const MAX_SEARCHED = 200;

/** What operators read of runs, restricted to what the sender of a request may read. */
export class AuthorizedReads {
  readonly #caller: Caller;
  readonly #deps: AuthorizedReadsDeps;

  constructor(caller: Caller, deps: AuthorizedReadsDeps) {
    this.#caller = caller;
    this.#deps = deps;
  }

  /** Why a run is not executed. Other runs and workers are named only to those who may see them. */
  async explain(runId: string): Promise<Explanation> {
    const run = await this.#deps.runs.findRun("read", runId);
    const blockers = await (await this.#store()).getBlockers(run.id);
    if (blockers === null) throw noSuchRun();
    const readable = new Set<string>();
    for (const id of namedRuns(blockers)) if (await this.#mayRead(id)) readable.add(id);
    const sight: Sight = { workers: await this.#mayDebug(), mayRead: (id) => readable.has(id) };
    return toExplanation(blockers, sight);
  }

  /** What has happened in a run. */
  async getTimeline(runId: string, options: TimelineOptions): Promise<Timeline> {
    const { id } = await this.#deps.runs.findRun("steps", runId);
    const timeline = await readTimeline(await this.#store(), id, options);
    if (timeline === null) throw noSuchRun();
    const showsWorkers = await this.#mayDebug();
    const rows = [];
    for (const { workerId, childRunId, ...row } of timeline.rows) {
      rows.push({
        ...row,
        ...(workerId !== undefined && showsWorkers ? { workerId } : {}),
        ...(childRunId !== undefined && await this.#mayRead(childRunId) ? { childRunId } : {}),
      });
    }
    return { ...timeline, rows };
  }

  /**
   * The failures of a run, with stacks and causes.
   *
   * @throws {HoldfastError} `forbidden`: there are no hooks, and `showFailures` is not set.
   */
  async getFailure(runId: string): Promise<RunFailures> {
    if (this.#deps.auth === null && !this.#deps.showFailures) {
      throw new HoldfastError("forbidden", "Stacks are not served: the handler has neither auth nor showFailures");
    }
    await this.#caller.checkOperation({ operation: "debug" });
    const { id } = await this.#deps.runs.findRun("read", runId);
    const failures = await (await this.#store()).getFailures(id);
    if (failures === null) throw noSuchRun();
    return failures;
  }

  /** Waits that nobody has signalled yet. */
  async getOpenWaits(query: OpenWaitsQuery): Promise<OpenWaitsPage> {
    this.#checkServed("Waits are");
    const { auth, host } = this.#deps;
    const { limit: _, cursor: __, ...filter } = query;
    const scope = await this.#scopeOf(filter);
    const mayShow = auth === null
      ? null
      // Most runs of others are left out by what their waits tell of them, without being read.
      : async ({ run }: { run: RunIdentity }) =>
        (scope === null || matches(run, scope)) && await this.#mayShow(run.id, "waits", scope);
    return await listOpenWaits(query, { store: await this.#store(), host, mayShow });
  }

  /** What runs failed of lately. */
  async getFailures(query: FailuresQuery): Promise<FailureGroups> {
    this.#checkServed("Failures are");
    const filter = failedRunsFilter(query);
    const store = await this.#store();
    const { ids } = await store.findRuns({ ...await this.#deps.runs.scopeOf(filter) ?? filter, uncounted: true });
    const runs = await readFailedRuns(store, ids);
    if (this.#deps.auth === null) return groupFailures(runs);
    const shown = [];
    for (const { id, ...run } of runs) if (await this.#mayRead(id)) shown.push({ id, ...run });
    return groupFailures(shown);
  }

  /** Finds runs by an id, a key or a label. */
  async findRuns(query: string): Promise<{ run: ClientRun; by: FoundBy }[]> {
    this.#checkServed("Searches are");
    const text = checkSearch(query);
    const scope = await this.#scopeOf({});
    const ownKey = await this.#deps.runs.ownKey(text);
    const found = await findRuns(await this.#store(), ownKey === null ? [text] : [text, ownKey], {
      limit: MAX_SEARCHED,
      mayShow: async (run) => (scope === null || isInScope(run, scope)) && await this.#deps.runs.may(run, "read"),
    });
    return found.map(({ run, by }) => ({ run: toClientRun(run), by }));
  }

  async #scopeOf(filter: RunFilter): Promise<RunFilter | null> {
    return await this.#deps.runs.scopeOf(filter);
  }

  #checkServed(what: string): void {
    const { auth } = this.#deps;
    if (auth === null || auth.onRunAccess !== undefined) return;
    throw new HoldfastError("forbidden", `${what} not served: the handler has no onRunAccess hook`);
  }

  #mayRead(runId: string): Promise<boolean> {
    return this.#mayShow(runId, "read", null);
  }

  async #mayShow(runId: string, operation: "read" | "waits", scope: RunFilter | null): Promise<boolean> {
    const run: Run | null = await this.#deps.engine.getRun(runId);
    return run !== null && (scope === null || isInScope(run, scope)) && await this.#deps.runs.may(run, operation);
  }

  /** Whether the caller may see workers. */
  async #mayDebug(): Promise<boolean> {
    if (this.#deps.auth === null) return true;
    if (this.#deps.auth.onOperate === undefined) return false;
    try {
      await this.#caller.checkOperation({ operation: "debug" });
      return true;
    } catch (thrown) {
      if (!isInstance(thrown, Response)) throw thrown;
      return false;
    }
  }

  #store() {
    return internalsOf(this.#deps.engine).store();
  }
}
