import type { Engine } from "../../../src/engine/engine.ts";
import type { EngineEvent, EventOf, EventType } from "../../../src/model/event.ts";
import type { Schema } from "../../../src/model/schema.ts";
import type { Store } from "../../../src/store/store.ts";
import type { Claim } from "../../../src/store/claim.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../fake_host.ts";
import { aClaimRequest, aHold } from "../fixtures.ts";
import { inTime } from "../../processes/deadline.ts";
import { openPostgres, POSTGRES_URL } from "./postgres_store.ts";

/** What a test over a store is given. */
export interface StoreTest {
  /** Empty and migrated. */
  store: Store;
  /** The world of the store. Another host that is never advanced makes a process that is as good as dead. */
  host: FakeHost;
}

/** Opens a store without tables, and makes the host that tells it the time. */
type OpenStore = () => { host: FakeHost; opening: Store | Promise<Store> };

const STORES: Record<string, OpenStore> = {
  MemoryStore: () => withHost((host) => new MemoryStore({ host })),
  SqliteStore: () => withHost((host) => SqliteStore.open(":memory:", { host })),
  ...(POSTGRES_URL === undefined ? {} : { PostgresStore: () => openPostgres(POSTGRES_URL!) }),
};

/** Registers a test once for each store; for PostgresStore only where there is a server: `deno task test:postgres`. */
export function forEachStore(name: string, body: (context: StoreTest) => Promise<void>): void {
  for (const [storeName, open] of Object.entries(STORES)) {
    Deno.test(`${storeName}: ${name}`, async () => {
      const { host, opening } = open();
      await using store = await opening;
      await store.migrate();
      await inTime(body({ store, host }), "the test was to end");
    });
  }
}

function withHost(open: (host: FakeHost) => Store | Promise<Store>): ReturnType<OpenStore> {
  const host = new FakeHost();
  return { host, opening: open(host) };
}

/** How long the leases of {@linkcode claimOne} last, in milliseconds. */
export const LEASE_MS = 30_000;

/** Claims a run of a job, as a worker does that is then forgotten: a crash is such a claim and time that passes. */
export async function claimOne(store: Store, jobName: string, workerId = "dead-worker"): Promise<Claim> {
  const request = { workerId, jobNames: [jobName], limit: 1, leaseMs: LEASE_MS };
  const { claims: [first], aloneSince } = await store.claim(aClaimRequest(request));
  if (first !== undefined) return first;
  const { claims: [alone] } = await store.claim(aClaimRequest({ ...request, isAlone: aloneSince !== null }));
  if (alone === undefined) throw new Error(`No run of "${jobName}" is due`);
  return alone;
}

/** Revokes the leases that have expired, and lets the time pass for which a run that is claimed alone waits. */
export async function endDelay(store: Store, host: FakeHost): Promise<void> {
  await store.claim(aClaimRequest({ limit: 0 }));
  host.advance(LEASE_MS);
}

/** Holds a run that is due, as a worker with changed code does. */
export async function holdRun(store: Store, jobName: string, runId: string): Promise<void> {
  const { claims } = await store.claim(aClaimRequest({ workerId: "changed", jobNames: [jobName], limit: 50 }));
  for (const { run, lease } of claims) {
    await (run.id === runId ? store.hold(lease, aHold(), []) : store.release(lease, []));
  }
}

/** Lets time pass in small steps, with all that each of them brings about. */
export async function pass(host: FakeHost, ms: number, stepMs = Math.max(1, ms / 10)): Promise<void> {
  for (let passed = 0; passed < ms; passed += stepMs) {
    host.advance(Math.min(stepMs, ms - passed));
    await host.settle();
  }
}

/** Everything that an engine says from now on. */
export function recordEvents(engine: Pick<Engine, "on">): EngineEvent[] {
  const events: EngineEvent[] = [];
  engine.on("*", (event) => void events.push(event));
  return events;
}

/** The next event of a type. */
export function nextEvent<T extends EventType>(engine: Pick<Engine, "on">, type: T): Promise<EventOf<T>> {
  return new Promise((resolve) => {
    const stop = engine.on(type, (event) => {
      stop();
      resolve(event);
    });
  });
}

/** A schema that accepts everything, for tests that are not about inputs. */
// deno-lint-ignore no-explicit-any -- so that a test can use its input without ado
export const anything: Schema<any, any> = {
  "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) },
};

/** A promise that never settles: what a step does that hangs. */
export function forever(): Promise<never> {
  return new Promise(() => {});
}
