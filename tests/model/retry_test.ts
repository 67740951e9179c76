import assert from "node:assert/strict";
import { HoldfastError, RetryAfterError } from "../../src/model/error.ts";
import { checkRetryPolicy, retryAfter, retryDelay, type RetryPolicy } from "../../src/model/retry.ts";

const NOW = Date.UTC(2040, 0, 1);
const CLOCK = { now: () => NOW };

/** A host that always draws the same number. */
function drawing(number: number) {
  return { random: () => number };
}

function delaysOf(policy: RetryPolicy, count: number, host = drawing(0)): number[] {
  return Array.from({ length: count }, (_, index) => retryDelay(policy, index + 1, host));
}

Deno.test("retryDelay() waits for a second if nothing is said", () => {
  const delays = delaysOf({}, 3);

  assert.deepEqual(delays, [1_000, 1_000, 1_000]);
});

Deno.test("retryDelay() stays the same when it is fixed", () => {
  const delays = delaysOf({ delay: 250, backoff: "fixed" }, 4);

  assert.deepEqual(delays, [250, 250, 250, 250]);
});

Deno.test("retryDelay() doubles when it is exponential, up to maxDelay", () => {
  const free = delaysOf({ delay: 100, backoff: "exponential" }, 6);
  const limited = delaysOf({ delay: 100, backoff: "exponential", maxDelay: 700 }, 6);

  assert.deepEqual(free, [100, 200, 400, 800, 1_600, 3_200]);
  assert.deepEqual(limited, [100, 200, 400, 700, 700, 700]);
});

Deno.test("retryDelay() limits a fixed delay too", () => {
  const delays = delaysOf({ delay: 5_000, maxDelay: 300 }, 2);

  assert.deepEqual(delays, [300, 300]);
});

Deno.test("retryDelay() takes from a delay the part that is left to chance, and never adds to it", () => {
  const policy: RetryPolicy = { delay: 1_000, backoff: "exponential" };

  const delays = {
    none: delaysOf({ ...policy, jitter: false }, 2, drawing(0.5)),
    half: delaysOf({ ...policy, jitter: true }, 2, drawing(0.5)),
    quarter: delaysOf({ ...policy, jitter: 0.25 }, 2, drawing(0.5)),
    all: delaysOf({ ...policy, jitter: 1 }, 2, drawing(0.5)),
    longest: delaysOf({ ...policy, jitter: 1 }, 2, drawing(0)),
    shortest: delaysOf({ ...policy, jitter: 1 }, 2, drawing(0.999_999)),
  };

  assert.deepEqual(delays, {
    none: [1_000, 2_000],
    half: [750, 1_500],
    quarter: [875, 1_750],
    all: [500, 1_000],
    longest: [1_000, 2_000],
    shortest: [0, 0],
  });
});

Deno.test("retryDelay() leaves a part to chance after it was limited, not before", () => {
  const delay = retryDelay({ delay: 10_000, maxDelay: 1_000, jitter: 0.5 }, 1, drawing(0.5));

  assert.equal(delay, 750);
});

Deno.test("retryDelay() is a whole number of milliseconds", () => {
  const delay = retryDelay({ delay: 333, jitter: 0.3 }, 1, drawing(0.123));

  assert.equal(delay, Math.round(333 * (1 - 0.3 * 0.123)));
});

Deno.test("retryDelay() is a delay after which a date can be shown, however many attempts there were", () => {
  for (const attempts of [50, 1_024, 1_025, 100_000]) {
    const delay = retryDelay({ delay: 1_000, backoff: "exponential" }, attempts, drawing(0));

    assert.doesNotThrow(() => new Date(Date.now() + delay).toISOString(), `after ${attempts} attempts: ${delay}`);
  }
});

Deno.test("retryDelay() stays 0 when it began so, however many attempts there were", () => {
  const delays = [1, 1_024, 1_025, 100_000].map((attempts) =>
    retryDelay({ delay: 0, backoff: "exponential" }, attempts, drawing(0))
  );

  assert.deepEqual(delays, [0, 0, 0, 0]);
});

Deno.test("retryAfter() is what an error says, in whole milliseconds", () => {
  const told = [0, 1, 1_500, 0.2].map((ms) => retryAfter(Object.assign(new Error("busy"), { retryAfter: ms }), CLOCK));

  assert.deepEqual(told, [0, 1, 1_500, 1]);
});

Deno.test("retryAfter() is null for whatever is no delay", () => {
  const oddities = [undefined, null, "120", -1, NaN, 5n, new Date(), {}, [7], true];

  const told = oddities.map((value) => retryAfter({ retryAfter: value }, CLOCK));

  assert.deepEqual(told, oddities.map(() => null));
});

Deno.test("retryAfter() is null for whatever has no such member, or throws when it is read", () => {
  const broken = {
    get retryAfter(): number {
      throw new Error("broken");
    },
  };
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();

  const told = [undefined, null, "busy", 7, Symbol("s"), new Error("busy"), broken, proxy].map((thrown) =>
    retryAfter(thrown, CLOCK)
  );

  assert.deepEqual(told, [null, null, null, null, null, null, null, null]);
});

Deno.test("retryAfter() is a delay after which a date can be shown, whatever an error says", () => {
  for (const retryAfterMs of [Infinity, Number.MAX_VALUE, 1e18]) {
    const told = retryAfter({ retryAfter: retryAfterMs }, CLOCK);

    assert.doesNotThrow(() => new Date(Date.now() + told!).toISOString());
  }
});

Deno.test("checkRetryPolicy() accepts what makes sense", () => {
  const policies: RetryPolicy[] = [
    {},
    { maxAttempts: 1, delay: 0, maxDelay: 0, jitter: 0 },
    { maxAttempts: 1_000_000, delay: 1e12, backoff: "exponential", maxDelay: Infinity, jitter: 1 },
    { jitter: true, backoff: "fixed" },
    { jitter: false, delay: 0.5 },
  ];

  for (const policy of policies) assert.doesNotThrow(() => checkRetryPolicy(policy));
});

Deno.test("checkRetryPolicy() refuses by name what is out of range", () => {
  const refused: [RetryPolicy, RegExp][] = [
    [{ maxAttempts: 0 }, /maxAttempts.*0/],
    [{ maxAttempts: -1 }, /maxAttempts/],
    [{ maxAttempts: 1.5 }, /maxAttempts.*1\.5/],
    [{ maxAttempts: Infinity }, /maxAttempts/],
    [{ maxAttempts: NaN }, /maxAttempts/],
    [{ maxAttempts: "3" as unknown as number }, /maxAttempts/],
    [{ delay: -1 }, /delay.*-1/],
    [{ delay: NaN }, /delay/],
    [{ delay: Infinity }, /delay/],
    [{ backoff: "linear" as "fixed" }, /backoff.*linear/],
    [{ maxDelay: -1 }, /maxDelay/],
    [{ maxDelay: NaN }, /maxDelay/],
    [{ jitter: -0.1 }, /jitter/],
    [{ jitter: 1.1 }, /jitter.*1\.1/],
    [{ jitter: NaN }, /jitter/],
  ];

  for (const [policy, message] of refused) {
    assert.throws(() => checkRetryPolicy(policy), { name: "RangeError", message }, JSON.stringify(policy));
  }
});

const DELAYS: [delay: number | Date | string, ms: number | null][] = [
  [0, 0],
  [1_500.2, 1_501],
  [Infinity, 2 ** 42],
  [new Date(NOW + 90_000), 90_000],
  [new Date(NOW - 1), 0],
  ["120", 120_000],
  [" 0 ", 0],
  ["Sun, 01 Jan 2040 00:01:00 GMT", 60_000],
  ["Sunday, 01-Jan-40 00:01:00 GMT", 60_000],
  ["Sun Jan  1 00:01:00 2040", 60_000],
  ["Sat, 31 Dec 2039 23:59:00 GMT", 0],
  [-1, null],
  [NaN, null],
  [new Date(NaN), null],
  ["", null],
  ["soon", null],
  ["2 fortnights", null],
  ["1.5", null],
  ["-1", null],
  ["2040-01-01T00:01:00Z", null],
  ["Sun, 01 Jan 2040 00:01:00 +0100", null],
  ["Sun, 99 Jan 2040 00:01:00 GMT", null],
  [undefined as unknown as number, null],
  [5n as unknown as number, null],
];

for (const [delay, ms] of DELAYS) {
  Deno.test(`retryAfter() of a RetryAfterError with ${typeof delay} ${String(delay)} is ${ms}`, () => {
    const told = retryAfter(new RetryAfterError(delay), CLOCK);

    assert.equal(told, ms);
  });
}

Deno.test("RetryAfterError tells its delay in milliseconds, and is a HoldfastError", () => {
  const cause = new Error("429");

  const error = new RetryAfterError("7", "The service is busy", { cause });
  const dated = new RetryAfterError(new Date(Date.now() + 60_000));

  assert.deepEqual([error.retryAfter, error.message, error.cause], [7_000, "The service is busy", cause]);
  assert.deepEqual([error.name, error.code], ["RetryAfterError", "retry_after"]);
  assert.ok(error instanceof HoldfastError);
  assert.ok(dated.retryAfter! > 50_000 && dated.retryAfter! <= 60_000);
  assert.equal(new RetryAfterError("soon").retryAfter, null);
});

Deno.test("checkRetryPolicy() names whose policy it refuses", () => {
  for (const policy of [{ maxAttempts: 0 }, { delay: -1 }, { maxDelay: -1 }, { jitter: 2 }]) {
    const [name] = Object.keys(policy);

    assert.throws(
      () => checkRetryPolicy(policy, ' of step "read"'),
      new RegExp(`retry.${name} of step "read" must be`),
    );
  }
});
