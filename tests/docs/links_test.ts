import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { posix } from "node:path";
import { anchorsOf, linksOf, readPage, readPages, toUrl } from "./pages.ts";

const pages = readPages();
const byPath = new Map(pages.map((page) => [page.path, page]));

/** Why a link of a page leads nowhere; `null`: it leads somewhere, or out of the project. */
function brokenLink(from: string, target: string): string | null {
  if (/^[a-z]+:/.test(target)) return null;
  const [path, anchor] = target.split("#") as [string, string | undefined];
  const file = path === "" ? from : posix.join(posix.dirname(from), path);
  if (!existsSync(toUrl(file))) return `there is no ${file}`;
  if (anchor === undefined) return null;
  const page = byPath.get(file);
  if (page === undefined) return `${file} is not among the pages that are read`;
  return anchorsOf(page).includes(anchor) ? null : `${file} has no heading for #${anchor}`;
}

Deno.test("each relative link and anchor of the documentation leads somewhere", () => {
  const links = pages.flatMap((page) => linksOf(page).map((link) => ({ page, ...link })));

  const broken = links.flatMap(({ page, target, line }) => {
    const reason = brokenLink(page.path, target);
    return reason === null ? [] : [`${page.path}:${line} ${target}: ${reason}`];
  });

  assert.ok(links.length > 100, `${links.length} links`);
  assert.deepEqual(broken, []);
});

Deno.test("a link to a missing file or heading is found", () => {
  const page = readPage(
    "docs/index.md",
    "[a](missing.md) [b](#missing) [c](../README.md#missing)\n\n```md\n[d](no.md)\n```\n",
  );

  const broken = linksOf(page).filter(({ target }) => brokenLink("docs/index.md", target) !== null);

  assert.deepEqual(broken.map(({ target }) => target), ["missing.md", "#missing", "../README.md#missing"]);
});

Deno.test("anchors are those of GitHub", () => {
  const page = readPage("x.md", "# What's `a` & b?\n\n## Same\n\n## Same\n\n## [Linked](a.md) – dash\n");

  assert.deepEqual(anchorsOf(page), ["whats-a--b", "same", "same-1", "linked--dash"]);
});
