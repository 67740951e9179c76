// deno run -A examples/webhooks.ts
//
// A payment service sends a webhook. It is verified, and becomes a run; that run sends a signed webhook to a shop, which
// fails once and then accepts it. All of them are on this machine, and need no keys.

import { Buffer } from "node:buffer";
import { createHmac } from "node:crypto";
import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
import { standardWebhook, stripeWebhook, webhookJob } from "@holdfast/jobs/webhooks";
import { z } from "zod";

const PAYMENT_SECRET = "whsec_of_the_payment_service";
const SHOP_SECRET = `whsec_${Buffer.from("a secret of 24 characters").toString("base64")}`;
const { promise: accepted, resolve: accept } = Promise.withResolvers<void>();

/** The shop: it verifies what it receives, and answers 500 the first time. */
let attempts = 0;
const shop = standardWebhook({
  secret: SHOP_SECRET,
  receive({ id, type, payload }) {
    attempts++;
    console.log(`The shop receives ${type} as ${id}, attempt ${attempts}`);
    if (attempts === 1) throw new Error("the shop is busy");
    console.log("The shop accepts", payload);
    accept();
  },
  onError: () => {},
});
const shopServer = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, shop);

/** Webhooks out: each delivery is a run. Addresses and secrets are looked up at each attempt, and never stored. */
const deliver = webhookJob({
  name: "deliver",
  endpoint: (id) => id === "shop-7" ? { url: `http://127.0.0.1:${shopServer.addr.port}/`, secret: SHOP_SECRET } : null,
  retry: { maxAttempts: 19, delay: 500, backoff: "exponential", maxDelay: "12h" },
  allowPrivate: true, // the shop is on this machine: leave it out in production
});

const payment = defineJob({
  name: "payment",
  input: z.object({ order: z.string() }),
  async run(step, { order }) {
    await step.run("book", () => console.log(`Booked the payment of ${order}`));
    const input = { endpoint: "shop-7", type: "order.paid", data: { order } };
    await step.trigger("tell the shop", deliver, input, { concurrencyKey: `shop-7/${order}` });
  },
});

await using store = await SqliteStore.open(":memory:");
await using engine = createEngine({ store, jobs: { payment, deliver } });
await engine.start();

/** What is used of the payload. */
const Charge = z.object({ data: z.object({ order: z.string() }) });

/** Webhooks in: the payment service gets its 2xx only when the run is stored. */
const receivePayment = stripeWebhook({
  secret: PAYMENT_SECRET,
  async receive({ id, type, payload }) {
    if (type !== "charge.succeeded") return; // answered with 204: it is not sent again
    const { order } = Charge.parse(payload).data;
    const { disposition } = await engine.jobs.payment.trigger({ order }, { idempotencyKey: `stripe/${id}` });
    console.log(`The run of ${id} is ${disposition}`);
  },
});
const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, receivePayment);

/** The payment service: it signs what it sends, and sends it twice. */
async function send(body: string, secret: string): Promise<number> {
  const time = Math.floor(Date.now() / 1_000);
  const mac = createHmac("sha256", secret).update(`${time}.${body}`).digest("hex");
  const headers = { "stripe-signature": `t=${time},v1=${mac}` };
  const response = await fetch(`http://127.0.0.1:${server.addr.port}/`, { method: "POST", headers, body });
  await response.body?.cancel();
  return response.status;
}
const event = JSON.stringify({ id: "evt_1", type: "charge.succeeded", data: { order: "o-1" } });
console.log("A forged webhook is answered with", await send(event, "another secret"));
console.log("A signed webhook is answered with", await send(event, PAYMENT_SECRET));
console.log("The same one is answered with", await send(event, PAYMENT_SECRET));

await accepted;
const delivered = (await engine.jobs.deliver.getRuns({ total: false })).runs[0]!;
console.log("The delivery has", (await engine.waitForRun(delivered.id)).status);
await Promise.all([server.shutdown(), shopServer.shutdown()]);
