import assert from "node:assert/strict";
import { createEngine } from "../../src/engine/create_engine.ts";
import { debuggedStore } from "../../src/engine/debugged_store.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aClaimRequest, aRun } from "../support/fixtures.ts";
import { z } from "zod";
import { runProgram } from "../support/stores/sqlite.ts";

function anOpen(variable: string) {
  const host = new FakeHost();
  const lines: string[] = [];
  return { host, lines, store: debuggedStore(new MemoryStore({ host }), variable, (line) => lines.push(line)) };
}

Deno.test("debuggedStore() is the store itself if the variable names nothing", () => {
  const store = new MemoryStore();

  assert.equal(debuggedStore(store, ""), store);
});

Deno.test("debuggedStore() says which topics there are, if it is given another one", () => {
  const { lines } = anOpen("claims");

  assert.deepEqual(lines, ['HOLDFAST_DEBUG: there is no "claims", but claim, lease, journal']);
});

Deno.test("HOLDFAST_DEBUG=claim prints what a claim takes, and why it leaves the first run of a job", async () => {
  const { store, lines } = anOpen("claim");
  const [first, second] = [aRun(), aRun()];
  await store.enqueue([first, second]);
  const [job] = aClaimRequest().jobs;

  await store.claim(aClaimRequest({ workerId: "w", limit: 2, jobs: [{ ...job!, concurrency: 1 }] }));

  assert.match(
    lines[0]!,
    new RegExp(`^holdfast claim: worker w holds 0, asks for 2 of ${job!.name}@1; took ${first.id},`),
  );
  assert.match(
    lines[1]!,
    new RegExp(`^holdfast claim: left job ${job!.name} with 1 pending, 0 waiting; first ${second.id}: `),
  );
  assert.equal(lines.length, 2);
});

Deno.test("HOLDFAST_DEBUG=lease prints which leases are given, renewed, lost and released", async () => {
  const { store, lines } = anOpen(" lease,");
  const { id } = aRun();
  await store.enqueue([aRun({ id })]);
  const { claims } = await store.claim(aClaimRequest());
  const { lease } = claims[0]!;
  await store.renew([{ lease, reports: [] }], 1_000);
  await store.renew([{ lease: { ...lease, generation: 7 }, reports: [] }], 1_000);
  await store.release(lease, []);

  assert.deepEqual(lines, [
    `holdfast lease: gave run ${id}, generation 1`,
    lines[1],
    `holdfast lease: lost run ${id}, generation 7`,
    `holdfast lease: released run ${id}, generation 1`,
  ]);
  assert.match(lines[1]!, new RegExp(`^holdfast lease: renewed until ${"\\S+"}Z run ${id}, generation 1$`));
});

Deno.test("HOLDFAST_DEBUG=journal prints the facts of each commit, in their order", async () => {
  const { store, lines } = anOpen("journal");
  await store.enqueue([aRun()]);
  const { claims } = await store.claim(aClaimRequest());
  await store.finish(claims[0]!.lease, { status: "completed", output: null, durationMs: 5 }, []);

  assert.deepEqual(lines.map((line) => /^holdfast journal: (\d+) at \S+Z run 1 (\w+)/.exec(line)?.slice(1)), [
    ["1", "triggered"],
    ["2", "claimed"],
    ["3", "completed"],
  ]);
});

Deno.test("an engine on a store that is debugged does what it does otherwise", async () => {
  const { store, lines, host } = anOpen("claim,lease,journal");
  const double = defineJob({
    name: "double",
    input: z.number(),
    run: (step, value) => step.run("double", () => value * 2),
  });
  await using engine = createEngine({ store, jobs: { double }, host });
  const { id } = await engine.jobs.double.trigger(21);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, 42);
  assert.ok(lines.some((line) => line.includes("step_completed")), lines.join("\n"));
});

Deno.test("an engine reads HOLDFAST_DEBUG only if it may, and asks nobody", async () => {
  const program = `
    import { createEngine, MemoryStore } from ${JSON.stringify(import.meta.resolve("../../mod.ts"))};
    console.error = (line) => console.log(line);
    const engine = createEngine({ store: new MemoryStore(), jobs: {} });
    await engine.runUntilIdle();
    await engine.stop();
    console.log("done");`;
  const run = (...flags: string[]) => {
    const args = ["run", "--no-prompt", "--no-check", "--allow-read", "--allow-import", ...flags, "-"];
    return runProgram(args, program, { HOLDFAST_DEBUG: "claim" });
  };

  const [allowed, refused] = await Promise.all([run("--allow-env=HOLDFAST_DEBUG"), run()]);

  assert.match(allowed.stdout, /^holdfast claim: worker /);
  assert.equal(refused.stdout, "done\n");
});
