import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { format } from "node:util";
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
  else {
    Deno.test(`${place} can be executed, and prints what its comments say`, async () => {
      const printed = plain(await printedBy(() => import(href)));

      for (const comment of commentsOfPrints(code)) assert.ok(isPrinted(comment, printed), `${comment}\n${printed}`);
    });
  }
}

Deno.test("there are blocks to execute", () => {
  assert.ok(blocks.length > 50, `${blocks.length}`);
});

async function printedBy(work: () => Promise<unknown>): Promise<string> {
  const lines: string[] = [];
  const { log } = console;
  console.log = (...values) => void lines.push(format(...values));
  try {
    await work();
  } finally {
    console.log = log;
  }
  return lines.join(", ");
}

/** What stands behind the `console.log(...);` that are outside of functions. */
function commentsOfPrints(code: string): string[] {
  return Array.from(code.matchAll(/^console\.log\(.*\); \/\/ (.+)$/gm), ([, comment]) => comment!);
}

/** Whether a comment was printed. It may leave out parts (`…`), and explain what is printed after a colon. */
function isPrinted(comment: string, printed: string): boolean {
  return [comment, comment.replace(/: .*$/, "")].some((text) => {
    const parts = plain(text).split(/…|\.\.\./).map((part) => RegExp.escape(part));
    return new RegExp(parts.join(".*")).test(printed);
  });
}

/** A text without what the runtimes write in different ways: quotes and white space. */
function plain(text: string): string {
  return text.replaceAll(/[\s'"]+/g, " ").trim();
}
