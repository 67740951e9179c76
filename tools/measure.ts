// deno task measure [revision]    counts what a reader of this tree meets; with a revision, what was there before, too

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** What is not written as code: the tests of stores, and what is made from other files. */
const NOT_COUNTED = /^src\/(testing\/contract\/|ui\/assets\.ts$|ui\/app\/|create\/templates)/;

/** The folders that nothing else in `src` needs to know: see tests/imports_test.ts. */
export const LEAVES =
  "ai cli client create http/mcp links node otel replay stores/copy stores/postgres testing ui webhooks".split(" ");

const IMPORT = /^(?:import|export)\b[^;]*?\bfrom\s+"[^"]+"|^import\s+"[^"]+"|\bimport\(\s*"[^"]+"\s*\)/gm;

/** The text of each file of a tree, by its path. */
export type Tree = ReadonlyMap<string, string>;

/** Counts a tree: each figure by what it is of. */
export function measure(tree: Tree): Map<string, number> {
  const source = [...tree].filter(([path]) => path.startsWith("src/") && path.endsWith(".ts"));
  const own = source.filter(([path]) => !NOT_COUNTED.test(path));
  const imports = own.flatMap(([, text]) => withoutComments(text).match(IMPORT) ?? []);
  return new Map([
    ["code lines of src, without contract suite, assets, templates", sum(own, countCode)],
    [
      "lines to hold in mind: src without the leaves",
      sum(own.filter(([path]) => !LEAVES.some((leaf) => path.startsWith(`src/${leaf}/`))), countLines),
    ],
    ["files in src", source.length],
    ["imports a file", Math.round(imports.length / own.length * 10) / 10],
    ...[...readJourneys(tree.get("docs/architecture.md") ?? "")].map(([title, files]) =>
      [`files entered: ${title}`, files.size] as const
    ),
  ]);
}

/** The lines of TypeScript that are neither blank nor comments. */
export function countCode(text: string): number {
  return withoutComments(text).split("\n").filter((line) => line.trim() !== "").length;
}

function countLines(text: string): number {
  return text.split("\n").length - 1;
}

/** Comments begin a line in this project, so what a string contains is not mistaken for one. */
function withoutComments(text: string): string {
  return text.replaceAll(/^\s*\/\*[^]*?\*\/|^\s*\/\/.*$/gm, "");
}

/** The files that each journey of `docs/architecture.md` names. */
export function readJourneys(page: string): Map<string, Set<string>> {
  const sections = page.split(/^## /m).filter((section) => /^From /.test(section));
  return new Map(sections.map((section) => {
    const named = [...section.matchAll(/`([\w/]+\.ts)`/g)].map(([, path]) => path!);
    // A file that was named before may be called by its name alone.
    const files = named.filter((path) => path.includes("/") || !named.some((other) => other.endsWith(`/${path}`)));
    return [section.split("\n", 1)[0]!, new Set(files)];
  }));
}

function sum(files: readonly (readonly [string, string])[], count: (text: string) => number): number {
  return files.reduce((total, [, text]) => total + count(text), 0);
}

/** Reads the files that are counted from a folder. */
function readTree(root: string): Tree {
  const page = "docs/architecture.md";
  const sources = readdirSync(join(root, "src"), { encoding: "utf8", recursive: true })
    .map((path) => `src/${path.replaceAll("\\", "/")}`).filter((path) => path.endsWith(".ts"));
  return new Map([page, ...sources].map((path) => [path, readFileSync(join(root, path), "utf8")]));
}

/** Reads a revision, unpacked into a folder for as long as that takes. */
async function readRevision(revision: string): Promise<Tree> {
  const folder = await Deno.makeTempDir();
  try {
    const archive = join(folder, "archive.tar");
    const git = ["-C", ROOT, "archive", "-o", archive, revision, "src", "docs/architecture.md"];
    for (const [command, args] of [["git", git], ["tar", ["-xf", archive, "-C", folder]]] as const) {
      const { success } = await new Deno.Command(command, { args: [...args], stdout: "inherit", stderr: "inherit" })
        .output();
      if (!success) throw new Error(`Cannot read the revision "${revision}": ${command} has failed`);
    }
    return readTree(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

if (import.meta.main) {
  const [revision] = Deno.args;
  const columns = [...revision === undefined ? [] : [measure(await readRevision(revision))], measure(readTree(ROOT))];
  console.log(
    `| what |${revision === undefined ? "" : ` ${revision} |`} this tree |\n|${" --- |".repeat(columns.length + 1)}`,
  );
  for (const what of new Set(columns.flatMap((column) => [...column.keys()]))) {
    console.log(`| ${what} |${columns.map((column) => ` ${column.get(what) ?? ""} |`).join("")}`);
  }
}
