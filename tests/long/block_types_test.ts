import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CodeBlock, readPage, readPages, toPath, writeModules } from "../docs/pages.ts";

/** The errors that `deno check` finds in blocks. */
function typeErrors(checked: readonly CodeBlock[]): string {
  const folder = mkdtempSync(join(tmpdir(), "blocks-"));
  try {
    const modules = checked.map((block, n) => writeModules(join(folder, `${n}`), block));
    const { success, stderr } = new Deno.Command(Deno.execPath(), {
      args: ["check", "--quiet", "--config", toPath("deno.json"), "--frozen", ...modules],
      env: { NO_COLOR: "1" },
      stderr: "piped",
    }).outputSync();
    return success ? "" : new TextDecoder().decode(stderr);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

Deno.test("blocks that are not executed fit the types, with what the page takes as given", () => {
  const ignored = readPages().flatMap(({ path, blocks }) => blocks.map((block) => ({ path, ...block })))
    .filter(({ info }) => info === "ts ignore");

  const errors = typeErrors(ignored);

  assert.ok(ignored.length >= 5);
  assert.equal(errors, "", ignored.map((block, n) => `${n}: ${block.path}:${block.line}`).join("\n"));
});

Deno.test("a block that does not fit the types is found", () => {
  const { blocks } = readPage(
    "x.md",
    "<!-- Given:\ndeclare const count: number;\n-->\n\n```ts ignore\ncount.trim();\n```\n",
  );

  assert.match(typeErrors(blocks), /Property 'trim' does not exist on type 'number'/);
});
