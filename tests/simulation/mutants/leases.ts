import { LeaseLostError } from "../../../src/model/error.ts";
import type { Lease } from "../../../src/model/lease.ts";
import { ClaimRequests } from "../../../src/execution/claim_requests.ts";
import { MemoryRuns } from "../../../src/stores/memory/runs.ts";
import type { Store } from "../../../src/store/store.ts";
import { double, over, overClient } from "./doubles.ts";
import type { Plan } from "../plan.ts";
import type { Mutant } from "./mutant.ts";
import { replace } from "./replace.ts";

/** Bugs of leases and of the workers that hold them. */
export const LEASE_MUTANTS: readonly Mutant[] = [
  {
    name: "a step is recorded under a lost lease",
    from: 7,
    rule: "only the newest lease can write",
    store: over((store) => ({
      saveStep: underAnyLease(store, (lease, ...rest) => store.saveStep(lease, ...rest)),
    })),
  },
  {
    name: "a run is ended under a lost lease",
    from: 454,
    rule: "only the newest lease can write",
    store: over((store) => ({ finish: underAnyLease(store, (lease, ...rest) => store.finish(lease, ...rest)) })),
  },
  {
    name: "a run is parked under a lost lease",
    from: 25,
    rule: "only the newest lease can write",
    store: over((store) => ({ pause: underAnyLease(store, (lease, request) => store.pause(lease, request)) })),
  },
  {
    name: "a lost lease is renewed",
    from: 7,
    rule: "a renewal is fenced like any other write",
    store: over((store) => ({
      renew: async (renewals, leaseMs) => {
        const leases = await store.getLeases();
        const newest = renewals.map(({ lease, reports }) => ({
          lease: leases.find(({ runId }) => runId === lease.runId) ?? lease,
          reports,
        }));
        return await store.renew(newest, leaseMs);
      },
    })),
  },
  {
    name: "a run is given up too early",
    from: 5,
    rule: "a run fails after so many abandonments, not before",
    store: over((store) => ({ claim: (request) => store.claim({ ...request, maxAbandonments: 1 }) })),
  },
  {
    name: "a run fails for the crashes of others",
    rule: "only abandonments alone count",
    parts: ["poison"],
    plan: givesUpSoon,
    code: () =>
      replace(MemoryRuns.prototype, "abandon", (old) =>
        function (run, worker, now) {
          old.call(this, run, worker, now);
          run.abandonmentsAlone = run.abandonments;
        }),
  },
  {
    name: "a run that kills its process is claimed with others",
    rule: "a run that was abandoned twice in a row is claimed alone",
    parts: ["poison"],
    code: () =>
      replace(MemoryRuns.prototype, "abandon", (old) =>
        function (run, worker, now) {
          old.call(this, run, worker, now);
          run.isClaimedAlone = false;
          run.dueAt = null;
        }),
  },
  {
    name: "a worker holds others when it claims a run alone",
    from: 3,
    rule: "a run that was abandoned twice in a row is claimed alone",
    parts: ["poison"],
    client: overClient((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        const hasFound = request.isAlone || result.claims.length > 0 || result.aloneSince === null;
        if (hasFound || request.limit === 0) return result;
        const claimId = `${request.claimId} alone`;
        return await store.claim({ ...request, claimId, isAlone: true, limit: 1 });
      },
    })),
  },
  {
    name: "others are claimed beside a run that was claimed alone",
    from: 3,
    rule: "nothing is claimed beside a run that was claimed alone",
    parts: ["poison"],
    code: () =>
      replace(ClaimRequests.prototype, "next", (old) =>
        function (capacity) {
          return old.call(this, { ...capacity, limit: Math.max(1, capacity.limit) });
        }),
    plan: (plan) => ({ ...plan, worker: { ...plan.worker, concurrency: 10 } }),
  },
  {
    name: "a run that is claimed alone is forgotten",
    from: 3,
    rule: "a run that was abandoned twice in a row is claimed",
    parts: ["poison"],
    client: overClient((store) => ({
      claim: async (request) => ({ ...await store.claim(request), aloneSince: null }),
    })),
  },
  {
    name: "nobody looks for leases that stand still",
    from: 295,
    rule: "a clock that was set back strands no run",
    client: overClient(() => ({ getLeases: () => Promise.resolve([]) })),
  },
  {
    name: "a lease that was renewed is taken away",
    from: 46,
    rule: "a lease is revoked only as it was seen",
    store: over((store) => ({
      revoke: async (leases) => {
        const now = await store.getLeases();
        await store.revoke(leases.flatMap(({ runId }) => now.filter((lease) => lease.runId === runId)));
      },
    })),
    // It does not see that a lease was renewed.
    client: overClient((store) => ({
      getLeases: async () => (await store.getLeases()).map((lease) => ({ ...lease, expiresAt: 0 })),
    })),
  },
  {
    name: "a lost lease is not told",
    from: 5,
    rule: "what cannot count any more is interrupted",
    client: overClient((store) => ({
      renew: async (renewals, leaseMs) => (await store.renew(renewals, leaseMs)).map((end) => end ?? Date.now()),
    })),
  },
  {
    name: "a run that was given back counts as abandoned",
    rule: "a stop is no abandonment",
    // Nothing is given back, so it is taken away when it has expired.
    store: over(() => ({ release: () => Promise.resolve() })),
  },
  {
    name: "each claim counts as an interruption",
    rule: "resuming from a pause is no interruption",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        const counted = result.claims.map((claim) => ({ ...claim, execution: claim.lease.generation }));
        return { ...result, claims: counted };
      },
    })),
  },
  {
    name: "a body overlaps after a stop",
    from: 295,
    rule: "a lease is released when no code of the job runs any more",
    stopTimeout: () => 0,
  },
  {
    name: "a worker goes by its own clock",
    rule: "delays do not depend on clocks that differ",
    client: (store, host) =>
      double(store, {
        saveStep: async (...parameters) => {
          const { recordedNo, retry } = await store.saveStep(...parameters);
          return { recordedNo, retry: retry && { at: retry.at, inMs: Math.max(0, retry.at - host.now()) } };
        },
      }),
  },
];

function givesUpSoon(plan: Plan): Plan {
  return { ...plan, worker: { ...plan.worker, maxAbandonments: 2 } };
}

/** A write that is made under the lease that its run has now when it is refused under its own. */
function underAnyLease<Rest extends unknown[], T>(
  store: Store,
  write: (lease: Lease, ...rest: Rest) => Promise<T>,
): (lease: Lease, ...rest: Rest) => Promise<T> {
  return (lease, ...rest) =>
    write(lease, ...rest).catch(async (error) => {
      const newest = (await store.getLeases()).find(({ runId }) => runId === lease.runId);
      if (!(error instanceof LeaseLostError) || newest === undefined) throw error;
      return await write(newest, ...rest);
    });
}
