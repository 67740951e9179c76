import assert from "node:assert/strict";
import { createEngine, createHandler, defineJob, MemoryStore } from "../../mod.ts";
import { ClientError, createClient, defineStream, type StreamPart } from "../../src/client/mod.ts";
import { anything } from "../support/stores/for_each_store.ts";

const tokens = defineStream<string>("tokens");

/** A job that writes two items, fails after them at its first attempt, and then waits for the test. */
function aJob() {
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const job = defineJob({
    name: "say",
    input: anything,
    run: (step) =>
      step.run("say", async ({ stream, attempt }) => {
        const writer = stream(tokens);
        await writer.write(`${attempt}a`);
        await writer.write(`${attempt}b`);
        await gates[attempt - 1]!.promise;
        if (attempt === 1) throw new Error("broken");
      }, { retry: { maxAttempts: 2, delay: 0 } }),
  });
  return { job, open: (attempt: number) => gates[attempt - 1]!.resolve() };
}

/** A service on a port of its own. `cut`: after how many messages each connection breaks. */
async function aService(cut: number[] = []) {
  const { job, open } = aJob();
  const store = new MemoryStore();
  const engine = createEngine({ store, jobs: { job }, logger: null });
  await engine.start();
  const handler = createHandler(engine);
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler.fetch);
  let connections = 0;
  const client = createClient({
    url: `http://127.0.0.1:${server.addr.port}`,
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      connections += 1;
      const most = cut.shift() ?? Infinity;
      if (most === Infinity || response.body === null) return response;
      let seen = 0;
      const cutting = new TransformStream<Uint8Array, Uint8Array>({
        transform(bytes, controller) {
          controller.enqueue(bytes);
          seen += new TextDecoder().decode(bytes).split("\n\n").length - 1;
          if (seen >= most) controller.terminate();
        },
      });
      return new Response(response.body.pipeThrough(cutting), response);
    },
  });
  return {
    client,
    engine,
    open,
    connections: () => connections,
    async [Symbol.asyncDispose]() {
      await engine.stop({ timeout: 0 });
      await server.shutdown();
      await store.close();
    },
  };
}

/** Puts parts together until a condition holds, or they end. */
async function collect(parts: AsyncIterable<StreamPart<string>>, until: (list: string[]) => boolean = () => false) {
  const list: string[] = [];
  const all: StreamPart<string>[] = [];
  for await (const part of parts) {
    assert.ok(part.from <= list.length || all.length === 0, "a gap");
    all.push(part);
    list.splice(part.from, Infinity, ...part.items);
    if (until(list)) break;
  }
  return { list, all };
}

for (const cut of [[], [1, 2, 1, 3]]) {
  Deno.test(`readStream() shows items of one attempt at a time, to the end of the run${cut.length > 0 ? ", though connections break" : ""}`, async () => {
    await using service = await aService([...cut]);
    const { client, open } = service;
    const { id } = await service.engine.trigger("say", null);
    const parts = client.readStream(id, tokens);
    const list: string[] = [];
    const seen: string[] = [];
    for await (const part of parts) {
      list.splice(part.from, Infinity, ...part.items);
      seen.push(list.join());
      assert.equal(new Set(list.map((item) => item[0])).size <= 1, true, `a mixture: ${list}`);
      if (list.join() === "1a,1b") open(1);
      if (list.join() === "2a,2b") open(2);
    }

    assert.deepEqual(list, ["2a", "2b"]);
    assert.ok(seen.includes("1a,1b"), seen.join(" / "));
    if (cut.length > 0) assert.ok(service.connections() > 2);
  });
}

Deno.test("readStream() goes on after a position, and cuts what does not count any more", async () => {
  await using service = await aService();
  const { client, open } = service;
  const { id } = await service.engine.trigger("say", null);
  const first = await collect(client.readStream(id, "tokens") as never, (list) => list.length === 2);
  open(1);
  open(2);
  await service.engine.waitForRun(id);

  const { all } = await collect(client.readStream(id, tokens, { after: first.all.at(-1)!.position }));

  assert.deepEqual(all.map(({ from, items }) => [from, items.join()]), [[0, ""], [0, "2a,2b"]]);
  await assert.rejects(collect(client.readStream("unknown", tokens)), ClientError);
});

Deno.test("readStream() ends when its signal fires", async () => {
  await using service = await aService();
  const { client, open } = service;
  const { id } = await service.engine.trigger("say", null);
  const abortion = new AbortController();
  const reading = collect(client.readStream(id, tokens, { abortSignal: abortion.signal }), () => {
    abortion.abort(new Error("left"));
    return false;
  });

  await assert.rejects(reading, /left/);
  open(1);
  open(2);
  await service.engine.waitForRun(id);
});
