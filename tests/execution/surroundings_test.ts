import assert from "node:assert/strict";
import { z } from "zod";
import { createEngineIn } from "../../src/engine/create_engine.ts";
import { internalsOf } from "../../src/engine/engine_internals.ts";
import { PRODUCTION, type Surroundings } from "../../src/execution/surroundings.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { getRun } from "../../src/store/reads.ts";

const napping = defineJob({
  name: "napping",
  input: z.number(),
  async run(step, hours) {
    await step.sleep("nap", hours * 3_600_000);
    return await step.run("work", () => "done");
  },
});

function arrange(surroundings: Partial<Surroundings>) {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const asked = { version: 0, claims: 0 };
  const { getVersion, claim } = store;
  store.getVersion = () => (asked.version += 1, getVersion.call(store));
  store.claim = (request) => (asked.claims += 1, claim.call(store, request));
  const engine = createEngineIn({ ...PRODUCTION, ...surroundings }, {
    store,
    host,
    jobs: { napping },
    logger: null,
  });
  return { host, store, engine, asked };
}

Deno.test("an engine that does not poll asks its store for nothing while nothing is due, and resumes runs in time", async () => {
  const { host, engine, asked } = arrange({ polls: false });
  await engine.start();
  const { id } = await engine.trigger(napping, 2);
  await host.settle();
  const before = { ...asked };

  host.advance(2 * 3_600_000 - 1);
  await host.settle();
  assert.deepEqual(asked, before);
  host.advance(1);
  await host.settle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.equal(asked.version, 0);
  await engine.stop();
});

Deno.test("surroundings call the functions of jobs and steps, and can do something else instead", async () => {
  const called: string[] = [];
  const { host, engine } = arrange({
    polls: false,
    callJob: ({ run }, input, step, body) => (called.push(`${run.jobName}(${input})`), body(step)),
    callStep: ({ stepName, tools }) => (called.push(`${stepName} ${tools.attempt}`), "instead"),
  });
  await engine.start();
  const { id } = await engine.trigger(napping, 0);
  await host.settle();

  assert.equal((await engine.getRun(id))!.output, "instead");
  assert.deepEqual([called[0], called.at(-1)], ["napping(0)", "work 1"]);
  await engine.stop();
});

Deno.test("a discarded engine begins nothing more: no step of a job that goes on, and no call to the store", async () => {
  const gate = Promise.withResolvers<void>();
  const begun: string[] = [];
  const parallel = defineJob({
    name: "parallel",
    input: z.null(),
    run: async (step) => {
      await gate.promise;
      await step.run("work", () => void begun.push("work"));
    },
  });
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const engine = createEngineIn({ ...PRODUCTION, polls: false }, { store, host, jobs: { parallel }, logger: null });
  await engine.start();
  const { id } = await engine.trigger(parallel, null);
  await host.settle();
  assert.deepEqual(internalsOf(engine).lifecycle.worker.runsInOwnCode(), [id]);

  internalsOf(engine).lifecycle.discard();
  gate.resolve();
  await host.settle();

  assert.deepEqual([begun, internalsOf(engine).lifecycle.worker.runsInOwnCode()], [[], []]);
  assert.equal((await getRun(store, id))!.status, "running");
});
