import assert from "node:assert/strict";
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
