import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { NotFoundError, StoreError } from "../../src/model/error.ts";
import { decode, type Json } from "../../src/values/json.ts";
import { toClientWait } from "../../src/model/wait.ts";
import { toClientRun } from "../../src/model/client_run.ts";
import type { Run } from "../../src/model/run.ts";
import { toClientStep } from "../../src/model/step.ts";
import type { Store } from "../../src/store/store.ts";
import type { ValuePart } from "../../src/store/run_query.ts";
import { persistLogs } from "../../src/engine/plugin.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aLine, aRun } from "../support/fixtures.ts";
import { forEachStore, type StoreTest } from "../support/stores/for_each_store.ts";
import { aRequest, aService, type Service } from "../support/http/http.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { aJob } from "../support/jobs.ts";

/** One of them is more than a piece of an answer. */
const LARGE = JSON.stringify("x".repeat(300_000));

/** What JSON can hold, however odd: each with words that say which it is. */
const ODD_TEXTS = [
  "null",
  '"\\ud800 ä€😀 \\u2028 \\u0000"',
  '{"__proto__":{"a":1},"constructor":[],"1":{},"":null,"toJSON":"x"}',
  "[1e21,-0,0.1,[[]],true]",
  '"</script>"',
];

const READS = ["readRuns", "readSteps", "readWaits", "readLogs", "readValue"] as const;

/** Counts how often lists and values are read, and how many characters that brings. */
function countReads(store: Store): { calls: number; length: number } {
  const counter = { calls: 0, length: 0 };
  for (const method of READS) {
    const read = store[method].bind(store) as (...parameters: unknown[]) => Promise<unknown>;
    (store[method] as typeof read) = async (...parameters: unknown[]) => {
      counter.calls += 1;
      const answer = await read(...parameters);
      const bytes = (answer as Partial<ValuePart> | null)?.bytes;
      counter.length += bytes === undefined ? JSON.stringify(answer).length : bytes.length;
      return answer;
    };
  }
  return counter;
}

/** Lets every reading of lists and values fail from now on. */
function failReads(store: Store, error: Error): void {
  for (const method of READS) store[method] = (): Promise<never> => Promise.reject(error);
}

async function addLarge(store: Store, count: number): Promise<string[]> {
  const added = await store.enqueue(Array.from({ length: count }, () => aRun({ payload: LARGE })));
  return added.map(({ run }) => run.id);
}

function fetchFrom(service: Service, path: string): Promise<Response> {
  return service.handler.fetch(aRequest("GET", path));
}

forEachStore(
  "/runs, /steps, /waits and /logs show as JSON what the engine answers, whatever is stored",
  async (context) => {
    const odd = aJob(async (step, input: Json) => {
      for (const [n, text] of ODD_TEXTS.entries()) {
        await step.run(`step ${n}`, () => decode(text));
        step.log.info(`line ${n}: \ud800 "€"`, decode(text));
        await step.prepareWait(`wait ${n}`, { metadata: decode(text) });
      }
      await step.run("nothing", () => undefined);
      await step.run("large", () => "x".repeat(600_000));
      await step.prepareWait("large", { metadata: "x".repeat(600_000) });
      await step.run("broken", () => Promise.reject(new Error("€"))).catch(() => {});
      step.progress(1, 2, "half");
      await step.waitFor(await step.prepareWait("open"));
      return input;
    }, "odd");
    await using service = aService({}, context, { odd });
    const { engine } = service;
    engine.use(persistLogs());
    const inputs = [...ODD_TEXTS.map((text) => decode(text)), undefined, "x".repeat(600_000), "x".repeat(600_000)];
    const labels = JSON.parse('{"__proto__":"a","b":"€"}');
    const ids: string[] = [];
    for (const input of inputs) ids.push((await engine.trigger("odd", input, { labels })).id);
    await engine.runUntilIdle();
    for (const [n, id] of ids.entries()) {
      const wait = (await engine.getWaits(id)).find(({ name }) => name === "open")!;
      const payload = decode(ODD_TEXTS[n % ODD_TEXTS.length]!)!;
      if (n > 0) await engine.signal(wait.id, { signalId: "s", payload });
    }
    await engine.runUntilIdle();

    const { body: shown } = await service.ask("GET", "/runs?limit=5&status=completed");

    const { runs, ...page } = await engine.getRuns({ limit: 5, status: "completed" });
    assert.equal(runs.length, 5);
    assert.deepEqual(shown, json({ runs: runs.map(toClientRun), ...page }));
    for (const id of ids.slice(0, 3)) {
      const details = await Promise.all(
        ["steps", "waits", "logs"].map(async (path) => (await service.ask("GET", `/${path}?runId=${id}`)).body),
      );
      const expected = [
        (await engine.getSteps(id)).map(toClientStep),
        (await engine.getWaits(id)).map(toClientWait),
        await engine.getLogs(id),
      ];
      assert.deepEqual(details, json(expected));
      assert.deepEqual(expected.map(({ length }) => length), [8, 7, 5]);
    }
  },
);

function json(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

forEachStore("a small answer is an ordinary body, read at once", async (context) => {
  await using service = aService({}, context);
  const { runId } = (await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {} } })).body;
  const counter = countReads(context.store);

  for (const path of ["/runs", `/steps?runId=${runId}`, `/waits?runId=${runId}`, `/logs?runId=${runId}`]) {
    const before = counter.calls;
    const response = await fetchFrom(service, path);
    const reader = response.body!.getReader();
    const first = await reader.read();

    assert.equal(counter.calls - before, path === "/runs" ? 1 : 2);
    assert.equal((await reader.read()).done, true);
    JSON.parse(new TextDecoder().decode(first.value));
  }
});

// What is read before an answer begins, a part, and what is read of a value.
const MOST_AHEAD = 131_072 + 32_768 + 2 * 65_536 + 10_000;

for (const path of ["runs", "steps", "waits", "logs"]) {
  forEachStore(`GET /${path} reads no further than its reader has come`, async (context) => {
    const { store, host } = context;
    await using service = aService({}, context, { history });
    service.engine.use(persistLogs());
    const { id } = await service.engine.trigger("history", null);
    await service.engine.runUntilIdle();
    const data = JSON.stringify("x".repeat(8_000));
    await store.appendLogs(Array.from({ length: 150 }, () => aLine(id, { data })));
    await addLarge(store, 4);
    const counter = countReads(store);

    const response = await fetchFrom(service, `/${path}?runId=${id}`);
    await host.settle();
    const ahead = [counter.length];
    const reader = response.body!.getReader();
    let received = 0;
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      received += read.value.length;
      await host.settle(3);
      ahead.push(counter.length - received);
    }

    assert.ok(received > 1_000_000 && ahead.length > 20, `${ahead.length} pieces of ${received} bytes`);
    assert.ok(Math.max(...ahead) < MOST_AHEAD, `it was ${Math.max(...ahead)} characters ahead`);
  });
}

/** Four large steps and waits. */
const history = aJob(async (step) => {
  for (let n = 0; n < 4; n++) {
    await step.run(`step ${n}`, () => JSON.parse(LARGE));
    await step.prepareWait(`wait ${n}`, { metadata: JSON.parse(LARGE) });
  }
}, "history");

forEachStore("everything else goes on between two pieces, however fast they are read", async (context) => {
  await using service = aService({}, context);
  await addLarge(context.store, 8);
  let turns = 0;
  let isOver = false;
  const count = () => {
    turns += 1;
    if (!isOver) setImmediate(count);
  };
  const response = await fetchFrom(service, "/runs");

  count();
  await response.text();
  isOver = true;

  assert.ok(turns >= 7, `there were ${turns} turns`);
});

forEachStore(
  "GET /runs neither shows nor counts runs that go or change while it is read",
  async (context) => {
    const { store } = context;
    await using service = aService({}, context);
    const ids = await addLarge(store, 5);

    const response = await fetchFrom(service, "/runs?status=pending&limit=4");
    await store.cancel(ids[2]!, "c1", null);
    await store.cancel(ids[3]!, "c2", null);
    await store.delete(ids[2]!);
    const { runs, total, hasMore } = await response.json();

    assert.deepEqual(runs.map(({ id }: { id: string }) => id), [ids[4], ids[1]]);
    assert.deepEqual([total, hasMore], [3, true]);
  },
);

forEachStore("a store that fails in the middle of an answer breaks it, and is reported once", async (context) => {
  const { store } = context;
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => void heard.push(error) }, context);
  await addLarge(store, 3);
  const error = new StoreError("The disk is gone");

  const response = await fetchFrom(service, "/runs");
  failReads(store, error);
  const reader = response.body!.getReader();
  let text = "";
  const readOn = async () => {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      text += new TextDecoder().decode(read.value);
    }
  };
  await assert.rejects(readOn(), error);
  await assert.rejects(reader.read(), error);

  assert.equal(response.status, 200);
  assert.match(text, /^\{"runs":\[\{"id":/);
  assert.throws(() => JSON.parse(text), SyntaxError);
  assert.deepEqual(heard, [error]);
});

forEachStore("a store that fails before an answer has begun is a 503", async (context) => {
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => void heard.push(error) }, context);
  await addLarge(context.store, 3);
  const error = new StoreError("The disk is gone");
  failReads(context.store, error);

  const { status, body } = await service.ask("GET", "/runs");

  assert.deepEqual([status, body.code], [503, "unavailable"]);
  assert.deepEqual(heard, [error]);
});

forEachStore("GET /steps breaks off when the run is deleted meanwhile: half of a list is none", async (context) => {
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => void heard.push(error) }, context, { history });
  const { id } = await service.engine.trigger("history", null);
  await service.engine.runUntilIdle();

  const response = await fetchFrom(service, `/steps?runId=${id}`);
  await service.engine.deleteRun(id);

  await assert.rejects(response.text(), NotFoundError);
  assert.deepEqual(heard, []);
});

forEachStore("GET /runs leaves out a run whose large value goes before anything of it was sent", async (context) => {
  const { store } = context;
  await using service = aService({}, context);
  const ids = await addLarge(store, 3);
  const read = store.readRuns.bind(store);
  store.readRuns = async (runIds, maxLength) => {
    const runs = await read(runIds, maxLength);
    if (runIds[0] !== ids[1]) return runs;
    await store.cancel(ids[1]!, "c1", null);
    await store.delete(ids[1]!);
    return runs;
  };

  const { body } = await service.ask("GET", "/runs");

  assert.deepEqual(body.runs.map(({ id }: { id: string }) => id), [ids[2], ids[0]]);
  assert.equal(body.total, 2);
});

forEachStore("GET /runs counts no run that is deleted between the two reads of the list", async (context) => {
  const { store } = context;
  await using service = aService({}, context);
  const [id] = await addLarge(store, 1);
  await store.cancel(id!, "c1", null);
  const find = store.findRuns.bind(store);
  store.findRuns = async (query) => {
    const found = await find(query);
    await store.delete(id!);
    return found;
  };

  const { body } = await service.ask("GET", "/runs");

  assert.deepEqual(body, { runs: [], total: 0, hasMore: false });
});

forEachStore("a client that goes away ends the reading", async (context) => {
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => void heard.push(error) }, context);
  await addLarge(context.store, 5);
  const counter = countReads(context.store);

  const early = await fetchFrom(service, "/runs");
  await early.body!.cancel();
  const response = await fetchFrom(service, "/runs");
  const reader = response.body!.getReader();
  await reader.read();
  const unread = reader.read();
  await reader.cancel();
  await context.host.settle();

  assert.equal((await unread).done, true);
  assert.ok(counter.length < 2 * MOST_AHEAD, `${counter.length} characters were read`);
  assert.deepEqual(heard, []);
});

Deno.test("Deno.serve() gives a broken body when the store fails in the middle of an answer", async () => {
  const heard: unknown[] = [];
  const host = new FakeHost();
  const context: StoreTest = { store: new MemoryStore({ host }), host };
  await using service = aService({ onError: (error) => void heard.push(error) }, context);
  await addLarge(context.store, 4);
  const read = context.store.readRuns.bind(context.store);
  let reads = 0;
  context.store.readRuns = (ids, maxLength) =>
    ++reads > 2 ? Promise.reject(new StoreError("The disk is gone")) : read(ids, maxLength);
  const onError = () => new Response(null, { status: 500 });
  const server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {}, onError },
    service.handler.fetch,
  );

  const response = await fetch(`http://127.0.0.1:${server.addr.port}/runs`);

  assert.equal(response.status, 200);
  await assert.rejects(response.text());
  assert.equal(heard.length, 1);
  await server.shutdown();
});

forEachStore(
  "onRunAccess() sees the values of a run whose steps are listed, frozen, and parsed if it looks",
  async (context) => {
    const seen: Readonly<Run>[] = [];
    const auth = {
      authenticate: () => {},
      onRunAccess: (_context: unknown, run: Readonly<Run>) => void seen.push(run),
      scopeRuns: () => ({}),
      onTrigger: () => {},
    };
    await using service = aService({ auth }, context);
    const { id } = await service.engine.trigger("echo", { rows: [{ n: 1 }], text: "x".repeat(100_000) });
    await service.engine.runUntilIdle();
    const parse = JSON.parse;
    let parsed = 0;
    JSON.parse = (text, reviver) => {
      // PostgresStore parses what the database answers, where the value is a string.
      if (text.startsWith('{"rows":[{"n":1}]')) parsed += 1;
      return parse(text, reviver);
    };
    try {
      for (const path of ["steps", "waits", "logs"]) await service.ask("GET", `/${path}?runId=${id}`);
    } finally {
      JSON.parse = parse;
    }

    const run = await service.engine.getRun(id);
    assert.equal(parsed, 0);
    assert.equal(seen.length, 3);
    for (const one of seen) {
      assert.deepEqual({ ...one }, run);
      assert.equal(one.payload, one.payload);
      assert.ok(Object.isFrozen(one) && Object.isFrozen((one.payload as { rows: object[] }).rows[0]));
      assert.throws(() => Object.assign(one, { payload: null }), TypeError);
    }
  },
);
