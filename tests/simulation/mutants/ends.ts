import type { NewRun } from "../../../src/store/new_run.ts";
import type { Plan } from "../plan.ts";
import { double, over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of clean-ups. */
export const END_MUTANTS: readonly Mutant[] = [
  {
    name: "a run is added without its clean-up",
    rule: "a clean-up is added in the commit that ends its run",
    store: over((store, chance) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => chance.happens(0.3) ? withoutEnd(run) : run)),
    })),
  },
  {
    name: "a run that is cancelled while it waits has no clean-up",
    rule: "whatever ends a run adds its clean-up",
    database: (store, database) =>
      double(store, {
        cancel: async (runId, requestId, execution) => {
          const hide = "UPDATE holdfast_runs SET on_end = NULL WHERE status = 'waiting' AND id = ? RETURNING on_end";
          const kept = database.prepare("SELECT on_end FROM holdfast_runs WHERE id = ?").get(runId)?.on_end ?? null;
          database.prepare(hide).all(runId);
          const cancelling = store.cancel(runId, requestId, execution);
          await cancelling.catch(() => {});
          database.prepare("UPDATE holdfast_runs SET on_end = ? WHERE id = ?").run(kept, runId);
          return await cancelling;
        },
      }),
  },
  {
    name: "a clean-up is added after each end",
    rule: "a clean-up is added if its run ends with one of its statuses",
    store: over((store) => ({
      enqueue: (runs) =>
        store.enqueue(
          runs.map((run) =>
            run.onEnd === undefined
              ? run
              : { ...run, onEnd: { ...run.onEnd, statuses: ["completed", "failed", "cancelled"] } }
          ),
        ),
    })),
  },
  {
    name: "a clean-up does not look whether its run is still executed",
    rule: "a clean-up begins when no function of its run is executed any more",
    plan: withSlowSteps,
    client: overClient(() => ({ getLeases: () => Promise.resolve([]) })),
  },
  {
    name: "a late run gives up its lease while its functions are executed",
    rule: "the lease of a late run lasts as long as its functions",
    plan: (plan) => withSlowSteps(withDeadlines(plan)),
    client: overClient((store) => ({
      finish: (lease, ending, reports) => {
        if (ending.status !== "failed") return store.finish(lease, ending, reports);
        const { stillExecuting: _, ...rest } = ending;
        return store.finish(lease, rest, reports);
      },
    })),
  },
  {
    name: "a clean-up is told of one step less",
    rule: "a clean-up is told which steps have completed",
    store: over((store) => ({
      getHistory: async (runId) => {
        const history = await store.getHistory(runId);
        return history && { ...history, steps: history.steps.slice(1) };
      },
    })),
  },
  {
    name: "a run is deleted while it is cleaned up",
    rule: "a run is not deleted while it is cleaned up",
    database: (store, database) =>
      double(store, {
        delete: async (runId, by) => {
          database.exec("UPDATE holdfast_runs SET end_of = 'hidden ' || end_of WHERE end_of IS NOT NULL");
          const deleting = store.delete(runId, by);
          await deleting.catch(() => {});
          database.exec("UPDATE holdfast_runs SET end_of = substr(end_of, 8) WHERE end_of LIKE 'hidden %'");
          return await deleting;
        },
      }),
  },
  {
    name: "a run is retried while it is cleaned up",
    rule: "a run is not retried while it is cleaned up",
    database: (store, database) =>
      double(store, {
        enqueue: async (runs) => {
          database.exec("UPDATE holdfast_runs SET end_of = 'hidden ' || end_of WHERE end_of IS NOT NULL");
          const adding = store.enqueue(runs);
          await adding.catch(() => {});
          database.exec("UPDATE holdfast_runs SET end_of = substr(end_of, 8) WHERE end_of LIKE 'hidden %'");
          return await adding;
        },
      }),
  },
  {
    name: "a retry begins with steps that were undone",
    rule: "an undone step is never a copy",
    database: (store, database) =>
      double(store, {
        enqueue: async (runs) => {
          const olds = runs.flatMap(({ retriggerOf }) => {
            const old = database.prepare(
              `SELECT seq, on_end FROM holdfast_runs r WHERE id = ? AND on_end IS NOT NULL
               AND NOT EXISTS (SELECT * FROM holdfast_runs e WHERE e.end_of = r.id AND e.completed_at IS NULL)`,
            ).get(retriggerOf?.runId ?? "");
            return old === undefined ? [] : [old];
          });
          const write = database.prepare("UPDATE holdfast_runs SET on_end = ? WHERE seq = ?");
          for (const { seq } of olds) write.run(null, seq!);
          const adding = store.enqueue(runs);
          await adding.catch(() => {});
          for (const { seq, on_end } of olds) write.run(on_end!, seq!);
          return await adding;
        },
      }),
  },
  {
    name: "what was undone is done again with its old key",
    rule: "a step that was undone has another key",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return {
          ...result,
          claims: result.claims.map((claim) => {
            if (claim.copied === null) return claim;
            const { undone: _, ...copied } = claim.copied;
            return { ...claim, copied };
          }),
        };
      },
    })),
  },
];

function withoutEnd({ onEnd: _, ...run }: NewRun): NewRun {
  return run;
}

/** Lets each run begin with a step that ignores its `abortSignal` for a while, and be cancelled more often. */
function withSlowSteps(plan: Plan): Plan {
  const slow = {
    do: "step",
    name: "slow",
    ms: 1_500,
    failures: 0,
    attempts: 1,
    delay: 0,
    timeout: null,
    heeds: false,
  } as const;
  const requests = plan.requests.flatMap((planned): Plan["requests"] => {
    const { request } = planned;
    if (request.ask === "signal") return [planned, { ...planned, request: { ask: "cancel", which: request.which } }];
    if (request.ask !== "trigger") return [planned];
    return [{ ...planned, request: { ...request, program: [slow, ...request.program] } }];
  });
  return { ...plan, requests };
}

function withDeadlines(plan: Plan): Plan {
  const requests = plan.requests.map((planned): Plan["requests"][number] => {
    const { request } = planned;
    if (request.ask !== "trigger") return planned;
    return { ...planned, request: { ...request, options: { ...request.options, finishWithin: 300 } } };
  });
  return { ...plan, requests };
}
