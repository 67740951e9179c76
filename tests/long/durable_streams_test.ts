import assert from "node:assert/strict";
import { createEngine, createHandler, MemoryStore } from "../../mod.ts";
import { serveAdapter } from "../durable_streams/adapter.ts";
import { aJob } from "../support/jobs.ts";

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

/** A program that reads a stream with the client of the protocol, and prints its items, or why it has failed. */
function reader(url: string, { offset, live, count }: { offset: string; live: Live; count: number }): string {
  return `import { stream } from "@durable-streams/client";
    const items = [];
    const end = (failure = null) => {
      console.log(JSON.stringify({ items, failure }));
      process.exit(0);
    };
    process.on("unhandledRejection", (error) => end(String(error)));
    setTimeout(() => end("too late"), 20_000);
    try {
      const read = await stream({
        url: ${JSON.stringify(url)}, offset: ${JSON.stringify(offset)}, live: ${JSON.stringify(live)},
        onError: (error) => end(String(error)),
      });
      read.closed?.catch((error) => end(String(error)));
      read.subscribeJson(async ({ items: some }) => {
        items.push(...some);
        if (items.length === 2) await fetch(${JSON.stringify(url)} + "&seen", { method: "POST" }).catch(() => {});
        if (items.length >= ${count}) end();
      });
    } catch (error) {
      end(String(error));
    }`;
}

const MODES = [false, "long-poll", "sse"] as const;
type Live = typeof MODES[number];

for (const live of MODES) {
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
      await Deno.writeTextFile(`${folder}/read.js`, reader(path, { offset: "-1", live, count: 4 }));

      const reading = run(["read.js"], {});
      if (live !== false) await firstWait.then(write);
      const answer = JSON.parse(await reading);
      await stop();

      assert.deepEqual(answer, { items: ["a", "b", "c", "d"], failure: null });
    },
  });

  Deno.test({
    name: `the client of the Durable Streams protocol fails instead of showing a mixture of attempts (live: ${live})`,
    ignore: folder === null,
    fn: async () => {
      const read = Promise.withResolvers<void>();
      const failed = Promise.withResolvers<void>();
      const job = aJob((step) =>
        step.run("say", async ({ stream, attempt }) => {
          const writer = stream("items");
          for (const item of ["a", "b"]) await writer.write(`${attempt}${item}`);
          if (attempt === 1) await read.promise;
          if (attempt === 1) throw new Error("broken");
          failed.resolve();
        }, { retry: { maxAttempts: 2, delay: 300 } })
      );
      const engine = createEngine({ store: new MemoryStore(), jobs: { job }, logger: null });
      await engine.start();
      const handler = createHandler(engine);
      const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, (request) => {
        if (request.method !== "POST") return handler.fetch(request);
        read.resolve();
        return new Response(null, { status: 204 });
      });
      const { id } = await engine.trigger("job", null);
      const url = `http://127.0.0.1:${server.addr.port}/stream?runId=${id}&name=items`;
      let offset = "-1";
      if (live === false) {
        // It reads what there is, and goes on from its offset when that does not count any more.
        for await (const part of engine.readStream(id, "items")) {
          offset = part.position;
          if (part.from + part.items.length === 2) break;
        }
        read.resolve();
        await failed.promise;
      }
      await Deno.writeTextFile(`${folder}/read.js`, reader(url, { offset, live, count: 3 }));

      const { items, failure } = JSON.parse(await run(["read.js"], {}));
      await engine.stop();
      await server.shutdown();

      assert.deepEqual(items, live === false ? [] : ["1a", "1b"]);
      assert.match(failure, /410|Gone|do not count any more/i);
    },
  });
}
