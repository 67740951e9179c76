import assert from "node:assert/strict";
import { isLeased, isTerminal, RUN_STATUSES } from "../../src/model/run.ts";

Deno.test("isTerminal() and isLeased() tell the statuses apart", () => {
  assert.deepEqual(RUN_STATUSES.filter(isTerminal), ["completed", "failed", "cancelled"]);
  assert.deepEqual(RUN_STATUSES.filter(isLeased), ["leased", "running"]);
});
