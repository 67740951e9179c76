import assert from "node:assert/strict";
import type { RunFilter } from "../../src/model/run.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { CountingDriver } from "../support/stores/counting_driver.ts";
import { aRun } from "../support/fixtures.ts";
import { getRuns } from "../../src/store/reads.ts";

Deno.test("SqliteStore lists what MemoryStore lists, however much it has to go through", async () => {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  await using sqlite = await SqliteStore.open(":memory:", { host });
  await sqlite.migrate();
  const runs = Array.from({ length: 12_000 }, (_, n) =>
    aRun({
      jobName: n % 100 === 7 ? "rare" : `job-${n % 3}`,
      labels: { org: n % 2 === 0 ? "a" : "b", ...(n % 1_000 === 0 ? { few: "x" } : {}), all: "y" },
    }));
  for (const store of [memory, sqlite]) {
    await store.enqueue(runs);
    for (const { id } of runs.filter((_, n) => n % 5 === 0)) await store.cancel(id, id, null);
    for (const { id } of runs.filter((_, n) => n % 50 === 0)) await store.delete(id);
  }
  const filters: RunFilter[] = [
    {},
    { jobName: "rare" },
    { jobName: "job-1" },
    { jobName: ["job-1", "rare", "none"] },
    { jobName: [] },
    { jobName: Array.from({ length: 60 }, (_, n) => `job-${n}`) },
    { status: "cancelled" },
    { status: "running" },
    { status: ["pending", "cancelled"] },
    { status: "cancelled", jobName: "rare" },
    { status: ["pending", "cancelled"], jobName: ["job-0", "job-2"] },
    { labels: { all: "y" } },
    { labels: { org: "a" } },
    { labels: { all: "y", org: "b" } },
    { labels: { all: "y", few: "x" } },
    { labels: { org: "a" }, jobName: "rare" },
    { labels: { org: "b" }, status: "cancelled" },
    { labels: { all: "y", org: "a" }, jobName: ["job-0", "job-1"], status: ["pending"] },
    { labels: { none: "z" } },
  ];

  for (const filter of filters) {
    for (
      const [limit, offset] of [[10, 0], [0, 0], [3, 4_999], [10, 5_000], [1_000, 5_500], [10, 11_755], [5, 20_000]]
    ) {
      const page = { ...filter, limit: limit!, offset: offset! };
      const [shown, expected] = await Promise.all([getRuns(sqlite, page), getRuns(memory, page)]);
      assert.deepEqual(
        { ...shown, runs: shown.runs.map(({ id }) => id) },
        { ...expected, runs: expected.runs.map(({ id }) => id) },
        JSON.stringify(page),
      );
      const [key] = Object.keys(filter.labels ?? {}).reverse();
      const scope = { labels: key === undefined ? [] : [key], jobs: key === undefined };
      const found = await sqlite.findRuns({ ...page, scope });
      assert.deepEqual(found.ids, expected.runs.map(({ id }) => id), JSON.stringify({ ...page, scope }));
      assert.deepEqual([found.total, found.hasMore], [expected.total, expected.hasMore]);
    }
    const all = (await memory.findRuns({ ...filter, limit: 12_000 })).ids;
    const seqs = (await sqlite.findRuns({ ...filter, limit: 12_000 })).seqs;
    for (const [start, limit] of [[0, 500], [4_999, 3], [5_600, 1_000]]) {
      const before = seqs[start!];
      if (before === undefined) continue;
      const page = await sqlite.findRuns({ ...filter, before, limit: limit!, countUpTo: 0 });
      const counted = await sqlite.findRuns({ ...filter, before, limit: limit! });
      const ids = all.slice(start! + 1, start! + 1 + limit!);
      assert.deepEqual([page.ids, counted.ids], [ids, ids], JSON.stringify([filter, start]));
      assert.deepEqual([counted.total, page.hasMore], [Math.min(all.length - start! - 1, 10_000), counted.hasMore]);
    }
  }
});

Deno.test("SqliteStore examines no runs that are newer than all with a label", async () => {
  const host = new FakeHost();
  const driver = new CountingDriver();
  const store = await SqliteStore.from(driver, { host });
  await store.migrate();
  const labelled = Array.from({ length: 4_000 }, () => aRun({ labels: { org: "a" } }));
  await store.enqueue(labelled);
  for (const { id } of labelled) await store.cancel(id, id, null);
  await store.enqueue(Array.from({ length: 4_000 }, () => aRun({ labels: { org: "b" } })));
  driver.executed = 0;

  const { total } = await store.findRuns({ labels: { org: "a" }, status: "pending" });

  assert.equal(total, 0);
  assert.ok(driver.executed <= 4, `${driver.executed} statements`);
  await store.close();
});
