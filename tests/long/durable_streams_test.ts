import assert from "node:assert/strict";
import { serveAdapter } from "../durable_streams/adapter.ts";

const PACKAGES = ["@durable-streams/server-conformance-tests@0.3.6", "@durable-streams/client@0.2.7"];
// Those of forks, expiry, producers and subscriptions concern what a writer over HTTP can do.
const OWN = "^(?!.*(Fork|TTL|Idempotent Producer|subscription))";

/** A folder with the packages of the protocol; `null`: npm is not there, or cannot be reached. */
async function install(): Promise<string | null> {
  const folder = await Deno.makeTempDir();
  await Deno.writeTextFile(`${folder}/package.json`, '{ "type": "module" }');
  try {
    const { success } = await new Deno.Command("npm", {
      args: ["install", "--no-audit", "--no-fund", ...PACKAGES],
      cwd: folder,
      stdout: "null",
      stderr: "null",
    }).output();
    return success ? folder : null;
  } catch {
    return null;
  }
}

const folder = await install();
if (folder === null) {
  console.log("The cases of the Durable Streams protocol are skipped: npm cannot install its packages");
}

/** Runs a program of Node in the folder. */
async function run(args: readonly string[], env: Record<string, string>): Promise<string> {
  const { stdout } = await new Deno.Command("node", { args: [...args], cwd: folder!, env, stderr: "null" }).output();
  return new TextDecoder().decode(stdout);
}

Deno.test({
  name: "the conformance suite of the Durable Streams protocol passes the cases of passing_cases.json",
  ignore: folder === null,
  fn: async () => {
    const expected: string[] = JSON.parse(
      await Deno.readTextFile(new URL("../durable_streams/passing_cases.json", import.meta.url)),
    );
    const suite = `${folder}/node_modules/@durable-streams/server-conformance-tests/dist/index.js`;
    await Deno.writeTextFile(
      `${folder}/cases.test.js`,
      `import { runConformanceTests } from ${JSON.stringify(suite)};
       runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL });`,
    );
    const { url, stop } = await serveAdapter();

    await run([
      "node_modules/vitest/vitest.mjs",
      "run",
      "cases.test.js",
      "--testNamePattern",
      OWN,
      "--reporter=json",
      "--outputFile=cases.json",
    ], { CONFORMANCE_TEST_URL: url });
    await stop();

    const { testResults } = JSON.parse(await Deno.readTextFile(`${folder}/cases.json`));
    const cases: { fullName: string; status: string }[] = testResults.flatMap(
      ({ assertionResults }: { assertionResults: unknown[] }) => assertionResults,
    );
    const passed = new Set(cases.filter(({ status }) => status === "passed").map(({ fullName }) => fullName));
    assert.ok(expected.length >= 166, `${expected.length} cases`);
    assert.deepEqual(expected.filter((name) => !passed.has(name)), []);
  },
});

for (const live of [false, "long-poll", "sse"] as const) {
  Deno.test({
    name: `the client of the Durable Streams protocol reads a stream to its end (live: ${live})`,
    ignore: folder === null,
    fn: async () => {
      const { url, firstWait, stop } = await serveAdapter();
      const path = `${url}/a-stream`;
      const headers = { "content-type": "application/json" };
      const send = async (method: string, body: string, more = {}) => {
        const response = await fetch(path, { method, headers: { ...headers, ...more }, body });
        await response.body?.cancel();
      };
      await send("PUT", '["a","b"]');
      const write = async () => {
        await send("POST", '["c"]');
        await send("POST", '["d"]', { "stream-closed": "true" });
      };
      if (live === false) await write();
      await Deno.writeTextFile(
        `${folder}/read.js`,
        `import { stream } from "@durable-streams/client";
         const read = await stream({ url: ${JSON.stringify(path)}, offset: "-1", live: ${JSON.stringify(live)} });
         const items = [];
         const timer = setTimeout(() => process.exit(1), 20_000);
         read.subscribeJson(async ({ items: some }) => {
           items.push(...some);
           if (items.length < 4) return;
           clearTimeout(timer);
           console.log(JSON.stringify(items));
           process.exit(0);
         });`,
      );

      const reading = run(["read.js"], {});
      if (live !== false) await firstWait.then(write);
      const items = await reading;
      await stop();

      assert.deepEqual(JSON.parse(items), ["a", "b", "c", "d"]);
    },
  });
}
