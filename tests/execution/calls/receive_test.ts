import assert from "node:assert/strict";
import { z } from "zod";
import type { Engine } from "../../../src/engine/engine.ts";
import type { StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { isoTime } from "../../../src/values/iso_time.ts";
import { FAKE_START } from "../../support/fake_host.ts";
import { anything, forEachStore, recordEvents } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { outputOf, waitings } from "../../support/pauses.ts";

/** A job that takes messages "text" and "stop". */
function aChat<Output>(run: (step: StepContext) => Promise<Output>) {
  const messages = { text: z.object({ text: z.string() }), stop: z.null(), day: z.coerce.date() };
  return defineJob({ name: "chat", input: anything, messages, run });
}

async function sendTexts(engine: Engine, runId: string, ...texts: string[]): Promise<void> {
  for (const text of texts) await engine.send(runId, "text", { text });
}

forEachStore("receive() waits for a message, and returns the same one on a replay", async ({ store, host }) => {
  const seen: unknown[] = [];
  const chat = aChat(async (step) => {
    const got = await step.receive("text");
    seen.push(got);
    await step.sleep("nap", 1_000);
    return got;
  });
  await using engine = createEngine({ store, host, jobs: { chat } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(chat, null);
  await engine.runUntilIdle();
  host.advance(10);

  await engine.send(id, "text", { text: "hi" }, { id: "m1" });
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  const message = { id: "m1", name: "text", payload: { text: "hi" }, acceptedAt: isoTime(FAKE_START + 10) };
  assert.deepEqual(seen, [message, message]);
  assert.deepEqual(await outputOf(engine, id), message);
  assert.deepEqual(waitings(events).map(({ waitId, waitName }) => [waitId, waitName]), [[null, "text"], [null, "nap"]]);
});

forEachStore("receive() takes what came before it, in order, each once", async ({ store, host }) => {
  const chat = aChat(async (step) => {
    const texts: string[] = [];
    for (let at = 0; at < 3; at++) texts.push((await step.receive("text"))!.payload.text);
    return texts;
  });
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);

  await sendTexts(engine, id, "a", "b");
  await engine.runUntilIdle();
  await sendTexts(engine, id, "c");
  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), ["a", "b", "c"]);
  const messages = await engine.getMessages(id);
  assert.deepEqual(messages.map(({ receivedBy }) => receivedBy), ["text", "text#2", "text#3"]);
});

forEachStore(
  "receive() takes several names, up to `max`, and what the schema made of them",
  async ({ store, host }) => {
    const chat = aChat(async (step) => {
      const some = await step.receive("next", { names: ["text", "day"], max: 2, timeout: 0 });
      const none = await step.receive("next", { names: ["text"], max: 2, timeout: 0 });
      const nothing = await step.receive("next", { names: ["text"], timeout: 0 });
      return {
        some: some.map(({ name, payload }: { name: string; payload: unknown }) => [name, payload]),
        none,
        nothing,
      };
    });
    await using engine = createEngine({ store, host, jobs: { chat } });
    const { id } = await engine.trigger(chat, null);
    await sendTexts(engine, id, "a");
    await engine.send(id, "day", "2040-01-31");
    await engine.send(id, "stop", null);

    await engine.runUntilIdle();

    const some = [["text", { text: "a" }], ["day", "2040-01-31T00:00:00.000Z"]];
    assert.deepEqual(await outputOf(engine, id), { some, none: [], nothing: null });
    assert.equal((await engine.getMessages(id))[1]!.payload, "2040-01-31"); // as it was sent
  },
);

forEachStore("receive() returns null at its deadline, and closes the inbox if it says so", async ({ store, host }) => {
  const chat = aChat(async (step) => await step.receive("text", { timeout: "1h", close: "timeout" }));
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);
  await engine.runUntilIdle();

  host.advance(3_600_000);
  await assert.rejects(engine.send(id, "text", { text: "late" }), { code: "run_ended" });
  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), null);
});

forEachStore("a receive that loses a race takes its message with the promise that is kept", async ({ store, host }) => {
  const chat = aChat(async (step) => {
    const got: string[] = [];
    let next = step.receive("text");
    for (let turn = 0; got.length < 2; turn++) {
      const first = await Promise.race([next, step.sleep(`tick ${turn}`, 1_000)]);
      if (first === undefined) continue;
      got.push((first as { payload: { text: string } }).payload.text);
      next = step.receive("text");
    }
    return got;
  });
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  await sendTexts(engine, id, "a", "b");
  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), ["a", "b"]);
});

forEachStore(
  "receive() refuses a name whose earlier use has not settled, and says what to do",
  async ({ store, host }) => {
    const chat = aChat(async (step) => {
      await Promise.race([step.receive("text"), step.sleep("tick", 1_000)]);
      await step.receive("text");
    });
    await using engine = createEngine({ store, host, jobs: { chat } });
    const { id } = await engine.trigger(chat, null);
    await engine.runUntilIdle();
    host.advance(1_000);
    await engine.runUntilIdle();

    const { status, error } = (await engine.getRun(id))!;
    assert.equal(status, "failed");
    assert.match(error!, /Receive "text" of an earlier call has not settled: race the promise of that call again/);
  },
);

forEachStore("receive() of changed code waits for the names that it asks for now", async ({ store, host }) => {
  const before = aChat((step) => step.receive("next", { names: ["text"] }));
  const after = aChat((step) => step.receive("next", { names: ["text", "stop"] }));
  const first = createEngine({ store, host, jobs: { chat: before } });
  const { id } = await first.trigger(before, null);
  await first.runUntilIdle();
  await first.send(id, "stop", null, { id: "m1" });
  await sendTexts(first, id); // wakes nothing
  await first.stop();

  await using engine = createEngine({ store, host, jobs: { chat: after } });
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(id))!.status, "waiting"); // nobody has asked with the new code yet
  await sendTexts(engine, id, "a");
  await engine.runUntilIdle();

  assert.deepEqual(((await outputOf(engine, id)) as { name: string }).name, "text");
});

forEachStore("receive() in parallel branches is replayed in the order of the records", async ({ store, host }) => {
  const orders: string[][] = [];
  const chat = aChat(async (step) => {
    const order: string[] = [];
    orders.push(order);
    const note = async (name: string, done: Promise<unknown>) => {
      await done;
      order.push(name);
    };
    await Promise.all([
      note("a", step.receive("a", { names: ["text"] })),
      note("b", step.receive("b", { names: ["stop"] })),
      note("nap", step.sleep("nap", 500)),
    ]);
    await step.sleep("last", 10);
  });
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);
  await engine.runUntilIdle();
  await engine.send(id, "stop", null);
  host.advance(500);
  await engine.runUntilIdle();
  await sendTexts(engine, id, "a");
  await engine.runUntilIdle();
  host.advance(10);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(orders.at(-1), ["b", "nap", "a"]);
});

forEachStore("a retry from the failure has what its receives took, and takes the rest", async ({ store, host }) => {
  let fails = true;
  const chat = aChat(async (step) => {
    const first = (await step.receive("text"))!.payload.text;
    if (fails) throw new Error("broken");
    const second = (await step.receive("text"))!.payload.text;
    return [first, second];
  });
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);
  await sendTexts(engine, id, "a", "b");
  await engine.runUntilIdle();
  fails = false;

  const retry = await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, retry.id), ["a", "b"]);
  await assert.rejects(engine.send(id, "text", { text: "c" }), {
    message: `Cannot send to run "${id}": it was retried as run "${retry.id}"`,
  });
});

for (
  const [what, call, message] of [
    [
      "an unknown message",
      (step) => step.receive("txt"),
      'Job "chat" has no message "txt": its messages are "text", "stop", "day"',
    ],
    ["no names", (step) => step.receive("a", { names: [] }), 'names of receive "a" must be an array of 1 to 50 names'],
    [
      "a wrong max",
      (step) => step.receive("text", { max: 1_001 }),
      'max of receive "text" must be an integer from 1 to 1000',
    ],
    [
      "a wrong close",
      (step) => step.receive("text", { close: "no" as "always" }),
      'close of receive "text" must be "timeout" or "always"',
    ],
    [
      "a timeout and a deadline",
      (step) => step.receive("text", { timeout: 1, deadline: new Date() }),
      'Receive "text" cannot have both a timeout and a deadline',
    ],
    ["an unknown option", (step) => step.receive("text", { name: ["text"] } as object), "step.receive() has no option"],
  ] as [string, (step: StepContext) => Promise<unknown>, string][]
) {
  forEachStore(`receive() with ${what} is a TypeError`, async ({ store, host }) => {
    const chat = aChat(call);
    await using engine = createEngine({ store, host, jobs: { chat } });
    const { id } = await engine.trigger(chat, null);
    await engine.runUntilIdle();

    const run = (await engine.getRun(id))!;
    assert.equal(run.status, "failed");
    assert.ok(run.error!.includes(message), run.error!);
  });
}
