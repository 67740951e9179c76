import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { inTime, until } from "../../../processes/deadline.ts";
import { aClaimRequest, aRun, aStep } from "../../../support/fixtures.ts";
import { startServer } from "../server.ts";
import { getRun } from "../../../../src/store/reads.ts";

const server = startServer();
const STEPS = 12;
const OUTPUT = JSON.stringify("x".repeat(1_000_000));

Deno.test({
  name: "a claim of a long history keeps nobody waiting, though its client does not read the answer",
  ignore: server === null,
  async fn() {
    const options = { schema: `stopped_${Deno.pid}`, durability: "relaxed", listenUrl: null } as const;
    await using store = await PostgresStore.open(server!.url, options); // ignored without a server
    await store.migrate();
    await store.enqueue([aRun({ id: "long", concurrencyKey: "key" })]);
    const { claims: [first] } = await store.claim(aClaimRequest({ leaseMs: 600_000 }));
    for (let n = 0; n < STEPS; n++) {
      const step = aStep({ name: `step-${n}`, index: n, result: { status: "completed", output: OUTPUT } });
      await store.saveStep(first!.lease, step, []);
    }
    await store.release(first!.lease, []);
    const client = new pg.Client({ connectionString: server!.url });
    await client.connect();
    const stopped = PostgresStore.from(client, options);
    const { stream } = (client as unknown as { connection: { stream: { pause(): void; resume(): void } } }).connection;

    const claiming = stopped.claim(aClaimRequest({ workerId: "stopped", claimId: "large", leaseMs: 600_000 }));
    await new Promise((resolve) => setTimeout(resolve, 0)); // it is sent
    stream.pause(); // as a process that is stopped
    // It is committed, although its client has not read the answer, and nobody waits for it.
    await until(async () => (await getRun(store, "long"))!.leaseOwner === "stopped", "the claim was to be committed");
    await inTime(store.enqueue([aRun({ id: "other", concurrencyKey: "other" })]), "another run was to be added");
    await inTime(store.claim(aClaimRequest({ workerId: "other", claimId: "other" })), "another run was to be claimed");
    stream.resume();
    const { claims } = await claiming;
    await client.end();

    assert.deepEqual(claims.map(({ run, steps }) => [run.id, steps.length]), [["long", STEPS]]);
    assert.ok(claims[0]!.steps.every(({ result }) => JSON.stringify(result).length > 1_000_000));
  },
});
