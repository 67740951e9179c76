import assert from "node:assert/strict";
import { defineStream } from "../../src/model/stream.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aJob } from "../support/jobs.ts";
import { callCli } from "./call_cli.ts";
import { aFile, aServer } from "./places.ts";

const tokens = defineStream<unknown>("tokens");

/** A run that has completed, with a stream of these items. */
async function aRunOf(store: Awaited<ReturnType<typeof aFile>>["store"], items: readonly unknown[]): Promise<string> {
  const job = aJob((step) => step.run("say", ({ stream }) => stream(tokens).pipe(ReadableStream.from(items))));
  await using engine = createEngine({ store, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  await engine.runUntilIdle();
  return id;
}

Deno.test("holdfast stream shows strings as text, and other items as JSON", async () => {
  await using file = await aFile();
  const id = await aRunOf(file.store, ["Hello, ", "world\nof", " lines", { no: 1 }, "end"]);

  const text = await callCli(["stream", id, "tokens", ...file.args]);
  const json = await callCli(["stream", id.slice(-12), "tokens", ...file.args, "--json"]);
  const none = await callCli(["stream", id, "other", ...file.args]);

  assert.deepEqual([text.code, text.lines], [0, ["Hello, world", "of lines", '{"no":1}', "end"]]);
  assert.deepEqual(json.json, ["Hello, ", "world\nof", " lines", { no: 1 }, "end"]);
  assert.deepEqual([none.code, none.lines], [1, []]);
  assert.deepEqual(none.notes, [`Run "${id}" has written nothing to a stream "other"; it has written to "tokens"`]);
});

Deno.test("holdfast stream --follow shows items as they come, says what does not count, and ends with the run", async () => {
  await using file = await aFile();
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const job = aJob((step) =>
    step.run("say", async ({ stream, attempt }) => {
      await stream(tokens).write(`attempt ${attempt}\n`);
      await gates[attempt - 1]!.promise;
      if (attempt === 1) throw new Error("broken");
    }, { retry: { maxAttempts: 2, delay: 0 } })
  );
  await using engine = createEngine({ store: file.store, jobs: { job } });
  await using server = await aServer(file.store);
  const { id } = await engine.trigger("job", null);
  await engine.start();

  const called = await callCli(["stream", id, "tokens", "--follow", ...server.args], {
    onLine: (line) => gates[Number(line.slice(-1)) - 1]!.resolve(),
  });

  assert.deepEqual([called.code, called.lines], [0, ["attempt 1", "attempt 2"]]);
  assert.deepEqual(called.notes, ["--- the step is attempted again: 0 items remain ---"]);
});

Deno.test("holdfast stream --follow shows a text as it comes, before its line ends", async () => {
  await using file = await aFile();
  const gate = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("say", async ({ stream }) => {
      await stream(tokens).write("Hello, ");
      await gate.promise;
      await stream(tokens).write("world");
    })
  );
  await using engine = createEngine({ store: file.store, jobs: { job } });
  await using server = await aServer(file.store);
  const { id } = await engine.trigger("job", null);
  await engine.start();
  const seen: string[] = [];

  const called = await callCli(["stream", id, "tokens", "--follow", ...server.args], {
    onText: (text) => {
      seen.push(text);
      gate.resolve();
    },
  });

  assert.deepEqual([called.code, called.lines, seen[0]], [0, ["Hello, world"], "Hello, "]);
});
