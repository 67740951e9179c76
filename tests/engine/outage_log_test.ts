import assert from "node:assert/strict";
import { createEngine, createHandler, MemoryStore } from "../../mod.ts";
import { StoreError } from "../../src/model/error.ts";
import { FakeHost } from "../../src/testing/fake_host.ts";
import type { Store } from "../../src/store/store.ts";

/** An engine whose store does not answer some calls while it is away, and what the engine logs. */
function anEngine(isLost: (name: keyof Store) => boolean) {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  const state = { isAway: false };
  const store = new Proxy(memory, {
    get(_target, name: keyof Store) {
      if (state.isAway && isLost(name)) {
        return () => Promise.reject(new StoreError("The database cannot answer: it is gone"));
      }
      const member: unknown = memory[name];
      return typeof member === "function" ? member.bind(memory) : member;
    },
  });
  const lines: string[] = [];
  const log = (text: string) => void lines.push(text.replaceAll(/\d+ times/g, "N times"));
  const engine = createEngine({ store, host, jobs: {}, logger: { info: log, warn: log, error: log } });
  const handler = createHandler(engine);
  const list = async () => (await handler.fetch(new Request("http://localhost/runs"))).status;
  return { host, engine, list, lines, state };
}

Deno.test("an outage is logged when it begins, once a minute, and when it ends, by worker and handler together", async () => {
  const { host, engine, list, lines, state } = anEngine((name) => name !== "watch");
  await engine.start();
  await host.settle();

  state.isAway = true;
  for (let second = 0; second < 150; second++) {
    assert.equal(await list(), 503);
    await host.advance(1_000);
  }
  state.isAway = false;
  await host.advance(20_000);
  await engine.stop();

  assert.deepEqual(lines, [
    "The store does not answer; work goes on when it does. The database cannot answer: it is gone",
    "The store has not answered for 1 min, N times. The database cannot answer: it is gone",
    "The store has not answered for 2 min, N times. The database cannot answer: it is gone",
    "The store answers again. It did not for 2 min 30 s, N times",
  ]);
});

Deno.test("an outage of some calls does not end with others that are answered meanwhile", async () => {
  const { host, engine, list, lines, state } = anEngine((name) => name === "findRuns");
  await engine.start();
  await host.settle();

  state.isAway = true;
  for (let second = 0; second < 30; second++) {
    assert.equal(await list(), 503);
    await host.advance(1_000); // the worker claims
  }
  await engine.stop();

  assert.deepEqual(lines, [
    "The store does not answer; work goes on when it does. The database cannot answer: it is gone",
  ]);
});

Deno.test("an outage that has ended long ago is not part of the next one, though nothing was asked in between", async () => {
  const { host, list, lines, state } = anEngine((name) => name === "findRuns");
  const fail = async () => {
    state.isAway = true;
    assert.equal(await list(), 503);
    state.isAway = false;
  };

  await fail();
  await host.advance(1_000);
  assert.equal(await list(), 200);
  await host.advance(3_600_000);
  await fail();

  assert.deepEqual(lines, [
    "The store does not answer; work goes on when it does. The database cannot answer: it is gone",
    "The store answers again. One call has failed",
    "The store does not answer; work goes on when it does. The database cannot answer: it is gone",
  ]);
});
