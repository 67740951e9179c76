import assert from "node:assert/strict";
import { DeadWorkerLeases } from "../../../src/execution/leases.ts";
import type { SeenLease } from "../../../src/model/lease.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { LEASE_MS } from "../../support/stores/for_each_store.ts";

/** A store that shows the leases that a test sets, takes its time for that, and keeps what is taken away. */
class Leases extends MemoryStore {
  leases: SeenLease[] = [];
  answersAfterMs = 0;
  readonly revoked: SeenLease[] = [];
  readonly #host: FakeHost;

  constructor(host: FakeHost) {
    super({ host });
    this.#host = host;
  }

  override getLeases(): Promise<SeenLease[]> {
    const leases = [...this.leases];
    this.#host.advance(this.answersAfterMs);
    return Promise.resolve(leases);
  }

  override revoke(leases: readonly SeenLease[]): Promise<void> {
    this.revoked.push(...leases);
    return Promise.resolve();
  }
}

function aLease(overrides: Partial<SeenLease> = {}): SeenLease {
  const expiresAt = FAKE_START + LEASE_MS;
  const lease = { runId: "run", generation: 1, claimId: "claim", recorded: 0, concurrencyKey: null };
  return { ...lease, expiresAt, leaseMs: LEASE_MS, ...overrides };
}

function aWatch() {
  const host = new FakeHost();
  const store = new Leases(host);
  return { host, store, watch: new DeadWorkerLeases(store, LEASE_MS, host) };
}

Deno.test("DeadWorkerLeases.look() takes away a lease that it saw unchanged for its length, and not before", async () => {
  const { host, store, watch } = aWatch();
  store.leases = [aLease()];
  await watch.look();

  host.advance(LEASE_MS - 1);
  await watch.look();
  const early = [...store.revoked];
  host.advance(LEASE_MS / 3);
  await watch.look();

  assert.deepEqual(early, []);
  assert.deepEqual(store.revoked, [aLease()]);
});

Deno.test("DeadWorkerLeases.look() leaves a lease that was renewed, and one that lasts longer", async () => {
  const { host, store, watch } = aWatch();
  const longer = aLease({ runId: "longer", leaseMs: 3 * LEASE_MS });
  store.leases = [aLease(), longer];
  await watch.look();

  host.advance(LEASE_MS / 2);
  store.leases = [aLease({ expiresAt: FAKE_START + LEASE_MS + 1 }), longer];
  await watch.look();
  host.advance(LEASE_MS / 2);
  await watch.look();

  assert.deepEqual(store.revoked, []);
});

Deno.test("DeadWorkerLeases.look() counts from the answer that first showed a lease, however late it came", async () => {
  const { host, store, watch } = aWatch();
  store.leases = [aLease()];
  store.answersAfterMs = 2 * LEASE_MS;
  await watch.look();
  store.answersAfterMs = 0;

  await watch.look();
  host.advance(LEASE_MS - 1);
  await watch.look();
  const early = [...store.revoked];
  host.advance(LEASE_MS / 3);
  await watch.look();

  assert.deepEqual(early, []);
  assert.deepEqual(store.revoked, [aLease()]);
});

Deno.test("DeadWorkerLeases.look() does not count the time that the last answer took", async () => {
  const { host, store, watch } = aWatch();
  store.leases = [aLease()];
  await watch.look();
  host.advance(LEASE_MS - 1);

  // A renewal may have come right after the store was asked.
  store.answersAfterMs = 2 * LEASE_MS;
  await watch.look();

  assert.deepEqual(store.revoked, []);
});
