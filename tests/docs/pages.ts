import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { githubSlug } from "../../site/github_slug.ts";

const ROOT = new URL("../../", import.meta.url);

/** A fenced code block of a page. */
export interface CodeBlock {
  /** The first line of its code, from 1. */
  line: number;
  /** What follows the fence, such as `ts ignore`. */
  info: string;
  /** Its code, without the indent of its fence. */
  code: string;
  /** The HTML comment right before it that begins with `Given:`, without these marks; `null`: there is none. */
  given: string | null;
}

/** A Markdown file of the project. */
export interface Page {
  /** Its path from the root of the project. */
  path: string;
  /** Its text. */
  text: string;
  /** Its lines outside of code blocks; a line of a block is empty. */
  prose: string[];
  /** Its code blocks. */
  blocks: CodeBlock[];
}

/** Reads what people read: the files at the top, and all of `docs/`. */
export function readPages(): Page[] {
  const inDocs = readdirSync(new URL("docs/", ROOT), { encoding: "utf8", recursive: true })
    .map((path) => `docs/${path.replaceAll("\\", "/")}`).filter((path) => path.endsWith(".md"));
  const others = ["README.md", "CHANGELOG.md", "llms.txt", "tests/README.md"].filter((path) => existsSync(toUrl(path)));
  return [...others, ...inDocs.sort()].map((path) => readPage(path, readFileSync(toUrl(path), "utf8")));
}

/** The URL of a file of the project. */
export function toUrl(path: string): URL {
  return new URL(path, ROOT);
}

/** The path of a file of the project in the file system. */
export function toPath(path: string): string {
  return fileURLToPath(toUrl(path));
}

const FENCE = /^(\s*)(```+)(.*)$/;

/** Splits a page into prose and code blocks. */
export function readPage(path: string, text: string): Page {
  const lines = text.split("\n");
  const prose: string[] = [];
  const blocks: CodeBlock[] = [];
  for (let i = 0; i < lines.length; i++) {
    const fence = FENCE.exec(lines[i]!);
    if (fence === null) {
      prose.push(lines[i]!);
      continue;
    }
    const [, indent, ticks, info] = fence as unknown as [string, string, string, string];
    const begin = i + 1;
    while (++i < lines.length && lines[i]!.trim() !== ticks);
    const code = lines.slice(begin, i).map((line) => line.startsWith(indent) ? line.slice(indent.length) : line);
    blocks.push({ line: begin + 1, info: info.trim(), code: code.join("\n") + "\n", given: givenBefore(prose) });
    for (let line = begin - 1; line <= i; line++) prose.push("");
  }
  return { path, text, prose, blocks };
}

/** The comment `<!-- Given: ... -->` at the end of what was read so far. */
function givenBefore(prose: readonly string[]): string | null {
  const end = prose.findLastIndex((line) => line.trim() !== "");
  if (!prose[end]?.trimEnd().endsWith("-->")) return null;
  const begin = prose.findLastIndex((line, at) => at <= end && line.trimStart().startsWith("<!--"));
  const comment = prose.slice(begin, end + 1).join("\n").trim().slice("<!--".length, -"-->".length).trim();
  return comment.startsWith("Given:") ? comment.slice("Given:".length).trim() : null;
}

/** Writes a block and what it takes as given as modules, in a folder of its own. Returns the path of the block. */
export function writeModules(folder: string, { given, code }: CodeBlock): string {
  const [own, ...files] = (given ?? "").split(/^\/\/ file (?=\.\/)/m);
  for (const file of files) {
    const path = join(folder, file.split("\n")[0]!);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, file.slice(file.indexOf("\n")));
  }
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "block.ts"), `${own}\n${code}\nexport {};\n`);
  return join(folder, "block.ts");
}

const LINK = /\]\(([^()\s]+)\)|\b(?:src|srcset|href)="([^"\s]+)"/g;
const CODE_SPAN = /`[^`]*`/g;

/** The targets of the links and images of a page, with their lines. */
export function linksOf(page: Page): { target: string; line: number }[] {
  return page.prose.flatMap((line, at) =>
    [...line.replaceAll(CODE_SPAN, "``").matchAll(LINK)].map(([, markdown, html]) => ({
      target: (markdown ?? html)!,
      line: at + 1,
    }))
  );
}

/** The anchors of the headings of a page. */
export function anchorsOf(page: Page): string[] {
  const seen = new Map<string, number>();
  return headingsOf(page).map((heading) => {
    const slug = githubSlug(heading);
    const before = seen.get(slug) ?? 0;
    seen.set(slug, before + 1);
    return before === 0 ? slug : `${slug}-${before}`;
  });
}

/** The headings of a page, without markup. */
export function headingsOf(page: Page, level = "#{1,6}"): string[] {
  const heading = new RegExp(`^${level} (.+)$`);
  return page.prose.flatMap((line) => {
    const text = heading.exec(line)?.[1];
    return text === undefined ? [] : [text.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll(/[`*]/g, "")];
  });
}
