import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { startServer } from "./server.ts";

const server = startServer();

async function connect(address: string): Promise<{ client: pg.Client; pid: number }> {
  const client = new pg.Client({ connectionString: address, application_name: "a report" });
  await client.connect();
  const { rows: [row] } = await client.query("select pg_backend_pid() as pid");
  return { client, pid: row.pid };
}

Deno.test({
  name: "getWarnings() finds transactions of others that have been open for long, and no others",
  ignore: server === null,
  async fn() {
    const { url } = server!; // ignored without a server
    await using store = await PostgresStore.open(url, { schema: "warned", durability: "relaxed" });
    await store.migrate();
    const [holding, idle] = [await connect(url), await connect(url)];
    await holding.client.query("begin isolation level repeatable read");
    await holding.client.query("select 1");

    const [warning, ...others] = await store.getWarnings({ olderThanMs: 0 });

    assert.deepEqual([warning!.code, warning!.pid, warning!.user, others], [
      "held_snapshot",
      holding.pid,
      "holdfast",
      [],
    ]);
    assert.match(warning!.message, new RegExp(`^Process ${holding.pid} of role "holdfast" \\("a report"\\) has had`));
    assert.ok(Math.abs(Date.parse(warning!.since) - Date.now()) < 60_000);
    assert.deepEqual(await store.getWarnings(), []);
    await holding.client.query("rollback");
    assert.deepEqual(await store.getWarnings({ olderThanMs: 0 }), []);
    await Promise.all([holding.client.end(), idle.client.end()]);
  },
});
