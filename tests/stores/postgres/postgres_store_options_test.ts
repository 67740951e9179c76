import assert from "node:assert/strict";
import { checkDatabaseUrl } from "../../../src/stores/postgres/database/client.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import {
  checkStoreOptions,
  listenOf,
  type PostgresStoreOptions,
} from "../../../src/stores/postgres/postgres_store_options.ts";

const URL_OF_SERVER = "postgres://localhost/app";

/** Options that a caller without types may give. */
function given(options: object): PostgresStoreOptions {
  return options as PostgresStoreOptions;
}

Deno.test("checkStoreOptions() refuses options that are unknown or not valid, and names the call", () => {
  const refused: [object, RegExp][] = [
    [{ schemas: "app" }, /schemas/],
    [{ schema: "App" }, /schema/],
    [{ durability: "off" }, /^durability of PostgresStore.open\(\) must be "full" or "relaxed", not "off"$/],
    [{ listenUrl: 5 }, /^listenUrl of PostgresStore.open\(\) must be an address or null, not a number$/],
    [{ listen: "url" }, /^listen of PostgresStore.open\(\) must be a function, not a string$/],
  ];

  for (const [options, message] of refused) {
    const check = () => checkStoreOptions(given(options), "PostgresStore.open()");

    assert.throws(check, (error) => error instanceof TypeError && message.test(error.message), JSON.stringify(options));
  }
});

Deno.test("checkStoreOptions() takes options that are valid, and none", () => {
  const options: PostgresStoreOptions = { schema: "app_1", durability: "relaxed", listenUrl: null, listen: undefined };

  checkStoreOptions({}, "PostgresStore.open()");
  checkStoreOptions(options, "PostgresStore.open()");
});

Deno.test("listenOf() listens at the store's own address, at another one, by the given function, or not at all", () => {
  const stop = () => Promise.resolve();

  const listens = [
    listenOf({}, URL_OF_SERVER),
    listenOf({ listenUrl: URL_OF_SERVER }, null),
    listenOf({ listenUrl: null, listen: () => Promise.resolve(stop) }, null),
    listenOf({}, null),
    listenOf({ listenUrl: null }, URL_OF_SERVER),
  ];

  assert.deepEqual(listens.map((listen) => listen !== null), [true, true, true, false, false]);
});

for (const address of ["jobs.db", "./data/jobs.db", "mysql://localhost/jobs"]) {
  Deno.test(`PostgresStore.open() refuses ${address}, which is no address of PostgreSQL`, async () => {
    await assert.rejects(PostgresStore.open(address), {
      name: "TypeError",
      message: /is no address of PostgreSQL, .* a file is for SqliteStore\.open\(\)$/,
    });
  });
}

Deno.test("a database that cannot be reached is named with its host and user, and without the password", async () => {
  await using store = await PostgresStore.open("postgres://app:s3cret@127.0.0.1:1/jobs");

  const error = await store.migrate().then(() => assert.fail(), (error: Error) => error);

  assert.match(error.message, /\(database "jobs" on 127\.0\.0\.1:1 as "app"\)$/);
  assert.doesNotMatch(Deno.inspect(error), /s3cret/);
});

Deno.test("checkDatabaseUrl() says nothing of a user that nobody knows", async () => {
  const { defaults } = (await import("pg")).default;
  const { user } = defaults;
  const ofEnvironment = Deno.env.get("PGUSER");
  defaults.user = undefined;
  Deno.env.delete("PGUSER");
  try {
    assert.equal(await checkDatabaseUrl("postgres://db.internal/jobs"), 'database "jobs" on db.internal:5432');
  } finally {
    defaults.user = user;
    if (ofEnvironment !== undefined) Deno.env.set("PGUSER", ofEnvironment);
  }
});
