import { HoldfastError, LeaseLostError, StoreError } from "../../../src/model/error.ts";
import type { Claim } from "../../../src/store/claim.ts";
import { Chance } from "../../support/chance.ts";
import { over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";
import { getSteps } from "../../../src/store/reads.ts";

/** Bugs of steps, retries, progress and logs, and of calls to the store. */
export const STEP_MUTANTS: readonly Mutant[] = [
  {
    name: "a refusal is taken for success",
    rule: "a refused write is told",
    store: over((store) => ({
      saveStep: (lease, step, reports) =>
        store.saveStep(lease, step, reports).catch((error) => {
          if (!(error instanceof LeaseLostError) || step.result.status === "retrying") throw error;
          return { recordedNo: 1, retry: null };
        }),
    })),
  },
  {
    name: "a step is acknowledged and lost",
    rule: "what was acknowledged is kept",
    store: over((store, chance) => ({
      saveStep: (lease, step, reports) =>
        step.result.status !== "retrying" && chance.happens(0.05)
          ? Promise.resolve({ recordedNo: 1, retry: null })
          : store.saveStep(lease, step, reports),
    })),
  },
  {
    name: "an end is told before it is committed",
    rule: "an event follows its commit",
    client: overClient((store) => ({
      finish: (lease, ending, reports) => {
        store.finish(lease, ending, reports).catch(() => {});
        return Promise.resolve();
      },
    })),
  },
  {
    name: "an error of the store fails the run",
    rule: "a store that cannot answer says nothing about the run",
    client: overClient((store) => ({
      saveStep: (lease, step, reports) =>
        store.saveStep(lease, step, reports).catch((error) => {
          throw error instanceof StoreError ? new HoldfastError("internal", "database is locked") : error;
        }),
    })),
  },
  {
    name: "a replay brings results in another order",
    rule: "results are delivered in the order of their commits",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, claims: result.claims.map(inReverse) };
      },
    })),
  },
  {
    name: "a retry comes too early",
    rule: "a retry waits for its delay",
    store: over((store) => ({
      saveStep: (lease, step, reports) => {
        const { result } = step;
        if (result.status !== "retrying") return store.saveStep(lease, step, reports);
        return store.saveStep(lease, { ...step, result: { ...result, delayMs: result.delayMs / 2 } }, reports);
      },
    })),
  },
  {
    name: "a step is recorded with another result",
    rule: "what is recorded is what the function of the step did",
    client: overClient((store) => ({
      saveStep: (lease, step, reports) => {
        const { result } = step;
        const changed = result.status === "completed" ? { ...result, output: '"another"' } : result;
        return store.saveStep(lease, { ...step, result: changed }, reports);
      },
    })),
  },
  {
    name: "a last attempt is followed by another",
    rule: "a step has so many attempts, and no more",
    client: overClient((store) => ({
      saveStep: (lease, step, reports) => {
        const { result } = step;
        const changed = result.status === "failed"
          ? { status: "retrying" as const, failure: result.failure, delayMs: 1 }
          : result;
        return store.saveStep(lease, { ...step, result: changed }, reports);
      },
    })),
  },
  {
    name: "a timeout of a step is not noticed",
    rule: "a step that takes too long has failed",
    // No other timer of a simulation takes just so long.
    host: (host) => ({ ...host, schedule: (ms, callback) => ms === 100 ? () => {} : host.schedule(ms, callback) }),
  },
  {
    name: "a log line is kept twice",
    rule: "a log line is kept once",
    store: over((store, chance) => ({
      appendLogs: async (entries) => {
        await store.appendLogs(entries);
        if (chance.happens(0.5)) await store.appendLogs(entries.map((entry) => ({ ...entry, id: `${entry.id}-2` })));
      },
    })),
  },
  {
    name: "what could not be written is told as done",
    rule: "a full disk is no success",
    client: overClient((store) => ({
      finish: (lease, ending, reports) =>
        store.finish(lease, ending, reports).catch((error) => {
          if (!(error instanceof StoreError)) throw error;
        }),
    })),
  },
  {
    name: "a step is known by its position",
    rule: "new code may add and move steps",
    store: over((store) => ({
      saveStep: async (lease, step, reports) => {
        const recorded = await getSteps(store, lease.runId);
        const isMoved = recorded?.some(({ name, index }) => index === step.index && name !== step.name);
        return await store.saveStep(lease, isMoved ? { ...step, name: `${step.name}-moved` } : step, reports);
      },
      claim: async (request) => {
        const result = await store.claim(request);
        const claims = result.claims.map((claim) => ({
          ...claim,
          steps: claim.steps.map((step, at) => ({ ...step, result: claim.steps[at + 1]?.result ?? step.result })),
        }));
        return { ...result, claims };
      },
    })),
  },
  {
    name: "an engine asks for no delay",
    rule: "a retry waits for its delay",
    client: overClient((store) => ({
      saveStep: (lease, step, reports) => {
        const { result } = step;
        const hurried = result.status === "retrying" ? { ...result, delayMs: 0 } : result;
        return store.saveStep(lease, { ...step, result: hurried }, reports);
      },
    })),
  },
  {
    name: "a worker stumbles",
    rule: "a worker complains of the store and the machine only",
    client: overClient((store) => {
      const chance = new Chance(7);
      return {
        claim: (request) => chance.happens(0.05) ? Promise.reject(new TypeError("It stumbles")) : store.claim(request),
      };
    }),
  },
  {
    name: "a store refuses what it has room for",
    rule: "a store answers while it can",
    store: over((store, chance) => ({
      signal: (waitId, signal) =>
        chance.happens(0.2) ? Promise.reject(new StoreError("The disk is full")) : store.signal(waitId, signal),
    })),
  },
  {
    name: "progress is lost at the end",
    rule: "the last progress is kept",
    client: overClient((store) => ({ finish: (lease, ending) => store.finish(lease, ending, []) })),
  },
  {
    name: "a renewal forgets the progress",
    from: 3,
    rule: "progress is kept soon",
    client: overClient((store) => ({
      renew: (renewals, leaseMs) => store.renew(renewals.map((renewal) => ({ ...renewal, reports: [] })), leaseMs),
    })),
  },
  {
    name: "timers are lost",
    from: 14,
    rule: "nothing waits for ever",
    host: (host) => ({
      ...host,
      schedule: (ms, callback) => host.random() < 0.02 ? () => {} : host.schedule(ms, callback),
    }),
  },
];

/** A claim whose results seem to have been recorded the other way round. */
function inReverse(claim: Claim): Claim {
  const last = claim.steps.reduce((last, { recordedNo }) => Math.max(last, recordedNo), 0);
  return { ...claim, steps: claim.steps.map((step) => ({ ...step, recordedNo: last + 1 - step.recordedNo })) };
}
