import assert from "node:assert/strict";
import { toClientWait } from "../../src/model/wait.ts";

Deno.test("toClientWait() leaves out who signalled while nobody said so", () => {
  assert.deepEqual(toClientWait({ id: "w", signalledBy: null }), { id: "w" });
  assert.deepEqual(toClientWait({ id: "w", signalledBy: "ada" }), { id: "w", signalledBy: "ada" });
});
