import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { type Server, startServer } from "./server.ts";

const TITLE = "plpgsql_check finds nothing in the functions of PostgresStore";

interface Finding {
  name: string;
  line: number | null;
  message: string;
  detail: string | null;
}

const server = startServer();
if (server === null || !await hasCheck(server)) Deno.test.ignore(TITLE, () => {});
else {
  Deno.test(TITLE, async () => {
    const schema = "checked";
    await using store = await PostgresStore.open(server.url, { schema, durability: "relaxed", listenUrl: null });
    await store.migrate();

    const findings = await ask<Finding>(
      server,
      "create extension if not exists plpgsql_check schema public",
      // Of performance it finds casts between numbers.
      `select p.proname as name, c.lineno as line, c.message, c.detail
       from pg_catalog.pg_proc p join pg_catalog.pg_language l on l.oid = p.prolang
       cross join lateral public.plpgsql_check_function_tb(p.oid, performance_warnings => false, extra_warnings => true,
         security_warnings => true) c
       where p.pronamespace = '${schema}'::regnamespace and l.lanname = 'plpgsql' order by 1, 2, 3`,
    );

    assert.deepEqual(findings.filter(isMeant), []);
  });
}

/** Whether a finding is none of those that all of these functions have. */
function isMeant({ message, detail }: Finding): boolean {
  // Each function that the store calls takes the same parameters.
  if (message === 'unused parameter "p_now"' || message === 'unused parameter "p"') return false;
  // A literal such as '[]' is text until it is assigned.
  return !/^cast "text" value to "(jsonb|[\w.]+\[\])" type$/.test(detail ?? "");
}

/** Whether a server has plpgsql_check. Where it is required and missing, it throws. */
async function hasCheck(server: Server): Promise<boolean> {
  const found = await ask(server, "select name from pg_available_extensions where name = 'plpgsql_check'");
  if (found.length > 0) return true;
  const reason = "the server has no plpgsql_check: install its package, such as postgresql-15-plpgsql-check";
  if (Deno.env.get("HOLDFAST_POSTGRES") === "required") throw new Error(`HOLDFAST_POSTGRES=required, but ${reason}`);
  console.warn(`The functions of PostgresStore are not checked: ${reason}`);
  return false;
}

/** Executes statements, and returns the rows of the last one. */
async function ask<T extends pg.QueryResultRow>({ url }: Server, ...statements: string[]): Promise<T[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    let rows: T[] = [];
    for (const statement of statements) ({ rows } = await client.query<T>(statement));
    return rows;
  } finally {
    await client.end();
  }
}
