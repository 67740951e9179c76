import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { until } from "./processes/deadline.ts";
import { SqliteStore } from "../src/stores/sqlite/sqlite_store.ts";
import { startServer } from "./stores/postgres/server.ts";
import { aRun } from "./support/fixtures.ts";
import { needs } from "./support/platform.ts";

/** An example in a process of its own. What it prints is collected. */
class Example implements AsyncDisposable {
  readonly #process: Deno.ChildProcess;
  readonly #reading: Promise<void>;
  /** What it has printed so far. */
  output = "";

  constructor(file: string, ...args: string[]) {
    const env = Deno.env.toObject();
    delete env.DENO_COVERAGE_DIR; // a killed process would leave a file that cannot be read
    this.#process = new Deno.Command(Deno.execPath(), {
      args: ["run", "--allow-all", "--no-lock", new URL(`../examples/${file}`, import.meta.url).href, ...args],
      clearEnv: true,
      env: { ...env, NO_COLOR: "1" },
      stdout: "piped",
      stderr: "inherit",
    }).spawn();
    this.#reading = this.#read();
  }

  async #read(): Promise<void> {
    for await (const text of this.#process.stdout.pipeThrough(new TextDecoderStream())) this.output += text;
  }

  /** Kills it, as a power cut would. */
  async kill(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.ended();
  }

  /** Asks it to end, as Ctrl+C does. */
  interrupt(): void {
    this.#process.kill("SIGINT");
  }

  /** Resolves with its exit code. */
  async ended(): Promise<number> {
    const [{ code }] = await Promise.all([this.#process.status, this.#reading]);
    return code;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      this.#process.kill("SIGKILL");
    } catch {
      // It has ended.
    }
    await this.ended();
  }
}

interface ExampleTest {
  name: string;
  ignore?: boolean;
  fn: () => Promise<void>;
}

/** The tests of each array run one after another, beside those of the others: most of them wait for their processes. */
const tests: Record<"short" | "invoices" | "kill" | "dashboards", ExampleTest[]> = {
  short: [],
  invoices: [],
  kill: [],
  dashboards: [],
};

Deno.test("the programs in examples/ do what they say", async (context) => {
  const together = { sanitizeOps: false, sanitizeResources: false, sanitizeExit: false }; // this test checks all of them
  const passed = await Promise.all(
    Object.values(tests).map(async (lane) => {
      const results: boolean[] = [];
      for (const test of lane) results.push(await context.step({ ...test, ...together }));
      return results.every((result) => result);
    }),
  );

  assert.ok(passed.every((result) => result));
});

for (
  const [file, expected] of [
    ["hello.ts", /Run .* has completed/],
    ["multi_tenant.ts", /token-1 POST/],
    [
      "agent.ts",
      /The run is waiting[^]*A reader sees: I have six letters\.It is published\.[^]*called 3 times/,
    ],
    [
      "approval_by_mail.ts",
      /asks "Refund order 7\?", and the run still waits[^]*with 422[^]*says "Thank you"[^]*800 cents refunded, as ada@/,
    ],
    ["mcp_server.ts", /The user is asked: [^]*refunded: 1250/],
    [
      "tick_by_post.ts",
      /token of the cron: 401\nWelcome, Ada\n[^]*executed 1; something is due again at 2[^]*executed 1; .* never\nReminded Ada/,
    ],
    [
      "webhooks.ts",
      /forged webhook is answered with 401[^]*attempt 2[^]*has completed/,
    ],
  ] as const
) {
  tests.short.push({
    name: `examples/${file} ends without a signal`,
    fn: async () => {
      await using example = new Example(file);

      const code = await example.ended();

      assert.equal(code, 0);
      assert.match(example.output, expected);
    },
  });
}

const server = startServer({ fsync: true }); // the example refuses one that may lose what it has acknowledged

tests.short.push({
  name: "examples/many_machines.ts lets others execute what a machine had claimed that was killed",
  ignore: server === null,
  fn: async () => {
    await using example = new Example("many_machines.ts", server!.url); // ignored without a server

    const code = await example.ended();

    assert.equal(code, 0);
    assert.match(example.output, /is killed/);
    const pages = [...example.output.matchAll(/ (\d+) pages$/gm)].map(([, count]) => Number(count));
    assert.equal(pages.reduce((sum, count) => sum + count, 0), 20);
  },
});

tests.short.push({
  name: "examples/copy_store.ts copies a file into a database, and says what it has copied",
  ignore: server === null,
  fn: async () => {
    await using folder = await aFolder();
    const file = `${folder.path}/jobs.db`;
    await using store = await SqliteStore.open(file);
    await store.migrate();
    await store.enqueue([aRun(), aRun()]);
    await store.close();
    const run = async (...args: string[]) => {
      await using example = new Example("copy_store.ts", ...args);
      return { code: await example.ended(), output: example.output };
    };
    const args = [file, server!.url, "--schema", `example_${Deno.pid}`, "--relaxed"]; // ignored without a server

    const { code, output } = await run(...args);

    assert.equal(code, 0);
    assert.match(output, /pending +│ +2/);
    assert.match(output, /Copied and compared in/);
    assert.equal((await run(...args)).code, 1); // it is not empty any more
    assert.equal((await run()).code, 2);
  },
});

tests.invoices.push({
  name: "examples/invoices.ts reads every document once, and ends",
  fn: async () => {
    await using folder = await aFolder();
    await using example = new Example("invoices.ts", folder.path);

    const code = await example.ended();

    assert.equal(code, 0);
    assert.match(example.output, /the service answers 429/);
    assert.match(example.output, /globex owes .*; not readable: globex-blank\.pdf/);
    assert.match(example.output, /Digest of \d{4}-\d\d-\d\d: 24 invoices/);
    assertComplete(folder.path);
  },
});

tests.kill.push({
  name: "examples/invoices.ts continues after a SIGKILL, and loses and repeats nothing",
  fn: async () => {
    await using folder = await aFolder();
    await using killed = new Example("invoices.ts", folder.path);
    await until(() => killed.output.includes("acme-6.pdf: "), "the first process was to come to the sixth document");
    await killed.kill();
    const readBefore = rowsOf(folder.path, "invoices").map(({ document }) => document);

    await using second = new Example("invoices.ts", folder.path);
    const code = await second.ended();

    assert.equal(code, 0);
    assert.ok(
      readBefore.length > 0 && readBefore.length < 24,
      `${readBefore.length} documents were read before the kill`,
    );
    assert.match(second.output, /acme: the batch of an earlier start/);
    assertComplete(folder.path);
  },
});

for (const file of ["dashboard.ts", "demo.ts"]) {
  const args = (folder: string) => file === "demo.ts" ? ["--ui"] : [folder];

  tests.dashboards.push({
    name: `examples/${file} serves a dashboard that retries a run and approves a total, until SIGINT`,
    ...needs("signals"),
    fn: async () => {
      await using folder = await aFolder();
      await using example = new Example(file, ...args(folder.path));
      await until(() => /^Open http/.test(example.output), "the example was to print its address");
      const url = /http:\S+(?=ui\/)/.exec(example.output)![0];
      const read = async (path: string, body?: object) => {
        const method = body === undefined ? "GET" : "POST";
        const response = await fetch(`${url}${path}`, { method, body: body && JSON.stringify(body) });
        const text = await response.text();
        assert.equal(response.status, 200, `${path}: ${text}`);
        return text;
      };
      const find = async (path: string, key: string) => JSON.parse(await read(path))[key];

      assert.match(await read("ui/"), /<!doctype html>/i);
      await until(async () => (await find("runs?status=failed", "total")) === 1, "a document was to fail");
      const [failed] = await find("runs?status=failed", "runs");
      const { runId } = JSON.parse(await read(`retrigger?runId=${failed.id}&from=failure`, {}));
      await until(
        async () => (await find(`run?runId=${runId}`, "status")) === "completed",
        "the retry was to complete",
      );
      await until(async () => (await find("waits/open", "total")) > 0, "a total was to wait for its approval");
      const [wait] = await find("waits/open", "waits");
      const [{ payload }] = wait.metadata.actions;
      await read(`signal?runId=${wait.runId}&waitId=${wait.id}`, { signalId: "test", payload });
      await until(
        async () => (await find(`run?runId=${wait.runId}`, "status")) === "completed",
        "the batch was to complete",
      );
      example.interrupt();

      assert.equal(await example.ended(), 0);
    },
  });
}

/** Every document that can be read has one row, and every batch one posting of the sum. */
function assertComplete(folder: string): void {
  const documents = [
    ...Array.from({ length: 20 }, (_, n) => `acme-${n + 1}.pdf`),
    ...[1, 2, 4, 5].map((n) => `globex-${n}.pdf`),
  ];
  const invoices = rowsOf(folder, "invoices");
  assert.deepEqual(invoices.map(({ document }) => document).sort(), documents.sort());
  const postings = rowsOf(folder, "postings");
  assert.deepEqual(postings.map(({ customer }) => customer).sort(), ["acme", "globex"]);
  for (const { customer, cents } of postings) {
    const own = invoices.filter((row) => row.customer === customer);
    assert.equal(cents, own.reduce((sum, row) => sum + Number(row.cents), 0), `the posting of ${customer}`);
  }
}

function rowsOf(folder: string, table: string) {
  using db = new DatabaseSync(`${folder}/invoices.db`);
  return db.prepare(`SELECT * FROM ${table}`).all();
}

async function aFolder() {
  const path = await Deno.makeTempDir({ prefix: "holdfast_examples_" });
  return { path, [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }) };
}
