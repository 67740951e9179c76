import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { createEngine, defineJob, SqliteStore } from "../mod.ts";
import { anything } from "./processes/anything.ts";
import { Child } from "./processes/child.ts";
import { inTime } from "./processes/deadline.ts";

// HOLDFAST_FLOW_SECONDS=300 makes it longer: it kills a process every second for this long.
const SECONDS = Number(Deno.env.get("HOLDFAST_FLOW_SECONDS") ?? 6);
// As in processes/flow_worker.ts.
const LIMIT = 3;
const RATE = { limit: 20, period: 1_000 };
const PARTS = RATE.limit;
const BATCHES = Math.ceil(SECONDS * 0.75); // enough to last while processes are killed
const SAMPLE_EVERY_MS = 4;
const PROCESSES = 4;

Deno.test("limits, schedules and children hold while four processes are killed again and again", async () => {
  await using place = await aPlace();
  await using store = await SqliteStore.open(place.database);
  const batch = defineJob({ name: "batch", input: anything<{ parts: number }>(), run: () => {} });
  const engine = createEngine({ store, jobs: { batch } });
  const triggered = await engine.jobs.batch.batchTrigger(
    Array.from({ length: BATCHES }, () => ({ input: { parts: PARTS } })),
  );
  using leases = new LeaseSampler(place.database);

  const workers = Array.from({ length: PROCESSES }, () => new Child("flow_worker.ts", place.database));
  await using _workers = { [Symbol.asyncDispose]: () => disposeAll(workers) };
  const endAt = performance.now() + SECONDS * 1_000;
  for (let kills = 0; performance.now() < endAt; kills++) {
    const victim = kills % workers.length;
    await workers[victim]!.hear("ready");
    await new Promise((resolve) => setTimeout(resolve, 300 + Math.random() * 700));
    await workers[victim]![Symbol.asyncDispose](); // SIGKILL
    workers[victim] = new Child("flow_worker.ts", place.database);
  }
  const batches = await Promise.all(
    triggered.map(({ id }) => inTime(engine.waitForRun(id), "the last processes were to end the batches")),
  );
  await disposeAll(workers);

  assert.ok(leases.samples > 100, `${leases.samples} samples`);
  assert.equal(leases.most, LIMIT, "the most unexpired leases of parts at once");
  const db = leases.database;
  assert.deepEqual(tooManyStarts(db), []);
  assert.deepEqual(wrongSlots(db), []);
  for (const { id, output } of batches) assert.deepEqual(output, resultsOf(db, id), `the results of batch ${id}`);
  const results = batches.flatMap(({ output }) => output as { runId: string; output: string }[]);
  assert.equal(new Set(results.map(({ runId }) => runId)).size, BATCHES * PARTS, "each child is in one result");
  assert.equal(new Set(results.map(({ output }) => output)).size, BATCHES * PARTS, "each output is in one result");
  assert.equal(count(db, "SELECT count(*) AS n FROM holdfast_runs WHERE job = 'part'"), BATCHES * PARTS);
  assert.equal(count(db, "SELECT count(*) AS n FROM holdfast_children"), BATCHES * PARTS);
  assert.deepEqual(db.prepare("PRAGMA integrity_check").all().map((row) => row.integrity_check), ["ok"]);
});

/** Reads over and over how many parts are under a lease that has not expired. */
class LeaseSampler implements Disposable {
  readonly database: DatabaseSync;
  readonly #timer: ReturnType<typeof setInterval>;
  /** How often it has read. */
  samples = 0;
  /** The most that it has seen. */
  most = 0;

  constructor(path: string) {
    this.database = new DatabaseSync(path, { readOnly: true, timeout: 10_000 });
    const leased = this.database.prepare(
      "SELECT count(*) AS n FROM holdfast_runs WHERE job = 'part' AND status = 'running' AND lease_expires_at > ?",
    );
    this.#timer = setInterval(() => {
      this.samples += 1;
      this.most = Math.max(this.most, Number(leased.get(Date.now())!.n));
    }, SAMPLE_EVERY_MS);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.database.close();
  }
}

/** The starts that come too early after the one that is `limit` starts before. */
function tooManyStarts(db: DatabaseSync): number[] {
  const starts = db.prepare("SELECT started_at AS at FROM holdfast_runs WHERE job = 'part' ORDER BY started_at").all()
    .map(({ at }) => Number(at));
  return starts.filter((at, n) => n >= RATE.limit && at - starts[n - RATE.limit]! < RATE.period);
}

/** What is wrong with the slots: every second from the first to the last one has exactly one run. */
function wrongSlots(db: DatabaseSync): string[] {
  const slots = db.prepare("SELECT slot_at AS at FROM holdfast_runs WHERE schedule_name IS NOT NULL ORDER BY slot_at")
    .all()
    .map(({ at }) => Number(at));
  if (slots.length < SECONDS - 2) return [`only ${slots.length} slots`];
  return slots.flatMap((at, n) => n === 0 || at === slots[n - 1]! + 1_000 ? [] : [`${at} after ${slots[n - 1]}`]);
}

/** The results of a batch by what is recorded of its children. */
function resultsOf(db: DatabaseSync, id: string) {
  const rows = db.prepare(`
    SELECT r.id, r.status, r.output FROM holdfast_runs parent
    JOIN holdfast_pauses p ON p.run_seq = parent.seq
    JOIN holdfast_children c ON c.pause_seq = p.seq
    JOIN holdfast_runs r ON r.seq = c.run_seq
    WHERE parent.id = ? ORDER BY c.no
  `).all(id);
  return rows.map(({ id, status, output }) => ({ runId: id, status, output: JSON.parse(String(output)) }));
}

function count(db: DatabaseSync, sql: string): number {
  return Number(db.prepare(sql).get()!.n);
}

async function disposeAll(workers: readonly Child[]): Promise<void> {
  await Promise.all(workers.map((worker) => worker[Symbol.asyncDispose]()));
}

async function aPlace() {
  const folder = await Deno.makeTempDir({ prefix: "holdfast-" });
  return {
    database: `${folder}/jobs.db`,
    [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
  };
}
