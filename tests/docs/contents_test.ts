import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { drawImages } from "../../site/draw_images.ts";
import { readContents } from "../../site/contents.ts";
import { headingsOf, readPages, toUrl } from "./pages.ts";

/** The list itself, and the first page of the site. */
const NOT_LISTED = ["docs/index.md", "docs/home.md"];

const contents = readContents(readFileSync(toUrl("docs/index.md"), "utf8")).flatMap(({ pages }) => pages);

Deno.test("the table of contents has each page of docs/ once, and no other", () => {
  const listed = contents.map(({ path }) => `docs/${path}`).sort();
  const written = readPages().map(({ path }) => path)
    .filter((path) => path.startsWith("docs/") && !path.startsWith("docs/adr/") && !NOT_LISTED.includes(path));

  assert.deepEqual(listed, written.sort());
});

/** Pages that are about no use of the project, in which nothing can go wrong. */
const EXEMPT = ["docs/architecture.md", "docs/glossary.md", "docs/home.md"];

Deno.test("each page ends with what to do when it goes wrong", () => {
  const pages = readPages().filter(({ path }) =>
    path.startsWith("docs/") && !path.startsWith("docs/adr/") && !EXEMPT.includes(path)
  );

  const others = pages.filter((page) => headingsOf(page, "##").at(-1) !== "When it goes wrong");

  assert.ok(pages.length > 30);
  assert.deepEqual(others.map(({ path }) => path), []);
});

Deno.test("the README has less than 180 lines", () => {
  assert.ok(readFileSync(toUrl("README.md"), "utf8").split("\n").length < 180);
});

Deno.test("no code span goes over the end of a line, where the formatter would break it", () => {
  const broken = readPages().filter(({ path }) => !path.startsWith("docs/adr/")).flatMap(({ path, prose }) =>
    prose.flatMap((line, at) => (line.match(/`/g)?.length ?? 0) % 2 === 0 ? [] : [`${path}:${at + 1} ${line}`])
  );

  assert.deepEqual(broken, []);
});

Deno.test("the pictures are those that site/draw_images.ts draws", () => {
  for (const [name, image] of Object.entries(drawImages())) {
    assert.equal(readFileSync(toUrl(`docs/images/${name}`), "utf8"), image, name);
  }
});
