import assert from "node:assert/strict";
import { defineJob, type Job } from "../../src/job.ts";
import type { Changes } from "../../src/job_changes.ts";
import type { ExportedHistory } from "../../src/exported_history.ts";
import { replay } from "../../src/replay/mod.ts";
import { isTerminal } from "../../src/run.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { type BodyWitness, makeProgram, perform, type Program } from "../simulation/program.ts";
import { Chance } from "../support/chance.ts";
import { FakeHost } from "../support/fake_host.ts";
import { anything } from "../support/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";

const SEEDS = Number(Deno.env.get("SEEDS") ?? 60);

function aJob(program: Program, attempts: BodyWitness["attempts"], changes: Changes = {}): Job {
  const nothing = () => {};
  // A race with an await outside of steps may truly end another way in each execution.
  const hasRaces = JSON.stringify(program).includes('"do":"race"');
  const turn = () => new Promise((resolve) => setTimeout(resolve, 0));
  const witness: BodyWitness = {
    attempts,
    stepped: nothing,
    remark: () => "",
    sleeps: nothing,
    async idles(turns) {
      for (let at = 0; at < turns % 3; at++) await (hasRaces ? null : turn());
    },
    branches: nothing,
    waits: nothing,
    slept: nothing,
    waited: nothing,
    saw: nothing,
  };
  return defineJob({ name: "job", input: anything, changes, run: (step) => perform(program, step, witness) });
}

/** Executes a program for some time, signals some of its waits, and exports its history now and then. */
async function historiesOf(program: Program, chance: Chance): Promise<ExportedHistory[]> {
  const host = new FakeHost();
  const job = aJob(program, async ({ name, failures, ms }, { attempt }) => {
    await new Promise<void>((resolve) => void host.schedule(ms, resolve));
    if (attempt <= failures) throw new Error("not yet");
    return name;
  });
  await using store = new MemoryStore({ host });
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  const { id } = await engine.trigger(job, {});
  const histories: ExportedHistory[] = [];
  for (let at = 0; at < 12; at++) {
    for (let step = 0; step < 10; step++) {
      await host.settle();
      host.advance(chance.int(30));
    }
    await host.settle();
    histories.push(await engine.exportHistory(id));
    for (const wait of await engine.getWaits(id)) {
      if (wait.status !== "pending" || !chance.happens(0.3)) continue;
      await engine.signal(wait.id, { signalId: wait.id, payload: at }).catch(() => {});
    }
  }
  const stopping = engine.stop();
  for (let turn = 0; turn < 20; turn++) {
    await host.settle();
    host.advance(1_000);
  }
  await stopping;
  // One of those while it was open, and the last one.
  const open = histories.filter(({ status, records }) => status !== "completed" && records.length > 0);
  return [...(open.length === 0 ? [] : [open[chance.int(open.length)]!]), histories.at(-1)!];
}

function neverCalled(): never {
  throw new Error("The function of a step was called");
}

Deno.test("replay() of unchanged random programs is never held, and of renamed steps always", async () => {
  const outcomes: Record<string, number> = {};
  const work = Array.from({ length: SEEDS }, async (_, seed) => {
    const chance = new Chance(seed, "replays");
    const program = makeProgram(chance);
    for (const history of await historiesOf(program, chance)) {
      const { outcome, message } = await replay(history, aJob(program, neverCalled), { patience: 300 });

      // The run may have been about to end, or have parked while its job awaited something outside of its steps.
      const isAsBefore = outcome === "goes on" || outcome === "ends the same" ||
        outcome === "ends otherwise" && !isTerminal(history.status);
      assert.ok(isAsBefore, `seed ${seed}: ${outcome}: ${message}\n${JSON.stringify({ program, history })}`);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;

      const steps = history.records.filter(({ kind }) => kind === "step");
      if (steps.length === 0) continue;
      const { name } = steps[chance.int(steps.length)]!;
      const renamed: Program = JSON.parse(JSON.stringify(program).replaceAll(`"name":"${name}"`, '"name":"renamed"'));
      const held = await replay(history, aJob(renamed, neverCalled), { patience: 300 });
      const told = JSON.stringify({ program, history, name, held });
      assert.equal(held.outcome, "held", `seed ${seed}: ${told}`);
      const declared = aJob(renamed, neverCalled, { renamed: { [name]: "renamed" } });
      const goesOn = await replay(history, declared, { patience: 300 });
      assert.deepEqual([goesOn.outcome, goesOn.neededChanges.renamed], [outcome, { [name]: "renamed" }], told);
      outcomes.renamed = (outcomes.renamed ?? 0) + 1;
      const isFound = JSON.stringify(held.suggestion) === JSON.stringify({ renamed: { [name]: "renamed" } });
      if (isFound) outcomes.found = (outcomes.found ?? 0) + 1;
    }
  });
  await Promise.all(work);

  for (const outcome of ["goes on", "ends the same", "renamed"]) assert.ok((outcomes[outcome] ?? 0) > SEEDS / 10);
  assert.ok(outcomes.found! > 0.9 * outcomes.renamed!, "the old name is suggested, but for a few programs with races");
});
