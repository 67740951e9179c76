import assert from "node:assert/strict";
import { InterruptibleSleep } from "../../src/model/host.ts";
import { FakeHost } from "../support/fake_host.ts";

/** Begins a sleep, and tells whether it is over. */
function begin(nap: InterruptibleSleep, ms: number) {
  const state = { isOver: false };
  nap.sleep(ms).then(() => state.isOver = true);
  return state;
}

Deno.test("InterruptibleSleep.sleep() ends with its time", async () => {
  const host = new FakeHost();
  const sleep = begin(new InterruptibleSleep(host), 100);

  host.advance(99);
  await host.settle();
  const isOverEarly = sleep.isOver;
  host.advance(1);
  await host.settle();

  assert.deepEqual([isOverEarly, sleep.isOver], [false, true]);
});

Deno.test("InterruptibleSleep.wake() ends the sleep", async () => {
  const host = new FakeHost();
  const nap = new InterruptibleSleep(host);
  const sleep = begin(nap, 100);

  nap.wake();
  await host.settle();

  assert.equal(sleep.isOver, true);
});

Deno.test("InterruptibleSleep.wake() before a sleep prevents it, once, however often it was called", async () => {
  const host = new FakeHost();
  const nap = new InterruptibleSleep(host);

  nap.wake();
  nap.wake();
  await nap.sleep(100);
  const second = begin(nap, 100);
  await host.settle();

  assert.equal(second.isOver, false);
});

Deno.test("InterruptibleSleep.wake() twice during a sleep does not prevent the next one", async () => {
  const host = new FakeHost();
  const nap = new InterruptibleSleep(host);
  const first = begin(nap, 100);
  nap.wake();
  nap.wake();
  await host.settle();

  const second = begin(nap, 100);
  await host.settle();

  assert.deepEqual([first.isOver, second.isOver], [true, false]);
});

Deno.test("InterruptibleSleep.wake() after a sleep has timed out prevents the next one", async () => {
  const host = new FakeHost();
  const nap = new InterruptibleSleep(host);
  const first = begin(nap, 100);
  host.advance(100);
  await host.settle();

  nap.wake();
  await nap.sleep(100);

  assert.equal(first.isOver, true);
});
