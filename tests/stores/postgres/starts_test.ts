import assert from "node:assert/strict";
import pg from "pg";
import type { Rate } from "../../../src/model/flow.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { aClaimRequest, aKnownJob, aRun } from "../../../src/testing/contract/fixtures.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { startServer } from "./server.ts";

const server = startServer();

Deno.test({
  name: "PostgresStore keeps the old starts of a job no longer than its rate is long, once it has a shorter one",
  ignore: server === null,
  async fn() {
    const host = new FakeHost({ seed: 1 });
    await using store = await PostgresStore.open(server!.url, { durability: "relaxed", listenUrl: null, host });
    await store.migrate();
    const start = async (rate: Rate, count: number) => {
      await store.enqueue(Array.from({ length: count }, () => aRun({ jobName: "rated" })));
      const jobs = [aKnownJob({ name: "rated", rate })];
      const { claims } = await store.claim(aClaimRequest({ limit: count, jobs, leaseMs: 60_000 }));
      assert.equal(claims.length, count);
    };
    await start({ limit: 10, period: 86_400_000 }, 10);
    host.advance(1_000);

    for (const _ of [1, 2, 3, 4, 5]) {
      await start({ limit: 2, period: 1_000 }, 2);
      host.advance(1_000);
    }

    const client = new pg.Client({ connectionString: server!.url });
    await client.connect();
    const { rows } = await client.query<{ kept: number }>("select count(*)::int as kept from holdfast.starts");
    await client.end();
    assert.ok(rows[0]!.kept <= 4, `${rows[0]!.kept} of 20 starts are kept`);
  },
});
