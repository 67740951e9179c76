import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { findObstacle } from "./node/bundle.ts";
import { findNode, type Node } from "./node/find_node.ts";
import { LEFT_OUT } from "./node/left_out.ts";
import { runTests } from "./node/run_tests.ts";

const ROOT = new URL("../", import.meta.url);
const FOLDER = "tests/http";
const FEWEST_TESTS = 500;

const node = await findNode();
const obstacle = "reason" in node ? node.reason : await findObstacle();
if (obstacle !== null) console.log(`The tests in ${FOLDER} are not run on Node as well: ${obstacle}`);

Deno.test(`the tests in ${FOLDER} pass on Node as well`, { ignore: obstacle !== null }, async () => {
  const { version, path } = node as Node; // there is no obstacle
  const all = readdirSync(new URL(FOLDER, ROOT), { encoding: "utf8", recursive: true })
    .filter((name) => name.endsWith("_test.ts")).map((name) => `${FOLDER}/${name}`).sort();
  const files = all.filter((file) => !(file in LEFT_OUT));

  const { code, told, errors, counts } = await runTests({ version, path }, files.map((file) => new URL(file, ROOT)));

  console.log(`Node ${version} (${path}), ${files.length} files`);
  for (const file of all) if (file in LEFT_OUT) console.log(`﹣ ${file} # ${LEFT_OUT[file]}`);
  console.log(told);
  if (code !== 0) console.log(errors);
  assert.equal(code, 0, "Node does not pass: see above");
  const { tests = 0, pass = 0, skipped = 0 } = counts;
  assert.ok(pass >= FEWEST_TESTS, `${pass} tests passed`);
  assert.equal(pass + skipped, tests);
});
