import assert from "node:assert/strict";
import { findObstacle, storm } from "./storm.ts";
import type { Tallied } from "./tally.ts";

// A storm in which nothing happened proves nothing. Far less than what an idle machine comes to: others may need it, too.
const AT_LEAST: readonly (readonly [Tallied, number])[] = [
  ["kills", 10],
  ["suspensions", 1],
  ["runs that ended", 10],
  ["steps recorded", 50],
  ["steps started again", 1],
  ["steps and waits replayed", 10],
  ["requests that were repeated", 5],
  ["signals accepted", 1],
  ["signal receipts compared", 1],
  ["streams resumed", 5],
  ["streams read to the end of the run", 1],
  ["streams answered 204", 1],
  ["gaps told", 1],
  ["events compared with the journal", 50],
  ["trims of the journal", 1],
  ["power losses", 1],
  ["damaged copies opened", 4],
  ["damaged copies drained", 1],
  ["backups", 1],
  ["terminal runs compared again", 10],
];

Deno.test("a storm breaks no promise, and a lot happens in it", async () => {
  const obstacle = findObstacle();
  if (obstacle !== null) return console.log(`The storm is skipped: ${obstacle}`);
  const folder = await Deno.makeTempDir({ prefix: "holdfast-storm-" });
  try {
    const { tally, violations } = await storm({
      ms: 15_000,
      seed: 1,
      workers: 3,
      folder,
      powerLossEveryMs: 4_000,
      backupEveryMs: 3_000,
      abortSignal: new AbortController().signal,
    });

    assert.equal(violations.describe(), "");
    assert.deepEqual(AT_LEAST.filter(([what, least]) => tally.get(what) < least).map(([what]) => what), []);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
