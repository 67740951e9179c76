import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";

/** A row of a table of two columns: code with paths, of source files and of their tests. */
const ROW = /^\| (`.*`) +\| (.*`.*`) +\|$/gm;
const CODE = /`([^`]+\.ts|[^`]+\*\*)`/g;

const sources = filesIn("src");
const tests = filesIn("tests");
const rows = readRows();

/** The TypeScript files of a folder of the project, relative to the folder. */
function filesIn(folder: string): string[] {
  return readdirSync(new URL(`../${folder}`, import.meta.url), { encoding: "utf8", recursive: true })
    .map((path) => path.replaceAll("\\", "/")).filter((path) => path.endsWith(".ts"));
}

/** The table of `README.md`: which tests belong to files that have none of their own. */
function readRows(): { ofSource: string[]; ofTests: string[] }[] {
  const [, section] = readFileSync(new URL("README.md", import.meta.url), "utf8").split(
    "## Where the test of a file is",
  );
  const pathsIn = (cell: string) => [...cell.matchAll(CODE)].map(([, path]) => path!);
  return [...section!.split("\n## ")[0]!.matchAll(ROW)]
    .map(([, left, right]) => ({ ofSource: pathsIn(left!), ofTests: pathsIn(right!) }))
    .filter(({ ofSource }) => ofSource.length > 0);
}

/** Whether a path fits a pattern: `*` is anything within a folder, `**` also what is in folders below. */
function fits(path: string, pattern: string): boolean {
  const source = pattern.replaceAll(".", "\\.").replaceAll("**", "\0").replaceAll("*", "[^/]*").replaceAll("\0", ".*");
  return new RegExp(`^${source}$`).test(path);
}

Deno.test("each file of src/ has a test file of its name, or README.md says where its tests are", () => {
  const patterns = rows.flatMap(({ ofSource }) => ofSource);

  const missing = sources.filter((source) =>
    !tests.includes(source.replace(/\.ts$/, "_test.ts")) && !patterns.some((pattern) => fits(source, pattern))
  );

  assert.ok(rows.length > 10);
  assert.deepEqual(missing, []);
});

Deno.test("README.md names only files that exist", () => {
  const ofSource = rows.flatMap((row) => row.ofSource).filter((path) => !sources.some((file) => fits(file, path)));
  const ofTests = rows.flatMap((row) => row.ofTests).filter((path) => !tests.some((file) => fits(file, path)));

  assert.deepEqual({ ofSource, ofTests }, { ofSource: [], ofTests: [] });
});
