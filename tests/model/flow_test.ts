import assert from "node:assert/strict";
import { type FlowDefinition, positionOf } from "../../src/model/flow.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { anything } from "../support/stores/for_each_store.ts";

function define(flow: FlowDefinition) {
  return defineJob({ name: "resize", input: anything, run: () => null, ...flow });
}

Deno.test("defineJob() takes a priority, deadlines and limits, and none by default", () => {
  const rate = { limit: 100, period: 60_000 };
  const keyRate = { limit: 10, period: 1_000 };

  const plain = define({});
  const full = define({
    priority: -5,
    startWithin: 60_000,
    finishWithin: 600_000,
    limits: { concurrency: 20, rate, perKey: { concurrency: 2, rate: keyRate } },
  });

  assert.deepEqual(plain.flow, {
    priority: 0,
    startWithin: null,
    finishWithin: null,
    concurrency: null,
    rate: null,
    keyConcurrency: 1,
    keyRate: null,
  });
  assert.deepEqual(full.flow, {
    priority: -5,
    startWithin: 60_000,
    finishWithin: 600_000,
    concurrency: 20,
    rate,
    keyConcurrency: 2,
    keyRate,
  });
});

Deno.test("defineJob() copies the limits: a later change of the definition has no effect", () => {
  const limits = { rate: { limit: 1, period: 1_000 } };
  const job = define({ limits });

  limits.rate.limit = 100;

  assert.equal(job.flow.rate!.limit, 1);
});

const RANGES: [FlowDefinition, RegExp][] = [
  [{ priority: 1_001 }, /^The priority of job "resize" must be an integer from -1,000 to 1,000, not 1001$/],
  [{ priority: -1_001 }, /priority/],
  [{ priority: 0.5 }, /priority/],
  [{ priority: NaN }, /priority/],
  [
    { startWithin: 0 },
    /^startWithin of job "resize" must be an integer from 1 to .*, in milliseconds, or a duration such as .*, not 0$/,
  ],
  [{ startWithin: Infinity }, /startWithin/],
  [{ finishWithin: -1 }, /finishWithin/],
  [{ finishWithin: 1.5 }, /finishWithin/],
  [{ limits: { concurrency: 0 } }, /^limits\.concurrency of job "resize" must be an integer from 1, not 0$/],
  [{ limits: { concurrency: 2.5 } }, /limits\.concurrency/],
  [{ limits: { concurrency: Infinity } }, /limits\.concurrency/],
  [{ limits: { rate: { limit: 0, period: 1 } } }, /^limits\.rate of job "resize": limit must be an integer from 1/],
  [{ limits: { rate: { limit: 1, period: 0 } } }, /^limits\.rate of job "resize": period must be an integer from 1/],
  [{ limits: { perKey: { concurrency: 0 } } }, /^limits\.perKey\.concurrency of job "resize"/],
  [{ limits: { perKey: { rate: { limit: -1, period: 1 } } } }, /^limits\.perKey\.rate of job "resize": limit/],
];

for (const [flow, message] of RANGES) {
  Deno.test(`defineJob() refuses a number out of range: ${Deno.inspect(flow, { depth: 5, compact: true })}`, () => {
    assert.throws(() => define(flow), (error) => error instanceof RangeError && message.test(error.message));
  });
}

const TYPES: [Record<string, unknown>, RegExp][] = [
  [{ priority: "high" }, /^The priority of job "resize" must be an integer from -1,000 to 1,000, not /],
  [{ priority: null }, /priority/],
  [{ startWithin: "1 fortnight" }, /startWithin/],
  [{ limits: null }, /^limits of job "resize" takes an object/],
  [{ limits: 5 }, /^limits of job "resize" takes an object/],
  [{ limits: { concurency: 5 } }, /^limits of job "resize" has no option "concurency"/],
  [{ limits: { concurrency: "5" } }, /limits\.concurrency/],
  [{ limits: { rate: 5 } }, /^limits\.rate of job "resize" takes an object/],
  [{ limits: { rate: { limit: 5 } } }, /^limits\.rate of job "resize" needs period$/],
  [{ limits: { rate: { limit: 5, period: 1, burst: 1 } } }, /^limits\.rate of job "resize" has no option "burst"/],
  [{ limits: { perKey: { concurrency: 5, priority: 1 } } }, /^limits\.perKey of job "resize" has no option "priority"/],
];

for (const [flow, message] of TYPES) {
  Deno.test(`defineJob() refuses a wrong type or name: ${Deno.inspect(flow, { depth: 5, compact: true })}`, () => {
    assert.throws(
      () => define(flow as FlowDefinition),
      (error) => error instanceof TypeError && message.test(error.message),
    );
  });
}

Deno.test("positionOf() is a head start of 100,000 triggers for each step of priority", () => {
  assert.equal(positionOf(7, 0), 7);
  assert.ok(positionOf(200_000, 2) < positionOf(1, 0) && positionOf(200_002, 2) > positionOf(1, 0));
});
