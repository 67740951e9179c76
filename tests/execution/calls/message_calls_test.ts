import assert from "node:assert/strict";
import { z } from "zod";
import { StoreError } from "../../../src/model/error.ts";
import type { StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { replay } from "../../../src/replay/replay.ts";
import { anything, forEachStore } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { outputOf } from "../../support/pauses.ts";

const messages = { text: z.string() };

/** A job that takes texts. */
function aChat<Output>(run: (step: StepContext) => Promise<Output>, name = "chat") {
  return defineJob({ name, input: anything, messages, run });
}

forEachStore("respond() records an answer once, and a replay keeps it", async ({ store, host }) => {
  let calls = 0;
  const chat = aChat(async (step) => {
    const got = (await step.receive("text"))!;
    await step.respond(got, { turn: ++calls });
    await step.sleep("nap", 1_000);
    return await step.respond(got, 2).catch(({ name, message }) => `${name}: ${message}`);
  });
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);
  await engine.send(id, "text", "hi", { id: "m1" });

  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), 'TypeError: Message "m1" has an answer: a message is answered once');
  assert.equal(calls, 2);
  const steps = (await engine.getSteps(id)).map(({ name, output }) => [name, output]);
  assert.deepEqual(steps, [["respond:m1", { turn: 1 }]]);
  assert.deepEqual(await engine.ask(id, "text", "hi", { id: "m1" }), { turn: 1 });
});

forEachStore("respond() takes any JSON, and refuses the rest and what is no message", async ({ store, host }) => {
  const errors: string[] = [];
  const chat = aChat(async (step) => {
    const refused = (call: Promise<unknown>) => call.catch(({ name }) => void errors.push(name));
    await refused(step.respond({ id: "a" }, 10n));
    await refused(step.respond({ id: "a" }, { text: "x".repeat(200) }));
    await refused(step.respond(undefined as never, 1));
    await refused(step.respond({ id: "" }, 1));
    await step.run("inside", () => refused(step.respond({ id: "a" }, 1)));
    for (const name of ["respond:a", "respond:"]) await refused(step.run(name, () => 1));
    await step.respond({ id: "a" }, undefined);
  });
  await using engine = createEngine({ store, host, jobs: { chat }, maxValueBytes: 100 });
  const { id } = await engine.trigger(chat, null);
  await engine.send(id, "text", "hi", { id: "a" });

  await engine.runUntilIdle();

  const [one, two, ...rest] = errors;
  assert.deepEqual([one, two], ["SerializationError", "SerializationError"]);
  assert.deepEqual(rest, ["TypeError", "TypeError", "TypeError", "TypeError", "TypeError"]);
  assert.equal(await engine.ask(id, "text", "hi", { id: "a" }), null);
});

forEachStore("a retry has the answers that were given before the failure", async ({ store, host }) => {
  let fails = true;
  const chat = aChat(async (step) => {
    const got = (await step.receive("text"))!;
    await step.respond(got, "first");
    await step.run("fail once", () => {
      if (fails) throw new Error("once");
    });
  });
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null, { idempotencyKey: "k" });
  await engine.send(id, "text", "hi", { id: "m1" });
  await engine.runUntilIdle();
  fails = false;

  const { id: retryId } = await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(retryId))!.status, "completed");
  assert.equal(await engine.ask({ job: "chat", key: "k" }, "text", "hi", { id: "m1" }), "first");
});

forEachStore("step.send() sends once, also if its step is executed again", async ({ store, host }) => {
  const chat = aChat((step) => step.sleep("nap", "1d"));
  let fails = true;
  const sender = aChat(async (step) => {
    const toKey = await step.send("to key", { job: chat, key: "room 7" }, "text", "hello");
    const sent = step.send("to run", toKey.runId, "text", "world");
    return [toKey, await sent];
  }, "sender");
  await using engine = createEngine({
    store: new Proxy(store, {
      get(target, key) {
        const value = Reflect.get(target, key);
        if (typeof value !== "function") return value;
        return async (...args: unknown[]) => {
          const answer = await value.apply(target, args);
          if (key === "send" && fails) {
            fails = false; // the message is there, and nobody is told
            throw new StoreError("The connection is lost", { code: "unavailable" });
          }
          return answer;
        };
      },
    }),
    host,
    jobs: { chat, sender },
  });
  const { id: chatId } = await engine.trigger(chat, null, { idempotencyKey: "room 7" });
  const { id } = await engine.trigger(sender, null);

  const idle = engine.runUntilIdle();
  await host.settle();
  host.advance(100);
  await idle;
  await engine.runUntilIdle();

  assert.equal(fails, false);
  const sent = await outputOf(engine, id) as { runId: string; messageId: string }[];
  const inbox = (await engine.getMessages(chatId)).map(({ id, payload }) => [id, payload]);
  assert.deepEqual(inbox, [[sent[0]!.messageId, "hello"], [sent[1]!.messageId, "world"]]);
  assert.deepEqual(sent.map(({ runId }) => runId), [chatId, chatId]);
});

forEachStore("step.send() fails as a step when nobody takes the message", async ({ store, host }) => {
  const sender = aChat(async (step) => {
    const refused = async (name: string, to: Parameters<StepContext["send"]>[1], payload: unknown) =>
      await step.send(name, to, "text", payload).then(() => "sent", ({ name, message }) => `${name}: ${message}`);
    return [
      await refused("nobody", "nobody", "hi"),
      await refused("no job", { job: "other", key: "k" }, "hi"),
      await refused("wrong", step.runId, 7),
      await refused("nowhere", 7 as never, "hi"),
    ];
  });
  await using engine = createEngine({ store, host, jobs: { sender } });
  const { id } = await engine.trigger(sender, null);

  await engine.runUntilIdle();

  const [nobody, noJob, wrong, nowhere] = await outputOf(engine, id) as string[];
  assert.equal(nobody, 'NotFoundError: There is no run "nobody"');
  assert.equal(
    noJob,
    'TypeError: step.send() cannot send to a run of job "other": the engine that executes it has no such job',
  );
  assert.match(wrong!, /^ValidationError: The payload of message "text" of job "chat" does not fit its schema: /);
  assert.match(nowhere!, /^TypeError: A message is sent to the id of a run, or to \{ job, key \}, not to /);
});

forEachStore("answers and sent messages are replayed from an exported history", async ({ store, host }) => {
  const body = async (step: StepContext) => {
    const got = (await step.receive("text"))!;
    await step.respond(got, 1);
    return await step.send("on", step.runId, "text", "more");
  };
  const chat = aChat(body);
  await using engine = createEngine({ store, host, jobs: { chat } });
  const { id } = await engine.trigger(chat, null);
  await engine.send(id, "text", "hi", { id: "m1" });
  await engine.runUntilIdle();
  const history = await engine.exportHistory(id);

  const same = await replay(history, chat);
  const more = await replay(
    history,
    aChat(async (step) => {
      await body(step);
      await step.respond({ id: "m2" }, 2);
    }),
  );

  assert.equal(same.outcome, "ends the same");
  assert.deepEqual([more.outcome, more.isNew], ["goes on", { kind: "step", name: "respond:m2" }]);
});
