import assert from "node:assert/strict";
import { StoreError } from "../../src/model/error.ts";
import { StoreClosedError } from "../../src/model/store_closed_error.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";

Deno.test("a closed store throws a StoreClosedError, which users know as a StoreError", async () => {
  const store = await SqliteStore.open(":memory:");
  await store.migrate();
  await store.close();

  for (const call of [() => store.enqueue([]), () => store.readRuns(["none"], 1), () => store.backup("none.db")]) {
    await assert.rejects(call, (error) => {
      assert.ok(error instanceof StoreClosedError && error instanceof StoreError);
      assert.deepEqual([error.name, error.code, error.message], ["StoreError", "unavailable", "The store is closed"]);
      return true;
    });
  }
});
