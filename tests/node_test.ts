import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { bundle, findObstacle } from "./node/bundle.ts";
import { findNode, type Node } from "./node/find_node.ts";
import { LEFT_OUT } from "./node/left_out.ts";
import { runTests } from "./node/run_tests.ts";
import { inTime } from "./processes/deadline.ts";
import { TextLineStream } from "./processes/text_line_stream.ts";
import { needs } from "./support/platform.ts";

const ROOT = new URL("../", import.meta.url);
const FOLDER = "tests/http";
const FEWEST_TESTS = 500;

const node = await findNode();
const obstacle = "reason" in node ? node.reason : await findObstacle();
if (obstacle !== null) console.log(`The tests in ${FOLDER} are not run on Node as well: ${obstacle}`);

Deno.test(`the tests in ${FOLDER} pass on Node as well`, { ignore: obstacle !== null }, async () => {
  const { version, path } = node as Node; // there is no obstacle
  const all = readdirSync(new URL(FOLDER, ROOT), { encoding: "utf8", recursive: true })
    .filter((name) => name.endsWith("_test.ts")).map((name) => `${FOLDER}/${name.replaceAll("\\", "/")}`).sort();
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

Deno.test("shutdownOnSignal() ends an http.Server of Node with open streams, and the process with code 0", {
  ignore: obstacle !== null || needs("signals").ignore,
}, async () => {
  const folder = await Deno.makeTempDir();
  try {
    const program = await bundle([new URL("tests/node/stopping_server.ts", ROOT)], folder);
    const child = new Deno.Command((node as Node).path, { args: [program], stdout: "piped", stderr: "inherit" })
      .spawn();
    const lines = child.stdout.pipeThrough(new TextLineStream()).getReader();
    const { value: url } = await inTime(lines.read(), "the server was to listen");
    const response = await fetch(`${url}/runs/subscribe`);

    child.kill("SIGTERM");
    const { code, signal } = await inTime(child.status, "the process was to end");

    assert.deepEqual([code, signal], [0, null]);
    assert.deepEqual(await lines.read(), { done: false, value: "stopped" });
    await response.text();
    await lines.cancel();
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
