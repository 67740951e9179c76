import type { Engine } from "../../src/engine/engine.ts";
import type { FakeHost } from "./fake_host.ts";
import type { EngineEvent } from "../../src/model/event.ts";
import { pass, type StoreTest } from "./stores/for_each_store.ts";
import { createEngine } from "./quiet_engine.ts";
import { echo, fail } from "./jobs.ts";

/** An engine with the jobs `echo` and `fail`. */
export function anEngine({ store, host }: StoreTest) {
  return createEngine({ store, host, jobs: { echo, fail } });
}

/** The types of events, in their order. */
export function typesOf(events: readonly EngineEvent[]): string[] {
  return events.map(({ type }) => type);
}

/** Stops an engine whose steps hang. */
export async function stopHard(engine: Pick<Engine, "stop">, host: FakeHost): Promise<void> {
  const stopping = engine.stop({ timeout: 1 });
  await pass(host, 1_000);
  await stopping;
}
