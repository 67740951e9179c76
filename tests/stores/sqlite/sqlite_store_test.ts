import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import Database from "better-sqlite3";
import { StoreError } from "../../../src/model/error.ts";
import { migrateTables, readVersion } from "../../../src/stores/sqlite/schema.ts";
import { SqliteDatabase, type SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aPause, aRun, aStep } from "../../support/fixtures.ts";
import { needs } from "../../support/platform.ts";
import { afterClose, runProgram, withFile } from "../../support/stores/sqlite.ts";
import { getRun, getRuns } from "../../../src/store/reads.ts";

Deno.test("SqliteStore.open() keeps runs when the file is closed and opened again", () =>
  withFile(async (path) => {
    const run = aRun();
    {
      await using store = await SqliteStore.open(path);
      await store.migrate();
      await store.enqueue([run]);
    }

    await using store = await SqliteStore.open(new URL(`file://${path}`));
    await store.migrate();

    assert.equal((await getRun(store, run.id))?.status, "pending");
  }));

Deno.test("SqliteStore.open() refuses a file that is no database, by its name, and leaves it as it is", () =>
  withFile(async (path) => {
    const text = "this is plain text, and long enough to be read as a header of a database";
    await Deno.writeTextFile(path, text);

    await assert.rejects(SqliteStore.open(path), {
      name: "StoreError",
      message: `Cannot open the database "${path}": file is not a database; ` +
        "check that the path is that of a SQLite database, or of a new file",
    });

    assert.equal(await Deno.readTextFile(path), text);
  }));

Deno.test("SqliteStore.open() refuses what is no path, such as a variable of the environment that is not set", async () => {
  for (const odd of [undefined, null, 5, {}]) {
    await assert.rejects(SqliteStore.open(odd as never), {
      name: "TypeError",
      message: /^SqliteStore\.open\(\) needs the path of a file, not /,
    });
  }
});

Deno.test("SqliteStore.open() refuses an address with parameters, and a secureDelete that is no boolean", async () => {
  await assert.rejects(
    SqliteStore.open("file:///nowhere/jobs.db?mode=ro"),
    /^TypeError: SqliteStore\.open\(\) takes a file: URL without parameters, which it would ignore$/,
  );
  await assert.rejects(
    SqliteStore.open(":memory:", { secureDelete: "no" as unknown as boolean }),
    /^TypeError: secureDelete of SqliteStore\.open\(\) must be true or false, not a string$/,
  );
});

Deno.test("SqliteStore says what the database answers, without the statements", async () => {
  const database = new DatabaseSync(":memory:");
  database.exec("CREATE TABLE holdfast_runs (of_somebody_else TEXT)");
  await using store = await SqliteStore.from(database);

  await assert.rejects(
    store.migrate(),
    /^StoreError: The database cannot answer: table holdfast_runs already exists$/,
  );
});

Deno.test("SqliteStore.open() refuses a directory, by its name", () =>
  withFile(async (path) => {
    await Deno.mkdir(path);

    await assert.rejects(SqliteStore.open(path), {
      name: "StoreError",
      message: `Cannot open the database "${path}": it is a directory; name a file in it`,
    });
  }));

Deno.test("SqliteStore.open() refuses a file in a directory that does not exist, by its name", () =>
  withFile(async (path) => {
    await assert.rejects(SqliteStore.open(`${path}/nowhere/jobs.db`), {
      name: "StoreError",
      message: `Cannot open the database "${path}/nowhere/jobs.db": its directory does not exist; make it first`,
    });
  }));

Deno.test("SqliteStore.open() names a file that another connection keeps locked", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    using other = new DatabaseSync(path);
    other.exec("CREATE TABLE own (value TEXT); PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");

    const refusal = assert.rejects(SqliteStore.open(path, { host }), {
      name: "StoreError",
      code: "unavailable",
      message: `Cannot open the database "${path}": database is locked`,
    });
    for (let i = 0; i < 300; i++) {
      host.advance(100);
      await host.settle(1);
    }

    await refusal;
  }));

Deno.test("SqliteStore.open() names a file for which a permission is missing, and makes none", () =>
  withFile(async (path) => {
    const program = `
      const { SqliteStore } = await import(${JSON.stringify(import.meta.resolve("../../../mod.ts"))});
      await SqliteStore.open(${JSON.stringify(path)}).catch((error) => console.log(error.name, error.message));
    `;
    for (const permissions of [[], [`--allow-read=${path}`], [`--allow-write=${path}`]]) {
      const { stdout } = await runProgram(["run", "--no-prompt", ...permissions, "-"], program);

      assert.match(stdout, new RegExp(`^StoreError Cannot open the database "${path}": Requires (read|write) access`));
      await assert.rejects(Deno.stat(path), Deno.errors.NotFound);
    }
  }));

async function modeOf(path: string): Promise<number> {
  return (await Deno.stat(path)).mode! & 0o777;
}

Deno.test({
  name: "SqliteStore.open() and backup() make files that only their owner can read",
  ...needs("file modes"),
  fn: () =>
    withFile(async (path) => {
      await using store = await SqliteStore.open(path);
      await store.migrate();
      await store.backup(`${path}.copy`);

      const modes = await Promise.all(["", "-wal", "-shm", ".copy"].map((suffix) => modeOf(path + suffix)));

      assert.deepEqual(modes, [0o600, 0o600, 0o600, 0o600]);
    }),
});

Deno.test({
  name: "SqliteStore.open() makes the file that a link names so that only its owner can read it",
  ...needs("file modes"),
  fn: () =>
    withFile(async (path) => {
      await Deno.symlink(`${path}.real`, path);

      await using store = await SqliteStore.open(path);
      await store.migrate();

      assert.equal(await modeOf(`${path}.real`), 0o600);
    }),
});

Deno.test({
  name: "SqliteStore.open() leaves the mode of a file that exists",
  ...needs("file modes"),
  fn: () =>
    withFile(async (path) => {
      await Deno.writeFile(path, new Uint8Array());
      await Deno.chmod(path, 0o640);

      await using store = await SqliteStore.open(path);
      await store.migrate();

      assert.equal(await modeOf(path), 0o640);
    }),
});

Deno.test("SqliteStore.open() needs no other permission than to read and to write the file", () =>
  withFile(async (path) => {
    const program = `
      const { SqliteStore } = await import(${JSON.stringify(import.meta.resolve("../../../mod.ts"))});
      await using store = await SqliteStore.open(${JSON.stringify(path)});
      await store.migrate();
      console.log((await store.findRuns({})).total);
    `;

    const { stdout } = await runProgram(
      ["run", "--no-prompt", `--allow-read=${path}`, `--allow-write=${path}`, "-"],
      program,
    );

    assert.equal(stdout.trim(), "0");
  }));

Deno.test("SqliteStore.migrate() refuses tables of a newer version", async () => {
  const database = new DatabaseSync(":memory:");
  database.exec("CREATE TABLE holdfast_schema (version INTEGER); INSERT INTO holdfast_schema VALUES (99)");
  await using store = await SqliteStore.from(database);

  await assert.rejects(store.migrate(), /tables of version 99/);

  await store.close();
  database.close();
});

Deno.test("migrateTables() makes the changes since the version of the tables, once", () => {
  const database = new DatabaseSync(":memory:");
  const wrapped = new SqliteDatabase(database as unknown as SqliteDriver);
  const first = "CREATE TABLE holdfast_a (n INTEGER); INSERT INTO holdfast_a VALUES (1)";
  const second = "UPDATE holdfast_a SET n = n + 1";

  migrateTables(wrapped, [first]);
  migrateTables(wrapped, [first, second]);
  migrateTables(wrapped, [first, second]);

  assert.equal(readVersion(wrapped), 2);
  assert.equal(database.prepare("SELECT n FROM holdfast_a").get()!.n, 2);
  assert.throws(() => migrateTables(wrapped, [first]), /tables of version 2/);
  database.close();
});

for (const [synchronous, level] of [[undefined, 2], ["full", 2], ["normal", 1]] as const) {
  Deno.test(`SqliteStore.from() keeps what it acknowledges as ${synchronous ?? "nothing else"} says`, () =>
    withFile(async (path) => {
      using database = new DatabaseSync(path);
      await using _store = await SqliteStore.from(database, synchronous === undefined ? {} : { synchronous });

      const kept = database.prepare("SELECT * FROM pragma_synchronous, pragma_journal_mode").get();

      assert.deepEqual({ ...kept }, { synchronous: level, journal_mode: "wal" });
    }));
}

Deno.test("SqliteStore waits for another connection to let go of the lock, without blocking", () =>
  withFile(async (path) => {
    await using store = await SqliteStore.open(path);
    await store.migrate();
    const other = new DatabaseSync(path);
    other.exec("BEGIN IMMEDIATE");

    const enqueued = store.enqueue([aRun()]);
    const first = await Promise.race([enqueued, new Promise((resolve) => setTimeout(resolve, 60, "still waiting"))]);
    other.exec("COMMIT");

    assert.equal(first, "still waiting");
    assert.equal((await enqueued)[0]!.disposition, "created");
    other.close();
  }));

Deno.test("SqliteStore gives up on a lock that is held for ever", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    await using store = await SqliteStore.open(path, { host });
    await store.migrate();
    const other = new DatabaseSync(path);
    other.exec("BEGIN IMMEDIATE");

    const refusal = assert.rejects(store.enqueue([aRun()]), StoreError);
    for (let i = 0; i < 1_000; i++) {
      host.advance(20);
      await host.settle(1);
    }
    await refusal;

    other.exec("COMMIT");
    other.close();
  }));

Deno.test("SqliteStore refuses one write of a batch without touching the others", async () => {
  await using store = await SqliteStore.open(":memory:");
  await store.migrate();
  const runs = [aRun(), aRun()];
  const gone = { runId: "none", generation: 1, claimId: "none", recorded: 0, concurrencyKey: null };

  const answers = await Promise.allSettled([
    store.enqueue([runs[0]!]),
    store.saveStep(gone, aStep(), []),
    store.enqueue([runs[1]!]),
  ]);

  assert.deepEqual(answers.map(({ status }) => status), ["fulfilled", "rejected", "fulfilled"]);
  assert.equal((await getRuns(store, {})).total, 2);
});

Deno.test("SqliteStore tries the writes of a batch one by one when the database fails for one of them", async () => {
  const database = new DatabaseSync(":memory:");
  await using store = await SqliteStore.from(database);
  await store.migrate();
  database.exec(
    "CREATE TRIGGER fail BEFORE INSERT ON holdfast_runs WHEN new.job = 'broken' BEGIN SELECT raise(ABORT, 'broken'); END",
  );

  const answers = await Promise.allSettled(
    ["good", "broken", "good"].map((jobName) => store.enqueue([aRun({ jobName })])),
  );

  assert.deepEqual(answers.map(({ status }) => status), ["fulfilled", "rejected", "fulfilled"]);
  assert.ok((answers[1] as PromiseRejectedResult).reason instanceof StoreError);
  assert.equal((await getRuns(store, {})).total, 2);
  await store.close();
  database.close();
});

Deno.test("SqliteStore commits writes that are ready together at once", async () => {
  const database = new DatabaseSync(":memory:");
  const commits: string[] = [];
  const counting: SqliteDriver = {
    exec: (sql) => {
      if (sql === "COMMIT") commits.push(sql);
      database.exec(sql);
    },
    prepare: (sql) => database.prepare(sql),
  };
  // On a clock that stands still no batch takes too long.
  await using store = await SqliteStore.from(counting, { host: new FakeHost() });
  await store.migrate();
  commits.length = 0;

  await Promise.all(Array.from({ length: 50 }, () => store.enqueue([aRun()])));

  assert.equal(commits.length, 1);
  await store.close();
  database.close();
});

Deno.test("SqliteStore.claim() finds again what it claimed when its answer was lost", async () => {
  await using store = await SqliteStore.open(":memory:", { host: new FakeHost() });
  await store.migrate();
  await store.enqueue([aRun()]);
  const request = aClaimRequest({ limit: 5 });
  const first = await store.claim(request);

  const again = await store.claim(request);

  assert.deepEqual(again.claims, first.claims);
});

Deno.test("SqliteStore refuses calls when it is closed", async () => {
  const store = await SqliteStore.open(":memory:");
  await store.close();

  await assert.rejects(getRun(store, "any"), StoreError);
  await assert.rejects(store.enqueue([aRun()]), StoreError);
  await store.close();
});

Deno.test("SqliteStore looks nothing up by reading a whole table", async () => {
  const database = new DatabaseSync(":memory:");
  const statements = new Set<string>();
  const watching = {
    exec: (sql: string) => database.exec(sql),
    prepare: (sql: string) => {
      statements.add(sql);
      return database.prepare(sql);
    },
  };
  await using store = await SqliteStore.from(watching as unknown as DatabaseSync);
  await store.migrate();
  await store.enqueue([aRun({ concurrencyKey: "key", coalesce: "active", idempotencyKey: "same" })]);
  const { claims: [claim] } = await store.claim(aClaimRequest());
  await store.saveStep(claim!.lease, aStep(), []);
  await store.renew([{ lease: claim!.lease, reports: [] }], 1_000);
  await store.finish(claim!.lease, { status: "completed", output: null, durationMs: 0 }, []);
  const { end } = (await store.readJournal(0, 1_000))!;
  await store.findCursor(end);
  await store.findCursor({ position: 0, at: 0 });
  await store.getRunIdentities([1]);
  await store.readFactValues([{ run: 1, of: "payload" }, { run: 1, of: "step", stepName: "read" }], 1_000);
  await store.getRunState(claim!.run.id);
  await store.readRuns([claim!.run.id], 1_000);
  for (const after of [null, "unknown"]) {
    await store.readSteps(claim!.run.id, after, 1_000);
    await store.readWaits(claim!.run.id, after, 1_000);
    await store.readLogs(claim!.run.id, after, 1_000);
  }
  await store.purge({ completed: 0 }, 10);
  await store.claim(aClaimRequest());

  // A few rows: the workers that are alive, the columns of a table.
  const small = /holdfast_workers|sqlite_schema|holdfast_schema|pragma_table_info/;
  const scans = [...statements].filter((sql) => /^\s*(SELECT|UPDATE|DELETE)/.test(sql) && !small.test(sql))
    .flatMap((sql) => {
      const parameters = Array.from(sql.matchAll(/\?/g), () => null);
      return database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters).map(({ detail }) => `${detail}: ${sql}`);
    })
    .filter((detail) => /^SCAN (?!retries\b|CONSTANT|\(subquery|json_each)/.test(detail));

  // Runs that are ready are few; those of a job, or behind a key, may be very many.
  const slow = [...statements].filter((sql) => /WHERE[^]*queue_state = 'R'/.test(sql)).filter((sql) => {
    const parameters = Array.from(sql.matchAll(/\?/g), () => null);
    const plan = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters);
    return !plan.some(({ detail }) => /holdfast_runs_ready|INTEGER PRIMARY KEY|\(id=\?\)/.test(String(detail)));
  });

  // A part of a long list is not found by sorting all of it. The holders of a key are few.
  const lists = [...statements].filter((sql) => /LIMIT (\?|\d)/.test(sql) && !sql.includes("FROM holdfast_holders"));
  const sorted = lists.filter((sql) => {
    const parameters = Array.from(sql.matchAll(/\?/g), () => null);
    const plan = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters);
    return plan.some(({ detail }) => /USE TEMP B-TREE/.test(String(detail)));
  });

  assert.deepEqual(scans, []);
  assert.deepEqual(slow, []);
  assert.deepEqual(sorted, []);
  await store.close();
  database.close();
});

Deno.test("SqliteStore reads a long history in slices, and no part of one whose run is cancelled meanwhile", async () => {
  const host = new FakeHost();
  await using store = await SqliteStore.open(":memory:", { host });
  await store.migrate();
  const runs = [aRun(), aRun()];
  await store.enqueue(runs);
  const { claims: first } = await store.claim(aClaimRequest());
  for (const { lease } of first) {
    const steps = Array.from({ length: 5_000 }, (_, n) => aStep({ name: `s${n}`, index: n }));
    await Promise.all(steps.map((step) => store.saveStep(lease, step, [])));
    await store.release(lease, []);
  }

  const claiming = store.claim(aClaimRequest({ workerId: "worker-b" }));
  for (let turn = 0; turn < 20; turn++) await null; // its write is the first of the batch
  const cancelled = store.cancel(runs[1]!.id, "request", null);
  const [{ claims }] = await Promise.all([claiming, cancelled]);

  assert.deepEqual(
    claims.map(({ run, steps }) => [run.id, steps.length, new Set(steps.map(({ name }) => name)).size]),
    [
      [runs[0]!.id, 5_000, 5_000],
    ],
  );
});

Deno.test("SqliteStore begins a list and a history anew if the file was locked while it read them", async () => {
  const database = new DatabaseSync(":memory:");
  let isLocked = false;
  const locked = {
    exec: (sql: string) => database.exec(sql),
    prepare: (sql: string) => {
      const statement = database.prepare(sql);
      return {
        run: statement.run.bind(statement),
        get: (...parameters: string[]) => fail(sql) ?? statement.get(...parameters),
        all: (...parameters: string[]) => fail(sql) ?? statement.all(...parameters),
      };
    },
  };
  const fail = (sql: string) => {
    if (!isLocked || !/FROM holdfast_(counts|steps WHERE)/.test(sql)) return;
    isLocked = false;
    throw Object.assign(new Error("database is locked"), { errcode: 5 });
  };
  await using store = await SqliteStore.from(locked as unknown as DatabaseSync);
  await store.migrate();
  await store.enqueue([aRun()]);
  const { claims: [first] } = await store.claim(aClaimRequest());
  await store.saveStep(first!.lease, aStep(), []);
  await store.release(first!.lease, []);

  isLocked = true;
  const { total } = await getRuns(store, {});
  isLocked = true;
  const { claims: [again] } = await store.claim(aClaimRequest({ workerId: "worker-b" }));

  assert.deepEqual([total, again!.steps.length, isLocked], [1, 1, false]);
  await store.close();
  database.close();
});

/** A store that lets something happen right before its connection reads with a statement that contains a text. */
async function anInterrupted(path: string, text: string, happen: () => void): Promise<SqliteStore> {
  const database = new DatabaseSync(path);
  const driver = {
    exec: (sql: string) => database.exec(sql),
    prepare: (sql: string) => {
      const statement = database.prepare(sql);
      const read = (method: "get" | "all") => (...parameters: string[]) => {
        if (sql.includes(text)) happen();
        return statement[method](...parameters);
      };
      return { run: statement.run.bind(statement), get: read("get"), all: read("all") };
    },
  };
  return afterClose(await SqliteStore.from(driver as unknown as DatabaseSync), () => database.close());
}

for (const [what, text] of [["state", "FROM holdfast_pauses"], ["list", "LIMIT ? OFFSET ?"]] as const) {
  Deno.test(`SqliteStore reads the ${what} of runs as it is at one moment, whatever another process commits`, () =>
    withFile(async (path) => {
      await using other = await SqliteStore.open(path);
      await other.migrate();
      const [added] = await other.enqueue([aRun({ labels: { a: "b" } }), aRun({ labels: { a: "b" } })]);
      const { claims: [claim] } = await other.claim(aClaimRequest({ limit: 1 }));
      await other.pause(claim!.lease, { pauses: [aPause()], retryAt: null, park: true, reports: [] });
      using writer = new DatabaseSync(path);
      await using store = await anInterrupted(
        path,
        text,
        () =>
          writer.exec(
            "UPDATE holdfast_pauses SET awaited = 0; UPDATE holdfast_runs SET status = 'waiting', queue_state = 'R'",
          ),
      );

      const state = await store.getRunState(added!.run.id);
      const { runs, total } = await getRuns(store, { status: "waiting", labels: { a: "b" } });

      if (what === "state") assert.deepEqual([state!.run.status, state!.pauses.length], ["waiting", 1]);
      else assert.deepEqual([runs.length, total], [1, 1]);
    }));
}

for (const driver of ["node:sqlite", "better-sqlite3"]) {
  Deno.test(`SqliteStore.from() reads, and refuses to write, while whoever has lent it its ${driver} has a transaction open`, () =>
    withFile(async (path) => {
      const database = driver === "node:sqlite" ? new DatabaseSync(path) : new Database(path);
      await using store = afterClose(await SqliteStore.from(database as DatabaseSync), () => database.close());
      await store.migrate();
      const [added] = await store.enqueue([aRun()]);
      database.exec("CREATE TABLE own (value TEXT); BEGIN; INSERT INTO own VALUES ('kept')");

      const { total } = await getRuns(store, {});
      const state = await store.getRunState(added!.run.id);
      const page = await store.readJournal(0, 1_000);
      await assert.rejects(store.enqueue([aRun()]), {
        name: "StoreError",
        message: /inside a transaction of yours: use engine\.transaction\(\) or engine\.inTransaction\(\)$/,
      });
      database.exec("COMMIT");

      assert.deepEqual([total, state!.run.status, page!.rows.length], [1, "pending", 1]);
      assert.equal((database.prepare("SELECT value FROM own").get() as { value: string }).value, "kept");
    }));
}

Deno.test("SqliteStore frees the key of a run that is cancelled while its long history is read", async () => {
  const host = new FakeHost();
  await using store = await SqliteStore.open(":memory:", { host });
  await store.migrate();
  const runs = [aRun({ concurrencyKey: "key" }), aRun({ concurrencyKey: "key" })];
  await store.enqueue(runs);
  const { claims: [first] } = await store.claim(aClaimRequest());
  const steps = Array.from({ length: 3_000 }, (_, n) => aStep({ name: `s${n}`, index: n }));
  await Promise.all(steps.map((step) => store.saveStep(first!.lease, step, [])));
  await store.release(first!.lease, []);

  const claiming = store.claim(aClaimRequest({ workerId: "worker-b" }));
  for (let turn = 0; turn < 20; turn++) await null; // its write is the first of the batch
  await Promise.all([claiming, store.cancel(runs[0]!.id, "request", null)]);
  const { claims } = await store.claim(aClaimRequest({ workerId: "worker-b" }));

  assert.deepEqual(claims.map(({ run }) => run.id), [runs[1]!.id]);
});
