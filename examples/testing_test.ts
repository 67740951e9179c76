// deno test examples/testing_test.ts

import { defineJob } from "@holdfast/jobs";
import { crashAtEveryCheckpoint, createTestEngine } from "@holdfast/jobs/testing";
import assert from "node:assert/strict";
import { z } from "zod";

/** A payment service that recognizes a repeated charge by its key. */
class Payments {
  readonly #charges = new Map<string, number>();

  charge(amount: number, idempotencyKey: string): string {
    this.#charges.set(idempotencyKey, amount);
    return `charge of ${amount}`;
  }

  get charged(): number[] {
    return [...this.#charges.values()];
  }
}

function checkoutWith(payments: Payments) {
  return defineJob({
    name: "checkout",
    input: z.object({ amount: z.number() }),
    retry: { maxAttempts: 5, delay: 60_000, backoff: "exponential" },
    async run(step, { amount }) {
      await step.run("charge", ({ idempotencyKey }) => payments.charge(amount, idempotencyKey));
      const review = await step.wait<{ approved: boolean }>("review", { timeout: 7 * 24 * 3_600_000 });
      if (review.outcome === "timeout") throw new Error("nobody has reviewed the order");
      await step.run("ship", () => "shipped");
      return { shipped: review.payload.approved };
    },
  });
}

Deno.test("an order is shipped after its review, although the carrier is away at first", async () => {
  const checkout = checkoutWith(new Payments());
  await using t = createTestEngine({ jobs: { checkout }, now: "2030-01-01T09:00:00Z" });
  const charge = t.fake(checkout, "charge").returns("charge of 10");
  t.fake(checkout, "ship").throws(new Error("the carrier is away"), { times: 2 });

  const run = await t.trigger(checkout, { amount: 10 });
  await t.expectRun(run).waitsFor("review", { until: "2030-01-08T09:00:00Z" });
  await t.signal(run, "review", { approved: true });
  await t.expectRun(run).retries("ship", { at: "2030-01-01T09:01:00Z" });
  await t.advance("1h");

  await t.expectRun(run).completed({ shipped: true });
  assert.equal(charge.calls.length, 1);
});

Deno.test("an order that nobody reviews fails after a week", async () => {
  const checkout = checkoutWith(new Payments());
  await using t = createTestEngine({ jobs: { checkout } });

  const run = await t.trigger(checkout, { amount: 10 });
  await t.advance("7d");

  await t.expectRun(run).failed("nobody has reviewed the order");
});

Deno.test("an order is charged once, wherever the process dies", async () => {
  const report = await crashAtEveryCheckpoint((kit) => {
    const payments = kit.world(new Payments());
    return {
      job: checkoutWith(payments),
      input: { amount: 10 },
      signals: { review: { approved: true } },
      observe: () => payments.charged,
    };
  });

  report.assertSame();
});
