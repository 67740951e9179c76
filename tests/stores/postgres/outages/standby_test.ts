import assert from "node:assert/strict";
import pg from "pg";
import { StoreError } from "../../../../src/model/error.ts";
import { getRun } from "../../../../src/store/reads.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { claimOne } from "../../../../src/testing/contract/arrange.ts";
import { inTime, until } from "../../../processes/deadline.ts";
import { aRun } from "../../../support/fixtures.ts";
import { Proxy } from "../processes/proxy.ts";
import { hasServer, type Pair, startPair } from "./standby.ts";

function test(name: string, body: (pair: Pair) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore and a standby: ${name}`,
    ignore: !hasServer,
    async fn() {
      await using pair = await startPair();
      await body(pair);
    },
  });
}

const portOf = (url: string) => Number(new URL(url).port);

/** Refused because the server is a standby. The error says which one. */
function isRefusal(port: number) {
  return (error: unknown) => {
    assert.ok(error instanceof StoreError);
    assert.equal(error.code, "unavailable");
    assert.equal(error.outcomeUnknown, false);
    assert.match(error.message, new RegExp(`The server [\\w.]+:${port} is a standby, which takes no writes`));
    return true;
  };
}

/** Asks a server something beside the store, whatever it says that transactions are. */
async function ask(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url, options: "-c default_transaction_read_only=off" });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

/** The processes of the server that serve the connections of a store. */
async function readBackends(url: string): Promise<unknown[]> {
  const rows = await ask(url, "select pid from pg_stat_activity where application_name = 'holdfast'");
  return rows.map(({ pid }) => pid);
}

test("open() refuses it, and says which server it is", async (pair) => {
  const port = portOf(pair.standbyUrl);

  await assert.rejects(PostgresStore.open(pair.standbyUrl), isRefusal(port));
});

test("when an address leads to it, neither writes nor reads get there, and all goes on once it is promoted", async (pair) => {
  await using proxy = new Proxy({ hostname: "127.0.0.1", port: portOf(pair.url) });
  await using store = await PostgresStore.open(pair.url.replace(`:${portOf(pair.url)}`, `:${proxy.port}`));
  await store.migrate();
  const [added] = await store.enqueue([aRun()]);
  const { run } = added!;

  pair.stop();
  proxy.server = { hostname: "127.0.0.1", port: portOf(pair.standbyUrl) };
  proxy.failAll("cut");
  const lost = await Promise.allSettled([store.enqueue([aRun()]), getRun(store, run.id)]); // on connections that are cut

  for (const { status } of lost) assert.equal(status, "rejected");
  for (let at = 0; at < 3; at++) {
    await assert.rejects(store.enqueue([aRun()]), isRefusal(proxy.port));
    await assert.rejects(getRun(store, run.id), isRefusal(proxy.port));
  }
  // The server ends the process of a connection some time after the store has given it up.
  await until(async () => (await readBackends(pair.standbyUrl)).length === 0, "no connection to the standby is left");

  await pair.promote();

  assert.notEqual(await inTime(getRun(store, run.id), "a read"), null);
  await store.enqueue([aRun()]);
  assert.ok((await readBackends(pair.url)).length > 0);
});

test("of several hosts the one that takes writes is used, in any order and after a failover", async (pair) => {
  const hosts = [pair.standbyUrl, pair.url].map((url) => `127.0.0.1:${portOf(url)}`).join(",");
  await using store = await PostgresStore.open(`postgres://holdfast@${hosts}/postgres?target_session_attrs=read-write`);
  await store.migrate();
  let changes = 0;
  const watch = store.watch!({ onChange: () => void changes++, onError: () => {} });
  await until(() => watch.isLive, "the store listens");
  await store.enqueue([aRun()]);
  await until(() => changes > 0, "the store has heard of its commit");
  // The standby has it, so that it can be what others claim after the failover.
  const isThere = () =>
    ask(pair.standbyUrl, "select from holdfast.runs").then(({ length }) => length === 1, () => false);
  await until(isThere, "it is on the standby");

  await pair.failOver();
  const added = () => store.enqueue([aRun({ idempotencyKey: "after" })]).then(() => true, () => false);
  await until(added, "the other server takes a write"); // what was asked on a connection that is gone fails
  await until(() => watch.isLive, "the store listens to the other server");
  changes = 0;
  await store.enqueue([aRun()]);
  await until(() => changes > 0, "the store has heard of its commit on the other server");

  assert.ok((await readBackends(pair.url)).length > 0);
  watch.stop();
});

test("one refused write is enough to give up all connections that were made before", async (pair) => {
  await using store = await PostgresStore.open(pair.url, { listenUrl: null });
  await store.migrate();
  const use = async () => {
    const [added] = await store.enqueue([aRun()]);
    await getRun(store, added!.run.id);
    await claimOne(store);
  };
  await use();
  const before = await readBackends(pair.url);

  await ask(pair.url, "alter system set default_transaction_read_only = on");
  await ask(pair.url, "select pg_reload_conf()");
  await until(() => store.enqueue([aRun()]).then(() => false, () => true), "the server refuses writes");
  await ask(pair.url, "alter system reset default_transaction_read_only");
  await ask(pair.url, "select pg_reload_conf()");
  await until(() => store.enqueue([aRun()]).then(() => true, () => false), "the server takes writes");
  await use();

  const after = await readBackends(pair.url);
  assert.ok(before.length >= 3 && after.length >= 3);
  assert.deepEqual(after.filter((pid) => before.includes(pid)), []);
});
