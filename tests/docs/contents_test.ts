import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readContents } from "../../site/contents.ts";
import { readPages, toUrl } from "./pages.ts";

const contents = readContents(readFileSync(toUrl("docs/index.md"), "utf8")).flatMap(({ pages }) => pages);

Deno.test("the table of contents has each page of docs/ once, and no other", () => {
  const listed = contents.map(({ path }) => `docs/${path}`).sort();
  const written = readPages().map(({ path }) => path)
    .filter((path) => path.startsWith("docs/") && !path.startsWith("docs/adr/") && path !== "docs/index.md");

  assert.deepEqual(listed, written.sort());
});
