import { createEngine } from "../../engine/create_engine.ts";
import { StoreError } from "../../error.ts";
import { createHandler } from "../../http/handler.ts";
import type { Store } from "../../store.ts";
import type { Database } from "./database.ts";
import { engineOfStoredRuns } from "./engine_of_stored_runs.ts";
import { retryStoredRuns } from "./retrigger_stored_runs.ts";
import type { Service } from "./service.ts";

/**
 * Answers the routes over a store whose tables exist, by an engine without jobs: it executes nothing. It never migrates
 * the store.
 */
export function databaseService(kind: "sqlite" | "postgres", store: Store, database: Database): Service {
  const idle = createEngine({ store: withoutMigration(store), jobs: {}, logger: null });
  const engine = engineOfStoredRuns(idle, retryStoredRuns(store));
  let hidden: unknown = null;
  const handler = createHandler(engine, {
    showFailures: true,
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
      await store.close();
    },
  };
}

function withoutMigration(store: Store): Store {
  return Object.assign(store, { migrate: () => Promise.resolve() });
}
