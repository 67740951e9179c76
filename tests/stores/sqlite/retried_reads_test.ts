import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { StoreError } from "../../../src/model/error.ts";
import { RetriedReads } from "../../../src/stores/sqlite/retried_reads.ts";
import { SqliteDatabase, type SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { FakeHost } from "../../support/fake_host.ts";

/** The reads of a database in memory, on a clock that moves while they wait. */
function someReads() {
  const driver = new DatabaseSync(":memory:");
  const host = new ImpatientHost();
  const closing = new AbortController();
  const reads = new RetriedReads(new SqliteDatabase(driver as unknown as SqliteDriver), null, host, closing.signal);
  return { reads, host, closing, [Symbol.dispose]: () => driver.close() };
}

/** A host whose timers fire at once, with the clock moved to their instants. */
class ImpatientHost extends FakeHost {
  /** How many timers were set. */
  timers = 0;

  override schedule(ms: number, callback: () => void): () => void {
    this.timers += 1;
    const cancel = super.schedule(ms, callback);
    queueMicrotask(() => this.advance(ms));
    return cancel;
  }
}

function busy(): never {
  throw Object.assign(new Error("database is locked"), { errcode: 5 });
}

Deno.test("RetriedReads.read() repeats a read that finds the file locked", async () => {
  using database = someReads();
  let attempts = 0;

  const value = await database.reads.read(() => ++attempts < 3 ? busy() : "read");

  assert.deepEqual([value, attempts, database.host.timers], ["read", 3, 2]);
});

Deno.test("RetriedReads.read() gives up after 10 seconds, and says that the store is unavailable", async () => {
  using database = someReads();
  const startedAt = database.host.monotonic();

  const read = database.reads.read(busy, "Cannot open it");

  await assert.rejects(read, (error) => {
    return error instanceof StoreError && error.code === "unavailable" && error.message.startsWith("Cannot open it: ");
  });
  const waitedMs = database.host.monotonic() - startedAt;
  assert.ok(waitedMs >= 10_000 && waitedMs < 10_100, `${waitedMs} ms`);
});

Deno.test("RetriedReads.read() does not repeat a read that fails otherwise", async () => {
  using database = someReads();
  let attempts = 0;
  const fail = () => {
    attempts += 1;
    throw new Error("no such table");
  };

  const read = database.reads.read(fail);

  await assert.rejects(read, StoreError);
  assert.equal(attempts, 1);
});

Deno.test("RetriedReads.read() ends when the store is closed, and begins no more", async () => {
  using database = someReads();
  let attempts = 0;

  const waiting = database.reads.read(() => {
    attempts += 1;
    if (attempts === 2) database.closing.abort();
    return busy();
  });
  await assert.rejects(waiting, { message: "The store is closed" });
  await assert.rejects(database.reads.read(() => "read"), { message: "The store is closed" });

  assert.equal(attempts, 2);
});

Deno.test("RetriedReads.inSlices() begins anew when a slice finds the file locked", async () => {
  using database = someReads();
  const seen: string[] = [];
  let rounds = 0;

  const value = await database.reads.inSlices(function* () {
    rounds += 1;
    seen.push(`${rounds}: first`);
    yield;
    if (rounds === 1) busy();
    seen.push(`${rounds}: second`);
    return "whole";
  });

  assert.equal(value, "whole");
  assert.deepEqual(seen, ["1: first", "2: first", "2: second"]);
});
