import assert from "node:assert/strict";
import { RUN_STATUSES } from "../../../src/model/run.ts";
import type { Store } from "../../../src/store/store.ts";
import { getRuns } from "../../../src/store/reads.ts";
import type { RunQuery } from "../../../src/store/run_query.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { Chance } from "../../support/chance.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aFailure, aRun } from "../../support/fixtures.ts";
import { startServer } from "./server.ts";

const server = startServer();
const JOBS = Array.from({ length: 70 }, (_, n) => `job-${n}`);
const RUNS = 250;
const QUERIES = 400;

Deno.test({
  name: "MemoryStore, SqliteStore and PostgresStore find the same runs by any filter",
  ignore: server === null,
  fn: async () => {
    const chance = new Chance(7);
    const host = new FakeHost();
    const stores: Store[] = [
      new MemoryStore({ host }),
      await SqliteStore.open(":memory:", { host }),
      await server!.open(host), // ignored without a server
    ];
    try {
      for (const store of stores) await store.migrate();
      const runs = Array.from({ length: RUNS }, () => aRunOfAny(chance));
      for (let n = 0; n < RUNS; n += 10) {
        for (const store of stores) await store.enqueue(runs.slice(n, n + 10));
        host.jump(n % 50 === 0 ? -30 : 10);
      }
      for (let n = 0; n < 40; n++) {
        await endSome(stores, n);
        host.advance(5);
      }

      for (const { id } of runs.slice(0, 20)) {
        const retry = aRun({ jobName: JOBS[0]!, retriggerOf: { runId: id, from: "start" } });
        for (const store of stores) {
          if ((await store.getRunState(id))?.run.status === "failed") await store.enqueue([retry]);
        }
      }
      for (let n = 40; n < 60; n++) await endSome(stores, n);

      for (let n = 0; n < QUERIES; n++) {
        const query = aQuery(chance);
        const before = chance.happens(0.2) ? chance.int(RUNS) : null;
        const [expected, ...found] = await Promise.all(stores.map((store) => find(store, query, before, runs)));
        for (const one of found) assert.deepEqual(one, expected, JSON.stringify({ query, before }));
      }
    } finally {
      for (const store of stores) await store.close();
    }
  },
});

/** Claims some runs and ends them in various ways. */
async function endSome(stores: readonly Store[], round: number): Promise<void> {
  const request = aClaimRequest({ jobNames: JOBS, limit: 4, claimId: `claim-${round}` });
  const claimed = await Promise.all(stores.map((store) => store.claim(request)));
  const [expected, ...others] = claimed.map(({ claims }) => claims.map(({ run }) => run.id));
  for (const ids of others) assert.deepEqual(ids, expected);
  for (const [at, store] of stores.entries()) {
    for (const [n, { lease }] of claimed[at]!.claims.entries()) {
      const kind = round % 2 === 0 ? "timeout" : "error";
      const failure = aFailure({ kind, message: `"kind":"error" \\u0000 \0 ${"\\".repeat(n)}` });
      if (n === 0) await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
      else if (n === 1) await store.finish(lease, { status: "failed", failure, failedStepName: null }, []);
      else if (n === 2) await store.cancel(lease.runId, "cancel", null);
    }
  }
}

async function find(store: Store, query: RunQuery, before: number | null, runs: readonly { id: string }[]) {
  const seq = before === null ? undefined : (await store.getRunState(runs[before]!.id))?.seq;
  const { ids, total, hasMore } = await store.findRuns({ ...query, ...(seq === undefined ? {} : { before: seq }) });
  const page = await getRuns(store, query);
  return { ids, total, hasMore, listed: page.runs.map(({ id }) => id), of: page.total, andMore: page.hasMore };
}

function aRunOfAny(chance: Chance) {
  return aRun({
    jobName: chance.happens(0.5) ? JOBS[0]! : chance.pick(JOBS),
    version: chance.happens(0.2) ? 2 : 1,
    labels: Object.fromEntries(
      ["a", "b", "c"].filter(() => chance.happens(0.6)).map((key) => [key, chance.pick(["x", "y", "z\0\ud800\ue000"])]),
    ),
  });
}

function aQuery(chance: Chance): RunQuery {
  const some = <T>(probability: number, value: () => T) => chance.happens(probability) ? value() : undefined;
  const instant = () => new Date(FAKE_START + chance.int(450)).toISOString();
  const labels = Object.fromEntries(
    ["a", "b", "c"].filter(() => chance.happens(0.3)).map((key) => [key, chance.pick(["x", "y", "z\0\ud800\ue000"])]),
  );
  const query: RunQuery = {
    jobName: some(0.3, () => chance.happens(0.3) ? "job-0" : JOBS.slice(chance.int(70))),
    status: some(0.3, () => RUN_STATUSES.filter(() => chance.happens(0.5))),
    labels,
    failureKind: some(0.1, () => chance.pick(["error", "timeout"] as const)),
    createdAfter: some(0.1, instant),
    createdBefore: some(0.1, instant),
    completedAfter: some(0.1, instant),
    completedBefore: some(0.1, instant),
    notRetried: some(0.1, () => true),
    retried: some(0.1, () => chance.happens(0.5)),
    endRun: some(0.05, () => chance.happens(0.5)),
    parentRunId: some(0.02, () => "none"),
    countUpTo: some(0.3, () => chance.int(80)),
    limit: some(0.7, () => chance.int(30)),
    offset: some(0.3, () => chance.int(60)),
    scope: some(
      0.3,
      () => ({ labels: Object.keys(labels).filter(() => chance.happens(0.5)), jobs: chance.happens(0.5) }),
    ),
  };
  return Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined));
}
