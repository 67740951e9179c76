import assert from "node:assert/strict";
import { createEngine } from "../../../src/engine/create_engine.ts";
import { type Host, systemHost } from "../../../src/model/host.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Store } from "../../../src/store/store.ts";
import { copySqliteToPostgres } from "../../../src/stores/copy/copy_sqlite_to_postgres.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { anything } from "../../support/stores/for_each_store.ts";
import { newSchema } from "../postgres/open_subject.ts";
import { startServer } from "../postgres/server.ts";

const server = startServer();
const HOUR_MS = 3_600_000;

/** An engine with jobs that pause in each way. `executed` has the steps in the order of their execution. */
function openEngine(store: Store, host: Host, executed: string[]) {
  const asker = defineJob({
    name: "asker",
    input: anything,
    run: async (step) => {
      await step.run("ask", () => void executed.push("ask"));
      const answer = await step.wait("answer");
      return await step.run("note", () => {
        executed.push("note");
        return answer.outcome === "signal" ? answer.payload : answer.outcome;
      });
    },
  });
  const jobs = {
    asker,
    sleeper: defineJob({
      name: "sleeper",
      input: anything,
      run: async (step) => {
        await step.run("lie down", () => void executed.push("lie down"));
        await step.sleep("night", HOUR_MS / 2);
        await step.run("get up", () => void executed.push("get up"));
      },
    }),
    parent: defineJob({
      name: "parent",
      input: anything,
      run: (step) => step.invoke("delegate", asker, null),
    }),
    trier: defineJob({
      name: "trier",
      input: anything,
      retry: { maxAttempts: 2, delay: HOUR_MS / 2 },
      run: (step) =>
        step.run("try", ({ attempt }) => {
          executed.push(`try ${attempt}`);
          if (attempt === 1) throw new Error("not yet");
          return attempt;
        }),
    }),
    follower: defineJob({
      name: "follower",
      input: anything,
      run: (step, n: number) => step.run("follow", () => void executed.push(`follow ${n}`)),
    }),
  };
  return createEngine({ store, jobs, host, worker: { concurrency: 1 } });
}

Deno.test({
  name: "runs that are half-way in a SQLite file are completed by an engine on PostgreSQL, after a copy",
  ignore: server === null,
  fn: async () => {
    const { url } = server!; // ignored without a server
    const file = `${await Deno.makeTempDir()}/jobs.db`;
    const executed: string[] = [];
    const source = await SqliteStore.open(file);
    const old = openEngine(source, systemHost, executed);
    const [asker, sleeper, parent, trier] = [
      await old.trigger("asker", null),
      await old.trigger("sleeper", null),
      await old.trigger("parent", null),
      await old.trigger("trier", null, { concurrencyKey: "key" }),
    ].map(({ id }) => id);
    await old.runUntilIdle();
    const [first, second, delayed] = [
      await old.trigger("follower", 1, { concurrencyKey: "key" }),
      await old.trigger("follower", 2, { concurrencyKey: "key", priority: 1 }),
      await old.trigger("follower", 3, { delay: HOUR_MS / 2 }),
    ].map(({ id }) => id);
    await old.runUntilIdle();
    const [child] = (await old.getRuns({ parentRunId: parent! })).runs;
    const waits = [...await old.getWaits(asker!), ...await old.getWaits(child!.id)]; // it waits for its child
    await old.stop();
    await source.close();
    const before = executed.splice(0);

    const [schema, host] = [newSchema(), { ...systemHost, now: () => Date.now() + HOUR_MS }];
    await copySqliteToPostgres(file, url, { schema, durability: "relaxed", host });
    const store = await PostgresStore.open(url, { schema, durability: "relaxed", host });
    const engine = openEngine(store, host, executed);
    for (const [n, { id }] of waits.entries()) await engine.signal(id, { signalId: "once", payload: n });
    await engine.runUntilIdle();

    const ids = [asker, sleeper, parent, child!.id, trier, first, second, delayed];
    const runs = await Promise.all(ids.map((id) => engine.getRun(id!))); // all were triggered
    assert.deepEqual(runs.map((run) => run?.status), ids.map(() => "completed"));
    assert.deepEqual([0, 2, 3, 4].map((at) => runs[at]!.output), [0, 1, 1, 2]); // they exist
    assert.deepEqual(before, ["ask", "lie down", "try 1", "ask"]);
    // The key belongs to the run that waits for its retry; after it comes the higher priority.
    assert.deepEqual(executed.filter((step) => /try|follow [12]/.test(step)), ["try 2", "follow 2", "follow 1"]);
    assert.deepEqual(
      executed.toSorted(),
      ["follow 1", "follow 2", "follow 3", "get up", "note", "note", "try 2"],
    );
    await engine.stop();
    await store.close();
    await Deno.remove(file.slice(0, file.lastIndexOf("/")), { recursive: true });
  },
});
