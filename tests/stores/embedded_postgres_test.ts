import assert from "node:assert/strict";
import type { NewRun } from "../../src/store/new_run.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { add, addCompleted, claimOne, complete } from "../../src/testing/contract/arrange.ts";
import { FakeHost } from "../../src/testing/fake_host.ts";
import { emptyServer } from "../simulation/pglite.ts";
import { USES } from "./uses_of_postgres.ts";

// PGlite starts timers of its own, of up to 10 seconds, which would be taken for leaks.
const options = { sanitizeOps: false, sanitizeResources: false };

// `tests/long/embedded_postgres_test.ts` takes the cases of the contract, too.
Deno.test("a PostgresStore that needs no server can be used", options, async (t) => {
  for (const [what, use] of Object.entries(USES)) {
    await t.step(what, async () => {
      const { client, schema } = await emptyServer();
      const host = new FakeHost();
      await using store = PostgresStore.from(client, { schema, durability: "relaxed", host });
      await use(store, host);
    });
  }
});

Deno.test(
  "a PostgresStore that needs no server ends a run that is no retry by the same statement as all",
  options,
  async () => {
    const { client, schema } = await emptyServer();
    await using store = PostgresStore.from(client, { schema, durability: "relaxed" });
    await store.migrate();
    const { id } = await addCompleted(store);
    const callsOf = async (run: Partial<NewRun>) => {
      await add(store, run);
      const { lease } = await claimOne(store);
      await client.exec("set track_functions = 'all'; select pg_stat_force_next_flush()");
      await client.exec("select pg_stat_reset()");
      await complete(store, lease);
      await client.exec("select pg_stat_force_next_flush()");
      const { rows } = await client.query<{ name: string }>(`select funcname as name from pg_stat_user_functions
      where schemaname = '${schema}' and calls > 0 and funcname in ('finish_v1', 'finish_runs_v1', 'retried_runs_v1') order by 1`);
      return rows.map(({ name }) => name);
    };

    const plain = await callsOf({});
    const retry = await callsOf({ retriggerOf: { runId: id, from: "start" } });

    assert.deepEqual([plain, retry], [["finish_runs_v1"], ["finish_runs_v1", "finish_v1", "retried_runs_v1"]]);
  },
);
