import assert from "node:assert/strict";
import { countCode, measure, readJourneys } from "../tools/measure.ts";

Deno.test("countCode() leaves out blank lines and comments, and keeps what only looks like one", () => {
  const code = `/**
 * A function.
 */
export function url(): string {
  // Why it is so.

  /* One
     more. */
  return "https://example.com"; // to the right of code
}
`;

  assert.equal(countCode(code), 3);
});

Deno.test("readJourneys() counts a file once that is named again without its folder", () => {
  const page = "# Architecture\n\n`src/a/other.ts`\n\n## From a trigger to a row\n\n1. `src/a/one.ts`\n" +
    "2. `one.ts` and `two.ts`\n\n## The documentation\n\n`src/a/three.ts`\n";

  assert.deepEqual([...readJourneys(page)], [["From a trigger to a row", new Set(["src/a/one.ts", "two.ts"])]]);
});

Deno.test("measure() tells what must be held in mind from the leaves, and leaves out what is not written as code", () => {
  const figures = [
    ...measure(
      new Map([
        ["src/model/run.ts", `import { a } from "./a.ts";\n\n// A comment.\nexport const run = a;\n`],
        [
          "src/stores/postgres/store.ts",
          `import { a } from "../../a.ts";\nexport const store = a;\nexport const b = a;\n`,
        ],
        ["src/ui/assets.ts", "export const assets = [];\n"],
        ["src/testing/contract/claims.ts", "export const claims = [];\n"],
      ]),
    ).values(),
  ];

  assert.deepEqual(figures, [5, 4, 4, 1]);
});
