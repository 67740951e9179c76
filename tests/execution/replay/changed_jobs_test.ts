import assert from "node:assert/strict";
import { z } from "zod";
import type { Job, StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { ChangeDefinition } from "../../../src/model/job/job_changes.ts";
import type { Schema } from "../../../src/model/schema.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { anything, forEachStore, forever, LEASE_MS, type StoreTest } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { signal } from "../../support/pauses.ts";
import { getRun } from "../../../src/store/reads.ts";

/** What a program has executed, in order. */
type Executed = string[];
type Program = (step: StepContext, executed: Executed, input: { order: string; currency?: string }) => unknown;
type Options = ChangeDefinition & { input?: Schema };

/** The program that all runs begin with. It hangs in its last step if it is to be killed there. */
const before = (hangs: boolean): Program => async (step, executed) => {
  await step.run("charge", () => void executed.push("charge"));
  const ok = await step.wait("ok?");
  await step.run("pack", () => void executed.push("pack"));
  await step.run("ship", () => hangs ? forever() : void executed.push("ship"));
  return ok;
};

function aCheckout(program: Program, executed: Executed, { input = anything, ...options }: Options = {}): Job {
  return defineJob({
    name: "checkout",
    input,
    ...options,
    run: (step, given) => program(step, executed, given as { order: string }),
  });
}

/** Executes what is due, and lets the seconds pass that a guard waits for. */
async function execute({ store, host }: StoreTest, job: Job, build = "after"): Promise<void> {
  await using engine = createEngine({ store, host, jobs: { job }, build });
  let isIdle = false;
  const idle = engine.runUntilIdle().then(() => isIdle = true);
  for (let seconds = 0; !isIdle && seconds < 10; seconds++) {
    await host.settle(60);
    if (!isIdle) host.advance(1_000);
  }
  await idle;
}

/** A run of the program that has recorded its first step and its wait, and in one case more. */
const WAYS: Record<string, (context: StoreTest, executed: Executed) => Promise<string>> = {
  async "that was parked"(context, executed) {
    const { store, host } = context;
    const job = aCheckout(before(false), executed);
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, { order: "1" });
    await execute(context, job, "before");
    await signal(engine, id, "ok?", "yes");
    return id;
  },
  async "that was killed in a step"({ store, host }, executed) {
    const job = aCheckout(before(true), executed);
    // The process dies: its clock stops here.
    const dead = createEngine({ store, host: new FakeHost({ seed: 2 }), jobs: { job } });
    const { id } = await dead.trigger(job, { order: "1" });
    void dead.runUntilIdle();
    await host.settle(60);
    await signal(dead, id, "ok?", "yes");
    void dead.runUntilIdle();
    await host.settle(60);
    host.advance(2 * LEASE_MS);
    return id;
  },
};

/** A change of the program, and what becomes of a run that was made before. */
interface Change {
  name: string;
  program: Program;
  options?: Options;
  /** The code of the hold; left out: the run goes on. */
  held?: string;
  /** What is executed after the change, by a run that was parked. */
  then?: string[];
  output?: unknown;
}

const ship: Program = async (step, executed) => {
  await step.run("pack", () => void executed.push("pack"));
  await step.run("ship", () => void executed.push("ship"));
};

const CHANGES: Change[] = [
  {
    name: "a step added at the end",
    async program(step, executed, input) {
      await step.run("charge", () => void executed.push("charge again"));
      const ok = await step.wait("ok?");
      await ship(step, executed, input);
      await step.run("thank", () => void executed.push("thank"));
      return ok;
    },
    then: ["pack", "ship", "thank"],
  },
  {
    name: "a step added before what is recorded",
    async program(step, executed, input) {
      await step.run("fraud check", () => void executed.push("fraud check"));
      return await before(false)(step, executed, input);
    },
    held: "diverged",
  },
  {
    name: "a step added before what is recorded, and declared",
    async program(step, executed, input) {
      await step.run("fraud check", () => void executed.push("fraud check"));
      return await before(false)(step, executed, input);
    },
    options: { changes: { added: ["fraud check"] } },
    then: ["fraud check", "pack", "ship"],
  },
  {
    name: "a step added behind a patch",
    async program(step, executed, input) {
      if (await step.patch("fraud check")) await step.run("fraud check", () => void executed.push("fraud check"));
      return await before(false)(step, executed, input);
    },
    then: ["pack", "ship"],
  },
  {
    name: "a renamed step",
    async program(step, executed, input) {
      await step.run("charge card", () => void executed.push("charge card"));
      const ok = await step.wait("ok?");
      await ship(step, executed, input);
      return ok;
    },
    held: "diverged",
  },
  {
    name: "a renamed step that is declared",
    async program(step, executed, input) {
      await step.run("charge card", () => void executed.push("charge card"));
      const ok = await step.wait("ok?");
      await ship(step, executed, input);
      return ok;
    },
    options: { changes: { renamed: { charge: "charge card" } } },
    then: ["pack", "ship"],
  },
  {
    name: "a renamed wait",
    async program(step, executed, input) {
      await step.run("charge", () => void executed.push("charge"));
      const ok = await step.wait("review");
      await ship(step, executed, input);
      return ok;
    },
    held: "diverged",
  },
  {
    name: "a renamed wait that is declared",
    async program(step, executed, input) {
      await step.run("charge", () => void executed.push("charge"));
      const ok = await step.wait("review");
      await ship(step, executed, input);
      return ok;
    },
    options: { changes: { renamed: { "ok?": "review" } } },
    then: ["pack", "ship"],
  },
  {
    name: "a removed wait",
    async program(step, executed) {
      await step.run("charge", () => void executed.push("charge"));
      await step.run("gift wrap", () => void executed.push("gift wrap"));
    },
    held: "diverged",
  },
  {
    name: "a removed wait at the end",
    async program(step, executed) {
      await step.run("charge", () => void executed.push("charge"));
    },
    held: "ended_early",
  },
  {
    name: "a removed wait that is declared",
    async program(step, executed, input) {
      await step.run("charge", () => void executed.push("charge"));
      await ship(step, executed, input);
      return "no approval";
    },
    options: { changes: { removed: ["ok?"] } },
    then: ["pack", "ship"],
    output: "no approval",
  },
  {
    name: "a job that throws while it replays",
    program: (_step, _executed, { currency }) => currency!.toUpperCase(),
    held: "ended_early",
  },
  {
    name: "an input that the changed schema refuses",
    program: before(false),
    options: { input: z.object({ order: z.string(), currency: z.string() }), version: 2, continues: [1] },
    held: "input_refused",
  },
  {
    name: "an input with a new default",
    async program(step, executed, input) {
      await step.run("charge", () => {});
      await step.wait("ok?");
      await ship(step, executed, input);
      return input.currency;
    },
    options: {
      input: z.object({ order: z.string(), currency: z.string().default("EUR") }),
      version: 2,
      continues: [1],
    },
    then: ["pack", "ship"],
    output: "EUR",
  },
];

for (const { name, program, options, held, then = [], output } of CHANGES) {
  for (const [way, begin] of Object.entries(WAYS)) {
    forEachStore(`${name}: a run ${way} ${held === undefined ? "goes on" : `is held (${held})`}`, async (context) => {
      const executed: Executed = [];
      const id = await begin(context, executed);
      const already = executed.splice(0);
      const job = aCheckout(program, executed, options);

      await execute(context, job);

      const run = (await getRun(context.store, id))!;
      assert.equal(run.held?.code, held, run.held?.message ?? run.error ?? "");
      assert.equal(run.status, held === undefined ? "completed" : "pending", run.error ?? "");
      const expected = then.filter((step) => !already.includes(step));
      assert.deepEqual(executed, expected);
      if (output !== undefined) assert.equal(run.output, output);
    });
  }

  if (held === undefined) continue;
  forEachStore(`${name}: a run that new code holds goes on with the code before, beside it`, async (context) => {
    const executed: Executed = [];
    const id = await WAYS["that was parked"]!(context, executed);
    const [old, changed] = [before(false), program].map((code, at) =>
      aCheckout(code, executed, at === 0 ? {} : options)
    );

    await execute(context, changed!);
    await execute(context, changed!);
    const held = await getRun(context.store, id);
    await execute(context, old!, "before");

    assert.ok(held!.held);
    assert.equal((await getRun(context.store, id))!.status, "completed");
    assert.deepEqual(executed, ["charge", "pack", "ship"]);
  });
}
