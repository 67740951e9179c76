import assert from "node:assert/strict";
import { type EventConsumer, FactEvents } from "../../src/events/fact_events.ts";
import { Hub } from "../../src/events/hub.ts";
import { ChangeWatch } from "../../src/events/change_watch.ts";
import { JournalReader } from "../../src/events/journal_reader.ts";
import type { RunEvent } from "../../src/model/event.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aRun } from "../support/fixtures.ts";
import { withCalls } from "../support/stores/with_calls.ts";

class TestConsumer implements EventConsumer {
  readonly events: RunEvent[] = [];
  readonly ending = new AbortController();
  readonly abortSignal = this.ending.signal;
  error: Error | undefined;
  constructor(readonly runSeq: number | null = null) {}
  follows = () => true;
  next = (event: RunEvent) => void this.events.push(event);
  reach = () => {};
  end = (error?: Error) => {
    this.error = error;
    this.ending.abort();
  };
  ready = () => null;
}

function aReader(calls: (store: MemoryStore) => Partial<Store> = () => ({})) {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const hub = new Hub(host);
  const watch = new ChangeWatch(store, { host, hub });
  const deps = { store: withCalls(store, calls(store)), host, hub, watch, migrate: () => Promise.resolve() };
  return { host, store, deps, reader: new JournalReader(deps) };
}

Deno.test("FactEvents knows all runs of a page, though another page is read meanwhile", async () => {
  let asking = Promise.resolve();
  const { store, deps } = aReader((store) => ({
    getRunIdentities: async (runs) => {
      await asking;
      return await store.getRunIdentities(runs);
    },
  }));
  for (const count of [599, 1, 600]) await store.enqueue(Array.from({ length: count }, () => aRun()));
  const { rows } = (await store.readJournal(0, 1_000_000))!;
  const events = new FactEvents(deps);
  const countEvents = async (from: number, to: number) => {
    const consumer = new TestConsumer();
    const receivers = { ofRun: () => [], ofLists: [{ consumer, after: 0, isPaused: false }] };
    await events.publish(rows.slice(from, to), receivers, () => Promise.resolve(), consumer.abortSignal);
    return consumer.events.length;
  };
  await countEvents(0, 1);
  const answer = Promise.withResolvers<void>();
  asking = answer.promise;

  const counts = Promise.all([countEvents(0, 2), countEvents(2, 3)]);
  answer.resolve();

  assert.deepEqual(await counts, [600, 600]);
});

Deno.test("JournalReader publishes to a consumer though an earlier one of the run is detached twice", async () => {
  const { host, store, reader } = aReader();
  const run = aRun();
  await store.enqueue([run]);
  const place = (await store.findCursor(null))!;
  const detachEarlier = reader.attach(new TestConsumer(1), place);
  detachEarlier();
  const consumer = new TestConsumer(1);
  const detach = reader.attach(consumer, place);
  detachEarlier();

  await store.cancel(run.id, "request", null);
  host.advance(20);
  await host.settle();

  assert.deepEqual(consumer.events.map(({ type }) => type), ["run:cancel"]);
  detach();
  assert.equal(host.timerCount, 0);
});
