import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";

const ROOT = new URL("../", import.meta.url);
const CONTRACT = "src/testing/contract";
const read = (path: string) => readFileSync(new URL(path, ROOT), "utf8");
const filesIn = (folder: string, recursive = true) =>
  readdirSync(new URL(folder, ROOT), { encoding: "utf8", recursive }).map((path) => path.replaceAll("\\", "/"))
    .filter((path) => path.endsWith(".ts"));
const rows = read("tests/where_a_rule_lives.md").split("\n").filter((line) => /^\| .*`/.test(line))
  .map((line) => line.split("|").slice(1, -1).map((cell) => cell.trim()));
const namesIn = (cell: string) => [...cell.matchAll(/`([^`]+)`/g)].map(([, name]) => name!);

Deno.test("where_a_rule_lives.md has each file of cases once, and each rule that Store names", () => {
  const cases = rows.flatMap(([, cell]) => namesIn(cell!));
  const withCases = filesIn(CONTRACT).filter((path) => /^export const \w+Cases\b/m.test(read(`${CONTRACT}/${path}`)));
  const rules = [...read("src/store/store.ts").matchAll(/^ \* \*\*(\w[^*]*?)\.?\*\*/gm)].map(([, rule]) => rule!);
  const named = rows.flatMap(([rule]) => /^\*\*(.+?)\.?\*\*/.exec(rule!)?.[1] ?? []);

  assert.ok(withCases.length > 30 && rules.length > 10, `${withCases.length} files, ${rules.length} rules`);
  assert.deepEqual(cases.toSorted(), withCases.toSorted());
  assert.deepEqual(named, rules);
});

for (const [column, store] of [[2, "memory"], [3, "sqlite"], [4, "postgres"]] as const) {
  Deno.test(`where_a_rule_lives.md names only what exists in src/stores/${store}, or is shared by the stores`, () => {
    const own = filesIn(`src/stores/${store}`).map((path) => read(`src/stores/${store}/${path}`));
    const shared = filesIn("src/stores", false).map((path) => read(`src/stores/${path}`));
    const sources = [...own, ...shared].join("\n");
    const isDefined = (name: string) => new RegExp(`\\b(function\\*?|class|function fn\\.) ?${name}\\b`).test(sources);

    const names = rows.flatMap((cells) => namesIn(cells[column]!));

    assert.deepEqual(names.filter((name) => !isDefined(name)), []);
    assert.ok(rows.every((cells) => namesIn(cells[column]!).length > 0));
  });
}
