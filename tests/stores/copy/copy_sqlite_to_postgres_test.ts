import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { ConflictError, LeaseLostError, StoreError } from "../../../src/model/error.ts";
import { systemHost } from "../../../src/model/host.ts";
import type { Chunk } from "../../../src/model/stream.ts";
import type { Claim } from "../../../src/store/claim.ts";
import type { Store } from "../../../src/store/store.ts";
import { copySqliteToPostgres } from "../../../src/stores/copy/copy_sqlite_to_postgres.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { dump } from "../../support/stores/compare_stores.ts";
import {
  aClaimRequest,
  aFailure,
  aFlow,
  aHold,
  aKnownJob,
  aLine,
  aPause,
  aRun,
  aStep,
} from "../../support/fixtures.ts";
import { newSchema } from "../postgres/open_subject.ts";
import { startServer } from "../postgres/server.ts";
import { getLogs, getPausedJobs, getRuns } from "../../../src/store/reads.ts";

const server = startServer();

/** What a test has: a file with a store, and a schema that does not exist yet. */
interface Setting {
  file: string;
  url: string;
  schema: string;
  store: SqliteStore;
  client: pg.Client;
  /** Closes the store, copies, and opens the copy. */
  copy(): Promise<PostgresStore>;
  /** Copies without closing the store. */
  tryToCopy(): Promise<unknown>;
  /** The clock of the copy, which the test can change. */
  host: { now: () => number };
}

function test(name: string, run: (setting: Setting) => Promise<void>): void {
  Deno.test({
    name: `copySqliteToPostgres() ${name}`,
    ignore: server === null,
    fn: async () => {
      const { url } = server!; // ignored without a server
      const folder = await Deno.makeTempDir();
      const file = `${folder}/jobs.db`;
      const schema = newSchema();
      const host = { ...systemHost };
      const store = await SqliteStore.open(file);
      await store.migrate();
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      const opened: PostgresStore[] = [];
      const options = { schema, durability: "relaxed" } as const;
      const tryToCopy = () => copySqliteToPostgres(file, url, { ...options, host });
      const copy = async () => {
        await store.close();
        await tryToCopy();
        opened.push(await PostgresStore.open(url, { ...options, host }));
        return opened.at(-1)!; // opened now
      };
      try {
        await run({ file, url, schema, store, client, copy, tryToCopy, host });
      } finally {
        await store.close();
        for (const one of opened) await one.close();
        await client.end();
        await Deno.remove(folder, { recursive: true });
      }
    },
  });
}

/** Claims one run, by a worker that is not live any more. */
async function claimOne(store: Store, leaseMs = 60_000): Promise<Claim> {
  const request = aClaimRequest({ limit: 1, leaseMs });
  const { claims: [claim] } = await store.claim(request);
  await store.forgetWorker(request.workerId);
  return claim!; // the caller has added one
}

test("copies runs with labels, keys, steps, waits, logs and failures", async ({ store, copy }) => {
  const [ended, waiting, pending] = [
    aRun({ labels: { org: "x" }, idempotencyKey: "once" }),
    aRun({ concurrencyKey: "key" }),
    aRun({ concurrencyKey: "key", flow: aFlow({ priority: 2, fairnessKey: "fair" }) }),
  ];
  await store.enqueue([ended]);
  const first = await claimOne(store);
  await store.saveStep(first.lease, aStep({ result: { status: "failed", failure: aFailure() } }), []);
  await store.finish(first.lease, { status: "failed", failure: aFailure(), failedStepName: "read" }, []);
  await store.appendLogs([aLine(ended.id), aLine(ended.id)]);
  await store.enqueue([waiting]);
  const second = await claimOne(store);
  await store.saveStep(second.lease, aStep(), []);
  const wait = aPause({ metadata: `{"a":1}`, deadline: { afterMs: 60_000 } });
  await store.pause(second.lease, { pauses: [wait], retryAt: null, park: true, reports: [] });
  await store.enqueue([pending]);
  const before = [await dump(store), await getLogs(store, ended.id)];

  const moved = await copy();

  assert.deepEqual([await dump(moved), await getLogs(moved, ended.id)], before);
  const again = await moved.enqueue([aRun({ idempotencyKey: "once" })]);
  assert.deepEqual(again.map(({ run, disposition }) => [run.id, disposition]), [[ended.id, "idempotent"]]);
  const { wait: signalled } = await moved.signal(wait.id, { signalId: "s", payload: 1 });
  assert.equal(signalled.outcome, "signal");
});

test("copies streams: what counts, what does not, and places in them", async ({ store, copy }) => {
  const run = aRun();
  await store.enqueue([run]);
  const { lease } = await claimOne(store);
  const chunk = (position: number, after: number, first: number, more: Partial<Chunk> = {}): Chunk => {
    const items = JSON.stringify([`item ${position}`]);
    const size = 10 * (first + 1);
    return { stream: "tokens", position, after, first, count: 1, size, items, isPermanent: false, ...more };
  };
  await store.appendItems([{ lease, chunks: [chunk(1, 0, 0), chunk(2, 1, 1)] }]);
  const mark = chunk(3, 0, 0, { count: 0, size: 0, items: "[]", isPermanent: true });
  const result = { status: "retrying" as const, failure: aFailure(), delayMs: 0 };
  await store.saveStep(lease, aStep({ result, chunks: [mark] }), []);
  await store.saveStep(lease, aStep({ attempts: 2, chunks: [chunk(4, 3, 0, { isPermanent: true })] }), []);
  await store.appendItems([{ lease, chunks: [chunk(5, 4, 1)] }]);
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: "read" }, []);
  const place = (await store.readStream(run.id, "tokens", null, Infinity))!.chunks[0]!;
  const read = (from: Store) =>
    Promise.all([
      from.readStream(run.id, "tokens", null, Infinity),
      from.readStream(run.id, "tokens", place, Infinity),
      from.readStream(run.id, "tokens", { position: 1, at: place.at }, 0),
      from.readStream(run.id, "tokens", { position: 1, at: 1 }, 0),
      from.getStreams(run.id),
    ]);
  const before = await read(store);

  const moved = await copy();

  assert.deepEqual(await read(moved), before);
  assert.deepEqual(before[0]!.chunks.map(({ items }) => items), ["[]", '["item 4"]', '["item 5"]']);
  assert.deepEqual([before[0]!.last, before[3]!.isPlace], [5, false]);
});

test("keeps the order of runs, and adds new ones behind them", async ({ store, copy }) => {
  const [first, second, third, fourth] = [aRun(), aRun(), aRun(), aRun()];
  await store.enqueue([first, second, third]);
  const { lease } = await claimOne(store);
  await store.finish(lease, { status: "completed", output: null, durationMs: 1 }, []);
  await store.delete(first.id);

  const moved = await copy();
  await moved.enqueue([fourth]);

  const { claims } = await moved.claim(aClaimRequest({ limit: 5 }));
  assert.deepEqual(claims.map(({ run }) => run.id), [second.id, third.id, fourth.id]);
  assert.deepEqual((await getRuns(moved, {})).runs.map(({ id }) => id), [fourth.id, third.id, second.id]);
});

test("makes a run due whose worker has died", async ({ store, copy, host }) => {
  const run = aRun();
  await store.enqueue([run]);
  await claimOne(store, 1_000);
  host.now = () => Date.now() + 1_000;
  const moved = await copy();

  const { claims } = await moved.claim(aClaimRequest());

  assert.deepEqual(claims.map(({ run, execution, lease }) => [run.id, execution, lease.generation]), [[run.id, 2, 3]]);
});

test("keeps which claim has given a lease", async ({ store, copy, host }) => {
  await store.enqueue([aRun()]);
  const { lease } = await claimOne(store, 1_000);
  host.now = () => Date.now() + 1_000;
  const moved = await copy();

  const other = { ...lease, claimId: "another claim of the same generation" };
  const lost = await moved.getLostLeases([lease, other]);

  assert.deepEqual(lost, [other]);
  await assert.rejects(moved.saveStep(other, aStep(), []), LeaseLostError);
  await moved.saveStep(lease, aStep(), []);
});

test("keeps the result of a child that was deleted", async ({ store, copy }) => {
  const [parent, child] = [aRun(), aRun({ labels: { org: "x\ue000" }, jobName: "child" })];
  await store.enqueue([parent]);
  const claimed = await claimOne(store);
  const pause = aPause({ kind: "children", children: { total: 1, from: 0, runs: [child] } });
  await store.pause(claimed.lease, { pauses: [pause], retryAt: null, park: true, reports: [] });
  const request = aClaimRequest({ jobNames: ["child"], limit: 1 });
  const { claims: [execution] } = await store.claim(request);
  await store.forgetWorker(request.workerId);
  await store.finish(
    execution!.lease,
    { status: "failed", failure: aFailure({ message: "\0" }), failedStepName: "s" },
    [],
  );
  await store.delete(child.id);
  const before = await store.readChildren(pause.id, 0, Infinity);

  const moved = await copy();

  assert.equal(before?.items[0]?.run.id, child.id);
  assert.deepEqual(await moved.readChildren(pause.id, 0, Infinity), before);
});

test("copies strings that the database cannot keep", async ({ store, copy }) => {
  const text = "\ue000 \\u0000 ä😀'$1%s$$ \ud7ff";
  const run = aRun({ payload: JSON.stringify({ [text]: "\0\ud800" }), labels: { l: text }, concurrencyKey: text });
  await store.enqueue([run]);
  const { lease } = await claimOne(store);
  await store.hold(
    lease,
    { code: "diverged", message: text, print: text, details: { isNew: null, unasked: [], issues: [] } },
    [],
  );
  const before = [await dump(store), await store.getHold(run.id)];

  const moved = await copy();

  assert.deepEqual([await dump(moved), await moved.getHold(run.id)], before);
});

test("keeps a concurrency key with the run that waits for its retry", async ({ store, copy }) => {
  const [first, second] = [aRun({ concurrencyKey: "key" }), aRun({ concurrencyKey: "key" })];
  await store.enqueue([first]);
  const { lease } = await claimOne(store);
  await store.pause(lease, { pauses: [], retryAt: Date.now() + 60_000, park: true, reports: [] });

  const moved = await copy();
  await moved.enqueue([second]);

  assert.deepEqual((await moved.claim(aClaimRequest())).claims, []);
  await moved.cancel(first.id, "request", null);
  assert.deepEqual((await moved.claim(aClaimRequest())).claims.map(({ run }) => run.id), [second.id]);
});

test("keeps to which code a held run is offered", async ({ store, copy }) => {
  const [held, holder] = [aRun({ concurrencyKey: "key" }), aRun({ concurrencyKey: "key" })];
  await store.enqueue([held]);
  await store.hold((await claimOne(store)).lease, aHold({ print: "print-1" }), []);
  await store.enqueue([holder]);
  const { lease } = await claimOne(store);
  await store.pause(lease, { pauses: [], retryAt: Date.now() + 60_000, park: true, reports: [] });
  const by = (print: string, triesHeld: boolean) => aClaimRequest({ jobs: [aKnownJob({ print })], triesHeld });
  assert.deepEqual((await store.claim(by("print-2", true))).claims, []); // the key is held
  await store.forgetWorker("worker-a");

  const moved = await copy();
  await moved.cancel(holder.id, "request", null);

  await moved.claim({ ...by("print-2", false), workerId: "worker-b" }); // it is alive
  assert.deepEqual((await moved.claim(by("print-3", true))).claims, []);
  assert.deepEqual((await moved.claim(by("print-2", true))).claims.map(({ run }) => run.id), [held.id]);
});

test("cancels the children of a run that has ended, after the copy", async ({ store, copy }) => {
  const [parent, child] = [aRun(), aRun()];
  await store.enqueue([parent]);
  const { lease } = await claimOne(store);
  const pause = aPause({ kind: "children", children: { total: 1, from: 0, runs: [child] } });
  await store.pause(lease, { pauses: [pause], retryAt: null, park: false, reports: [] });
  await store.finish(lease, { status: "completed", output: null, durationMs: 1 }, []);

  const moved = await copy();

  const { claims, cancelled } = await moved.claim(aClaimRequest());
  assert.deepEqual([claims, cancelled.map(({ id }) => id)], [[], [child.id]]);
});

test("keeps what rates have counted", async ({ store, copy, host }) => {
  const keyRate = { limit: 1, period: 60_000 };
  const keyed = () => aRun({ concurrencyKey: "key", jobName: "keyed", flow: aFlow({ keyRate }) });
  await store.enqueue([aRun(), keyed()]);
  const rated = aClaimRequest({ jobs: [aKnownJob({ rate: keyRate }), aKnownJob({ name: "keyed" })] });
  for (const { lease } of (await store.claim(rated)).claims) {
    await store.finish(lease, { status: "completed", output: null, durationMs: 1 }, []);
  }
  await store.enqueue([aRun(), keyed()]);
  await store.forgetWorker(rated.workerId);

  const moved = await copy();

  assert.deepEqual((await moved.claim({ ...rated, claimId: "now" })).claims, []);
  host.now = () => Date.now() + 60_000;
  assert.equal((await moved.claim({ ...rated, claimId: "later" })).claims.length, 2);
});

test("keeps the turns of fairness keys", async ({ store, copy }) => {
  const fair = (fairnessKey: string) => aRun({ flow: aFlow({ fairnessKey }) });
  const [first, second, third] = [fair("x"), fair("x"), fair("y")];
  await store.enqueue([first]);
  const { lease } = await claimOne(store);
  await store.finish(lease, { status: "completed", output: null, durationMs: 1 }, []);

  const moved = await copy();
  await moved.enqueue([second, third]);

  const { claims } = await moved.claim(aClaimRequest());
  assert.deepEqual(claims.map(({ run }) => run.id), [third.id, second.id]); // x has had the current turn
});

test("keeps starts and deadlines", async ({ store, copy, host }) => {
  const late = aRun({ flow: aFlow({ startWithin: 1_000 }) });
  const delayed = aRun({ flow: aFlow({ start: { afterMs: 60_000 } }) });
  await store.enqueue([late, delayed]);

  const moved = await copy();
  host.now = () => Date.now() + 59_000;
  const before = await moved.claim(aClaimRequest());
  host.now = () => Date.now() + 61_000;
  const after = await moved.claim(aClaimRequest());

  assert.deepEqual(before.failed.map(({ run, failureKind }) => [run.id, failureKind]), [[late.id, "expired"]]);
  assert.deepEqual(before.claims, []);
  assert.deepEqual(after.claims.map(({ run }) => run.id), [delayed.id]);
});

test("copies schedules and paused jobs", async ({ store, copy }) => {
  const times = { pausedAt: null, pausedBy: null, nextAt: 5, lastSlotAt: 4, lastRunId: "run", skipped: 3 };
  const schedule = { name: "nightly", jobName: "job", options: "{}", declared: "{}", error: null, ...times };
  await store.setSchedule(schedule, null);
  await store.pauseJob("job", { by: "ann", note: null });
  const before = [(await store.getSchedules()).schedules, await getPausedJobs(store)];

  const moved = await copy();

  assert.deepEqual([(await moved.getSchedules()).schedules, await getPausedJobs(moved)], before);
});

test("begins a journal in which no cursor of the file is valid", async ({ store, copy }) => {
  await store.enqueue([aRun(), aRun()]);
  const cursor = (await store.findCursor(null))!;
  const moved = await copy();

  const end = (await moved.findCursor(null))!;

  assert.ok(end.position > cursor.position);
  assert.equal(await moved.findCursor(cursor), null);
  assert.equal(await moved.findCursor({ position: 0, at: 0 }), null);
  assert.equal(await moved.readJournal(cursor.position, 1_000), null);
  assert.deepEqual(await moved.readJournal(end.position, 1_000), { rows: [], end });
  await moved.enqueue([aRun()]);
  const page = await moved.readJournal(end.position, 1_000);
  assert.deepEqual(page?.rows.map(({ facts }) => facts.map(([, what]) => what)), [["triggered"]]);
});

test("does not change the file that it copies", async ({ store, file, url, schema }) => {
  await store.enqueue([aRun()]);
  await store.close();
  const before = await Deno.readFile(file);

  const { runs } = await copySqliteToPostgres(file, url, { schema, durability: "relaxed" });

  assert.equal(runs.pending, 1);
  assert.deepEqual(await Deno.readFile(file), before);
});

test("reports runs by status and rows by table", async ({ store, file, url, schema }) => {
  await store.enqueue([aRun(), aRun({ labels: { a: "1", b: "2" } })]);
  await store.close();
  const seen: string[] = [];

  const report = await copySqliteToPostgres(file, url, {
    schema,
    durability: "relaxed",
    onProgress: ({ table, rows }) => seen.push(`${table} ${rows}`),
  });

  assert.deepEqual(report.runs, {
    pending: 2,
    leased: 0,
    running: 0,
    waiting: 0,
    completed: 0,
    failed: 0,
    cancelled: 0,
  });
  assert.deepEqual([report.tables.runs?.rows, report.tables.labels?.rows, report.tables.steps?.rows], [2, 2, 0]);
  assert.deepEqual(seen, ["runs 2", "inputs 2", "labels 2", "serving 1"]);
});

test("refuses a file whose worker is live", async ({ store, tryToCopy, host }) => {
  await store.claim(aClaimRequest({ workerId: "alive", leaseMs: 1_000 }));

  await assert.rejects(tryToCopy(), (error) => error instanceof ConflictError && /worker "alive"/.test(error.message));

  host.now = () => Date.now() + 1_000;
  await tryToCopy();
});

test("refuses a file with a run under a lease, or one that was cancelled under it", async ({ store, tryToCopy }) => {
  const run = aRun({ concurrencyKey: "key" });
  await store.enqueue([run]);
  const { lease } = await claimOne(store);

  await assert.rejects(tryToCopy(), (error) => error instanceof ConflictError && error.message.includes(run.id));
  await store.cancel(run.id, "request", null);
  await assert.rejects(tryToCopy(), (error) => error instanceof ConflictError && error.message.includes(run.id));
  await store.release(lease, []);

  await tryToCopy();
});

test("refuses a file that somebody writes to", async ({ file, tryToCopy }) => {
  const other = new DatabaseSync(file);
  other.exec("BEGIN IMMEDIATE");

  await assert.rejects(tryToCopy(), (error) => error instanceof StoreError && /locked/.test(error.message));

  other.close();
});

test("keeps others from writing to the file meanwhile", async ({ store, file, url, schema }) => {
  await store.enqueue([aRun()]);
  const attempts: unknown[] = [];
  const other = new DatabaseSync(file);

  await copySqliteToPostgres(file, url, {
    schema,
    durability: "relaxed",
    onProgress: () => {
      try {
        other.exec("DELETE FROM holdfast_runs");
        attempts.push("written");
      } catch (error) {
        attempts.push((error as Error).message);
      }
    },
  });

  other.close();
  assert.ok(attempts.length > 0);
  assert.deepEqual([...new Set(attempts)], ["database is locked"]);
});

test("refuses what is no file of a SqliteStore", async ({ url, schema, file }) => {
  const copy = (path: string) => copySqliteToPostgres(path, url, { schema, durability: "relaxed" });
  const empty = `${file}.empty`;
  new DatabaseSync(empty).close();
  await Deno.writeTextFile(`${file}.text`, "no database, but many words that fill a page".repeat(100));

  await assert.rejects(copy(`${file}.none`), /there is no such file/);
  await assert.rejects(copy(empty), /no tables of a SqliteStore/);
  await assert.rejects(copy(`${file}.text`), /not a database/);
});

test("refuses a schema that is not empty", async ({ store, copy, tryToCopy }) => {
  await store.enqueue([aRun()]);
  await copy();

  await assert.rejects(
    tryToCopy(),
    (error) => error instanceof ConflictError && /not empty \(.*runs.*inputs/.test(error.message),
  );
});

test("leaves nothing when it is interrupted, and can be repeated", async ({ store, client, schema, copy, url }) => {
  await store.enqueue([aRun(), aRun()]);
  await makeTables(url, schema);
  // Once the runs are written, it waits for a lock that the test holds.
  await client.query("select pg_advisory_lock(hashtext($1))", [schema]);
  await addTrigger(client, `${schema}.inputs`, `perform pg_advisory_xact_lock(hashtext('${schema}')); return new;`);

  const interrupted = assert.rejects(copy(), StoreError);
  const waiting = `select pid from pg_locks where locktype = 'advisory' and not granted and objid = hashtext($1)::oid`;
  while ((await client.query(waiting, [schema])).rows.length === 0);
  await client.query(`select pg_terminate_backend(pid) from (${waiting}) w`, [schema]);
  await interrupted;

  const { rows: [left] } = await client.query(`select count(*)::int as runs from ${schema}.runs`);
  assert.deepEqual(left, { runs: 0 });
  await client.query("select pg_advisory_unlock_all()");
  const moved = await copy();
  assert.equal((await getRuns(moved, {})).total, 2);
});

const CHANGES = {
  "a value": ["steps", "new.output := '2'; return new;", /"steps" differs/],
  "a missing row": ["labels", "return null;", /"labels" differs/],
} as const;

for (const [what, [table, body, message]] of Object.entries(CHANGES)) {
  test(`notices ${what} that differs in the copy, and leaves nothing`, async ({ store, client, schema, copy, url }) => {
    await store.enqueue([aRun({ labels: { a: "1" } })]);
    const { lease } = await claimOne(store);
    await store.saveStep(lease, aStep(), []);
    await store.release(lease, []);
    await makeTables(url, schema);
    await addTrigger(client, `${schema}.${table}`, body);

    await assert.rejects(copy(), message);

    const { rows: [left] } = await client.query(`select count(*)::int as runs from ${schema}.runs`);
    assert.deepEqual(left, { runs: 0 });
  });
}

async function makeTables(url: string, schema: string): Promise<void> {
  const store = await PostgresStore.open(url, { schema, durability: "relaxed" });
  await store.migrate();
  await store.close();
}

/** Executes statements before each row that is added to a table. */
async function addTrigger(client: pg.Client, table: string, body: string): Promise<void> {
  await client.query(`
    create function ${table}_changed() returns trigger language plpgsql as $$ begin ${body} end $$;
    create trigger changed before insert on ${table} for each row execute function ${table}_changed()`);
}
