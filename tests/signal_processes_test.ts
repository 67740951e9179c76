import assert from "node:assert/strict";
import { createEngine, defineJob, SqliteStore } from "../mod.ts";
import { anything } from "./processes/anything.ts";
import { Child } from "./processes/child.ts";
import { inTime } from "./processes/deadline.ts";

Deno.test("a signal that was accepted survives kill -9 of all who know of it, and is seen in every replay", async () => {
  const folder = await Deno.makeTempDir();
  const database = `${folder}/jobs.db`;
  const approval = defineJob({ name: "approval", input: anything(), run: () => {} });
  try {
    await using store = await SqliteStore.open(database);
    const engine = createEngine({ store, jobs: { approval } });
    const { id } = await engine.trigger("approval", null);
    const payload = { approved: true, by: ["a", "b"], at: null };

    await using first = new Child("approving_worker.ts", database);
    const { waitId } = await first.hear("waiting");
    await first.end("SIGKILL");
    await using messenger = new Child(
      "approving_worker.ts",
      database,
      "signal",
      String(waitId),
      JSON.stringify(payload),
    );
    const { disposition } = await messenger.hear("signalled");
    await messenger.end("SIGKILL");
    // Killed once more between taking the run up and recording what it saw, or just after.
    await using second = new Child("approving_worker.ts", database);
    await second.hear("started");
    await second.end("SIGKILL");
    await using _third = new Child("approving_worker.ts", database);
    const run = await inTime(engine.waitForRun(id), "the last worker was to end the run");

    const answer = { outcome: "signal", payload, signalId: "answer" };
    assert.equal(disposition, "accepted");
    assert.deepEqual(run.output, { asked: first.pid, answer, seen: answer });
    assert.equal(
      (await engine.signal(String(waitId), { signalId: "answer", payload })).disposition,
      "duplicate",
    );
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
