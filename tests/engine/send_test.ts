import assert from "node:assert/strict";
import { z } from "zod";
import { NotFoundError, ValidationError } from "../../src/model/error.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { anything, forEachStore } from "../support/stores/for_each_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aJob } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { createEngine as createLoggedEngine } from "../../src/engine/create_engine.ts";

const order = defineJob({
  name: "order",
  input: anything,
  messages: { paid: z.object({ amount: z.number() }), note: z.string().optional() },
  run: (step) => step.receive("paid"),
});

forEachStore("send() answers what became of the message", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { order } });
  const { id } = await engine.trigger(order, null);

  const sent = await engine.jobs.order.send(id, "paid", { amount: 10 }, { id: "event 1" });
  const again = await engine.send(id, "paid", { amount: 10 }, { id: "event 1" });
  const own = await engine.send(id, "paid", { amount: 10 });
  const other = await engine.send(id, "paid", { amount: 10 });

  assert.deepEqual(sent, { runId: id, messageId: "event 1", disposition: "accepted", started: false });
  assert.deepEqual(again, { ...sent, disposition: "duplicate" });
  assert.deepEqual([own.disposition, other.disposition], ["accepted", "accepted"]);
  assert.notEqual(own.messageId, other.messageId);
  assert.equal((await engine.getMessages(id)).length, 3);
});

forEachStore("send() refuses a start that is no object", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { order } });

  for (const start of [null, "now", 1]) {
    const sending = engine.send({ job: "order", key: "k" }, "note", "a", { start: start as never });
    await assert.rejects(sending, {
      name: "ValidationError",
      message: /^start must be an object with the input of a run, not/,
    });
  }
});

forEachStore("send() records who sends, and starts the run in their name", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { order } });
  const to = { key: "k" };

  const { runId } = await engine.jobs.order.send(to, "note", "a", { by: "ada", start: { input: null } });
  await engine.jobs.order.send(to, "note", "b", { by: "bob" });
  await engine.jobs.order.send(to, "note", "c");

  assert.deepEqual((await engine.getMessages(runId)).map(({ sentBy }) => sentBy), ["ada", "bob", null]);
  assert.equal((await engine.getRun(runId))!.triggeredBy, "ada");
  await assert.rejects(engine.send(runId, "note", "d", { by: "" }), ValidationError);
});

forEachStore("send() and ask() of a job find no run of another one", async ({ store, host }) => {
  const takesNotes = { input: anything, messages: { note: z.string() }, run: () => null };
  const other = defineJob({ ...takesNotes, name: "other" });
  const former = defineJob({ ...takesNotes, name: "former" });
  const renamed = defineJob({ ...takesNotes, name: "renamed", aliases: ["former"] });
  await using old = createEngine({ store, host, jobs: { former } });
  await using engine = createEngine({ store, host, jobs: { order, other, renamed } });
  const { id } = await engine.trigger(other, null);
  const { id: formerId } = await old.trigger(former, null);

  const refusal = { name: "NotFoundError", message: `There is no run "${id}" of job "order"` };
  await assert.rejects(engine.jobs.order.send(id, "note", "a"), refusal);
  await assert.rejects(engine.jobs.order.ask(id, "note", "a"), refusal);
  const { disposition } = await engine.jobs.renamed.send(formerId, "note", "a");

  assert.equal(disposition, "accepted");
  assert.deepEqual(await engine.getMessages(id), []);
});

forEachStore("send() refuses what the job does not take, and stores nothing", async ({ store, host }) => {
  const plain = aJob(() => 1, "plain");
  await using engine = createEngine({ store, host, jobs: { order, plain }, maxValueBytes: 100 });
  const { id } = await engine.trigger(order, null);
  const { id: plainId } = await engine.trigger(plain, null);
  const refused = (name: string, payload: unknown, options?: { id?: string }, to = id) =>
    engine.send(to, name, payload, options).then(
      () => null,
      (error) => [error.constructor.name, error.code, error.message],
    );

  assert.deepEqual(await refused("txt", 1), [
    "ValidationError",
    "invalid_request",
    'Job "order" has no message "txt": its messages are "paid", "note"',
  ]);
  assert.deepEqual(await refused("toString", 1), [
    "ValidationError",
    "invalid_request",
    'Job "order" has no message "toString": its messages are "paid", "note"',
  ]);
  assert.deepEqual(await refused("paid", 1, {}, plainId), [
    "ValidationError",
    "invalid_request",
    'Job "plain" takes no messages',
  ]);
  const [name, code, message] = (await refused("paid", { amount: "10" }))!;
  assert.deepEqual([name, code], ["ValidationError", "invalid_input"]);
  assert.match(message, /The payload of message "paid" of job "order" does not fit its schema: amount: /);
  assert.equal((await refused("note", undefined))![2], "A message must have a payload, which may be null");
  assert.equal((await refused("note", "x".repeat(200)))![0], "SerializationError");
  for (const messageId of ["", " ", "x".repeat(201), "a\0"]) {
    assert.equal((await refused("note", "hi", { id: messageId }))![0], "ValidationError");
  }
  assert.equal((await refused("note", "hi", { di: "1" } as object))![0], "TypeError");
  assert.deepEqual(await engine.getMessages(id), []);
});

forEachStore("send() needs a run, and an engine that has its job", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { order } });
  await using other = createEngine({ store, host, jobs: { plain: aJob(() => 1, "plain") } });
  const { id } = await engine.trigger(order, null);

  await assert.rejects(engine.send("nobody", "paid", { amount: 1 }), { message: 'There is no run "nobody"' });
  await assert.rejects(other.send(id, "paid", { amount: 1 }), NotFoundError);
  await assert.rejects(engine.send(7 as unknown as string, "paid", { amount: 1 }), TypeError);
  await assert.rejects(engine.getMessages("nobody"), NotFoundError);
});

Deno.test("a run that ends with unread messages says so in the log, once", async () => {
  const lines: string[] = [];
  const logger = { info() {}, error() {}, warn: (line: string) => void lines.push(line) };
  const done = defineJob({ name: "done", input: anything, messages: { note: z.string() }, run: () => 1 });
  const host = new FakeHost();
  const engine = createLoggedEngine({
    store: new MemoryStore({ host }),
    host,
    jobs: { done, plain: aJob(() => 1, "plain") },
    logger,
  });
  const { id } = await engine.trigger(done, null);
  await engine.trigger("plain", null);
  await engine.send(id, "note", "a");
  await engine.send(id, "note", "b");

  await engine.runUntilIdle();
  await engine.stop();

  assert.deepEqual(lines, [`Run "${id}" ended with 2 unread messages`]);
  assert.deepEqual((await engine.getMessages(id)).map(({ status }) => status), ["closed", "closed"]);
});

Deno.test("defineJob() refuses messages that are no schemas", () => {
  const define = (messages: unknown) => () =>
    defineJob({ name: "a", input: anything, messages: messages as never, run: () => 1 });

  assert.throws(define(7), {
    name: "TypeError",
    message: 'messages of job "a" must be an object of schemas by names, not a number',
  });
  assert.throws(define({ a: 1 }), { name: "TypeError" });
  assert.throws(define({ "": z.string() }), ValidationError);
});
