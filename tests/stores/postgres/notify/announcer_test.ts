import assert from "node:assert/strict";
import { Announcer } from "../../../../src/stores/postgres/notify/announcer.ts";
import type { PostgresDatabase } from "../../../../src/stores/postgres/database/postgres_database.ts";
import { FakeHost } from "../../../support/fake_host.ts";
import { pass } from "../../../support/stores/for_each_store.ts";

function anAnnouncer() {
  const host = new FakeHost();
  const sent: number[] = [];
  const database = {
    fails: false,
    notify(channel: string): Promise<void> {
      assert.equal(channel, "changes");
      if (this.fails) return Promise.reject(new Error("no connection"));
      sent.push(host.monotonic());
      return Promise.resolve();
    },
  };
  const announcer = new Announcer(database as unknown as PostgresDatabase, "changes", host);
  return { host, sent, database, announcer };
}

Deno.test("Announcer.announce() notifies at once, then at most every 20 ms, and loses no last call", async () => {
  const { host, sent, announcer } = anAnnouncer();

  announcer.announce();
  const atOnce = sent.length;
  for (let n = 0; n < 100; n++) {
    announcer.announce();
    await pass(host, 1, 1);
  }
  await pass(host, 1_000, 10);
  await announcer.close();

  assert.equal(atOnce, 1);
  assert.ok(sent.length >= 5 && sent.length <= 6, `${sent.length} notifications in 100 ms`);
  assert.ok(sent.slice(1).every((at, n) => at - sent[n]! >= 20), String(sent));
});

Deno.test("Announcer.announce() notifies later when it has failed", async () => {
  const { host, sent, database, announcer } = anAnnouncer();
  database.fails = true;
  announcer.announce();
  await pass(host, 500, 10);

  database.fails = false;
  await pass(host, 1_000, 10);
  await announcer.close();

  assert.equal(sent.length, 1);
});

Deno.test("Announcer.close() sends what is left, and nothing afterwards", async () => {
  const { host, sent, announcer } = anAnnouncer();
  announcer.announce();
  announcer.announce();

  await announcer.close();
  announcer.announce();
  await pass(host, 1_000, 10);

  assert.equal(sent.length, 2);
});
