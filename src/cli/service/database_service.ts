import { createEngine } from "../../engine/create_engine.ts";
import { ConflictError, NotFoundError, StoreError } from "../../model/error.ts";
import type { HandlerAuth } from "../../http/access/auth_hooks.ts";
import { createHandler } from "../../http/handler.ts";
import type { Store } from "../../store/store.ts";
import type { Database, Service } from "./service.ts";
import type { Engine } from "../../engine/engine.ts";
import type { EngineParts } from "../../engine/assemble_engine.ts";
import { INTERNALS, internalsOf } from "../../engine/engine_internals.ts";
import {
  type BulkRetriggerOptions,
  type BulkSelection,
  checkBulk,
  type CheckedBulk,
} from "../../engine/bulk/bulk_selection.ts";
import { type BulkResult, performBulk } from "../../engine/bulk/perform_bulk.ts";
import { derivedRunId } from "../../model/end.ts";
import { retryFlow } from "../../engine/triggers/trigger_flow.ts";
import type { JobFlow } from "../../model/flow.ts";
import { type Host, systemHost } from "../../model/host.ts";
import { encodeOrigin, readActor } from "../../model/origin.ts";
import { isTerminal, type RetriggerFrom } from "../../model/run.ts";
import type { NewRun } from "../../store/new_run.ts";

/**
 * Answers the routes over a store, by an engine without jobs: it executes nothing.
 *
 * @param options.by Who acts; `undefined`: nobody says so.
 * @param options.prepare Sees to it that the tables exist: nothing migrates the store afterwards.
 * @param options.close Closes what was opened.
 */
export async function databaseService(
  kind: "sqlite" | "postgres",
  store: Store,
  database: Database,
  { by, prepare, close }: { by: string | undefined; prepare: () => Promise<void>; close: () => Promise<unknown> },
): Promise<Service> {
  try {
    await prepare();
  } catch (error) {
    await close();
    throw error;
  }
  const idle = createEngine({ store: withoutMigration(store), jobs: {}, logger: null });
  const engine = engineOfStoredRuns(idle, retryStoredRuns(store));
  let hidden: unknown = null;
  const handler = createHandler(engine, {
    showFailures: true,
    ...(by === undefined ? {} : { auth: { ...EVERYTHING, authenticate: () => by, actor: () => by } }),
    onError: (error) => {
      hidden = error;
    },
  });
  return {
    kind,
    database,
    engine,
    ask: async (path, init) => {
      hidden = null;
      const response = await handler.fetch(new Request(`http://localhost${path}`, init));
      if (response.status < 500 || hidden === null) return response;
      throw hidden instanceof StoreError ? hidden : new StoreError(String(hidden), { cause: hidden, code: "internal" });
    },
    close: async () => {
      await engine.stop({ timeout: 0 });
      await close();
    },
  };
}

/** The hooks of callers who may do everything. */
export const EVERYTHING: Omit<HandlerAuth<unknown>, "authenticate"> = {
  onTrigger: () => {},
  onRunAccess: () => {},
  onOperate: () => {},
  scopeRuns: (_, filter) => filter,
};

function withoutMigration(store: Store): Store {
  return Object.assign(store, { migrate: () => Promise.resolve() });
}

/**
 * The same engine, which retriggers runs without the code of their jobs.
 *
 * @param retry Retriggers runs.
 */
function engineOfStoredRuns(engine: Engine, retry: Retrigger): Engine {
  const retrigger: Engine["retrigger"] = async (runId, { from = "start", ...actor } = {}) => {
    const { done } = await retry({ runIds: [runId] }, { from, ...actor });
    const old = await engine.getRun(runId);
    if (old === null) throw new NotFoundError(`There is no run "${runId}"`);
    const made = old.retriggeredAs === null ? null : await engine.getRun(old.retriggeredAs);
    if (made === null) throw new ConflictError(`Cannot retrigger run "${runId}": it is ${old.status}`);
    return { ...made, disposition: done === 1 ? "created" : "idempotent" };
  };
  const internals = internalsOf(engine);
  const bulk: Pick<EngineParts["bulk"], "perform"> = {
    perform: (operation, selection, options, guard) =>
      operation === "retrigger"
        ? retry(selection, options)
        : internals.bulk.perform(operation, selection, options, guard),
  };
  const replaced = new Map<PropertyKey, unknown>([
    ["retrigger", retrigger],
    [INTERNALS, { ...internals, bulk }],
  ]);
  return new Proxy(engine, {
    get: (target, name) => {
      const member = replaced.get(name) ?? Reflect.get(target, name);
      return typeof member === "function" ? member.bind(target) : member; // the engine has private fields
    },
  });
}

/** Retriggers runs, as `Engine.retriggerRuns()` does. */
type Retrigger = (selection: BulkSelection, options: BulkRetriggerOptions) => Promise<BulkResult>;

/**
 * Retriggers runs of jobs whose code is not here: with the stored input, which nothing checks again, and the version that
 * the old run has. The limits of a concurrency key are in the code: such a retry shares its key with no other run.
 */
export function retryStoredRuns(store: Store, host: Host = systemHost): Retrigger {
  return async (selection, { from = "failure", by, ...options }) => {
    const bulk: CheckedBulk = checkBulk(selection, options, "retry");
    const prepare = async (runId: string) => {
      const request = await requestRetry(store, runId, from, readActor({ by }));
      return () => store.enqueue([request]);
    };
    return await performBulk("retrigger", bulk, { store, host, guard: null, prepare });
  };
}

async function requestRetry(
  store: Store,
  runId: string,
  from: RetriggerFrom,
  by: string | null,
): Promise<NewRun> {
  const history = await store.getHistory(runId);
  if (history === null) throw new NotFoundError(`There is no run "${runId}"`);
  const { run, input, schemaPrint } = history;
  if (!isTerminal(run.status)) throw new ConflictError(`Cannot retrigger run "${runId}": it is ${run.status}`);
  if (run.retriggeredAs !== null) throw new ConflictError(`Run "${runId}" was retriggered before`);
  const { jobName, version, payload, labels, concurrencyKey, scheduleName, slotAt } = run;
  return {
    // That of the engine: of calls at the same time, all find the one run that the first has made.
    id: derivedRunId(runId, `bulk retrigger of ${runId}`),
    jobName,
    version,
    aliases: [],
    schemaPrint,
    payload,
    input,
    labels,
    idempotencyKey: null,
    concurrencyKey,
    coalesce: null,
    trace: encodeOrigin(null, by),
    retriggerOf: { runId, from },
    flow: retryFlow(run, { job: UNKNOWN, hasKey: concurrencyKey !== null }),
    schedule: scheduleName === null ? null : { name: scheduleName, slotAt },
  };
}

// What a retry takes of the flow of its job.
const UNKNOWN = { finishWithin: null, keyConcurrency: 1, keyRate: null } as JobFlow;
