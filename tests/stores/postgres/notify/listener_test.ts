import assert from "node:assert/strict";
import { systemHost } from "../../../../src/model/host.ts";
import { type Listen, listenAt, listenWith } from "../../../../src/stores/postgres/notify/listener.ts";
import { NotifyListener } from "../../../../src/stores/postgres/notify/listener.ts";
import { FakeHost } from "../../../support/fake_host.ts";
import { pass } from "../../../support/stores/for_each_store.ts";

/** A listener, and what its server does. */
class World {
  readonly host = new FakeHost();
  readonly errors: unknown[] = [];
  /** When it tried to listen. */
  readonly tries: number[] = [];
  changes = 0;
  ends = 0;
  tests = 0;
  /** Whether notifications arrive. */
  isDelivering = true;
  /** How it refuses to listen. */
  refusal: Error | null = null;
  /** Whether it never answers. */
  isHanging = false;
  /** Called when it tests itself, and the notification has arrived. */
  onTest: () => unknown = () => {};
  #onNotify: (channel: string) => void = () => {};
  #onLost: (error: Error) => void = () => {};

  readonly #listen: Listen = (_channels, onNotify, onLost) => {
    this.tries.push(this.host.monotonic());
    if (this.refusal !== null) return Promise.reject(this.refusal);
    if (this.isHanging) return new Promise(() => {});
    this.#onNotify = onNotify;
    this.#onLost = onLost;
    return Promise.resolve(() => void (this.ends += 1));
  };

  readonly listener = new NotifyListener({
    listen: this.#listen,
    notify: (channel) => {
      this.tests += 1;
      this.notify(channel);
      this.onTest();
      return Promise.resolve();
    },
    changeChannel: "changes",
    outboxChannel: "outbox",
    testChannel: "test",
    host: this.host,
  });

  watch() {
    return this.listener.watch({
      onChange: () => void (this.changes += 1),
      onError: (error) => void this.errors.push(error),
    });
  }

  notify(channel: string): void {
    if (this.isDelivering) this.#onNotify(channel);
  }

  lose(): void {
    this.#onLost(new Error("connection reset"));
  }
}

Deno.test("NotifyListener is live once its test has arrived, and reports each change", async () => {
  const world = new World();
  const watch = world.watch();
  const before = watch.isLive;

  await pass(world.host, 10, 1);
  const { isLive } = watch;
  world.changes = 0;
  world.notify("changes");
  world.notify("changes");
  await world.listener.close();

  assert.deepEqual([before, isLive, world.changes, world.errors], [false, true, 2, []]);
});

Deno.test("NotifyListener tests itself every 8 s, and reports no change for that", async () => {
  const world = new World();
  world.watch();
  await pass(world.host, 10, 1);
  [world.changes, world.tests] = [0, 0];

  await pass(world.host, 80_000, 100);
  await world.listener.close();

  assert.deepEqual([world.tests, world.changes], [10, 0]);
});

Deno.test("NotifyListener is not live 10 s after notifications stop to arrive, says so once, and comes back", async () => {
  const world = new World();
  const watch = world.watch();
  await pass(world.host, 10, 1);
  world.changes = 0;

  world.isDelivering = false;
  await pass(world.host, 10_100, 10);
  const { isLive: isLiveMeanwhile } = watch;
  const changesMeanwhile = world.changes;
  await pass(world.host, 300_000, 100);
  const errors = world.errors.map(String);
  const tries = world.tries.length;
  world.isDelivering = true;
  await pass(world.host, 33_000, 100);
  const { isLive } = watch;
  await world.listener.close();

  assert.deepEqual([isLiveMeanwhile, changesMeanwhile, isLive], [false, 1, true]);
  assert.equal(errors.length, 1);
  assert.match(errors[0]!, /pooler in transaction mode; set listenUrl/);
  assert.ok(tries < 25, `${tries} tries in 5 minutes`);
});

Deno.test("NotifyListener is not live as soon as its connection breaks, and listens again soon", async () => {
  const world = new World();
  const watch = world.watch();
  await pass(world.host, 60_000, 100);
  world.changes = 0;

  world.lose();
  await pass(world.host, 2, 1);
  const { isLive: isLiveMeanwhile } = watch;
  const changesMeanwhile = world.changes;
  await pass(world.host, 500, 10);
  const { isLive } = watch;
  await world.listener.close();

  assert.deepEqual([isLiveMeanwhile, changesMeanwhile, isLive], [false, 1, true]);
  assert.deepEqual([world.tries.length, world.ends, world.errors.length], [2, 2, 1]);
});

Deno.test("NotifyListener tries again with growing pauses, up to 30 s", async () => {
  const world = new World();
  world.refusal = new Error("too many clients");
  world.watch();

  await pass(world.host, 300_000, 50);
  await world.listener.close();

  const pauses = world.tries.slice(1).map((at, n) => at - world.tries[n]!);
  assert.ok(pauses[0]! <= 300, `${pauses[0]} ms`);
  assert.ok(pauses.slice(-5).every((ms) => ms >= 14_900 && ms <= 30_100), String(pauses));
  assert.deepEqual(world.errors.map((error) => /too many clients/.test(String(error))), [true]);
});

Deno.test("NotifyListener gives up a server that never answers", async () => {
  const world = new World();
  world.isHanging = true;
  const watch = world.watch();

  await pass(world.host, 10_100, 100);
  world.isHanging = false;
  await pass(world.host, 1_000, 10);
  const { isLive } = watch;
  await world.listener.close();

  assert.equal(isLive, true);
});

Deno.test("NotifyListener listens only while somebody watches, and ends though its server never answers", async () => {
  const world = new World();
  await pass(world.host, 1_000, 10);
  const before = world.tries.length;
  const watches = [world.watch(), world.watch()];
  await pass(world.host, 10, 1);

  watches[0]!.stop();
  await pass(world.host, 10, 1);
  const endsWithOne = world.ends;
  watches[1]!.stop();
  await pass(world.host, 10, 1);
  const ends = world.ends;
  world.isHanging = true;
  const last = world.watch();
  await pass(world.host, 10, 1);
  await world.listener.close();
  world.watch();
  await pass(world.host, 10, 1);

  assert.deepEqual([before, endsWithOne, ends, last.isLive, world.tries.length], [0, 0, 1, false, 2]);
});

Deno.test("NotifyListener that is stopped at any moment after the arrival of its test is not live", async () => {
  const areLive: boolean[] = [];
  for (let turns = 0; turns < 12; turns++) {
    const world = new World();
    const watch = world.watch();
    world.onTest = async () => {
      for (let n = 0; n < turns; n++) await Promise.resolve();
      watch.stop();
    };
    await pass(world.host, 10, 1);
    areLive.push(watch.isLive);
    await world.listener.close();
  }

  assert.deepEqual(areLive, Array(12).fill(false));
});

for (const order of ["before", "after"] as const) {
  Deno.test(`listenWith() ends one channel when another one fails ${order} it`, async () => {
    const ended: string[] = [];
    const listen = listenWith(async (channel) => {
      if (channel === (order === "before" ? "second" : "first")) throw new Error("too many channels");
      await Promise.resolve();
      return () => ended.push(channel);
    });

    const listening = listen(["first", "second"], () => {}, () => {}, new AbortController().signal);

    await assert.rejects(listening, /too many channels/);
    await Promise.resolve();
    assert.deepEqual(ended, [order === "before" ? "first" : "second"]);
  });
}

Deno.test("close() ends a connection that is still being made, at once", async () => {
  // A server that accepts connections and says nothing.
  using server = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { port } = server.addr as Deno.NetAddr;
  const listener = new NotifyListener({
    listen: listenAt(`postgres://holdfast@127.0.0.1:${port}/postgres`),
    notify: () => Promise.resolve(),
    changeChannel: "changes",
    outboxChannel: "outbox",
    testChannel: "test",
    host: systemHost,
  });
  listener.watch({ onChange: () => {}, onError: () => {} });
  using connection = await server.accept();

  const since = performance.now();
  await listener.close();
  while (await connection.read(new Uint8Array(1_024)) !== null); // its first message, and then the end

  assert.ok(performance.now() - since < 3_000); // it would wait for five seconds
});
