import type { PGlite } from "@electric-sql/pglite";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";

const SCHEMA = "holdfast";
// Keeps the rows that a migration has made.
const FIRST_ROWS = "first_rows";

/** A PostgreSQL server that runs inside of this thread: its answers come before the next macrotask. */
export interface EmbeddedServer {
  client: PGlite;
  schema: string;
}

let server: Promise<EmbeddedServer> | null = null;

/**
 * Empties the tables of the server of this thread, which takes some seconds and 500 MB to start: so all simulations of a
 * thread share it, one after another.
 */
export async function emptyServer(): Promise<EmbeddedServer> {
  server ??= startServer();
  const { client } = await server;
  // What is random is the same in each simulation: when the journal is trimmed, and the ids of copies.
  await client.exec(`
    do $empty$ declare v_table text; begin
      for v_table in select tablename from pg_tables where schemaname = '${SCHEMA}' loop
        execute format('delete from ${SCHEMA}.%I', v_table); -- a truncation of so many indexes takes ten times as long
      end loop;
      for v_table in select tablename from pg_tables where schemaname = '${FIRST_ROWS}' loop
        execute format('insert into ${SCHEMA}.%I select * from ${FIRST_ROWS}.%I', v_table, v_table);
      end loop;
      for v_table in select sequencename from pg_sequences where schemaname = '${SCHEMA}' loop
        execute format('alter sequence ${SCHEMA}.%I restart', v_table);
      end loop;
    end $empty$;
    select setseed(0.5);`);
  return await server;
}

async function startServer(): Promise<EmbeddedServer> {
  const { PGlite } = await import("@electric-sql/pglite");
  const client = await PGlite.create({ relaxedDurability: true });
  await PostgresStore.from(client, { schema: SCHEMA, durability: "relaxed" }).migrate();
  await client.exec(`
    create schema ${FIRST_ROWS};
    do $keep$ declare v_table text; v_has_rows boolean; begin
      for v_table in select tablename from pg_tables where schemaname = '${SCHEMA}' loop
        execute format('select exists (select from ${SCHEMA}.%I)', v_table) into v_has_rows;
        if v_has_rows then execute format('create table ${FIRST_ROWS}.%I as table ${SCHEMA}.%I', v_table, v_table); end if;
      end loop;
    end $keep$;
    create sequence ${SCHEMA}.copies_made minvalue 0 start 0;
    create or replace function ${SCHEMA}.new_id_v1(p_now bigint) returns text language sql volatile as
      $$ select 'copy-' || nextval('${SCHEMA}.copies_made') $$`);
  return { client, schema: SCHEMA };
}
