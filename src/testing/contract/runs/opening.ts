import assert from "node:assert/strict";
import { isoTime } from "../../../values/iso_time.ts";
import { add } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of being opened and closed. */
export const openingCases = cases;

timed("open() gives a store that tells the time of the host", async ({ store, host }) => {
  host.advance(1_234);

  const { run } = await add(store);

  assert.equal(run.createdAt, isoTime(host.now()), "open() has a parameter, but its store does not use the host");
});

test("migrate() is harmless when there is nothing to do", async ({ store }) => {
  const { run } = await add(store);

  await store.migrate();

  assert.deepEqual(await getRun(store, run.id), run);
});

test("close() is harmless when the store is closed", async ({ store }) => {
  await store.close();

  await assert.doesNotReject(store.close());
});
