import assert from "node:assert/strict";
import { findWrongOrder, type RunRow } from "./storm_checks.ts";

/** What is found wrong with the order in which two runs of a key began, of which `elder` was triggered first. */
function wrongOrder(...lines: string[]): string[] {
  const runs = ["elder", "younger"].map((id, seq) => ({ id, seq, key: "acme", status: "completed" }) as RunRow);
  const stored = { runs: new Map(runs.map((run) => [run.id, run])), steps: new Map() };
  return findWrongOrder(stored, lines.map((line) => line.split(" ")));
}

Deno.test("findWrongOrder() finds a run of a key that began before an elder one", () => {
  const inOrder = wrongOrder("begin elder 1", "end elder", "begin younger 1", "end younger");
  const wrong = wrongOrder("begin younger 1", "end younger", "begin elder 2", "end elder");

  assert.deepEqual(inOrder, []);
  assert.match(
    wrong[0]!,
    /^a run of "acme" began before an elder one: run 1 \(younger, completed\), in begin younger 1/,
  );
});

Deno.test("findWrongOrder() lets others pass a run that is claimed alone before it has begun", () => {
  const passed = wrongOrder("begin younger 1", "end younger", "begin elder 3", "end elder");
  const begunBefore = wrongOrder("begin younger 1", "begin elder 1", "begin elder 3", "end elder");

  assert.deepEqual(passed, []);
  assert.equal(begunBefore.length, 1);
});

Deno.test("findWrongOrder() finds a run that is executed after its end", () => {
  const found = wrongOrder("begin elder 1", "end elder", "begin elder 2");

  assert.equal(found.length, 1);
  assert.match(found[0]!, /elder is executed after its end/);
});
