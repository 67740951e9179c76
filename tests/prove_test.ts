import assert from "node:assert/strict";
import { describeProof, SAYS } from "../tools/prove.ts";
import { TALLIED } from "./torture/tally.ts";

Deno.test("describeProof() says how many promises were broken, what was counted, and how to repeat it", () => {
  const result = { name: "storm", broken: 2, counts: { "kills": 1_234 } };

  const told = describeProof("sqlite", result, "deno task prove --seed 5");

  assert.match(told, /^ +1,234 {2}kills$/m);
  assert.match(told, /^To repeat it: deno task prove --seed 5$/m);
  assert.ok(told.endsWith("\npromises broken: 2"), told);
});

Deno.test("prove names only what a storm on SQLite counts", () => {
  const tallied: readonly string[] = TALLIED;

  assert.deepEqual(SAYS.sqlite!.flatMap(([, names]) => names).filter((name) => !tallied.includes(name)), []);
});
