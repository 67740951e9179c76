import { PostgresStore } from "@holdfast/jobs/postgres";
import pg from "pg";
import type { NewRun } from "../../src/store/new_run.ts";
import { aClaimRequest, aFailure, aRun } from "../../tests/support/fixtures.ts";
import { newDatabase } from "./new_database.ts";

/** A way to trigger runs whose result depends on other runs: of each what the trigger with a number has. */
const KINDS: Record<string, (n: number, failed: readonly string[]) => Partial<NewRun>> = {
  plain: () => ({}),
  "idempotency key": (n) => ({ idempotencyKey: `trigger-${n}` }),
  coalescing: (n) => ({ concurrencyKey: `key-${n}`, coalesce: "active" }),
  "run of a schedule": (n) => ({ schedule: { name: `schedule-${n}`, slotAt: null } }),
  retry: (n, failed) => ({ retriggerOf: { runId: failed[n % failed.length]!, from: "failure" } }),
};

/** The kinds in their order, the plain one first. */
export const TRIGGER_KINDS: readonly string[] = Object.keys(KINDS);

/** What is measured. */
export interface TriggersOptions {
  /** The address of the server. */
  url: string;
  /** How long a commit takes at least, in milliseconds. */
  commitMs: number;
  /** How many stores trigger runs, each one after another. */
  writers: number;
  /** How many runs each of them triggers of each kind. */
  count: number;
}

/**
 * Lets several stores trigger runs, one kind after another, in several rounds.
 *
 * @returns How many runs a second they trigger of each kind, in the order of {@linkcode TRIGGER_KINDS}.
 */
export async function measureTriggers({ url, commitMs, writers, count }: TriggersOptions): Promise<number[]> {
  await using database = await newDatabase(url);
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  await client.query(`alter database ${client.database} set commit_siblings = 0`);
  await using stack = new AsyncDisposableStack();
  await using setup = await PostgresStore.open(database.url);
  await setup.migrate();
  const failed = await addFailed(setup, writers * count);
  await client.query(`alter database ${client.database} set commit_delay = ${commitMs * 1_000}`);
  await client.end();
  const open = async () => stack.use(await PostgresStore.open(database.url));
  const stores = await Promise.all(Array.from({ length: writers }, open));
  let no = 0;
  const speeds: number[] = [];
  for (const kind of Object.values(KINDS)) {
    const startedAt = performance.now();
    await Promise.all(stores.map(async (store) => {
      for (let n = 0; n < count; n++) await store.enqueue([aRun({ id: crypto.randomUUID(), ...kind(no++, failed) })]);
    }));
    speeds.push(writers * count / (performance.now() - startedAt) * 1_000);
  }
  return speeds;
}

/** Adds runs that have failed, each of which can be retried. */
async function addFailed(store: PostgresStore, count: number): Promise<string[]> {
  const runs = Array.from({ length: count }, () => aRun({ id: crypto.randomUUID() }));
  await store.enqueue(runs);
  const { claims } = await store.claim(aClaimRequest({ limit: count }));
  const ending = { status: "failed", failure: aFailure(), failedStepName: null } as const;
  await Promise.all(claims.map(({ lease }) => store.finish(lease, ending, [])));
  return claims.map(({ run }) => run.id);
}
