import { MemoryRuns } from "../../../src/stores/memory/runs.ts";
import type { Ending } from "../../../src/store/claim.ts";
import type { Wait } from "../../../src/model/wait.ts";
import { double, over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";
import { replace } from "./replace.ts";
import { getWaits } from "../../../src/store/reads.ts";
import type { Request } from "../plan.ts";
import type { Program } from "../program.ts";

const FAILING_OF_ANSWER: Program = [{ do: "wait", name: "answer", timeout: null }, { do: "throw" }];

/** Bugs of triggers, retriggers, endings and deletions. */
export const RUN_MUTANTS: readonly Mutant[] = [
  {
    name: "an idempotency key is forgotten",
    rule: "one idempotency key, one run",
    store: over((store) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, idempotencyKey: null }))),
    })),
  },
  {
    name: "a run that has ended is cancelled",
    from: 23,
    rule: "a run that has ended does not change",
    store: over((store) => ({
      cancel: async (runId, requestId, executing) =>
        await store.cancel(runId, requestId, executing) ?? (await store.getRunState(runId))?.run ?? null,
    })),
  },
  {
    name: "a job is given what a later trigger brought",
    rule: "a run keeps its input",
    store: over((store) => {
      let newest: string | null = null;
      return {
        enqueue: (runs) => {
          newest = runs.at(-1)!.input;
          return store.enqueue(runs);
        },
        claim: async (request) => {
          const result = await store.claim(request);
          return { ...result, claims: result.claims.map((claim) => ({ ...claim, input: newest })) };
        },
      };
    }),
  },
  {
    name: "labels are forgotten",
    rule: "a run keeps what it was triggered with",
    store: over((store) => ({ enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, labels: {} }))) })),
  },
  {
    name: "an output is not kept",
    rule: "a run ends as its function did",
    store: over((store) => ({
      finish: (lease, ending, reports) =>
        store.finish(lease, ending.status === "completed" ? { ...ending, output: null } : ending, reports),
    })),
  },
  {
    name: "an error is worded anew",
    rule: "a run ends as its function did",
    client: overClient((store) => ({
      finish: (lease, ending, reports) =>
        store.finish(lease, ending.status === "failed" ? reworded(ending) : ending, reports),
    })),
  },
  {
    name: "a cancel is not heard of where it came from",
    from: 3,
    rule: "what is executed of a run that is cancelled is told",
    client: overClient((store) => ({
      cancel: (...parameters) => store.cancel(...parameters).then(() => new Promise(() => {})),
    })),
  },
  {
    name: "a trigger that is to coalesce does not",
    from: 4,
    rule: "a trigger joins a run that it may join",
    store: over((store) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, coalesce: null }))),
    })),
  },
  {
    name: "a retrigger forgets a wait",
    from: 32,
    rule: "a retry from the failure asks no question that was answered",
    database: (store, database) =>
      double(store, {
        enqueue: async (runs) => {
          const enqueued = await store.enqueue(runs);
          for (const { run: { id, retriggerOf, startedAt } } of enqueued) {
            if (retriggerOf === null || startedAt !== null) continue;
            const ofRun = "kind = 'wait' AND run_seq = (SELECT seq FROM holdfast_runs WHERE id = ?)";
            database.prepare(`DELETE FROM holdfast_pauses WHERE ${ofRun}`).run(id);
          }
          return enqueued;
        },
      }),
  },
  {
    name: "a retrigger keeps the answer of which its run has failed",
    from: 18,
    rule: "a retry from the failure asks again for the answer that was recorded last",
    // Runs fail of the answer that they get, and are retried.
    plan: (plan) => ({
      ...plan,
      requests: plan.requests.flatMap((entry) => {
        const { request } = entry;
        if (request.ask === "trigger") return [{ ...entry, request: { ...request, program: FAILING_OF_ANSWER } }];
        if (request.ask !== "signal") return [entry];
        const retry: Request = { ask: "retrigger", which: request.which, from: "failure" };
        return [entry, { ...entry, at: entry.at + 500, request: retry }];
      }),
    }),
    code: () =>
      replace(MemoryRuns.prototype, "add", (add) =>
        function (request, now, parent) {
          const old = request.retriggerOf === null ? undefined : this.get(request.retriggerOf.runId);
          if (old !== undefined) old.lastRecordedNo += 1; // as if something had been recorded since
          const run = add.call(this, request, now, parent);
          if (old !== undefined) old.lastRecordedNo -= 1;
          return run;
        }),
  },
  {
    name: "a retrigger forgets a sleep",
    from: 23,
    rule: "a retry from the failure does not sleep again",
    store: over((store) => {
      const retries = new Set<string>();
      return {
        enqueue: async (runs) => {
          const enqueued = await store.enqueue(runs);
          for (const { run: { id, retriggerOf } } of enqueued) if (retriggerOf !== null) retries.add(id);
          return enqueued;
        },
        claim: async (request) => {
          const result = await store.claim(request);
          const claims = result.claims.map((claim) => {
            const pauses = claim.pauses.filter(({ kind }) => kind !== "sleep");
            return retries.has(claim.run.id) && claim.lease.generation === 1 ? { ...claim, pauses } : claim;
          });
          return { ...result, claims };
        },
      };
    }),
  },
  {
    name: "a retry's steps have keys of their own",
    from: 15,
    rule: "a step has one idempotency key in a run and its retries from the failure",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, claims: result.claims.map((claim) => ({ ...claim, originId: claim.run.id })) };
      },
    })),
  },
  {
    name: "each retrigger makes a run",
    from: 21,
    rule: "while the newest retry has not ended, another retrigger answers that one",
    database: (store, database) =>
      double(store, {
        enqueue: (runs) => {
          const unlink = database.prepare("UPDATE holdfast_runs SET retriggered_as = NULL WHERE id = ?");
          for (const { retriggerOf } of runs) if (retriggerOf !== null) unlink.run(retriggerOf.runId);
          return store.enqueue(runs);
        },
      }),
  },
  {
    name: "a deleted run leaves its waits behind",
    rule: "nothing is left of a deleted run",
    store: over((store) => {
      const left = new Map<string, Wait>();
      return {
        delete: async (runId) => {
          for (const wait of await getWaits(store, runId)) left.set(wait.id, wait);
          return await store.delete(runId);
        },
        getWait: async (waitId) => await store.getWait(waitId) ?? left.get(waitId) ?? null,
      };
    }),
  },
  {
    name: "runs are purged too early",
    from: 3,
    rule: "a run is kept as long as was asked for",
    store: over((store) => ({
      purge: (retention, limit) =>
        store.purge(Object.fromEntries(Object.entries(retention).map(([status, ms]) => [status, ms / 2])), limit),
    })),
  },
  {
    name: "ids come again",
    rule: "an id is used once",
    host: (host) => {
      let ids = 0;
      return { ...host, newId: () => `id-${ids++}` };
    },
  },
  {
    name: "a trigger that is repeated is another",
    from: 7,
    rule: "what is repeated is carried out once",
    client: overClient((store) => {
      let triggers = 0;
      return {
        enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, id: `${run.id}-${triggers++}` }))),
      };
    }),
  },
];

/** The same ending with another message. */
function reworded(ending: Ending & { status: "failed" }): Ending {
  return { ...ending, failure: { ...ending.failure, message: "It fails" } };
}
