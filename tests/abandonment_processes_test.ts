import assert from "node:assert/strict";
import { createEngine, defineJob, SqliteStore } from "../mod.ts";
import { anything } from "./processes/anything.ts";
import { Child } from "./processes/child.ts";
import { inTime } from "./processes/deadline.ts";

Deno.test("a run that kills its process ten times fails alone, and ten runs beside it complete", async () => {
  const folder = await Deno.makeTempDir();
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  const work = defineJob({ name: "work", input: anything<{ kind: string }>(), run: () => "" });
  const engine = createEngine({ store, jobs: { work } });
  const kinds = [...Array(5).fill("fine"), "poison", ...Array(5).fill("fine")];
  const triggered = await engine.jobs.work.batchTrigger(kinds.map((kind) => ({ input: { kind } })));
  const allEnded = Promise.allSettled(triggered.map(({ id }) => engine.waitForRun(id))).then(() => true);
  let kills = 0;

  for (let hasEnded = false; !hasEnded;) {
    await using worker = new Child("poisoned_worker.ts", `${folder}/jobs.db`);
    const isKilled = worker.ended.then(() => false);
    hasEnded = await inTime(Promise.race([isKilled, allEnded]), "the runs were to end, or the worker");
    if (!hasEnded) kills += 1;
  }

  const runs = await Promise.all(triggered.map(({ id }) => engine.getRun(id)));
  const ends = runs.map((run) => run!.failureKind ?? run!.status);
  assert.deepEqual(ends, kinds.map((kind) => kind === "fine" ? "completed" : "abandoned"));
  assert.equal(kills, 10);
  await Deno.remove(folder, { recursive: true });
});
