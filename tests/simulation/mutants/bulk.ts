import { ORGS } from "../plan.ts";
import { overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of calls that change many runs. */
export const BULK_MUTANTS: readonly Mutant[] = [
  {
    name: "a bulk retrigger meets its own runs",
    from: 49,
    rule: "F11: runs that are made meanwhile are not met",
    // One call for each run, so that what the first calls have made ends before the last.
    plan: (plan) => ({
      ...plan,
      requests: plan.requests.map((planned, no) => {
        if (planned.request.ask !== "bulk") return planned;
        const labels = { org: ORGS[no % ORGS.length]! };
        return {
          ...planned,
          request: { ...planned.request, operation: "retrigger", selection: { labels }, limit: 1, from: "start" },
        };
      }),
    }),
    client: overClient((store) => ({
      findRuns: ({ before: _, notRetried, ...query }) =>
        store.findRuns({ ...query, ...(notRetried === undefined ? {} : { notRetried }) }),
    })),
  },
  {
    name: "a bulk retrigger makes another run each time",
    from: 6,
    rule: "F11: a call that is made twice changes nothing the second time",
    client: overClient((store) => ({
      getRunState: async (runId) => {
        const state = await store.getRunState(runId);
        return state && { ...state, run: { ...state.run, retriggeredAs: null } };
      },
    })),
  },
  {
    name: "a call of a bulk operation passes a run over",
    from: 10,
    rule: "F11: each call continues right after the one before",
    client: overClient((store) => ({
      findRuns: ({ before, ...query }) =>
        store.findRuns({ ...query, ...(before === undefined ? {} : { before: before - 1 }) }),
    })),
  },
];
