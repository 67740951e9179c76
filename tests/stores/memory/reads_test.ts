import assert from "node:assert/strict";
import { listRuns } from "../../../src/stores/memory/reads.ts";
import { newKeptRun } from "../../../src/stores/memory/records.ts";
import { MemoryRuns } from "../../../src/stores/memory/runs.ts";
import { aRun } from "../../../src/testing/contract/fixtures.ts";

Deno.test("listRuns() copies the list of all runs once, however many runs it passes over", () => {
  const kept = Array.from({ length: 50 }, (_, index) => newKeptRun(aRun(), index + 1, 0));
  let copies = 0;
  const runs = Object.defineProperty(new MemoryRuns(crypto.randomUUID), "all", {
    get() {
      copies += 1;
      return [...kept];
    },
  });

  const pages = [
    listRuns(runs, { status: ["completed"] }, () => 0),
    listRuns(runs, { limit: 1, countUpTo: 0 }, () => 0),
  ];

  assert.deepEqual(pages.map(({ total, hasMore }) => [total, hasMore]), [[0, false], [1, true]]);
  assert.equal(copies, pages.length);
});
