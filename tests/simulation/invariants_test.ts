import assert from "node:assert/strict";
import { INVARIANTS } from "./invariants.ts";

Deno.test("tests/README.md has the code and the sentence of each invariant", async () => {
  const readme = await Deno.readTextFile(new URL("../README.md", import.meta.url));

  const rows = [...readme.matchAll(/^\| ([A-Z][\w-]*|error) +\| (.*?) +\|$/gm)].map(([, code, text]) => [code, text]);

  assert.deepEqual(rows, Object.entries(INVARIANTS));
});
