import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import {
  counterpartsOf,
  hunksOf,
  isNotLoaded,
  mergeFindings,
  namesOfTests,
  sourcesOf,
  testsOf,
} from "../tools/prove_fixes.ts";

Deno.test("testsOf() finds the tests of a fix, and executes a case of the contract on the stores", () => {
  const files = ["src/http/handler.ts", "tests/http/handler_test.ts", "tests/support/fixtures.ts"];
  assert.deepEqual(testsOf(files), ["tests/http/handler_test.ts"]);

  const contract = ["src/stores/postgres/sql/flow/rates.ts", "src/testing/contract/flow/rates.ts"];
  assert.deepEqual(testsOf(contract), [
    "tests/stores/memory/memory_store_test.ts",
    "tests/stores/sqlite/contract_test.ts",
    "tests/stores/postgres/postgres_store_test.ts",
  ]);
  for (const file of testsOf(contract)) assert.ok(Deno.statSync(file).isFile);
});

Deno.test("sourcesOf() takes no test and nothing that is built for the source of a fix", () => {
  const files = [
    "mod.ts",
    "src/engine/engine.ts",
    "src/testing/contract/flow/rates.ts",
    "src/ui/assets.ts",
    "docs/index.md",
  ];
  assert.deepEqual(sourcesOf(files), ["mod.ts", "src/engine/engine.ts"]);
});

Deno.test("isNotLoaded() tells a failed test from one that was never executed", () => {
  assert.equal(isNotLoaded("FAILED | 3 passed | 1 failed (2s)\n\nerror: Test failed"), false);
  assert.equal(isNotLoaded("./tests/a_test.ts (uncaught error)\n\nFAILED | 0 passed | 1 failed (2s)"), true);
  assert.equal(isNotLoaded('error: Module not found "file:///src/a.ts"'), true);
});

Deno.test("counterpartsOf() finds where the tests of source files are", () => {
  assert.deepEqual(counterpartsOf(["src/http/handler.ts"]), ["tests/http/handler_test.ts"]);
  assert.deepEqual(counterpartsOf(["src/stores/memory/pauses.ts"]), [
    "tests/stores/memory/pauses_test.ts",
    "tests/stores/memory/memory_store_test.ts",
    "tests/stores/sqlite/contract_test.ts",
  ]);
});

Deno.test("namesOfTests() reads the names of added tests, and of no others", () => {
  const diff = [
    '+Deno.test("one \\"quoted\\" name", () => {',
    '+  timed("two", async ({ store }) => {',
    "+forEachStore(",
    '+  "three",',
    ' test("kept", () => {',
    '-test("removed", () => {',
    "+Deno.test(`of ${name}`, () => {",
  ].join("\n");

  assert.deepEqual(namesOfTests(diff), ['one "quoted" name', "two", "three"]);
});

Deno.test("hunksOf() makes a patch of each change of a file", () => {
  const head = "diff --git a/a.ts b/a.ts\n--- a/a.ts\n+++ b/a.ts\n";
  const [one, other] = ["@@ -1 +1 @@\n-a\n+b\n", "@@ -9 +9 @@ function c() {\n-d\n+e\n"];

  assert.deepEqual(hunksOf(`${head}${one}${other}`), [`${head}${one}`, `${head}${other}`]);
  assert.deepEqual(hunksOf(""), []);
});

Deno.test("mergeFindings() has each fix once, as it was found last", () => {
  const before = [{ commit: "a", proof: "not proved" }, { commit: "b", proof: "proved" }];

  const merged = mergeFindings(before, [{ commit: "a", proof: "proved" }]);

  assert.deepEqual(merged, [{ commit: "b", proof: "proved" }, { commit: "a", proof: "proved" }]);
});

Deno.test("prove_fixes says which fixes have a test that fails without them", async () => {
  const repository = await Deno.makeTempDir({ prefix: "holdfast_prove_fixes_" });
  try {
    const commit = async (subject: string, files: Record<string, string>) => {
      for (const [file, text] of Object.entries(files)) await Deno.writeTextFile(`${repository}/${file}`, text);
      await run("git", ["add", "."], repository);
      await run("git", ["commit", "--quiet", `--message=${subject}`], repository);
    };
    const test = (name: string, imported: string, value: string) =>
      `import { ${imported} } from "../src/sum.ts";\n` +
      `Deno.test("${name}", () => { if (${value}) throw new Error("a wrong sum"); });\n`;
    const sum = (text: string) => `export function sum(a: number, b: number): number {\n  return ${text};\n}\n`;
    await run("git", ["init", "--quiet"], repository);
    for (const folder of ["src", "tests"]) await Deno.mkdir(`${repository}/${folder}`);
    await commit("feat: sums", { "deno.json": "{}", "src/sum.ts": sum("a - b") });
    await commit("fix: proved", { "src/sum.ts": sum("a + b"), "tests/a_test.ts": test("a", "sum", "sum(1, 1) !== 2") });
    await commit("fix: not proved", { "src/sum.ts": sum("b + a"), "tests/b_test.ts": test("b", "sum", "sum(0, 0)") });
    await commit("fix: no test", { "src/sum.ts": sum("(b + a)") });
    await commit("fix: proved today", {
      "src/one.ts": "export const one = 1;\n",
      "tests/one_test.ts": test("one", "sum", "false"),
    });
    await commit("test: one", {
      "tests/one_test.ts": 'Deno.test("one", async () => { await import("../src/one.ts"); });\n',
    });
    await commit("fix(tests): no source", { "tests/c_test.ts": test("c", "sum", "sum(0, 0)") });
    const both = `${sum("Number(b) + Number(a)")}\nexport const sums = 1;\n`;
    await commit("fix: proved in part", {
      "src/sum.ts": both,
      "tests/d_test.ts": test("d", "sum, sums", 'sums + sum("1" as never, 1) !== 3'),
    });

    const tool = fileURLToPath(new URL("../tools/prove_fixes.ts", import.meta.url));
    const config = fileURLToPath(new URL("../deno.json", import.meta.url));
    const args = ["run", "-A", "--no-check", "--config", config, tool, "--json", "found.json"];
    const code = await run(Deno.execPath(), args, repository, [1]);

    assert.equal(code, 1, "There are fixes that are not proved");
    const findings = JSON.parse(await Deno.readTextFile(`${repository}/found.json`)) as Record<string, string>[];
    assert.deepEqual(findings.map(({ subject, proof }) => [subject, proof]), [
      ["fix: proved in part", "proved in part"],
      ["fix: proved today", "proved today"],
      ["fix: no test", "no test"],
      ["fix: not proved", "not proved"],
      ["fix: proved", "proved"],
    ]);
  } finally {
    await Deno.remove(repository, { recursive: true });
  }
});

/** Runs a program, and answers with which of the codes that are right it has ended. */
async function run(program: string, args: string[], cwd: string, codes = [0]): Promise<number> {
  const git = {
    GIT_AUTHOR_NAME: "a",
    GIT_AUTHOR_EMAIL: "a@b.c",
    GIT_COMMITTER_NAME: "a",
    GIT_COMMITTER_EMAIL: "a@b.c",
  };
  const { code, stderr } = await new Deno.Command(program, { args, cwd, env: git }).output();
  assert.ok(codes.includes(code), `${program} ${args[0]}: ${new TextDecoder().decode(stderr)}`);
  return code;
}
