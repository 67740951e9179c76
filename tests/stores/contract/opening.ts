import assert from "node:assert/strict";
import { add } from "./arrange.ts";
import { newCases } from "./case.ts";

const { cases, test } = newCases();

/** What a store promises of being opened and closed. */
export const openingCases = cases;

test("migrate() is harmless when there is nothing to do", async ({ store }) => {
  const { run } = await add(store);

  await store.migrate();

  assert.deepEqual(await store.getRun(run.id), run);
});

test("close() is harmless when the store is closed", async ({ store }) => {
  await store.close();

  await assert.doesNotReject(store.close());
});
