import { setTimeout } from "node:timers/promises";
import { defineJob } from "@holdfast/jobs";
import { z } from "zod";

const DAY_MS = 24 * 60 * 60 * 1_000;
const APPROVE_ABOVE = 100;

/**
 * Takes the money for an order, packs its parcels and sends them. A person has to approve an order of more than 100.
 *
 * Each step's result is saved: a run whose process dies continues after the last completed step.
 */
export const order = defineJob({
  name: "order",
  input: z.object({
    item: z.string().min(1),
    amount: z.number().positive(),
    parcels: z.number().int().min(1).max(100).default(1),
  }),
  async run(step, { item, amount, parcels }) {
    if (amount > APPROVE_ABOVE) {
      // While it waits, a run is only a row in the database. The page "Waits" of the dashboard shows it.
      const answer = await step.wait("approval", {
        timeout: 3 * DAY_MS,
        metadata: { item, amount },
        schema: z.object({ approved: z.boolean() }),
      });
      if (answer.outcome === "timeout") throw new Error("Nobody has approved the order within three days");
      if (!answer.payload.approved) return { status: "rejected" };
    }
    // A process can die after a payment and before its result is saved. The step is then executed again, with the same
    // idempotency key: hand the key to the payment service, so that it takes the money once.
    const payment = await step.run("charge", ({ idempotencyKey }) => charge(amount, idempotencyKey), {
      retry: { maxAttempts: 5, delay: 1_000, backoff: "exponential" },
      timeout: 10_000,
    });
    for (let parcel = 1; parcel <= parcels; parcel++) {
      await step.run("pack", ({ abortSignal }) => pack(item, parcel, abortSignal));
      step.progress(parcel, parcels);
    }
    step.log.info("sent", { item, payment });
    return { status: "sent", parcels };
  },
});

/** All jobs of this app. */
export const jobs = { order };

// In your app, this calls a payment service.
function charge(amount: number, idempotencyKey: string): Promise<string> {
  console.log(`Charged ${amount}`);
  return Promise.resolve(`payment-${idempotencyKey}`);
}

async function pack(item: string, parcel: number, abortSignal: AbortSignal): Promise<void> {
  await setTimeout(500, undefined, { signal: abortSignal });
  console.log(`Packed parcel ${parcel} with ${item}`);
}
