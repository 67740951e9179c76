import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import type { ExportedHistory } from "../../src/model/exported_history.ts";
import type { Job } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Changes } from "../../src/model/job/job_changes.ts";
import { replay } from "../../src/replay/mod.ts";
import { isTerminal } from "../../src/model/run.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { changeProgram } from "./changed_program.ts";
import { type BodyWitness, makeProgram, perform, type Program } from "../simulation/program.ts";
import { Chance } from "../support/chance.ts";
import { FakeHost } from "../support/fake_host.ts";
import { anything, recordEvents } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";

const SEEDS = Number(Deno.env.get("SEEDS") ?? 60);
// Many programs are replayed at the same time.
const PATIENCE = { patience: 400 };

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
    crashes: neverCalled, // nor do they kill anything
    waits: nothing,
    slept: nothing,
    waited: nothing,
    receives: neverCalled, // nor do they receive messages
    received: neverCalled,
    jobOf: neverCalled, // these programs start no other runs
    calls: nothing,
    called: nothing,
    saw: nothing,
    asks: nothing,
    patched: nothing,
  };
  return defineJob({ name: "job", input: anything, changes, run: (step) => perform(program, step, witness) });
}

/** A program, the store with its run, and what drives it. */
class World {
  readonly host = new FakeHost();
  readonly store = new MemoryStore({ host: this.host });
  /** Whether steps fail as their actions say. */
  isDown = true;
  readonly #chance: Chance;

  constructor(chance: Chance) {
    this.#chance = chance;
  }

  /** The function of each step. */
  readonly attempts: BodyWitness["attempts"] = async ({ name, failures, ms }, { attempt }) => {
    await new Promise<void>((resolve) => void this.host.schedule(ms, resolve));
    if (this.isDown && attempt <= failures) throw new Error("not yet");
    return name;
  };

  /** Starts an engine with a program. */
  async start(program: Program): Promise<Engine> {
    const job = aJob(program, this.attempts);
    const engine: Engine = createEngine({ store: this.store, host: this.host, jobs: { job } });
    await engine.start();
    return engine;
  }

  /** Lets some time pass. */
  async pass(steps: number, mostMs: number): Promise<void> {
    for (let step = 0; step < steps; step++) {
      await this.host.settle();
      this.host.advance(this.#chance.int(mostMs));
    }
    await this.host.settle();
  }

  /** Signals some of the waits of a run. */
  async signal(engine: Engine, runId: string, probability: number): Promise<void> {
    for (const wait of await engine.getWaits(runId)) {
      if (wait.status !== "pending" || !this.#chance.happens(probability)) continue;
      await engine.signal(wait.id, { signalId: wait.id, payload: wait.name }).catch(() => {});
    }
  }

  async stop(engine: Engine): Promise<void> {
    let hasStopped = false;
    const stopping = engine.stop().then(() => hasStopped = true);
    while (!hasStopped) {
      await this.host.settle();
      this.host.advance(1_000);
    }
    await stopping;
  }
}

/** Executes a program for some time, retries it if it has failed, and exports the histories now and then. */
async function historiesOf(program: Program, chance: Chance): Promise<ExportedHistory[]> {
  const world = new World(chance);
  const engine = await world.start(program);
  let { id } = await engine.trigger("job", {});
  const histories: ExportedHistory[] = [];
  const drive = async () => {
    for (let at = 0; at < 12; at++) {
      await world.pass(10, 30);
      histories.push(await engine.exportHistory(id));
      await world.signal(engine, id, 0.3);
    }
  };
  await drive();
  if (histories.at(-1)!.status === "failed") {
    world.isDown = false;
    ({ id } = await engine.retrigger(id, { from: "failure" }));
    await drive();
  }
  await world.stop(engine);
  const chosen = [histories.at(-1)!, histories[chance.int(histories.length)]!, histories[11]!];
  return [...new Set(chosen)].filter(({ records }) => records.length > 0);
}

function neverCalled(): never {
  throw new Error("The function of a step was called");
}

Deno.test("replay() of unchanged random programs is never held, and of renamed steps always", async () => {
  const outcomes: Record<string, number> = {};
  const count = (outcome: string) => outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  const work = Array.from({ length: SEEDS }, async (_, seed) => {
    const chance = new Chance(seed, "replays");
    const program = makeProgram(chance);
    for (const history of await historiesOf(program, chance)) {
      const { outcome, message } = await replay(history, aJob(program, neverCalled), PATIENCE);

      // The run may have been about to end, or have parked while its job awaited something outside of its steps.
      const isAsBefore = outcome === "goes on" || outcome === "ends the same" ||
        outcome === "ends otherwise" && !isTerminal(history.status);
      assert.ok(isAsBefore, `seed ${seed}: ${outcome}: ${message}\n${JSON.stringify({ program, history })}`);
      count(outcome);

      const upTo = history.copied?.upTo ?? 0; // what was copied may be left out
      if (history.copied !== undefined) count("retries");
      const steps = history.records.filter(({ kind, no }) => kind === "step" && no! > upTo);
      if (steps.length === 0) continue;
      const { name } = steps[chance.int(steps.length)]!;
      const renamed: Program = JSON.parse(JSON.stringify(program).replaceAll(`"name":"${name}"`, '"name":"renamed"'));
      const held = await replay(history, aJob(renamed, neverCalled), PATIENCE);
      const told = `seed ${seed}: ${JSON.stringify({ program, history, name, held })}`;
      assert.equal(held.outcome, "held", told);
      const goesOn = await replay(history, aJob(renamed, neverCalled, { renamed: { [name]: "renamed" } }), PATIENCE);
      assert.deepEqual([goesOn.outcome, goesOn.neededChanges.renamed], [outcome, { [name]: "renamed" }], told);
      count("renamed");
      if (JSON.stringify(held.suggestion) === JSON.stringify({ renamed: { [name]: "renamed" } })) count("suggested");
    }
  });

  await Promise.all(work);

  if (Deno.env.has("SEEDS")) console.log(outcomes);
  for (const outcome of ["goes on", "ends the same", "renamed"]) assert.ok((outcomes[outcome] ?? 0) > SEEDS / 10);
  assert.ok(
    outcomes.suggested! > 0.9 * outcomes.renamed!,
    "the old name is suggested, but for a few programs with races",
  );
});

Deno.test("replay() of changed random programs says what an engine does with their runs", async () => {
  const outcomes: Record<string, number> = {};
  const differing: string[] = [];
  const work = Array.from({ length: SEEDS }, async (_, seed) => {
    const chance = new Chance(seed, "changes");
    const program = makeProgram(chance);
    const changed = changeProgram(program);
    const world = new World(chance);
    const before = await world.start(program);
    const { id } = await before.trigger("job", {});
    for (let at = chance.int(8); at >= 0; at--) {
      await world.pass(6, 30);
      await world.signal(before, id, 0.3);
    }
    await world.stop(before);
    await world.signal(before, id, 1); // so that the run is due
    const history = await before.exportHistory(id);
    if (isTerminal(history.status) || history.records.length === 0) return;

    const report = await replay(history, aJob(changed, neverCalled), PATIENCE);
    const after = await world.start(changed);
    const events = recordEvents(after);
    for (let at = 0; at < 12; at++) {
      await world.pass(10, 300);
      await world.signal(after, id, 1);
    }
    await world.stop(after);

    const isHeld = events.some(({ type }) => type === "run:hold");
    // What comes after something new that was declared is not known.
    const outcome = report.outcome === "goes on" && report.unasked.length > 0 ? "unknown" : report.outcome;
    const key = `${outcome}, ${isHeld ? "held" : "not held"}`;
    outcomes[key] = (outcomes[key] ?? 0) + 1;
    // A step may have moved behind the pause that the run waits for.
    if (!isHeld && report.message.startsWith("Held at its next step, unless")) return;
    if ((outcome === "held") !== isHeld && events.some(({ type }) => type === "run:start")) {
      differing.push(`seed ${seed}: ${report.message}\n${JSON.stringify({ program, changed, history })}`);
    }
  });

  await Promise.all(work);

  if (Deno.env.has("SEEDS")) console.log(outcomes);
  assert.ok(outcomes["held, held"]! > SEEDS / 20 && outcomes["goes on, not held"]! > SEEDS / 20);
  assert.deepEqual(differing, []);
});
