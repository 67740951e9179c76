import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "../processes/anything.ts";
import { Chance } from "../support/chance.ts";
import { examineCopy, type Expected } from "./copy_examination.ts";
import { readRuns } from "./rows.ts";
import { DAMAGES, damageWal, findWalTail } from "./wal_damage.ts";

const NOTHING: Expected = { runs: [], steps: [], signals: [], endings: [], hashes: [] };

/** A database with a run of one step, which anything can be done to. */
async function withDatabase(act: (path: string, run: { id: string; output: unknown }) => void): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "holdfast-storm-" });
  const path = `${folder}/jobs.db`;
  const straight = defineJob({
    name: "straight",
    input: anything<{ token: string }>(),
    run: async (step) => ({ token: "token", seen: [["step", "a", JSON.stringify(await step.run("a", () => "x"))]] }),
  });
  try {
    await using store = await SqliteStore.open(path);
    await using engine = createEngine({ store, jobs: { straight } });
    const run = await engine.trigger(straight, { token: "token" });
    await engine.runUntilIdle();
    await engine.stop();
    await store.close();
    act(path, { id: run.id, output: "x" });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function change(path: string, sql: string): void {
  const database = new DatabaseSync(path, { enableForeignKeyConstraints: false });
  database.exec(sql);
  database.close();
}

Deno.test("examineCopy() finds nothing wrong with an ordinary database", async () => {
  await withDatabase((path, { id }) => {
    const expected = {
      ...NOTHING,
      runs: [id],
      steps: [[id, "a", '"x"']] as never,
      endings: [[id, "completed"]] as never,
    };

    assert.deepEqual(examineCopy(path, expected), []);
    assert.deepEqual(examineCopy(path, null), []);
  });
});

for (
  const [what, sql, pattern] of [
    ["a step that is gone", "DELETE FROM holdfast_steps", /recorded is nothing.*step "a" of run .* is undefined/],
    ["a run without its steps", "DELETE FROM holdfast_runs", /belongs to no run/],
    ["a run that goes on", "UPDATE holdfast_runs SET status = 'pending', completed_at = NULL", /stands in no line/],
    ["a wrong count", "UPDATE holdfast_counts SET runs = 7", /but 7 are kept/],
    ["another ending", "UPDATE holdfast_runs SET status = 'cancelled'", /was told to be completed/],
  ] as const
) {
  Deno.test(`examineCopy() finds ${what}`, async () => {
    await withDatabase((path, { id }) => {
      change(path, sql);

      const expected = { ...NOTHING, steps: [[id, "a", '"x"']] as never, endings: [[id, "completed"]] as never };
      assert.match(examineCopy(path, expected).join("; "), pattern);
    });
  });
}

Deno.test("examineCopy() finds a run that has changed, a signal that is lost, and a file that is no database", async () => {
  await withDatabase((path, { id }) => {
    const expected = { ...NOTHING, hashes: [[id, 1]] as never, signals: [[id, "wait", "[]"]] as never };

    assert.match(
      examineCopy(path, expected).join("; "),
      /wait .* is undefined, accepted was .*had ended, and is another/,
    );
    Deno.writeTextFileSync(path, "this is no database ".repeat(1_000));
    assert.match(examineCopy(path, null).join("; "), /cannot be (opened|read)/);
  });
});

Deno.test("the hash of a run depends on each of its rows", async () => {
  await withDatabase((path) => {
    const hash = () => {
      const database = new DatabaseSync(path);
      const [run] = readRuns(database, "true");
      database.close();
      return run!.hash;
    };
    const hashes = new Set([hash()]);
    for (const sql of ["runs SET updated_at = 1", "runs SET progress = '1'", "steps SET attempts = 9"]) {
      change(path, `UPDATE holdfast_${sql}`);
      hashes.add(hash());
    }

    assert.equal(hashes.size, 4);
  });
});

Deno.test("damageWal() damages nothing but the part that is found nowhere else", () => {
  const shm = new Uint8Array(136);
  new Uint16Array(shm.buffer)[7] = 4_096;
  const words = new Uint32Array(shm.buffer);
  words[4] = 5; // the last committed frame
  words[24] = 2; // frames that were copied
  words[32] = 3; // frames that may be copied by now
  const wal = new Uint8Array(32 + 6 * 4_120).fill(7);

  const tail = findWalTail(shm, wal.length);

  assert.deepEqual(tail, { from: 32 + 3 * 4_120, until: 32 + 5 * 4_120 });
  assert.deepEqual(findWalTail(new Uint8Array(), 0), { from: 0, until: 0 });
  for (const damage of DAMAGES) {
    for (let seed = 1; seed <= 20; seed++) {
      const damaged = damageWal(wal, tail, damage, new Chance(seed));
      const firstOther = wal.findIndex((byte, at) => damaged[at] !== byte);
      assert.ok(firstOther >= tail.from && firstOther < tail.until, damage);
    }
  }
});
