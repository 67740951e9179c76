import pg from "pg";
import { PostgresStore } from "@holdfast/jobs/postgres";
import type { NewRun } from "../../src/store/new_run.ts";
import type { Claim } from "../../src/store/claim.ts";
import { aClaimRequest, aRun, aStep } from "../../tests/support/fixtures.ts";
import { STEPS } from "./contender.ts";

// Runs that are added, executed and deleted together.
const BATCH = 200;
/** So many batches go on at the same time, each with a job of its own. */
export const LANES = 4;
const MEASUREMENTS = 10;
const VALUE = JSON.stringify("x".repeat(200));

/** What is measured of a schema. */
export interface Growth {
  /** How many runs have ended so far, the deleted ones included. */
  ended: number;
  /** How many of them are left. */
  left: number;
  /** The size of all tables without their indexes, in bytes. */
  tableBytes: number;
  /** The size of all indexes, in bytes. */
  indexBytes: number;
  /** Rows that are not visible any more, and not removed yet. */
  deadRows: number;
  /** How long a claim takes that finds nothing, in milliseconds: the median of 20. */
  emptyClaimMs: number;
  /** Since the begin, in milliseconds. */
  elapsedMs: number;
}

/**
 * Executes runs of five steps, and deletes the oldest as retention does, once there are more than a number of them.
 * Measures ten times, while everything else waits.
 *
 * @param options.kept How many ended runs stay.
 */
export async function* growAndPurge(
  { url, runs, kept }: { url: string; runs: number; kept: number },
): AsyncGenerator<Growth> {
  await using store = await PostgresStore.open(url, { durability: "relaxed" });
  await store.migrate();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const startedAt = performance.now();
  let ended = 0;
  let left = 0;
  try {
    for (let part = 1; part <= MEASUREMENTS; part++) {
      const until = Math.ceil(runs * part / MEASUREMENTS);
      while (ended < until) {
        const count = Math.min(LANES, Math.ceil((until - ended) / BATCH));
        await Promise.all(Array.from({ length: count }, (_, lane) => executeBatch(store, `lane ${lane}`)));
        ended += count * BATCH;
        left += count * BATCH;
        while (left > kept) left -= (await store.purge({ completed: 0 }, Math.min(BATCH, left - kept))).length;
      }
      const emptyClaimMs = await measureEmptyClaim(store);
      const elapsedMs = performance.now() - startedAt;
      yield { ended, left, ...await readSizes(client), emptyClaimMs, elapsedMs };
    }
  } finally {
    await client.end();
  }
}

async function executeBatch(store: PostgresStore, jobName: string): Promise<void> {
  const added = Array.from(
    { length: BATCH },
    (): NewRun => aRun({ jobName, payload: VALUE, labels: { org: jobName } }),
  );
  await store.enqueue(added);
  const request = aClaimRequest({ jobNames: [jobName], workerId: jobName, limit: BATCH, leaseMs: 60_000 });
  const { claims } = await store.claim(request);
  if (claims.length !== BATCH) throw new Error(`${claims.length} of ${BATCH} runs were claimed`);
  await Promise.all(claims.map((claim) => execute(store, claim)));
}

async function execute(store: PostgresStore, { lease }: Claim): Promise<void> {
  for (let n = 0; n < STEPS; n++) {
    const step = aStep({ name: `step ${n}`, index: n, result: { status: "completed", output: VALUE } });
    await store.saveStep(lease, step, []);
  }
  await store.finish(lease, { status: "completed", output: VALUE, durationMs: 1 }, []);
}

async function measureEmptyClaim(store: PostgresStore): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < 20; n++) {
    const startedAt = performance.now();
    await store.claim(aClaimRequest({ jobNames: ["lane 0"], workerId: "idle" }));
    times.push(performance.now() - startedAt);
  }
  return times.sort((one, other) => one - other)[10]!; // there are 20
}

async function readSizes(client: pg.Client): Promise<Pick<Growth, "tableBytes" | "indexBytes" | "deadRows">> {
  await client.query("select pg_stat_clear_snapshot()");
  const { rows: [row] } = await client.query<Record<"tables" | "indexes" | "dead", string>>(
    `select sum(pg_table_size(relid)) as tables, sum(pg_indexes_size(relid)) as indexes, sum(n_dead_tup) as dead
     from pg_stat_user_tables where schemaname = 'holdfast'`,
  );
  return { tableBytes: Number(row!.tables), indexBytes: Number(row!.indexes), deadRows: Number(row!.dead) }; // sums
}
