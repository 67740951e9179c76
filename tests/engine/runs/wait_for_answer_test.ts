import assert from "node:assert/strict";
import { z } from "zod";
import type { StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { anything, forEachStore } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const messages = { text: z.object({ text: z.string() }) };

/** A job that takes texts. */
function aChat(run: (step: StepContext) => Promise<unknown>) {
  return defineJob({ name: "chat", input: anything, messages, run });
}

/** Answers each text with itself in capitals, until none has come for an hour. */
const chat = aChat(async (step) => {
  while (true) {
    const got = await step.receive("text", { timeout: "1h", close: "timeout" });
    if (got === null) return;
    await step.respond(got, { answer: got.payload.text.toUpperCase() });
  }
});

forEachStore("ask() sends a message and returns the answer of the run", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);

  const asking = engine.jobs.chat.ask<{ answer: string }>(id, "text", { text: "hi" }, { id: "m1" });
  await host.settle();
  await engine.runUntilIdle();

  assert.deepEqual(await asking, { answer: "HI" });
  assert.deepEqual((await engine.getSteps(id)).map(({ name, output }) => [name, output]), [
    ["respond:m1", { answer: "HI" }],
  ]);
});

forEachStore("ask() that is repeated with its id finds the answer, also after the end", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { chat } });
  const start = { input: null };
  const asking = engine.jobs.chat.ask({ key: "room 7" }, "text", { text: "hi" }, { id: "m#2", start });
  await host.settle();
  await engine.runUntilIdle();
  const first = await asking;
  host.advance(3_600_000);
  await engine.runUntilIdle();

  const again = await engine.ask({ job: "chat", key: "room 7" }, "text", { text: "hi" }, { id: "m#2", start });

  assert.deepEqual([first, again], [{ answer: "HI" }, { answer: "HI" }]);
  const { runs } = await engine.getRuns();
  assert.deepEqual(runs.map(({ status }) => status), ["completed"]);
});

forEachStore("ask() in another process sees the answer", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { chat } });
  await using other = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);

  const asking = other.ask(id, "text", { text: "x".repeat(100_000) });
  await host.settle();
  await engine.runUntilIdle();
  host.advance(2_000);

  assert.deepEqual(await asking, { answer: "X".repeat(100_000) });
});

forEachStore("ask() rejects when the run ends without an answer, or is too slow", async ({ store, host }) => {
  const ends: Record<string, (step: StepContext) => Promise<unknown>> = {
    silent: async (step) => await step.receive("text"),
    failing: async (step) => {
      await step.receive("text");
      throw new Error("no idea");
    },
    slow: async (step) => await step.sleep("nap", "1d"),
  };
  const jobs = Object.fromEntries(
    Object.entries(ends).map(([name, run]) => [name, defineJob({ name, input: anything, messages, run })]),
  );
  await using engine = createEngine({ store, host, jobs });
  const ask = async (name: string, after: (runId: string) => Promise<unknown> = () => Promise.resolve()) => {
    const { id } = await engine.trigger(name, null);
    const asking = engine.ask(id, "text", { text: "hi" }, { id: "m1", timeout: "30s" }).then(
      () => null,
      (error) => [error.constructor.name, error.message.replaceAll(id, "R")],
    );
    await host.settle();
    await engine.runUntilIdle();
    await after(id);
    return await asking;
  };

  assert.deepEqual(await ask("silent"), [
    "ConflictError",
    'Run "R" has completed without an answer to message "m1"',
  ]);
  assert.deepEqual(await ask("failing"), ["RunFailedError", 'Run "R" of job "failing" failed: no idea']);
  assert.deepEqual(await ask("slow", (id) => engine.cancel(id)), ["RunCancelledError", 'Run "R" was cancelled']);
  const late = await ask("slow", () => Promise.resolve(host.advance(30_000)));
  assert.equal(late?.[0], "TimeoutError");
  assert.match(late?.[1], /^Run "R" has not answered message "m1" within 30000 ms: it is waiting/);
});

Deno.test("ask() refuses what send() refuses, and wrong options, and sends nothing then", async () => {
  const host = new FakeHost();
  await using engine = createEngine({ store: new MemoryStore({ host }), host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);
  const text = { text: "hi" };

  await assert.rejects(engine.ask(id, "text", { text: 7 }), { name: "ValidationError", code: "invalid_input" });
  await assert.rejects(engine.ask(id, "text", text, { timeout: -1 }), RangeError);
  await assert.rejects(engine.ask(id, "text", text, { tmeout: 1 } as object), TypeError);
  await assert.rejects(engine.ask("nobody", "text", text), { message: 'There is no run "nobody"' });
  assert.deepEqual(await engine.getMessages(id), []);
});

Deno.test("ask() is refused inside the function of a step", async () => {
  const host = new FakeHost();
  const asks = aChat(async (step) => await step.run("ask", () => engine.ask("anybody", "text", { text: "hi" })));
  await using engine = createEngine({ store: new MemoryStore({ host }), host, jobs: { asks } });
  const { id } = await engine.trigger(asks, null);

  await engine.runUntilIdle();

  assert.match(
    (await engine.getRun(id))!.error!,
    /^ask\(\) cannot wait for a run inside the function of step "ask": use /,
  );
});
