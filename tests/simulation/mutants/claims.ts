import type { Claim } from "../../../src/store/claim.ts";
import type { NewPause } from "../../../src/store/pause_request.ts";
import { unlimited } from "../../support/fixtures.ts";
import { JOB_NAMES } from "../plan.ts";
import { double, over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of claims, of the order of runs, and of concurrency keys. */
export const CLAIM_MUTANTS: readonly Mutant[] = [
  {
    name: "a claim forgets the last step",
    rule: "the history is read with the claim",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, claims: result.claims.map((claim) => ({ ...claim, steps: claim.steps.slice(0, -1) })) };
      },
    })),
  },
  {
    name: "a run is claimed twice",
    rule: "a claim is one transaction",
    store: over((store) => {
      let last: { workerId: string; claims: Claim[] } = { workerId: "", claims: [] };
      return {
        claim: async (request) => {
          const result = await store.claim(request);
          const isRival = last.claims.length > 0 && last.workerId !== request.workerId && result.claims.length === 0;
          const claims = isRival && request.limit > 0 ? last.claims.slice(0, 1) : result.claims;
          last = isRival ? { workerId: "", claims: [] } : { workerId: request.workerId, claims: result.claims };
          return { ...result, claims };
        },
      };
    }),
  },
  {
    name: "a worker claims what it does not know",
    rule: "an unknown job stays pending",
    store: over((store) => ({ claim: (request) => store.claim({ ...request, jobs: unlimited(JOB_NAMES) }) })),
  },
  {
    name: "one job is looked at, at a time",
    rule: "runs are claimed in the order of their triggers",
    store: over((store, chance) => ({
      claim: (request) => store.claim({ ...request, jobs: [chance.pick(request.jobs)] }),
    })),
  },
  {
    name: "a concurrency key is ignored",
    rule: "one run of a key at a time",
    store: over((store) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, concurrencyKey: null, coalesce: null }))),
    })),
  },
  {
    name: "a cancelled run lets go of its key at once",
    from: 199,
    rule: "a key is kept until its worker has noticed",
    store: over((store) => ({
      cancel: async (runId, requestId, executing) => {
        const lease = (await store.getLeases()).find((lease) => lease.runId === runId);
        const run = await store.cancel(runId, requestId, executing);
        if (run !== null && lease !== undefined) await store.release(lease, []);
        return run;
      },
    })),
  },
  {
    name: "a claim forgets the last pause",
    rule: "the history is read with the claim",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, claims: result.claims.map((claim) => ({ ...claim, pauses: claim.pauses.slice(0, -1) })) };
      },
    })),
  },
  {
    name: "a retry delay lets go of its key",
    rule: "a run that waits for a retry keeps its key",
    store: over((store) => ({
      pause: async (lease, request) => {
        const { retryAt: at } = request;
        if (at === null || !request.park) return await store.pause(lease, request);
        const delay: NewPause = {
          id: `${lease.runId}-${lease.generation}-retry`,
          kind: "sleep",
          name: `retry ${lease.generation}`,
          deadline: { at },
          metadata: null,
          prepared: false,
          children: null,
        };
        const result = await store.pause(lease, { ...request, pauses: [...request.pauses, delay], retryAt: null });
        return { ...result, pauses: result.pauses.slice(0, -1) };
      },
    })),
  },
  {
    name: "a run that sleeps or waits keeps its key",
    rule: "a pause gives the key up",
    store: (make, host) => {
      const store = make(host);
      return double(store, {
        pause: (lease, request) => store.pause(lease, { ...request, retryAt: request.retryAt ?? host.now() + 1e6 }),
      });
    },
  },
  {
    name: "a run that was resumed goes last",
    rule: "a resumed run keeps its place",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        const resumed = result.claims.filter(({ pauses }) => pauses.length > 0);
        if (resumed.length === 0 || resumed.length === result.claims.length) return result;
        for (const { lease } of resumed) await store.release(lease, []);
        return { ...result, claims: result.claims.filter((claim) => !resumed.includes(claim)) };
      },
    })),
  },
  {
    name: "a run is ready although its key is held",
    from: 3,
    rule: "K1: while a key is held no run of it is ready but its holder",
    database: (store, database) =>
      double(store, {
        enqueue: async (runs) => {
          const enqueued = await store.enqueue(runs);
          database.exec("UPDATE holdfast_runs SET queue_state = 'R' WHERE queue_state = 'B'");
          return enqueued;
        },
      }),
  },
  {
    name: "nobody moves up when a key is free again",
    from: 6,
    rule: "K2: while a key is free the first run of each job is ready",
    database: (store, database) =>
      double(store, {
        finish: async (lease, ending, reports) => {
          await store.finish(lease, ending, reports);
          const key = lease.concurrencyKey;
          database.prepare("UPDATE holdfast_runs SET queue_state = 'B' WHERE queue_state = 'R' AND concurrency_key = ?")
            .run(key);
        },
      }),
  },
  {
    name: "a worker takes more than it may",
    rule: "a worker executes as many runs as was asked for",
    client: overClient((store) => ({ claim: (request) => store.claim({ ...request, limit: request.limit + 1 }) })),
  },
];
