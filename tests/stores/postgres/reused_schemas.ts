import type { Client } from "pg";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import type { PostgresStoreOptions } from "../../../src/stores/postgres/postgres_store_options.ts";

/**
 * Stores in schemas that no other store has meanwhile. A schema that was closed is emptied and used again: to make
 * tables and functions anew for each of a thousand stores takes longer with each schema that the catalog has.
 */
export class ReusedSchemas {
  readonly #url: string;
  readonly #free: string[] = [];
  #client: Promise<Client> | undefined;

  /** @param url The database of the schemas. */
  constructor(url: string) {
    this.#url = url;
  }

  /** Opens a store whose tables are made and empty. */
  async open(options: Omit<PostgresStoreOptions, "schema">): Promise<PostgresStore> {
    const schema = this.#free.pop() ?? await this.#make();
    const store = await PostgresStore.open(this.#url, { ...options, schema });
    const close = store.close.bind(store);
    let closing: Promise<void> | undefined;
    store.close = () => closing ??= close().then(() => this.#empty(schema));
    return store;
  }

  async #make(): Promise<string> {
    const schema = `test_${crypto.randomUUID().replaceAll("-", "")}`;
    await using store = await PostgresStore.open(this.#url, { schema, durability: "relaxed", listenUrl: null });
    await store.migrate();
    await this.#execute(keepFirstRows(schema));
    return schema;
  }

  async #empty(schema: string): Promise<void> {
    await this.#execute(`call ${schema}_first.restore()`);
    this.#free.push(schema);
  }

  async #execute(sql: string): Promise<void> {
    this.#client ??= this.#connect();
    const client = await this.#client;
    await client.query(sql);
  }

  /** A connection for all schemas: a new one would read the catalog of all their tables first. */
  async #connect(): Promise<Client> {
    const { default: pg } = await import("pg"); // tests that have no server run where there is none
    const client = new pg.Client({ connectionString: this.#url });
    const forget = () => this.#client = undefined;
    client.on("error", forget); // the server has ended
    await client.connect().catch((error) => {
      forget();
      throw error;
    });
    return client;
  }
}

/** Keeps the rows that the tables have at first, with a procedure that brings this state back. */
const keepFirstRows = (schema: string) => `
create schema ${schema}_first;
do $keep$
declare v_table text; v_sequence text; v_start bigint; v_restore text := '';
begin
  for v_table in select relname from pg_class where relnamespace = '${schema}'::regnamespace and relkind = 'r' loop
    execute format('create table ${schema}_first.%1$I as table ${schema}.%1$I', v_table);
    v_restore := v_restore || format('delete from ${schema}.%1$I;
      insert into ${schema}.%1$I overriding system value table ${schema}_first.%1$I;', v_table);
  end loop;
  for v_sequence, v_start in select relname, seqstart from pg_sequence join pg_class on pg_class.oid = seqrelid
    where relnamespace = '${schema}'::regnamespace loop
    v_restore := v_restore || format('perform setval(''${schema}.%I'', %s, false);', v_sequence, v_start);
  end loop;
  execute format('create procedure ${schema}_first.restore() language plpgsql as %L', 'begin ' || v_restore || 'end');
end $keep$`;
