import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { Webhook } from "standardwebhooks";
import { createEngine, SqliteStore } from "../../mod.ts";
import { webhookJob } from "../../src/webhooks/mod.ts";
import { Child } from "../processes/child.ts";
import { until } from "../processes/deadline.ts";
import { Chance } from "../support/chance.ts";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const DELIVERIES = 1_000;
const KEYS = 50;
const KILLS = 6;

Deno.test("1,000 deliveries arrive at least once, each under one id and in the order of its key, though their process is killed again and again", async () => {
  const folder = await Deno.makeTempDir();
  const chance = new Chance(41);
  const verifier = new Webhook(SECRET);
  /** What has arrived: for each webhook-id its delivery; and the deliveries in the order in which they were accepted first. */
  const byId = new Map<string, number>();
  const accepted: number[] = [];
  /** How often the lease of each delivery was lost. */
  const losses = new Map<number, number>();
  let requests = 0;
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const body = await request.text();
    const { data } = verifier.verify(body, Object.fromEntries(request.headers)) as { data: { n: number } };
    const id = request.headers.get("webhook-id")!;
    requests++;
    if (chance.happens(0.1)) return new Response(null, { status: 500 });
    if (!byId.has(id)) {
      byId.set(id, data.n);
      accepted.push(data.n);
    }
    return new Response(null, { status: 204 });
  });
  const url = `http://127.0.0.1:${server.addr.port}/`;
  const database = `${folder}/jobs.db`;
  try {
    await using store = await SqliteStore.open(database);
    const deliver = webhookJob({ name: "deliver", endpoint: () => null });
    const engine = createEngine({ store, jobs: { deliver } });
    await engine.jobs.deliver.batchTrigger(
      Array.from({ length: DELIVERIES }, (_, n) => ({
        input: { endpoint: "shop", type: "order.changed", data: { n } },
        concurrencyKey: `shop/order-${n % KEYS}`,
      })),
    );

    for (let kill = 1; kill <= KILLS; kill++) {
      await using worker = new Child("delivering_worker.ts", database, url);
      await worker.hear("started");
      const goal = Math.floor((DELIVERIES * kill) / (KILLS + 2));
      await until(() => byId.size >= goal, `${goal} deliveries were to arrive`);
      await worker.end("SIGKILL");
    }
    await using last = new Child("delivering_worker.ts", database, url);
    await last.hear("started");
    const isOver = async () => (await engine.getRuns({ status: "completed", limit: 1 })).total === DELIVERIES;
    await until(isOver, "all deliveries were to complete");
    using rows = new DatabaseSync(database, { readOnly: true });
    for (const { id, interruptions } of rows.prepare("SELECT id, interruptions FROM holdfast_runs").all()) {
      losses.set(byId.get(`msg_${id}`)!, Number(interruptions));
    }
    await last.end("SIGKILL");
  } finally {
    await server.shutdown();
    await Deno.remove(folder, { recursive: true });
  }

  assert.equal(new Set(byId.values()).size, DELIVERIES); // each at least once
  assert.equal(byId.size, DELIVERIES); // and none under two ids
  for (let key = 0; key < KEYS; key++) {
    // One whose process was killed twice, with nothing recorded in between, comes after others (docs/concepts/leases.md).
    const ofKey = accepted.filter((n) => n % KEYS === key && losses.get(n)! < 2);
    assert.deepEqual(ofKey, ofKey.toSorted((one, other) => one - other), `key ${key}`);
  }
  assert.ok(requests > DELIVERIES, `${requests} requests`);
});
