import assert from "node:assert/strict";
import { NotFoundError, SerializationError } from "../../../src/model/error.ts";
import type { RedactedValue } from "../../../src/engine/runs/export_history.ts";
import type { ExportedHistory, PauseHistory, ReceiveHistory } from "../../../src/model/exported_history.ts";
import type { StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { replay } from "../../../src/replay/mod.ts";
import { getWaits } from "../../../src/store/reads.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { anything, forEachStore } from "../../support/stores/for_each_store.ts";
import { signal } from "../../support/pauses.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const child = defineJob({ name: "child", input: anything, run: () => "secret of the child" });

const checkout = defineJob({
  name: "checkout",
  input: anything,
  async run(step: StepContext) {
    await step.run("charge", () => ({ card: "secret card" }));
    await step.run("charge", () => undefined);
    await step.run("log", () => {
      throw new Error("secret failure", { cause: new TypeError("secret cause") });
    }).catch(() => {});
    await step.patch("new");
    const ok = await step.wait("ok?", { metadata: { to: "secret address" } });
    await step.invoke("child", child, {});
    await step.sleep("nap", 0);
    return { ok: ok.outcome, note: "secret note" };
  },
});

forEachStore("exportHistory() writes all that a replay needs, as JSON and in its order", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { checkout, child } });
  const { id } = await engine.trigger(checkout, { order: "o-1" });
  await engine.runUntilIdle();
  const waiting = await engine.exportHistory(id);
  await signal(engine, id, "ok?", "secret answer");
  await engine.runUntilIdle();

  const history = await engine.exportHistory(id);

  assert.deepEqual(JSON.parse(JSON.stringify(history)), history);
  const { records, ...run } = history;
  assert.deepEqual(run, {
    format: 1,
    runId: id,
    jobName: "checkout",
    version: 1,
    status: "completed",
    payload: { order: "o-1" },
    input: { order: "o-1" },
    output: { ok: "signal", note: "secret note" },
  });
  assert.deepEqual(records.map(({ kind, name, occurrence, no }) => [no, kind, name, occurrence]), [
    [1, "step", "charge", 1],
    [2, "step", "charge", 2],
    [3, "step", "log", 1],
    [4, "patch", "new", 1],
    [5, "wait", "ok?", 1],
    [6, "children", "child", 1],
    [7, "sleep", "nap", 1],
  ]);
  assert.deepEqual(records[0], {
    kind: "step",
    name: "charge",
    occurrence: 1,
    no: 1,
    status: "completed",
    attempts: 1,
    result: { card: "secret card" },
  });
  assert.ok(!("result" in records[1]!));
  assert.deepEqual((records[2] as { error: object }).error, {
    kind: "error",
    name: "Error",
    message: "secret failure",
    cause: { kind: "error", name: "TypeError", message: "secret cause" },
  });
  assert.deepEqual(waiting.records.map(({ no }) => no), [1, 2, 3, 4, null]);
  assert.deepEqual([waiting.status, "output" in waiting], ["waiting", false]);
});

Deno.test("exportHistory() redacts every value, and what is left replays", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: { checkout, child } });
  const { id } = await engine.trigger(checkout, { order: "secret order" });
  await engine.runUntilIdle();
  await signal(engine, id, "ok?", "secret answer");
  await engine.runUntilIdle();
  const seen: RedactedValue[] = [];

  const history = await engine.exportHistory(id, {
    redact: (value, about) => {
      seen.push(about);
      return JSON.parse(JSON.stringify(value).replaceAll(/secret|signal of ok\\?/g, "hidden"));
    },
  });

  assert.doesNotMatch(JSON.stringify(history), /secret|signal of/);
  assert.deepEqual(seen.map(({ kind, name, part }) => `${kind} ${name} ${part}`), [
    "run checkout payload",
    "run checkout input",
    "step charge result",
    "step log error",
    "step log error",
    "wait ok? result",
    "wait ok? signalId",
    "wait ok? metadata",
    "children child result",
    "run checkout output",
  ]);
  assert.equal((await replay(history, checkout)).outcome, "ends otherwise"); // the note of the output is another one
});

forEachStore("exportHistory() says who acted, unless it redacts", async ({ store, host }) => {
  const order = defineJob({
    name: "order",
    input: anything,
    messages: { paid: anything },
    async run(step) {
      await step.wait("ok?");
      await step.receive("paid");
      await step.wait("never");
    },
  });
  await using engine = createEngine({ store, host, jobs: { order } });
  const { id } = await engine.trigger(order, {}, { by: "ada" });
  await engine.runUntilIdle();
  const [wait] = await getWaits(store, id);
  await engine.signal(wait!.id, { signalId: "s", payload: null }, { by: "ben" });
  await engine.runUntilIdle();
  await engine.send(id, "paid", 7, { by: "cleo" });
  await engine.runUntilIdle();
  await engine.cancel(id, { by: "dan" });

  const history = await engine.exportHistory(id);
  const redacted = await engine.exportHistory(id, { redact: (value) => value });

  const { triggeredBy, cancelledBy, records: [answered, received] } = history;
  const { messages } = received as ReceiveHistory;
  assert.deepEqual([triggeredBy, (answered as PauseHistory).signalledBy, messages![0]!.sentBy, cancelledBy], [
    "ada",
    "ben",
    "cleo",
    "dan",
  ]);
  assert.doesNotMatch(JSON.stringify(redacted), /"(ada|ben|cleo|dan)"/);
});

Deno.test("exportHistory() has the failure of a failed run, without its stack", async () => {
  const failing = defineJob({
    name: "failing",
    input: anything,
    run: (step) =>
      step.run("charge", () => {
        throw new RangeError("no money");
      }),
  });
  await using engine = createEngine({ store: new MemoryStore(), jobs: { failing } });
  const { id } = await engine.trigger(failing, {});
  await engine.runUntilIdle();

  const history: ExportedHistory = await engine.exportHistory(id);

  assert.deepEqual([history.status, history.error], [
    "failed",
    { kind: "error", name: "RangeError", message: "no money" },
  ]);
  assert.equal((await replay(history, failing)).outcome, "ends the same");
});

Deno.test("exportHistory() refuses an unknown run, an unknown option, and what redact() must not return", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: { checkout, child } });
  const { id } = await engine.trigger(checkout, { order: "o-1" });
  await engine.runUntilIdle();

  await assert.rejects(engine.exportHistory("run"), NotFoundError);
  await assert.rejects(engine.exportHistory(id, { redacted: true } as object), TypeError);
  await assert.rejects(engine.exportHistory(id, { redact: true as never }), {
    message: "redact of exportHistory() must be a function, not a boolean",
  });
  await assert.rejects(engine.exportHistory(id, { redact: () => 1n }), SerializationError);
  await assert.rejects(
    engine.exportHistory(id, { redact: (value, { part }) => part === "error" ? 1 : value }),
    /redact\(\) must return a string for the error of step "log", not a number/,
  );
});
