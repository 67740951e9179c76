import { DatabaseSync } from "node:sqlite";
import { systemHost } from "../../../src/model/host.ts";
import { copySqliteToPostgres } from "../../../src/stores/copy/copy_sqlite_to_postgres.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { findWrongCount } from "../../support/counts.ts";
import { findBrokenLine } from "../../support/lines.ts";
import { readSqliteRows } from "../../support/stores/run_rows.ts";
import type { OpenSubject } from "../compare_histories.ts";
import { newSchema, openSchema } from "../postgres/open_subject.ts";

/** Makes stores whose history begins in a SQLite file and continues in a copy of it on PostgreSQL. */
export function openMoving(url: string): OpenSubject {
  return async (host) => {
    const folder = await Deno.makeTempDir();
    const file = `${folder}/jobs.db`;
    let idsMade = 0;
    const store = await SqliteStore.open(file, { host: { ...host, newId: () => `copy-${idsMade++}` } });
    await store.migrate();
    const database = new DatabaseSync(file);
    const makeOld = database.prepare("UPDATE holdfast_workers SET seen_at = seen_at - 1000 WHERE id = ?");
    return {
      store,
      makeOld: (workerId) => void makeOld.run(workerId),
      findFault: () => findBrokenLine(database) ?? findWrongCount(database),
      readRows: () => readSqliteRows(database),
      close: () => store.close(),
      move: async () => {
        await store.close();
        database.close();
        const schema = newSchema();
        await copySqliteToPostgres(file, url, {
          schema,
          durability: "relaxed",
          host: { ...systemHost, now: host.now },
        });
        await Deno.remove(folder, { recursive: true });
        return await openSchema(url, { schema, host, idsMade });
      },
    };
  };
}
