import assert from "node:assert/strict";
import { createEngine, defineJob, SqliteStore } from "../mod.ts";
import { anything } from "./processes/anything.ts";
import { Child } from "./processes/child.ts";
import { inTime } from "./processes/deadline.ts";

const RUNS = 10;
const WITHIN_MS = 100;

Deno.test("a run whose step hangs in another process ends within 100 ms of its deadline, and not before", async () => {
  const folder = await Deno.makeTempDir({ prefix: "holdfast-" });
  try {
    const database = `${folder}/jobs.db`;
    await using store = await SqliteStore.open(database);
    const hang = defineJob({ name: "hang", input: anything<{ isDeaf: boolean }>(), run: () => {} });
    const engine = createEngine({ store, jobs: { hang }, logger: null });
    await engine.migrate();
    await using worker = new Child("hanging_worker.ts", database);
    await worker.hear("ready");

    const lateMs: Record<"deaf" | "listening", number[]> = { deaf: [], listening: [] };
    await Promise.all(Array.from({ length: RUNS }, async (_, n) => {
      const isDeaf = n % 2 === 0;
      const { id } = await engine.jobs.hang.trigger({ isDeaf }, { finishWithin: 300 + 50 * n });
      await inTime(engine.waitForRun(id).catch(() => {}), "the run was to fail");
      const { failureKind, finishBy, completedAt } = (await engine.getRun(id))!; // it was triggered
      assert.equal(failureKind, "timeout");
      lateMs[isDeaf ? "deaf" : "listening"].push(Date.parse(completedAt!) - Date.parse(finishBy!)); // it has ended
    }));

    for (const [which, late] of Object.entries(lateMs)) {
      assert.ok(Math.min(...late) >= 0, `${which}: ${late} ms after the deadlines`);
      // The quickest: a busy machine makes single ones late.
      assert.ok(Math.min(...late) <= WITHIN_MS, `${which}: ${late} ms after the deadlines`);
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
