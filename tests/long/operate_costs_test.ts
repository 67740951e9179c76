import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import type { Store } from "../../src/store/store.ts";
import { CountingDriver } from "../support/stores/counting_driver.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { SeriesReader } from "../../src/engine/operate/statistics/series.ts";
import { startServer } from "../stores/postgres/server.ts";

// `deno task test:scale` takes 200,000.
const RUNS = Number(Deno.env.get("HOLDFAST_RUNS") ?? 20_000);
// The goal is held by `deno task test:scale`, on a machine that does nothing else. Any machine reads this fast.
const IS_TIMED = Deno.env.has("HOLDFAST_RUNS");
const MAX_MS = IS_TIMED ? 10 : 50;
// How many pages of PostgreSQL a read may take. A scan of the runs, or of an index of them, reads more.
const MAX_PAGES = 300;
// All statistics of a week, which do not grow with the runs.
const MAX_PAGES_OF_A_WEEK = 750;
const JOBS = 20;

/** What the runs are: how many of each hundred have which status, and whether they are all behind one key. */
const SHAPES = {
  "mixed": { pending: 2, waiting: 8, keyed: false },
  "all pending": { pending: 100, waiting: 0, keyed: false },
  "all waiting": { pending: 0, waiting: 100, keyed: false },
  "all behind one key": { pending: 100, waiting: 0, keyed: true },
};

type Shape = typeof SHAPES[keyof typeof SHAPES];

// What else the machine does only adds to the time, so the best of some rounds counts.
const ROUNDS = 30;

const FIRST_SERIES = "the first getSeries 7d of a process";

/** Calls each read of operators, which may share results for a second. */
async function forEachRead(
  store: Store,
  host: FakeHost,
  measure: (name: string, read: () => Promise<unknown>) => Promise<void>,
): Promise<void> {
  const engine = createEngine({ store, host, jobs: {} });
  const reads: Record<string, () => Promise<unknown>> = {
    getStats: () => engine.getStats(),
    getJobs: () => engine.getJobs(),
    getWorkers: () => engine.getWorkers(),
    "getSeries 1h": () => engine.getSeries({ window: "1h" }),
    "getSeries 24h": () => engine.getSeries({ window: "24h" }),
    "getSeries 7d": () => engine.getSeries({ window: "7d" }),
    "getSeries 7d of a job": () => engine.getSeries({ window: "7d", jobName: "job-1" }),
    [FIRST_SERIES]: () => firstSeries(store, host),
    health: () => engine.health(),
  };
  const { jobs, windows } = await engine.getStats();
  assert.deepEqual([jobs.length, windows["1h"].triggered > 0], [JOBS, true]);
  for (const [name, read] of Object.entries(reads)) {
    await measure(name, () => {
      host.advance(1_000);
      return read();
    });
  }
}

/** What each read takes after one call: the median of 20, in milliseconds. */
async function timesOf(store: Store, host: FakeHost): Promise<Record<string, number>> {
  const costs: Record<string, number> = {};
  await forEachRead(store, host, async (name, read) => {
    costs[name] = Infinity;
    for (let round = 0; round < ROUNDS && costs[name] >= MAX_MS; round++) {
      const times: number[] = [];
      for (let call = 0; call <= 20; call++) {
        const since = performance.now();
        await read();
        times.push(performance.now() - since);
      }
      costs[name] = Math.min(costs[name], times.slice(1).sort((one, other) => one - other)[10]!);
    }
  });
  return costs;
}

/** Reads all rows of a week: nothing is known of it. */
async function firstSeries(store: Store, host: FakeHost): Promise<void> {
  const series = await new SeriesReader(store, { window: "7d", jobName: "" }).read(host.now());
  assert.ok(series.triggered.filter((runs) => runs > 0).length > 50);
}

function assertCheap(costs: Record<string, number>, shape: string): void {
  console.log(shape, Object.entries(costs).map(([name, ms]) => `${name} ${ms.toFixed(2)} ms`).join(", "));
  for (const [name, ms] of Object.entries(costs)) assert.ok(ms < MAX_MS, `${name}, ${shape}: ${ms} ms`);
}

/** Adds the statistics of an hour and of a week, of 20 jobs. */
async function addStatistics(store: Store, host: FakeHost): Promise<void> {
  const counts = { triggered: 9, started: 9, completed: 8, failed: 1, cancelled: 0, steps: 45, stepFailures: 2 };
  // Durations of each kind that differ by a factor of 32.
  const latencies = Object.fromEntries(
    Array.from({ length: 30 }, (_, n) => [String(Math.floor(n / 10) * 48 + n), n + 1]),
  );
  const names = ["", ...Array.from({ length: JOBS }, (_, n) => `job-${n}`)];
  const rows = names.map((jobName) => ({ jobName, ...counts, latencies }));
  host.jump(-7 * 86_400_000);
  for (let slot = 0; slot < 7 * 96 - 4; slot++) {
    await store.addStats(rows);
    host.jump(900_000);
  }
  for (let minute = 0; minute < 60; minute++) {
    await store.addStats(rows);
    host.jump(60_000);
  }
}

function fillSqlite({ database }: CountingDriver, { pending, waiting, keyed }: Shape): void {
  database.exec(`
    DELETE FROM holdfast_runs; DELETE FROM holdfast_counts;
    WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ${RUNS})
    INSERT INTO holdfast_runs (seq, position, id, created_at, job, queue, status, labels, updated_at, queue_state, timer_at,
        completed_at, concurrency_key)
      SELECT n, n, 'run-' || n, ${FAKE_START}, 'job-' || (n % ${JOBS}), 'job-' || (n % ${JOBS}),
        CASE WHEN n % 100 < ${pending} THEN 'pending' WHEN n % 100 < ${pending + waiting} THEN 'waiting'
          ELSE 'completed' END,
        '{}', ${FAKE_START},
        CASE WHEN n % 100 < ${pending} THEN ${keyed ? "iif(n = 1, 'R', 'B')" : "'R'"} END,
        CASE WHEN n % 100 >= ${pending} AND n % 100 < ${pending + waiting} THEN ${FAKE_START} + 1000000000 + n END,
        CASE WHEN n % 100 >= ${pending + waiting} THEN ${FAKE_START} END, ${keyed ? "'key'" : "NULL"} FROM n;
    INSERT INTO holdfast_counts SELECT status, job, count(*) FROM holdfast_runs GROUP BY 1, 2;
  `);
}

for (const [name, shape] of Object.entries(SHAPES)) {
  Deno.test(`SqliteStore: operators read ${RUNS.toLocaleString("en")} runs, ${name}, in under ${MAX_MS} ms, and scan no runs`, async () => {
    const host = new FakeHost();
    const driver = new CountingDriver();
    const store = await SqliteStore.from(driver, { host });
    await store.migrate();
    await addStatistics(store, host);
    fillSqlite(driver, shape);

    assertCheap(await timesOf(store, host), name);

    const plans = driver.plans(/^\s*SELECT/).flatMap(({ sql, details }) => details.map((detail) => ({ sql, detail })));
    assert.ok(plans.length > 10);
    assert.deepEqual(
      plans.filter(({ detail }) => /SCAN (holdfast_(runs|steps|pauses)|r|s|p)\b/.test(detail)),
      [],
    );
    await store.close();
    driver.database.close();
  });
}

const server = startServer();
const SCHEMA = `operate_${Deno.pid}`;

async function fillPostgres(admin: pg.Client, { pending, waiting, keyed }: Shape): Promise<void> {
  await admin.query(`
    truncate ${SCHEMA}.runs; truncate ${SCHEMA}.counts;
    insert into ${SCHEMA}.runs (id, job, status, queue, position, labels, created_at, updated_at, queue_state, timer_at,
        completed_at, concurrency_key)
      select 'run-' || n, 'job-' || (n % ${JOBS}), case when n % 100 < ${pending} then 'pending'
          when n % 100 < ${pending + waiting} then 'waiting' else 'completed' end,
        'job-' || (n % ${JOBS}), n, '{}', ${FAKE_START}, ${FAKE_START},
        (case when n % 100 < ${pending} then ${keyed ? "case when n = 1 then 'R' else 'B' end" : "'R'"} end)::"char",
        case when n % 100 >= ${pending} and n % 100 < ${pending + waiting} then ${FAKE_START} + 1000000000 + n end,
        case when n % 100 >= ${pending + waiting} then ${FAKE_START} end, ${keyed ? "'key'" : "null"}
      from generate_series(1, ${RUNS}) n;
    insert into ${SCHEMA}.counts select status, job, count(*) from ${SCHEMA}.runs group by 1, 2;
    analyze ${SCHEMA}.runs`);
}

/** The pages that statements read, as PostgreSQL counts them: those of the functions that they call, too. */
class PageCounter {
  pages = 0;

  /** A client of a store whose statements are counted; each of them reads, and is executed twice. */
  clientOf(session: pg.Client): { query: (sql: string, parameters?: unknown[]) => Promise<{ rows: unknown[] }> } {
    return {
      query: async (sql, parameters) => {
        if (sql.startsWith("select ") && parameters !== undefined) {
          const { rows } = await session.query(`explain (analyze, buffers, format json) ${sql}`, parameters);
          const [{ Plan: plan }] = rows[0]["QUERY PLAN"];
          this.pages += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
        }
        return await session.query(sql, parameters);
      },
    };
  }
}

for (const [name, shape] of Object.entries(SHAPES)) {
  Deno.test({
    name: `PostgresStore: operators read at most ${MAX_PAGES} pages of ${RUNS.toLocaleString("en")} runs, ${name}`,
    ignore: server === null,
    fn: async () => {
      const host = new FakeHost();
      const session = new pg.Client({ connectionString: server!.url });
      await session.connect();
      const writing = await PostgresStore.open(server!.url, { schema: SCHEMA, durability: "relaxed", host });
      const counter = new PageCounter();
      const reading = PostgresStore.from(counter.clientOf(session), { schema: SCHEMA, durability: "relaxed", host });
      try {
        await writing.migrate();
        await addStatistics(writing, host);
        await fillPostgres(session, shape);
        await session.query(`vacuum analyze ${SCHEMA}.counts, ${SCHEMA}.stats`);
        if (IS_TIMED) assertCheap(await timesOf(writing, host), name);

        const pages: Record<string, number> = {};
        await forEachRead(reading, host, async (read, call) => {
          await call();
          counter.pages = 0;
          await call();
          pages[read] = counter.pages;
        });

        console.log(name, pages);
        const { rows: [runs] } = await session.query(
          `select relpages from pg_class where oid = '${SCHEMA}.runs'::regclass`,
        );
        assert.ok(runs.relpages > MAX_PAGES, `all runs have ${runs.relpages} pages`);
        const mostOf = (read: string) => read === FIRST_SERIES ? MAX_PAGES_OF_A_WEEK : MAX_PAGES;
        assert.deepEqual(Object.entries(pages).filter(([read, count]) => count > mostOf(read)), []);
      } finally {
        await Promise.all([reading.close(), writing.close()]);
        await session.query(`drop schema if exists ${SCHEMA} cascade`);
        await session.end();
      }
    },
  });
}
