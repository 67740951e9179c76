import assert from "node:assert/strict";
import { createEngine } from "../../src/engine/create_engine.ts";
import type { Report } from "../../src/model/execution_report.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Lease } from "../../src/model/lease.ts";
import type { SavedStep, StepWrite } from "../../src/model/step.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { anything } from "../support/stores/for_each_store.ts";

// What a worker does when the store lacks a record that it has acknowledged: a database failed over to a standby without
// the last commits.

/** A store that loses one step after it has acknowledged it. */
class ForgetfulStore extends MemoryStore {
  /** How many records each write said that its holder knows. */
  readonly known: number[] = [];
  #toLose: string | null;

  constructor(toLose: string | null) {
    super();
    this.#toLose = toLose;
  }

  override saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]): Promise<SavedStep> {
    this.known.push(lease.recorded);
    if (step.name !== this.#toLose) return super.saveStep(lease, step, reports);
    this.#toLose = null;
    return Promise.resolve({ recordedNo: lease.recorded + 1, retry: null });
  }
}

function threeSteps() {
  const calls: string[] = [];
  const job = defineJob({
    name: "three",
    input: anything,
    run: async (step) => {
      for (const name of ["a", "b", "c"]) await step.run(name, () => void calls.push(name));
      return "done";
    },
  });
  return { calls, job };
}

Deno.test("a write says how many records of the run its execution knows", async () => {
  const { job } = threeSteps();
  await using store = new ForgetfulStore(null);
  const engine = createEngine({ store, jobs: { job } });
  await engine.start();

  await engine.jobs.job.triggerAndWait(null);

  assert.deepEqual(store.known, [0, 1, 2]);
  await engine.stop();
});

for (const lost of ["b", "c"]) {
  Deno.test(`a run goes on from what the store has after it has lost step ${lost}, which is executed again`, async () => {
    const { calls, job } = threeSteps();
    await using store = new ForgetfulStore(lost);
    const engine = createEngine({ store, jobs: { job } });
    await engine.start();

    const run = await engine.jobs.job.triggerAndWait(null);

    const steps = await engine.getSteps(run.id);
    assert.equal(run.output, "done");
    assert.deepEqual(
      steps.map(({ name, status }) => [name, status]),
      ["a", "b", "c"].map((name) => [name, "completed"]),
    );
    // The step after the lost one was executed in vain: it could not be recorded.
    assert.deepEqual(calls, lost === "b" ? ["a", "b", "c", "b", "c"] : ["a", "b", "c", "c"]);
    assert.equal(run.held, null);
    await engine.stop();
  });
}
