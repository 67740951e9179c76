import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { posix } from "node:path";
import { isDocument, packedFiles, toPackedText } from "../../tools/packed_docs.ts";
import { anchorsOf, linksOf, readPage, toUrl } from "./pages.ts";

const files = packedFiles();
const packed = new Set(files);
const REPOSITORY = "owner/name";

const pages = files.filter(isDocument).map((path) =>
  readPage(path, toPackedText(path, readFileSync(toUrl(path), "utf8"), packed, REPOSITORY))
);
const byPath = new Map(pages.map((page) => [page.path, page]));

/** Why a link of a packed document leads nowhere; `null`: it leads somewhere in the package, or out of it. */
function brokenLink(from: string, target: string): string | null {
  const ofRepository = `https://github.com/${REPOSITORY}/`;
  if (target.startsWith(ofRepository)) {
    const file = target.slice(ofRepository.length).replace(/^(?:blob|raw)\/main\//, "").split("#")[0]!;
    try {
      Deno.statSync(toUrl(file));
      return null;
    } catch {
      return `the repository has no ${file}`;
    }
  }
  if (/^[a-z]+:/.test(target)) return null;
  const [path, anchor] = target.split("#") as [string, string | undefined];
  const file = path === "" ? from : posix.join(posix.dirname(from), path).replace(/\/$/, "");
  if (!packed.has(file) && !files.some((other) => other.startsWith(`${file}/`))) return `there is no ${file} in it`;
  if (anchor === undefined) return null;
  return byPath.has(file) && anchorsOf(byPath.get(file)!).includes(anchor) ? null : `${file} has no #${anchor}`;
}

Deno.test("the packages have the documents, llms.txt and the skill, and no images", () => {
  const documents = files.filter(isDocument);

  assert.ok(documents.length > 40, `${documents.length}`);
  for (const path of ["docs/for_assistants.md", "docs/index.md", "llms.txt", "skills/holdfast/SKILL.md"]) {
    assert.ok(packed.has(path), path);
  }
  assert.deepEqual(files.filter((path) => /\.(?:png|svg)$|^docs\/adr\//.test(path)), []);
});

Deno.test("each link of a packed document leads to a file of the package, or to one of the repository by its address", () => {
  const links = pages.flatMap((page) => linksOf(page).map((link) => ({ page, ...link })));

  const broken = links.flatMap(({ page, target, line }) => {
    const reason = brokenLink(page.path, target);
    return reason === null ? [] : [`${page.path}:${line} ${target}: ${reason}`];
  });

  assert.ok(links.length > 300, `${links.length} links`);
  assert.deepEqual(broken, []);
});

Deno.test("toPackedText() changes only links that lead out of the package, and no code", () => {
  const text = [
    "[in](b.md#x) [out](../examples/a.ts) `[code](../x.md)` [web](https://a.test) [here](#x) [folder](../src)",
    '<img src="images/a.png">',
    "```md",
    "[d](../examples/a.ts)",
    "```",
  ].join("\n");

  const result = toPackedText("docs/a.md", text, new Set(["docs/a.md", "docs/b.md", "src/mod.ts"]), REPOSITORY);

  assert.equal(
    result,
    [
      "[in](b.md#x) [out](https://github.com/owner/name/blob/main/examples/a.ts) `[code](../x.md)` [web](https://a.test) " +
      "[here](#x) [folder](../src)",
      '<img src="https://github.com/owner/name/raw/main/docs/images/a.png">',
      "```md",
      "[d](../examples/a.ts)",
      "```",
    ].join("\n"),
  );
});

const skill = readFileSync(toUrl("skills/holdfast/SKILL.md"), "utf8");

Deno.test("SKILL.md has a name, a description that says when to use it, and at most 200 lines", () => {
  const [, front] = /^---\n([^]*?)\n---\n/.exec(skill) ?? [];

  assert.match(front!, /^name: holdfast$/m);
  assert.match(front!, /^description: .*Use when code has `@holdfast\/jobs`/m);
  assert.ok(skill.split("\n").length <= 200, `${skill.split("\n").length} lines`);
});
