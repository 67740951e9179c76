import assert from "node:assert/strict";
import { isNotLoaded, sourcesOf, testsOf } from "../tools/prove_fixes.ts";

Deno.test("testsOf() finds the tests of a fix, and executes a case of the contract on the stores", () => {
  const files = ["src/http/handler.ts", "tests/http/handler_test.ts", "tests/support/fixtures.ts"];
  assert.deepEqual(testsOf(files), ["tests/http/handler_test.ts"]);

  const contract = ["src/stores/postgres/sql/flow/rates.ts", "src/testing/contract/flow/rates.ts"];
  assert.deepEqual(testsOf(contract), [
    "tests/stores/memory/memory_store_test.ts",
    "tests/stores/sqlite/contract_test.ts",
    "tests/stores/postgres/postgres_store_test.ts",
  ]);
  for (const file of testsOf(contract)) assert.ok(Deno.statSync(file).isFile);
});

Deno.test("sourcesOf() takes no test and nothing that is built for the source of a fix", () => {
  const files = [
    "mod.ts",
    "src/engine/engine.ts",
    "src/testing/contract/flow/rates.ts",
    "src/ui/assets.ts",
    "docs/index.md",
  ];
  assert.deepEqual(sourcesOf(files), ["mod.ts", "src/engine/engine.ts"]);
});

Deno.test("isNotLoaded() tells a failed test from one that was never executed", () => {
  assert.equal(isNotLoaded("FAILED | 3 passed | 1 failed (2s)\n\nerror: Test failed"), false);
  assert.equal(isNotLoaded("./tests/a_test.ts (uncaught error)\n\nFAILED | 0 passed | 1 failed (2s)"), true);
  assert.equal(isNotLoaded('error: Module not found "file:///src/a.ts"'), true);
});
