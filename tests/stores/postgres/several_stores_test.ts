import assert from "node:assert/strict";
import pg from "pg";
import { uuidV7 } from "../../../src/model/host.ts";
import type { KnownJob } from "../../../src/model/flow.ts";
import type { Claim } from "../../../src/store/claim.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { Chance } from "../../support/chance.ts";
import { aClaimRequest, aFlow, aKnownJob, aPause, aProgress, aRun, aStart, aStep } from "../../support/fixtures.ts";
import { findFault } from "./postgres_faults.ts";
import { startServer } from "./server.ts";

const server = startServer();
const STORES = 3;
const RUNS = 300;

// With a limit each claim locks out all others who write; without one, claims of runs without a key do not.
for (const [what, concurrency] of [["", null], [" and three of a limited job", 3]] as const) {
  Deno.test({
    name: `several PostgresStores execute each run once, one at a time for a key${what}, and a reader misses no fact`,
    ignore: server === null,
    fn: () => testStorm(server!.url, concurrency), // ignored without a server
  });
}

async function testStorm(url: string, concurrency: number | null): Promise<void> {
  const schema = `several_${Deno.pid}_${concurrency}`;
  const stores = await Promise.all(
    Array.from({ length: STORES }, () => PostgresStore.open(url, { schema, durability: "relaxed" })),
  );
  await Promise.all(stores.map((store) => store.migrate()));
  const storm = new Storm(stores, concurrency);

  await storm.run();
  const { facts, missing } = await storm.readFacts();

  const client = new pg.Client({ connectionString: url });
  await client.connect();
  assert.deepEqual(storm.violations, []);
  assert.deepEqual(missing, []);
  assert.ok(facts > 5 * RUNS);
  assert.equal(await findFault(client, schema), null);
  const { rows: [{ open, disordered, deadlocks }] } = await client.query(`
      select (select count(*)::int from ${schema}.runs where status <> 'completed') as open,
        (select count(*)::int from (select started_at < lag(started_at) over (partition by concurrency_key, job order by seq)
          as wrong from ${schema}.runs where concurrency_key is not null) o where o.wrong) as disordered,
        (select deadlocks::int from pg_stat_database where datname = current_database()) as deadlocks`);
  assert.deepEqual({ open, disordered, deadlocks }, { open: 0, disordered: 0, deadlocks: 0 });
  await client.end();
  await Promise.all(stores.map((store) => store.close()));
}

/** Stores that trigger and execute runs beside each other. */
class Storm {
  /** What must not happen. */
  readonly violations: string[] = [];
  readonly #stores: readonly PostgresStore[];
  readonly #jobs: readonly KnownJob[];
  readonly #executed = new Map<string, number>();
  readonly #chance = new Chance(1);
  readonly #holders = new Map<string, string>();
  readonly #completed = new Set<string>();
  readonly #seen: number[] = [];
  #isOver = false;

  /** @param concurrency The limit of job b. */
  constructor(stores: readonly PostgresStore[], concurrency: number | null) {
    this.#stores = stores;
    this.#jobs = [aKnownJob({ name: "a" }), aKnownJob({ name: "b", concurrency })];
  }

  async run(): Promise<void> {
    const work = this.#stores.flatMap((store, at) => [this.#trigger(store), this.#work(store, `worker-${at}`)]);
    const reading = this.#read(this.#stores[0]!);
    await Promise.all(work);
    this.#isOver = true;
    await reading;
  }

  /** Compares what was read meanwhile with all that there is. */
  async readFacts(): Promise<{ facts: number; missing: number[] }> {
    const all: number[] = [];
    let facts = 0;
    for (let after = 0;;) {
      const { rows } = (await this.#stores[1]!.readJournal(after, 100_000))!;
      if (rows.length === 0) break;
      all.push(...rows.map(({ position }) => position));
      facts += rows.reduce((count, row) => count + row.facts.length, 0);
      after = all.at(-1)!;
    }
    const seen = new Set(this.#seen);
    return { facts, missing: all.filter((position) => !seen.has(position)) };
  }

  async #trigger(store: PostgresStore): Promise<void> {
    for (let n = 0; n < RUNS / STORES;) {
      const count = Math.min(1 + this.#chance.int(8), RUNS / STORES - n);
      n += count;
      await Promise.all(Array.from({ length: count }, () => store.enqueue([this.#aRun()])));
    }
  }

  #aRun() {
    const concurrencyKey = this.#chance.happens(0.4) ? `key-${this.#chance.int(4)}` : null;
    const flow = this.#chance.happens(0.2) ? aFlow({ fairnessKey: `fair-${this.#chance.int(3)}` }) : aFlow();
    const jobName = this.#chance.pick(["a", "b"]);
    return aRun({ id: uuidV7(Date.now()), jobName, concurrencyKey, flow, labels: { n: "1" } });
  }

  async #work(store: PostgresStore, workerId: string): Promise<void> {
    for (let n = 0; this.#completed.size < RUNS; n++) {
      const { claims } = await store.claim(
        aClaimRequest({ workerId, claimId: `${n}`, jobs: this.#jobs, limit: 8, leaseMs: 60_000 }),
      );
      for (const claim of claims) this.#hold(claim);
      await Promise.all(claims.map((claim) => this.#execute(store, claim)));
    }
  }

  #hold({ run, lease: { concurrencyKey: key } }: Claim): void {
    const executed = (this.#executed.get(run.jobName) ?? 0) + 1;
    this.#executed.set(run.jobName, executed);
    const limit = this.#jobs.find(({ name }) => name === run.jobName)!.concurrency ?? Infinity; // one of the two jobs
    if (executed > limit) this.violations.push(`${executed} runs of ${run.jobName} are executed`);
    if (this.#completed.has(run.id)) this.violations.push(`${run.id} is claimed after its end`);
    if (key === null) return;
    const holder = this.#holders.get(key);
    if (holder !== undefined) this.violations.push(`${run.id} and ${holder} hold ${key}`);
    this.#holders.set(key, run.id);
  }

  async #execute(store: PostgresStore, { run, lease, steps }: Claim): Promise<void> {
    // Before the store is asked: what it answers comes later than what it has done.
    const release = () => {
      this.#executed.set(run.jobName, this.#executed.get(run.jobName)! - 1);
      if (lease.concurrencyKey !== null) this.#holders.delete(lease.concurrencyKey);
    };
    const at = steps.length;
    const reports = [aStart({ no: 1, stepName: `step-${at}`, stepIndex: at })];
    await store.saveStep(lease, aStep({ name: `step-${at}`, index: at }), reports);
    if (this.#chance.happens(0.2)) await store.renew([{ lease, reports: [aProgress({ current: at }, 2)] }], 60_000);
    if (at === 0 && this.#chance.happens(0.2)) {
      release();
      return await store.release(lease, []);
    }
    if (at === 0 && this.#chance.happens(0.2)) {
      const nap = aPause({ id: uuidV7(Date.now()), kind: "sleep", name: "nap", deadline: { afterMs: 5 } });
      release();
      return void await store.pause(lease, { pauses: [nap], retryAt: null, park: true, reports: [] });
    }
    release();
    this.#completed.add(run.id);
    await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
  }

  async #read(store: PostgresStore): Promise<void> {
    for (let after = 0;;) {
      const isLast = this.#isOver;
      const { rows } = (await store.readJournal(after, 100_000))!;
      this.#seen.push(...rows.map(({ position }) => position));
      after = this.#seen.at(-1) ?? 0;
      if (isLast && rows.length === 0) return;
    }
  }
}
