import pg from "pg";
import type { Host } from "../../../src/model/host.ts";
import { postgresRows } from "../../support/stores/run_rows.ts";
import type { OpenSubject, Subject } from "../compare_histories.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { findFaultAgain } from "./postgres_faults.ts";
import type { Server } from "./server.ts";

let schemas = 0;

/** Makes stores of a server that can be compared with a `MemoryStore`. */
export function openSubject({ url }: Server): OpenSubject {
  return (host) => openSchema(url, { schema: newSchema(), host, idsMade: 0 });
}

/** The same, in which every other claim finds that it has read dead entries, and notes where the others begin. */
export function openSubjectWithDeadEntries({ url }: Server): OpenSubject {
  return async (host) => {
    const schema = newSchema();
    const subject = await openSchema(url, { schema, host, idsMade: 0 });
    await findDeadEntries(url, schema);
    return subject;
  };
}

/** Makes every other claim of a schema find dead entries. */
export async function findDeadEntries(url: string, schema: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`
    create sequence ${schema}.asked;
    create or replace function ${schema}.reads_dead_v1(p_live bigint) returns boolean
      language sql volatile as $$ select nextval('${schema}.asked') % 3 <> 0 $$;
    create or replace function ${schema}.may_note_starts_v1(p_queues text[], p_now bigint) returns boolean
      language sql as 'select true'`);
  await client.end();
}

/** The name of a schema that no other subject has. */
export function newSchema(): string {
  return `compared_${Deno.pid}_${++schemas}`;
}

/** Makes a store of a schema, which can be compared, too. It continues after so many ids. */
export async function openSchema(
  url: string,
  { schema, host, idsMade }: { schema: string; host: Host; idsMade: number },
): Promise<Subject> {
  const store = await PostgresStore.open(url, { schema, durability: "relaxed", host });
  await store.migrate();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(`
    create sequence ${schema}.copies_made minvalue 0 start ${idsMade};
    create or replace function ${schema}.new_id_v1(p_now bigint) returns text language sql volatile as
      $$ select 'copy-' || nextval('${schema}.copies_made') $$`);
  return {
    store,
    makeOld: async (workerId) => {
      await client.query(`update ${schema}.workers set seen_at = seen_at - 1000 where id = $1`, [workerId]);
    },
    findFault: () => findFaultAgain(client, schema),
    readRows: await postgresRows(client, schema),
    close: async () => {
      await store.close();
      await client.end();
    },
  };
}
