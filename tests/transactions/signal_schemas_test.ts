import assert from "node:assert/strict";
import { z } from "zod";
import { ValidationError } from "../../src/model/error.ts";
import type { DataSource } from "../../src/model/data_source.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Signal } from "../../src/model/wait.ts";
import type { Json } from "../../src/values/json.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";
import { forEachSource, type Rows } from "./for_each_source.ts";
import { JOINED } from "./joined_stores.ts";

const answer = z.object({ approved: z.boolean() });
const inTime = z.object({ approved: z.boolean() }).refine(() => Promise.resolve(true));
// The schema of one is stored with its wait; that of the other stands in the definition of the job.
const stored = defineJob({
  name: "stored",
  input: anything,
  run: (step) => step.wait("review", { schema: answer }),
});
const declared = defineJob({
  name: "declared",
  input: anything,
  waits: { approval: answer.refine(({ approved }) => approved, "must be approved") },
  run: (step) => step.wait("approval"),
});
const slow = defineJob({
  name: "slow",
  input: anything,
  waits: { slow: inTime },
  run: (step) => step.wait("slow"),
});
let fails = true;
// Its mail with the id of the wait is sent before it fails.
const mailing = (name: string, renamed = {}) =>
  defineJob({
    name: "mailed",
    input: anything,
    changes: { renamed },
    async run(step) {
      const wait = await step.prepareWait(name, { schema: answer });
      await step.run("mail", () => {
        if (fails) throw new Error("the mail service is down");
      });
      return await step.waitFor(wait);
    },
  });
const mailed = mailing("answer");
const jobs = { stored, declared, slow, mailed };
const WRONG = { stored: { approved: "yes" }, declared: { approved: false } };
const RIGHT = { approved: true };

interface SignallingTx {
  signal(waitId: string, signal: Signal): void | Promise<void>;
}

/** An engine whose run of a job waits. */
async function aWait(store: Store, source: DataSource, job: keyof typeof jobs) {
  const engine = createEngine({ store, jobs, dataSources: { app: source } });
  await engine.migrate();
  const { id: runId } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(runId);
  return { engine, runId, wait: wait! };
}

/** A function of a transaction that is synchronous on SQLite. */
function sending({ kind }: DataSource, ...signals: [waitId: string, payload: Json][]) {
  const send = (tx: SignallingTx, at: number): unknown => {
    if (at === signals.length) return;
    const [waitId, payload] = signals[at]!;
    const sent = tx.signal(waitId, { signalId: `s${at}`, payload });
    return kind === "sqlite" ? send(tx, at + 1) : sent!.then(() => send(tx, at + 1));
  };
  return (tx: unknown) => send(tx as SignallingTx, 0);
}

for (const [name, open] of JOINED) {
  for (const job of ["stored", "declared"] as const) {
    Deno.test(`${name}: tx.signal() refuses a payload that does not fit the ${job} schema of its wait`, async () => {
      const { store, source, end } = await open();
      const { engine, runId, wait } = await aWait(store, source, job);

      const refused = engine.transaction(source, sending(source, [wait.id, WRONG[job]]) as never);

      await assert.rejects(refused, (error: ValidationError) => {
        assert.ok(error instanceof ValidationError);
        assert.deepEqual([error.code, error.issues.length], ["invalid_input", 1]);
        return true;
      });
      assert.deepEqual(await engine.getWait(wait.id), wait);
      const { signals } = await engine.transaction(source, sending(source, [wait.id, RIGHT]) as never);
      assert.deepEqual(signals!.map(({ disposition }) => disposition), ["accepted"]);
      const again = await engine.transaction(source, sending(source, [wait.id, RIGHT]) as never);
      assert.deepEqual(again.signals!.map(({ disposition }) => disposition), ["duplicate"]);
      await engine.runUntilIdle();
      assert.equal((await engine.getRun(runId))!.status, "completed");
      await engine.stop();
      await end();
    });
  }

  Deno.test(`${name}: tx.signal() to a wait of a run that was retried from its failure ends that of the newest retry`, async () => {
    const { store, source, end } = await open();
    fails = true;
    const { engine, runId, wait } = await aWait(store, source, "mailed");
    const { id: failed } = await engine.retrigger(runId, { from: "failure" });
    await engine.runUntilIdle();
    fails = false;
    const { id: retried } = await engine.retrigger(failed, { from: "failure" });
    await engine.runUntilIdle();

    const refused = engine.transaction(source, sending(source, [wait.id, { approved: "yes" }]) as never);
    await assert.rejects(refused, { name: "ValidationError", code: "invalid_input" });
    const { signals } = await engine.transaction(source, sending(source, [wait.id, RIGHT]) as never);
    await engine.runUntilIdle();

    const [current] = await engine.getWaits(retried);
    assert.deepEqual(signals!.map(({ wait, disposition }) => [wait.id, disposition]), [[current!.id, "accepted"]]);
    assert.equal((await engine.getRun(retried))!.status, "completed");
    await engine.stop();
    await end();
  });

  Deno.test(`${name}: tx.signal() finds the wait of a retry also under a later name, and behind a run that was deleted`, async () => {
    const { store, source, end } = await open();
    fails = true;
    const { engine: before, runId, wait } = await aWait(store, source, "mailed");
    const { id: failed } = await before.retrigger(runId, { from: "failure" });
    await before.runUntilIdle();
    await before.stop();
    fails = false;
    const renamed = { mailed: mailing("reply", { answer: "reply" }) };
    const engine = createEngine({ store, jobs: renamed, dataSources: { app: source } });
    const { id: retried } = await engine.retrigger(failed, { from: "failure" });
    await engine.runUntilIdle();
    await engine.deleteRun(failed);

    const { signals } = await engine.transaction(source, sending(source, [wait.id, RIGHT]) as never);

    assert.deepEqual(signals!.map(({ wait }) => [wait.runId, wait.name]), [[retried, "reply"]]);
    await engine.stop();
    await end();
  });

  Deno.test(`${name}: a transaction whose function has caught the refusal of a signal commits the rest`, async () => {
    const { store, source, end } = await open();
    const { engine, wait } = await aWait(store, source, "stored");
    const work = source.kind === "sqlite"
      ? (tx: SignallingTx) => {
        assert.throws(() => tx.signal(wait.id, { signalId: "s1", payload: 7 }), ValidationError);
        tx.signal(wait.id, { signalId: "s2", payload: RIGHT });
      }
      : async (tx: SignallingTx) => {
        await assert.rejects(tx.signal(wait.id, { signalId: "s1", payload: 7 })!, ValidationError);
        tx.signal(wait.id, { signalId: "s2", payload: RIGHT }); // not awaited
      };

    const { signals } = await engine.transaction(source, work as never);

    assert.deepEqual(signals!.map(({ wait }) => wait.signalId), ["s2"]);
    await engine.stop();
    await end();
  });
}

Deno.test("SQLite: tx.signal() refuses a wait whose schema is asynchronous", async () => {
  const { store, source, end } = await JOINED[0]![1]();
  const { engine, wait } = await aWait(store, source, "slow");

  const refused = engine.transaction(source, sending(source, [wait.id, RIGHT]) as never);

  await assert.rejects(refused, /The schema of the payload of wait ".*" is asynchronous: a transaction on SQLite/);
  assert.equal((await engine.getWait(wait.id))!.status, "pending");
  await engine.stop();
  await end();
});

for (const job of ["stored", "declared"] as const) {
  forEachSource(
    `a relayed signal whose payload does not fit the ${job} schema of its wait is refused for good`,
    async (rows: Rows) => {
      const { engine, runId, wait } = await aWait(new MemoryStore(), rows.source, job);
      const send = (signalId: string, payload: Json) =>
        rows.begin((client) => engine.inTransaction(rows.source, client).signal(wait.id, { signalId, payload }));
      await send("s1", WRONG[job]);
      await send("s2", RIGHT);

      await engine.start();
      const { status, output } = await engine.waitForRun(runId);

      assert.deepEqual([status, (output as { signalId: string }).signalId], ["completed", "s2"]);
      while ((await rows.outbox()).length > 1) await new Promise((resolve) => setTimeout(resolve, 5));
      const [refused] = await rows.outbox();
      assert.match(
        refused!,
        new RegExp(`^signal ${wait.id} The payload of wait "${wait.name}" does not fit its schema`),
      );
      while ((await engine.health()).checks.every(({ name }) => name !== "outbox")) {
        await new Promise((resolve) => setTimeout(resolve, 50)); // it is asked once a second
      }
      await engine.stop();
    },
  );
}
