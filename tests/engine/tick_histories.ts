import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import type { IdleResult } from "../../src/engine/lifecycle.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { Chance } from "../support/chance.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";
import { aJob, echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";

/** Compares random histories whose engine is called when something is due with those whose engine is called often. */
export async function compareTicks(seeds: number): Promise<void> {
  for (let seed = 1; seed <= seeds; seed++) {
    const due = await endStates(seed, true);
    const polled = await endStates(seed, false);
    assert.deepEqual(due, polled, `seed ${seed}`);
  }
}

const END_MS = 60_000;

/** The end states of a random history whose engine is called by `wake`. */
async function endStates(seed: number, wakesAtDue: boolean): Promise<unknown> {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const work = aJob((step, input) => someWork(step, input as number), "work");
  const limited = defineJob({
    name: "limited",
    input: anything,
    limits: { concurrency: 1, rate: { limit: 2, period: 3_000 } },
    run: (step, input) => someWork(step, input as number),
  });
  const engine = createEngine({
    store,
    host,
    jobs: { work, limited, echo },
    schedules: { often: { job: "echo", input: "slot", cron: "*/9 * * * * *", overlap: "allow", catchUp: "all" } },
  });
  const chance = new Chance(seed, "history");
  const triggers = Array.from({ length: 6 }, (_, n) => ({
    at: Math.floor(chance.next() * 10_000),
    job: chance.next() < 0.5 ? "work" : "limited",
    input: Math.floor(chance.next() * 1_000_000),
    options: {
      labels: { n: `${n}` },
      ...(chance.next() < 0.3 ? { delay: Math.floor(chance.next() * 4_000) } : {}),
      ...(chance.next() < 0.2 ? { concurrencyKey: "one" } : {}),
    },
  })).sort((one, other) => one.at - other.at);
  const pollMs = chance.pick([97, 503, 1_009, 2_003]);
  const elapsed = () => host.now() - FAKE_START;
  for (let wakes = 0; elapsed() < END_MS; wakes++) {
    while (triggers.length > 0 && triggers[0]!.at <= elapsed()) {
      const { job, input, options } = triggers.shift()!;
      await engine.trigger(job, input, options);
    }
    const { nextDueAt } = await tick(engine, host);
    assert.ok(wakes < 5_000, "it wakes over and over");
    const due = wakesAtDue ? nextDueAt === null ? END_MS : Date.parse(nextDueAt) - FAKE_START : elapsed() + pollMs;
    const until = Math.min(due, triggers[0]?.at ?? END_MS, END_MS);
    if (until > elapsed()) host.advance(until - elapsed());
  }
  const { runs } = await engine.getRuns({ limit: 1_000 });
  await engine.stop();
  await store.close();
  return runs.filter(({ jobName }) => jobName !== "echo").map(({ labels, status, output, error }) => ({
    labels,
    status,
    output,
    error,
  }))
    .sort((one, other) => one.labels.n! < other.labels.n! ? -1 : 1)
    .concat({
      labels: {},
      status: "completed",
      output: runs.filter(({ jobName }) => jobName === "echo").length,
      error: null,
    });
}

/** A tick that lets time pass while a run waits for it in memory. */
async function tick(engine: Engine, host: FakeHost): Promise<IdleResult> {
  let result: IdleResult | null = null;
  const ticking = engine.runUntilIdle().then((ended) => void (result = ended));
  for (let n = 0; n < 1_000 && result === null; n++) {
    for (let turn = 0; turn < 20 && result === null; turn++) await host.settle(1);
    if (result === null) host.advance(10);
  }
  await ticking;
  return result!;
}

/** What a run of the property does, drawn from its seed. */
async function someWork(step: StepContext, seed: number): Promise<string> {
  const chance = new Chance(seed, "work");
  const did: string[] = [];
  for (let n = 0; n < 4; n++) {
    const ms = Math.floor(chance.next() * 5_000);
    switch (Math.floor(chance.next() * 4)) {
      case 0:
        await step.sleep("rest", ms);
        break;
      case 1:
        did.push((await step.wait("answer", { timeout: ms })).outcome);
        break;
      case 2: {
        const attempts = 1 + Math.floor(chance.next() * 3);
        did.push(
          await step.run("try", ({ attempt }) => attempt < attempts ? fail() : `${attempt}`, {
            retry: { maxAttempts: 3, delay: ms + 1_001 },
          }),
        );
        break;
      }
      default:
        await Promise.race([step.sleep("short", ms), step.sleep("long", ms + 1_000)]);
    }
  }
  return did.join();
}

function fail(): never {
  throw new Error("broken");
}
