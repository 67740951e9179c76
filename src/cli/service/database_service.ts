import { createEngineIn } from "../../engine/create_engine.ts";
import { PRODUCTION, type RequestRetry } from "../../execution/surroundings.ts";
import { ConflictError, NotFoundError, StoreError } from "../../model/error.ts";
import type { HandlerAuth } from "../../http/access/auth_hooks.ts";
import { createHandler } from "../../http/handler.ts";
import type { Store } from "../../store/store.ts";
import type { Database, Service } from "./service.ts";
import type { Engine } from "../../engine/engine.ts";
import { derivedRunId } from "../../model/end.ts";
import { retryFlow } from "../../engine/triggers/trigger_flow.ts";
import type { JobFlow } from "../../model/flow.ts";
import { type Host, systemHost } from "../../model/host.ts";
import { encodeOrigin } from "../../model/origin.ts";
import { isTerminal } from "../../model/run.ts";
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
  const engine = engineOfStoredRuns(Object.assign(store, { migrate: () => Promise.resolve() }));
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

/**
 * An engine without jobs, which retriggers runs of jobs whose code is not here: with the stored input, which nothing checks
 * again, and the version that the old run has. The limits of a concurrency key are in the code: such a retry shares its key
 * with no other run. Nor does a run that was retriggered before get another retry.
 */
export function engineOfStoredRuns(store: Store, host: Host = systemHost): Engine {
  const requestRetry: RequestRetry = async (runId, from, by) => {
    const history = await store.getHistory(runId);
    if (history === null) throw new NotFoundError(`There is no run "${runId}"`);
    const { run: old, input, schemaPrint, onEnd } = history;
    if (!isTerminal(old.status)) throw new ConflictError(`Cannot retrigger run "${runId}": it is ${old.status}`);
    const { jobName, version, payload, labels, concurrencyKey, scheduleName, slotAt, retriggeredAs } = old;
    if (retriggeredAs !== null && await store.getRunState(retriggeredAs) === null) {
      throw new ConflictError(`Cannot retrigger run "${runId}": it was retriggered before`);
    }
    const request: NewRun = {
      // That of bulk operations: of calls at the same time, all find the one run that the first has made.
      id: retriggeredAs ?? derivedRunId(runId, `bulk retrigger of ${runId}`),
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
      flow: retryFlow(old, { job: UNKNOWN, hasKey: concurrencyKey !== null }),
      schedule: scheduleName === null ? null : { name: scheduleName, slotAt },
      ...(onEnd === null ? {} : { onEnd }),
    };
    return { request, old };
  };
  return createEngineIn({ ...PRODUCTION, requestRetry }, { store, host, jobs: {}, logger: null });
}

// What a retry takes of the flow of its job.
const UNKNOWN = { finishWithin: null, keyConcurrency: 1, keyRate: null } as JobFlow;
