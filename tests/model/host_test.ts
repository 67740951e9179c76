import assert from "node:assert/strict";
import { pause, systemHost, uuidV7 } from "../../src/model/host.ts";
import { FakeHost } from "../support/fake_host.ts";

Deno.test("uuidV7() has the form of RFC 9562, and begins with the time", () => {
  const id = uuidV7(0x0123_4567_89ab);

  assert.match(id, /^01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

Deno.test("uuidV7() sorts by time, whatever the time", () => {
  const times = [-1, 0, 1, 1_700_000_000_000, 1_700_000_000_000.9, 2 ** 48 - 1];

  const ids = times.map(uuidV7);

  assert.ok(ids.every((id) => /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id)));
  const prefixes = ids.map((id) => id.slice(0, 13));
  assert.deepEqual(prefixes, prefixes.toSorted());
  assert.equal(prefixes[0], "00000000-0000");
});

Deno.test("uuidV7() gives no id twice, and all its random bits vary", () => {
  const ids = Array.from({ length: 10_000 }, () => uuidV7(1_700_000_000_000));

  assert.equal(new Set(ids).size, ids.length);
  for (const position of [15, 16, 17, 19, 20, 21, 22, ...Array.from({ length: 12 }, (_, n) => 24 + n)]) {
    assert.ok(new Set(ids.map((id) => id[position])).size > 1, `character ${position}`);
  }
});

Deno.test("systemHost.newId() carries the present", () => {
  const before = Date.now();

  const id = systemHost.newId();

  const time = parseInt(id.slice(0, 13).replace("-", ""), 16);
  assert.ok(before <= time && time <= Date.now());
});

Deno.test("systemHost measures time that does not go back, and chance", () => {
  const instants = [systemHost.monotonic(), systemHost.monotonic()];
  const random = systemHost.random();

  assert.ok(instants[0]! <= instants[1]!);
  assert.ok(Math.abs(systemHost.now() - Date.now()) < 60_000);
  assert.ok(random >= 0 && random < 1);
});

Deno.test("systemHost.schedule() calls back, and not after it was cancelled", async () => {
  const called: string[] = [];
  const cancel = systemHost.schedule(0, () => called.push("cancelled"));
  cancel();

  await new Promise<void>((resolve) => systemHost.schedule(1, resolve));
  await new Promise<void>((resolve) => systemHost.schedule(-1, resolve));
  cancel();

  assert.deepEqual(called, []);
});

/** Runs with timers that a test fires, and answers the lengths that were asked for. */
function withFakeTimers(act: (fire: () => void) => void): number[] {
  const { setTimeout, clearTimeout } = globalThis;
  const lengths: number[] = [];
  let pending: (() => void) | null = null;
  globalThis.setTimeout = ((callback: () => void, ms: number) => {
    lengths.push(ms);
    pending = callback;
    return lengths.length;
  }) as unknown as typeof setTimeout;
  globalThis.clearTimeout = () => void (pending = null);
  try {
    act(() => pending?.());
  } finally {
    Object.assign(globalThis, { setTimeout, clearTimeout });
  }
  return lengths;
}

Deno.test("systemHost.schedule() waits longer than one timer can", () => {
  const thirtyDays = 30 * 86_400_000;
  let calls = 0;

  const lengths = withFakeTimers((fire) => {
    systemHost.schedule(thirtyDays, () => calls++);
    fire();
    fire();
    assert.equal(calls, 0);
    fire();
    assert.equal(calls, 1);
  });

  assert.ok(lengths.every((ms) => ms < 2 ** 31));
  assert.equal(lengths.reduce((sum, ms) => sum + ms), thirtyDays);
});

Deno.test("systemHost.schedule() can be cancelled in a later slice, and never ends for Infinity", () => {
  let calls = 0;

  const lengths = withFakeTimers((fire) => {
    const cancel = systemHost.schedule(Infinity, () => calls++);
    for (let slice = 0; slice < 100; slice++) fire();
    cancel();
    fire();
  });

  assert.equal(calls, 0);
  assert.equal(lengths.length, 101);
  assert.ok(lengths.every((ms) => ms < 2 ** 31));
});

Deno.test("systemHost.defer() calls back after what is ready has run", async () => {
  const order: string[] = [];

  await new Promise<void>((resolve) => {
    systemHost.defer(() => {
      order.push("deferred");
      resolve();
    });
    Promise.resolve().then(() => order.push("ready")).then(() => order.push("then ready"));
  });

  assert.deepEqual(order, ["ready", "then ready", "deferred"]);
});

Deno.test("pause() ends with its time", async () => {
  const host = new FakeHost();
  let isOver = false;
  const pausing = pause(host, 100).then(() => isOver = true);

  host.advance(99);
  await host.settle();
  const isOverEarly = isOver;
  host.advance(1);
  await pausing;

  assert.equal(isOverEarly, false);
});

Deno.test("pause() ends when it is aborted, before or meanwhile", async () => {
  const host = new FakeHost();
  const controller = new AbortController();
  const pausing = pause(host, 100, controller.signal);

  controller.abort();

  await pausing;
  await pause(host, 100, controller.signal);
});
