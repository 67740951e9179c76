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

Deno.test("the test kit passes its own tests on Node as well", { ignore: obstacle !== null }, async () => {
  const { version, path } = node as Node; // there is no obstacle
  const files = [
    "tests/testing/test_engine_test.ts",
    "tests/testing/crashes/crash_at_every_checkpoint_test.ts",
    "examples/testing_test.ts",
  ];

  const { code, told, errors, counts } = await runTests({ version, path }, files.map((file) => new URL(file, ROOT)));

  if (code !== 0) console.log(told, errors);
  assert.equal(code, 0, "Node does not pass: see above");
  assert.ok((counts.pass ?? 0) >= 35, `${counts.pass} tests passed`);
  assert.equal(counts.pass, counts.tests);
});

const ANY_RUNNER = new URL("tests/testing/any_runner_test.ts", ROOT);

Deno.test("the test kit and the contract of stores work with node:test", { ignore: obstacle !== null }, async () => {
  const folder = await Deno.makeTempDir();
  try {
    const { code, lines } = await runOnNode("--test-reporter=spec", await bundle([ANY_RUNNER], folder));

    const [, passed] = /^ℹ pass (\d+)$/m.exec(lines) ?? [];
    assert.equal(code, 0, lines);
    assert.ok(Number(passed) > 1_300, `${passed} tests passed`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

const vitest = obstacle === null ? await installVitest() : null;

Deno.test("the test kit and the contract of stores work with vitest", { ignore: vitest === null }, async () => {
  await Deno.rename(await bundle([ANY_RUNNER], vitest!), `${vitest}/kit.test.mjs`); // ignored without vitest
  try {
    const { code, lines } = await runOnNode("node_modules/vitest/vitest.mjs", "run", "--globals", `--root=${vitest}`);

    const [, passed] = /Tests +(\d+) passed/.exec(lines) ?? [];
    assert.equal(code, 0, lines);
    assert.ok(Number(passed) > 1_300, `${passed} tests passed`);
  } finally {
    await Deno.remove(vitest!, { recursive: true });
  }
});

/** Runs Node, in the folder of vitest if there is one. */
async function runOnNode(...args: string[]): Promise<{ code: number; lines: string }> {
  const { code, stdout, stderr } = await new Deno.Command((node as Node).path, {
    args,
    cwd: vitest ?? ".",
    env: { NODE_OPTIONS: "", NO_COLOR: "1", FORCE_COLOR: "0" },
    signal: AbortSignal.timeout(300_000),
  }).output();
  const decoder = new TextDecoder();
  return { code, lines: decoder.decode(stdout) + decoder.decode(stderr) };
}

/** Installs vitest in a folder of its own; `null` where npm cannot. */
async function installVitest(): Promise<string | null> {
  const folder = await Deno.makeTempDir();
  try {
    const args = ["install", "--silent", "--no-audit", "--no-fund", "vitest@^3.2.4"];
    const { success, stderr } = await new Deno.Command("npm", { args, cwd: folder }).output();
    if (success) return folder;
    throw new Error(new TextDecoder().decode(stderr));
  } catch (error) {
    console.log(`The test kit is not tested with vitest: ${(error as Error).message}`);
    await Deno.remove(folder, { recursive: true });
    return null;
  }
}

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
