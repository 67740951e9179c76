import { DatabaseSync } from "node:sqlite";
import { PGlite } from "@electric-sql/pglite";
import type { DataSource } from "../../src/model/data_source.ts";
import type { Store } from "../../src/store/store.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";

const embedded = await PGlite.create();
// It starts a timer that stays, which would be taken for a leak of the first test.
await PostgresStore.from(embedded, { schema: "first", durability: "relaxed" }).migrate();
let schemas = 0;

/** Opens a store with a data source that is joined with it. */
export const JOINED: [name: string, open: () => Promise<{ store: Store; source: DataSource; end(): Promise<void> }>][] =
  [
    ["SQLite", async () => {
      const database = new DatabaseSync(":memory:");
      const store = await SqliteStore.from(database as unknown as SqliteDriver);
      return {
        store,
        source: store.dataSource(),
        end: async () => {
          await store.close();
          database.close();
        },
      };
    }],
    ["PostgreSQL", async () => {
      const store = PostgresStore.from(embedded, { schema: `joined_${++schemas}`, durability: "relaxed" });
      await store.migrate();
      return { store, source: store.dataSource(), end: () => store.close() };
    }],
  ];
