import assert from "node:assert/strict";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { aClaimRequest, aLogged, aRun } from "../../support/fixtures.ts";
import { storeContract } from "../../../src/testing/contract/store_contract.ts";
import { getRun, getRuns } from "../../../src/store/reads.ts";

storeContract("MemoryStore", (host) => new MemoryStore({ host }));

Deno.test("MemoryStore: enqueue() tells the time of the system unless it is given a host", async () => {
  const store = new MemoryStore();
  const before = Date.now();

  const [added] = await store.enqueue([aRun()]);

  const createdAt = Date.parse(added!.run.createdAt);
  assert.ok(before <= createdAt && createdAt <= Date.now());
});

Deno.test("MemoryStore: enqueue() has done its work when it returns, before its promise resolves", async () => {
  const store = new MemoryStore();
  const run = aRun();

  const adding = store.enqueue([run]);
  const found = await getRun(store, run.id);
  await adding;

  assert.equal(found?.id, run.id);
});

Deno.test("MemoryStore: getVersion() changes with each change, and with nothing else", async () => {
  const store = new MemoryStore();
  const before = await store.getVersion();

  await getRuns(store, {});
  const afterReading = await store.getVersion();
  await store.enqueue([aRun()]);
  const afterWriting = await store.getVersion();

  assert.equal(afterReading, before);
  assert.notEqual(afterWriting, before);
});

Deno.test("MemoryStore: readJournal() answers null for what was trimmed, and findCursor() refuses it", async () => {
  const store = new MemoryStore();
  await store.enqueue([aRun()]);
  const { rows: [first] } = (await store.readJournal(0, 1))!;
  const { claims: [claim] } = await store.claim(aClaimRequest());
  const message = "x".repeat(1_000_000);

  for (let no = 1; no <= 5; no++) {
    await store.renew([{ lease: claim!.lease, reports: [aLogged({ no, message })] }], 1_000);
  }

  const { position, at } = (await store.findCursor(null))!;
  assert.equal(await store.readJournal(0, 1), null);
  assert.equal(await store.findCursor({ position: first!.position, at: first!.at }), null);
  assert.deepEqual(await store.findCursor({ position, at }), { position, at });
  assert.equal((await store.readJournal(position - 4, 10_000_000))!.rows.length, 4);
});

Deno.test("MemoryStore: readJournal() keeps the newest row, however long it is", async () => {
  const store = new MemoryStore();
  await store.enqueue([aRun()]);
  const { claims: [claim] } = await store.claim(aClaimRequest());
  const message = "x".repeat(5_000_000);

  await store.renew([{ lease: claim!.lease, reports: [aLogged({ message })] }], 1_000);

  const { position } = (await store.findCursor(null))!;
  assert.equal((await store.readJournal(position - 1, 1))!.rows.length, 1);
  assert.equal(await store.readJournal(position - 2, 1), null);
});

Deno.test("MemoryStore: await using closes it", async () => {
  const run = aRun();

  await using store = new MemoryStore();
  await store.enqueue([run]);

  assert.equal((await getRun(store, run.id))?.status, "pending");
});

Deno.test("MemoryStore: journalLength bounds how much of the journal is kept, but for the newest row", async () => {
  const store = new MemoryStore({ journalLength: 1 });
  await store.enqueue([aRun()]);
  const first = (await store.findCursor(null))!;
  await store.enqueue([aRun()]);
  const second = (await store.findCursor(null))!;

  const all = await store.readJournal(0, 1_000);
  const newest = await store.readJournal(first.position, 1_000);

  assert.equal(all, null);
  assert.deepEqual(newest?.rows.map(({ position }) => position), [second.position]);
});
