import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { readPages } from "./pages.ts";

// `deno test --doc` would execute them, too, each in a worker of its own that loads all modules again.
const blocks = readPages().flatMap(({ path, blocks }) =>
  blocks.filter(({ info }) => info === "ts").map(({ line, code }) => ({ place: `${path}:${line}`, code }))
);

const folder = mkdtempSync(join(tmpdir(), "executed-"));
globalThis.addEventListener("unload", () => rmSync(folder, { recursive: true }));

for (const { place, code } of blocks) {
  const file = join(folder, `${place.replaceAll(/[/:]/g, "_")}.ts`);
  writeFileSync(file, `${code}\nexport {};\n`);
  const { href } = pathToFileURL(file);
  // Tests inside of a test are not allowed.
  if (/\bDeno\.test\(/.test(code)) await import(href);
  else Deno.test(`${place} can be executed`, async () => void await import(href));
}

Deno.test("there are blocks to execute", () => {
  assert.ok(blocks.length > 50, `${blocks.length}`);
});
