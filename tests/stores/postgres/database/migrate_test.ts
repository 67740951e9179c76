import assert from "node:assert/strict";
import pg from "pg";
import { createEngine, defineJob } from "../../../../mod.ts";
import { StoreError } from "../../../../src/model/error.ts";
import { openPool } from "../../../../src/stores/postgres/database/client.ts";
import { migrateTables } from "../../../../src/stores/postgres/database/migrate.ts";
import { PostgresDatabase } from "../../../../src/stores/postgres/database/postgres_database.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { FUNCTIONS } from "../../../../src/stores/postgres/sql/functions.ts";
import { FakeHost } from "../../../support/fake_host.ts";
import { aClaimRequest, aRun } from "../../../support/fixtures.ts";
import { anything } from "../../../support/stores/for_each_store.ts";
import { startServer } from "../server.ts";
import { getRun } from "../../../../src/store/reads.ts";

const server = startServer();
let schemas = 0;

interface Place {
  /** The address of a database, for the owner of everything. */
  url: string;
  /** A schema that does not exist yet. */
  schema: string;
  /** Executes statements as the owner. */
  ask(sql: string): Promise<Record<string, unknown>[]>;
  /** Opens a store for a role: left out, for the owner. */
  open(role?: string): Promise<PostgresStore>;
}

function test(name: string, body: (place: Place) => Promise<void>): void {
  Deno.test({
    name,
    ignore: server === null,
    async fn() {
      const { url } = server!; // ignored without a server
      const schema = `migrated_${Deno.pid}_${++schemas}`;
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      const ask = async (sql: string) => (await client.query(sql)).rows;
      const open = (role?: string) => {
        const address = new URL(url);
        if (role !== undefined) address.username = role;
        return PostgresStore.open(address, { schema, durability: "relaxed" });
      };
      try {
        await body({ url, schema, ask, open });
      } finally {
        await client.end();
      }
    },
  });
}

function isStoreError(pattern: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof StoreError && pattern.test(error.message);
}

test("migrate() of eight stores at once makes the tables once, ten times", async ({ url, schema, ask }) => {
  for (let round = 0; round < 10; round++) {
    const place = { schema: `${schema}_${round}`, durability: "relaxed" } as const;
    const stores = await Promise.all(Array.from({ length: 8 }, () => PostgresStore.open(url, place)));

    await Promise.all(stores.map((store) => store.migrate()));

    assert.deepEqual(await ask(`select version from ${place.schema}.schema_version`), [{ version: 1 }]);
    await Promise.all(stores.map((store) => store.close()));
  }
});

test("migrate() refuses tables of a newer version", async ({ schema, ask, open }) => {
  await using store = await open();
  await store.migrate();
  await ask(`update ${schema}.schema_version set version = 99`);

  await assert.rejects(store.migrate(), isStoreError(/tables of version 99/));
});

test("a running process reports once a minute that a newer version has changed the tables, and goes on", async ({ url, schema, ask }) => {
  const host = new FakeHost();
  await using store = await PostgresStore.open(url, { schema, durability: "relaxed", host });
  await store.migrate();
  await store.enqueue([aRun()]);
  await ask(`update ${schema}.schema_version set version = 2`);
  host.advance(60_000);

  await assert.rejects(store.claim(aClaimRequest()), isStoreError(/tables of version 2/));

  assert.equal((await store.claim(aClaimRequest())).claims.length, 1);
  host.advance(59_999);
  await store.claim(aClaimRequest());
  host.advance(1);
  await assert.rejects(store.claim(aClaimRequest()), isStoreError(/tables of version 2/));
});

test("a call says that a newer version has dropped the functions of its version", async ({ schema, ask, open }) => {
  await using store = await open();
  await store.migrate();
  await ask(`drop function ${schema}.apply_v1; drop function ${schema}.read_runs_v1;
    update ${schema}.schema_version set version = 3`);

  await assert.rejects(getRun(store, "any"), isStoreError(/tables of version 3/));
  await assert.rejects(store.enqueue([aRun()]), isStoreError(/tables of version 3/));
});

/** What docs/guides/postgres.md says of the role of a service. */
async function makeRole({ schema, ask }: Place): Promise<string> {
  const role = `service_of_${schema}`;
  await ask(`
    create role ${role} login;
    grant usage on schema ${schema} to ${role};
    grant select, insert, update, delete on all tables in schema ${schema} to ${role};
    grant usage on all sequences in schema ${schema} to ${role};
    grant execute on all functions in schema ${schema} to ${role}`);
  return role;
}

test("an engine runs as a role that may not create anything, after an owner has migrated", async (place) => {
  await using owner = await place.open();
  await owner.migrate();
  await using store = await place.open(await makeRole(place));
  const child = defineJob({
    name: "child",
    input: anything,
    run: (step, n: number) => step.run("double", () => 2 * n),
  });
  const parent = defineJob({
    name: "parent",
    input: anything,
    run: async (step, n: number) => {
      step.log.info("hello");
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
  await engine.pauseJob("child");
  await engine.resumeJob("child");
  await engine.jobs.child.trigger(1, { delay: 3_600_000 }).then(({ id }) => engine.cancel(id));
  await store.purge({ completed: 0 }, 10);
  const { total } = await engine.getRuns({ limit: 0 });
  await engine.stop();

  assert.deepEqual([plain.output, ended.output, total], [2, 9, 1]);
});

test("nobody but the owner may call the functions, unless it is granted", async (place) => {
  const { schema, ask } = place;
  await using owner = await place.open();
  await owner.migrate();

  const rows = await ask(`select p.proname from pg_proc p where p.pronamespace = '${schema}'::regnamespace
    and has_function_privilege('public', p.oid, 'execute')`);

  assert.deepEqual(rows, []);
});

test("migrate() by a role without rights says what to do", async (place) => {
  const { schema, ask } = place;
  await ask(`create role nobody_of_${schema} login`);
  await using store = await place.open(`nobody_of_${schema}`);

  await assert.rejects(
    store.migrate(),
    isStoreError(/has not the rights.*permission denied for database.*docs\/guides\/postgres.md/),
  );
  await using owner = await place.open();
  await owner.migrate();
  await assert.rejects(store.migrate(), isStoreError(/has not the rights.*permission denied for schema/));
});

/** Migrates as a package does whose functions have another text: each of them begins with a comment. */
async function migrateAs(packageVersion: string, comment: string, { url, schema }: Place): Promise<void> {
  const database = new PostgresDatabase(await openPool(url), schema, () => null);
  try {
    const sql = FUNCTIONS.replaceAll(" as $$\n", () => ` as $$ -- ${comment}\n`);
    await migrateTables(database, "relaxed", { sql, packageVersion });
  } finally {
    await database.close();
  }
}

/** All rows of the catalog that describe the functions, with the transactions that have written them. */
function readFunctions({ schema, ask }: Place): Promise<Record<string, unknown>[]> {
  return ask(`select p.oid, p.xmin, p.prosrc, p.proacl::text from pg_proc p
    where p.pronamespace = '${schema}'::regnamespace order by p.oid`);
}

/** The comment that all functions have; `null`: none of them has one. */
async function readComment(place: Place): Promise<string | null> {
  const functions = await readFunctions(place);
  const comments = new Set(functions.map(({ prosrc }) => /^ -- (.*)\n/.exec(String(prosrc))?.[1] ?? null));
  assert.ok(functions.length > 100 && comments.size === 1, [...comments].join());
  return [...comments][0]!; // it has one element
}

test("migrate() writes nothing if the functions are those of this package", async (place) => {
  await using store = await place.open();
  await store.migrate();
  const before = await readFunctions(place);
  const [version] = await place.ask(`select xmin, * from ${place.schema}.schema_version`);

  await store.migrate();
  await using other = await place.open();
  await other.migrate();

  assert.deepEqual(await readFunctions(place), before);
  assert.deepEqual(await place.ask(`select xmin, * from ${place.schema}.schema_version`), [version]);
});

test("migrate() replaces functions with another text, and who may call them stays", async (place) => {
  await using store = await place.open();
  await migrateAs("0.0.9", "of the past", place);
  await makeRole(place);
  const before = await readFunctions(place);
  assert.equal(await readComment(place), "of the past");

  await store.migrate();

  assert.equal(await readComment(place), null);
  const rights = (functions: Record<string, unknown>[]) => functions.map(({ oid, proacl }) => [oid, proacl]);
  assert.deepEqual(rights(await readFunctions(place)), rights(before));
});

test("migrate() of an older package leaves the functions of a newer one, and that of the same version replaces them", async (place) => {
  const migrations = [
    ["1.10.0-rc.1", "1.10.0-rc.1"],
    ["1.10.0", "1.10.0"],
    ["1.9.12", "1.10.0"],
    ["1.10.0-rc.2", "1.10.0"],
    ["1.10.1", "1.10.1"],
    ["1.10.0", "1.10.1"],
    ["2.0.0", "2.0.0"],
  ] as const;

  for (const [version, expected] of migrations) {
    await migrateAs(version, `of ${version}`, place);
    assert.equal(await readComment(place), `of ${expected}`);
  }
  await migrateAs("2.0.0", "changed", place);

  assert.equal(await readComment(place), "changed");
});

test("an engine starts on the functions of a newer package, also with a role that may not create anything", async (place) => {
  await migrateAs("99.0.0", "of the future", place);
  await using store = await place.open(await makeRole(place));
  const job = defineJob({ name: "double", input: anything, run: (step, n: number) => step.run("double", () => 2 * n) });
  const engine = createEngine({ store, jobs: { job } });
  await engine.start();

  const { output } = await engine.jobs.job.triggerAndWait(1);
  await engine.stop();

  assert.equal(output, 2);
  assert.equal(await readComment(place), "of the future");
});

test("migrate() by a role that may not replace older functions says what to do", async (place) => {
  await migrateAs("0.0.9", "of the past", place);
  await using store = await place.open(await makeRole(place));

  await assert.rejects(store.migrate(), isStoreError(/has not the rights.*docs\/guides\/postgres.md/));
});

/** A store that notes the calls that fail. */
function noteFailures(store: PostgresStore, errors: unknown[]): PostgresStore {
  return new Proxy(store, {
    get(target, name) {
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      return (...parameters: unknown[]) => {
        const answer = value.apply(target, parameters);
        if (answer instanceof Promise) answer.catch((error) => errors.push(error));
        return answer;
      };
    },
  });
}

test("no call fails while another process replaces the functions, over and over", async (place) => {
  await migrateAs("0.0.1", "first", place);
  await using store = await place.open();
  const errors: unknown[] = [];
  const leaf = defineJob({ name: "leaf", input: anything, run: (step, n: number) => step.run("double", () => 2 * n) });
  const root = defineJob({
    name: "root",
    input: anything,
    run: async (step, n: number) => {
      const doubled = await step.run("double", () => 2 * n);
      await step.sleep("nap", 1);
      return doubled! + (await step.invoke("leaf", leaf, n))!;
    },
  });
  const engine = createEngine({ store: noteFailures(store, errors), jobs: { leaf, root } });
  engine.on("worker:error", (event) => void errors.push(event));
  await engine.start();
  let done = 0;
  const runs = Promise.all(Array.from({ length: 80 }, async (_, n) => {
    const keys = {
      concurrencyKey: n % 3 === 0 ? `key ${n % 5}` : undefined,
      idempotencyKey: n % 2 === 0 ? `${n}` : undefined,
    };
    const { output } = await engine.jobs.root.triggerAndWait(n, keys);
    assert.equal(output, 4 * n);
    done++;
  }));
  let replaced = 0;
  while (done < 80) await migrateAs(`1.0.${++replaced}`, `no. ${replaced}`, place);
  await runs;
  await engine.stop();

  assert.deepEqual(errors, []);
  assert.ok(replaced > 3);
});
