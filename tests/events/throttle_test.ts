import assert from "node:assert/strict";
import { Throttle } from "../../src/events/throttle.ts";
import { FakeHost } from "../support/fake_host.ts";
import { pass } from "../support/stores/for_each_store.ts";

function aThrottle() {
  const host = new FakeHost();
  const calls: number[] = [];
  return { host, calls, throttle: new Throttle(host, 100, () => void calls.push(host.monotonic())) };
}

Deno.test("Throttle.call() passes the first call on at once, and the others at intervals", async () => {
  const { host, calls, throttle } = aThrottle();

  throttle.call();
  const atOnce = calls.length;
  for (let n = 0; n < 30; n++) {
    throttle.call();
    await pass(host, 10, 10);
  }

  assert.equal(atOnce, 1);
  assert.deepEqual(calls.map((at) => at - calls[0]!), [0, 100, 200, 300].slice(0, calls.length));
  assert.ok(calls.length >= 3);
});

Deno.test("Throttle.call() loses no last call, and makes none up", async () => {
  const { host, calls, throttle } = aThrottle();

  throttle.call();
  throttle.call();
  await pass(host, 1_000, 10);

  assert.equal(calls.length, 2);
});

Deno.test("Throttle.cancel() forgets a call that waits", async () => {
  const { host, calls, throttle } = aThrottle();
  throttle.call();
  throttle.call();

  throttle.cancel();
  await pass(host, 1_000, 10);

  assert.equal(calls.length, 1);
});

Deno.test("Throttle.call() passes a burst on at once, and no more than one in an interval on average", async () => {
  const host = new FakeHost();
  let calls = 0;
  const throttle = new Throttle(host, 100, () => calls++, 3);

  for (let n = 0; n < 10; n++) throttle.call();
  const atOnce = calls;
  for (let n = 0; n < 100; n++) {
    throttle.call();
    await pass(host, 10, 10);
  }
  const inASecond = calls - atOnce;
  throttle.cancel();
  await pass(host, 1_000, 10);
  calls = 0;
  for (let n = 0; n < 10; n++) throttle.call();
  throttle.cancel();

  assert.deepEqual([atOnce, calls], [3, 3]);
  assert.ok(inASecond >= 9 && inASecond <= 10, `${inASecond} calls in a second`);
});
