import assert from "node:assert/strict";
import pg from "pg";
import { createEngine, defineJob } from "../../../../mod.ts";
import { copySqliteToPostgres } from "../../../../src/stores/copy/copy_sqlite_to_postgres.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { SqliteStore } from "../../../../src/stores/sqlite/sqlite_store.ts";
import { aRun } from "../../../support/fixtures.ts";
import { anything } from "../../../support/stores/for_each_store.ts";
import { startServer } from "../server.ts";

const server = startServer();
let databases = 0;

interface Place {
  /** The address of the database, for the owner of the tables. */
  url: string;
  /** Executes statements as the superuser. */
  ask(sql: string): Promise<Record<string, unknown>[]>;
}

/** A test in a database of its own. */
function test(name: string, body: (place: Place) => Promise<void>): void {
  Deno.test({
    name,
    ignore: server === null,
    async fn() {
      const database = `search_path_${Deno.pid}_${++databases}`;
      const admin = new pg.Client({ connectionString: server!.url }); // ignored without a server
      await admin.connect();
      await admin.query(`create database ${database}`);
      const url = new URL(server!.url);
      url.pathname = database;
      const client = new pg.Client({ connectionString: String(url) });
      await client.connect();
      try {
        await body({ url: String(url), ask: async (sql) => (await client.query(sql)).rows });
      } finally {
        await client.end();
        await admin.query(`drop database ${database} with (force)`);
        await admin.end();
      }
    },
  });
}

/** Polymorphic built-in functions, each with parameters for which another function would be preferred. */
const IMITATED = [
  "unnest(text[])",
  "unnest(bigint[])",
  "unnest(jsonb[])",
  "cardinality(text[])",
  "cardinality(bigint[])",
  "array_remove(text[], text)",
  "array_append(text[], text)",
  "array_cat(text[], text[])",
  "array_length(text[], integer)",
  "to_json(text)",
  "to_jsonb(text)",
  "to_jsonb(bigint)",
  "to_jsonb(numeric)",
  "json_build_object(text, text)",
  "jsonb_build_object(text, text)",
  "jsonb_build_object(text, bigint)",
  "hashtextextended(text, integer)",
  "pg_advisory_xact_lock(integer)",
];

/** Adds functions of a role that may create some in `public`: whoever calls one of them gets an error. */
async function plantFunctions({ ask }: Place): Promise<void> {
  await ask(`
    do $$ begin create role hostile; exception when duplicate_object then null; end $$;
    grant create on schema public to hostile;
    set role hostile;
    ${
    IMITATED.map((signature) => `
      create function public.${signature} returns text language plpgsql as
        $$ begin raise exception 'hostile code is executed with the rights of %', current_user; end $$;`).join("")
  }
    create function public.join_hostile(text[], text[]) returns text[] language plpgsql as
      $$ begin raise exception 'hostile code is executed with the rights of %', current_user; end $$;
    create operator public.|| (leftarg = text[], rightarg = text[], function = public.join_hostile);
    reset role`);
}

/** Executes two runs of each kind of step and pause. */
async function useEngine(store: PostgresStore): Promise<unknown[]> {
  const child = defineJob({
    name: "child",
    input: anything,
    run: (step, n: number) => step.run("double", () => 2 * n),
  });
  const parent = defineJob({
    name: "parent",
    input: anything,
    run: async (step, n: number) => {
      const doubled = await step.invoke("child", child, n);
      await step.sleep("nap", 1);
      const added = await step.wait("add");
      return doubled! + (added.outcome === "signal" ? Number(added.payload) : 0);
    },
  });
  const engine = createEngine({ store, jobs: { child, parent } });
  await engine.start();
  const plain = await engine.jobs.child.triggerAndWait(1);
  const keyed = await engine.jobs.parent.trigger(4, { concurrencyKey: "key", labels: { org: "acme" } });
  let waitId: string | undefined;
  while (waitId === undefined) waitId = (await engine.getWaits(keyed.id))[0]?.id;
  await engine.signal(waitId, { signalId: "s1", payload: 1 });
  const ended = await engine.waitForRun(keyed.id);
  const { total } = await engine.getRuns({ labels: { org: "acme" } });
  await store.purge({ completed: 0 }, 10);
  await engine.stop();
  return [plain.output, ended.output, total];
}

test("a store calls no function of a role that may create some in public", async (place) => {
  await plantFunctions(place);
  await using store = await PostgresStore.open(place.url, { durability: "relaxed" });
  await store.migrate();

  const results = await useEngine(store);

  assert.deepEqual(results, [2, 9, 2]);
  await assert.rejects(place.ask("select unnest(array['x'])"), /hostile code/); // those of others would be called
});

test("a copy from SQLite calls no function of a role that may create some in public", async (place) => {
  await plantFunctions(place);
  const folder = await Deno.makeTempDir();
  const file = `${folder}/jobs.db`;
  const source = await SqliteStore.open(file);
  await source.migrate();
  await source.enqueue([aRun({ labels: { org: "acme" } })]);
  await source.close();

  const { runs } = await copySqliteToPostgres(file, place.url, { durability: "relaxed" });

  assert.equal(runs.pending, 1);
  await Deno.remove(folder, { recursive: true });
});

test("each function that no other one calls looks up names among the built-in ones alone", async ({ url, ask }) => {
  await using store = await PostgresStore.open(url, { durability: "relaxed" });
  await store.migrate();
  const functions = await ask(
    `select proname as name, prosrc as body, proconfig as settings from pg_proc
     where pronamespace = 'holdfast'::regnamespace and prokind = 'f'`, // a procedure that commits can have no settings
  ) as { name: string; body: string; settings: string[] | null }[];

  const entries = functions.filter(({ name }) =>
    functions.every(({ name: caller, body }) => caller === name || !new RegExp(`\\b${name}\\(`).test(body))
  );
  const open = entries.filter(({ settings }) => settings?.includes("search_path=pg_catalog, pg_temp") !== true);

  assert(entries.length >= 40, String(entries.length));
  assert.deepEqual(open.map(({ name }) => name), []);
});
