import type { FlowDefinition } from "../../../src/model/flow.ts";
import type { Run } from "../../../src/model/run.ts";
import type { Store } from "../../../src/store/store.ts";
import type { ClaimRequest, ClaimResult } from "../../../src/store/claim.ts";
import { MemoryKeys } from "../../../src/stores/memory/flow/concurrency_keys.ts";
import { DueRuns } from "../../../src/stores/memory/flow/due_runs.ts";
import { Gates } from "../../../src/stores/memory/flow/gates.ts";
import { MemoryRates } from "../../../src/stores/memory/flow/rates.ts";
import { type KeptRun, queueOf } from "../../../src/stores/memory/records.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { MemoryRuns } from "../../../src/stores/memory/runs.ts";
import { MemoryTurns } from "../../../src/stores/memory/flow/fairness_turns.ts";
import { JOB_NAMES, type Plan, PROCESS_NAMES } from "../plan.ts";
import { over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";
import { replace } from "./replace.ts";
import { getPausedJobs, getRuns } from "../../../src/store/reads.ts";

/** Bugs of limits, rates, delays, priorities, turns, deadlines and pauses of jobs. */
export const FLOW_MUTANTS: readonly Mutant[] = [
  {
    name: "a paused job goes on",
    from: 14,
    rule: "F1: no run of a paused job is claimed",
    store: over(() => ({
      pauseJob: (jobName, { by, note }) => Promise.resolve({ jobName, since: new Date(0).toISOString(), by, note }),
    })),
  },
  {
    name: "a delayed run starts at once",
    rule: "F1: nothing begins before its start",
    code: () =>
      replace(MemoryRuns.prototype, "add", (add) =>
        function (...parameters) {
          const run = add.apply(this, parameters);
          run.dueAt = null;
          return run;
        }),
  },
  {
    name: "a job takes a run more than its limit",
    rule: "F2: leases of a job are no more than its limit",
    plan: withJobs({ limits: { concurrency: 2 } }),
    store: over((store) => ({
      claim: (request) =>
        store.claim({
          ...request,
          jobs: request.jobs.map((job) => ({ ...job, concurrency: job.concurrency === null ? null : 3 })),
        }),
    })),
  },
  {
    name: "a run that the limit of its job holds back keeps its key from others",
    from: 65,
    rule: "F5: a run holds up no other of its key while the limit or the rate of its job holds it back",
    plan: (plan) => withOtherJobs(withJobs({ limits: { concurrency: 1 } })(plan)),
    code: () => replace(Gates.prototype, "isHeldBack", () => () => false),
  },
  {
    name: "a cancelled run gives its place up at once",
    from: 5,
    rule: "F2: a place is kept until the worker has noticed the cancel",
    plan: withJobs({ limits: { concurrency: 1 } }),
    code: () =>
      replace(MemoryKeys.prototype, "keep", (keep) =>
        function (ghost) {
          if (ghost.concurrencyKey !== null) keep.call(this, ghost);
        }),
  },
  {
    name: "a key is given to a run more than its limit",
    from: 6,
    rule: "F2: fewer runs hold a key than the next one allows",
    plan: withJobs({ limits: { perKey: { concurrency: 2 } } }),
    store: over((store) => ({
      enqueue: (runs) =>
        store.enqueue(
          runs.map((run) => ({ ...run, flow: { ...run.flow, keyConcurrency: run.flow.keyConcurrency + 1 } })),
        ),
    })),
  },
  {
    name: "a holder of a key does not count that shares it",
    from: 6,
    rule: "F2: a run that wants a key alone waits for all that share it",
    code: () =>
      replace(MemoryKeys.prototype, "countOthers", (count) =>
        function (run) {
          const others = count.call(this, run);
          const { keyConcurrency } = (run as KeptRun).flow;
          return keyConcurrency === 1 && others > 1 ? 0 : others;
        }),
    plan: withSharedKeys,
  },
  {
    name: "a rate allows a start more",
    rule: "F3: in each window no more runs of a job start than its limit",
    plan: withJobs({ limits: { rate: { limit: 1, period: 200 } } }),
    store: over((store) => ({
      claim: (request) =>
        store.claim({
          ...request,
          jobs: request.jobs.map((job) => ({ ...job, rate: job.rate && { ...job.rate, limit: job.rate.limit + 1 } })),
        }),
    })),
  },
  {
    name: "the window of a rate is short",
    rule: "F3: a window lasts for a period",
    code: () =>
      replace(MemoryRates.prototype, "opensAt", (opensAt) =>
        function (scope, rate) {
          return opensAt.call(this, scope, { ...rate, period: rate.period * 0.8 });
        }),
  },
  {
    name: "the rate of a key allows a start more",
    rule: "F3: in each window no more runs of a key start than its limit",
    plan: withJobs({ limits: { perKey: { rate: { limit: 1, period: 200 } } } }),
    store: over((store) => ({
      enqueue: (runs) =>
        store.enqueue(runs.map((run) => {
          const { keyRate } = run.flow;
          return { ...run, flow: { ...run.flow, keyRate: keyRate && { ...keyRate, limit: keyRate.limit + 1 } } };
        })),
    })),
  },
  {
    name: "priorities are ignored",
    rule: "F4: runs go by position",
    code: () => {
      const old = Object.getOwnPropertyDescriptor(DueRuns.prototype, "inOrder")!;
      const get = function (this: DueRuns): readonly KeptRun[] {
        return [...old.get!.call(this) as KeptRun[]].sort((left, right) => left.seq - right.seq);
      };
      Object.defineProperty(DueRuns.prototype, "inOrder", { ...old, get });
      return () => Object.defineProperty(DueRuns.prototype, "inOrder", old);
    },
  },
  {
    name: "fairness keys take no turns",
    from: 19,
    rule: "F4: no key is served again and again while another one waits",
    plan: withFairness,
    code: () => replace(MemoryTurns.prototype, "serve", () => function () {}),
  },
  {
    name: "a fairness key that comes back has saved its turns up",
    from: 19,
    rule: "F4: who comes back joins the current turn",
    plan: withFairness,
    code: () => {
      const served = new Map<string | null, number>();
      const stops = [
        replace(MemoryTurns.prototype, "serve", () =>
          function ({ flow: { fairnessKey } }) {
            served.set(fairnessKey, (served.get(fairnessKey) ?? 0) + 1);
          }),
        replace(MemoryTurns.prototype, "of", () => ({ flow: { fairnessKey } }) => served.get(fairnessKey) ?? 0),
      ];
      return () => stops.forEach((stop) => stop());
    },
  },
  {
    name: "a run that is behind another job holds up its fairness key",
    rule: "F5: who waits for a concurrency key does not keep others of its fairness key from their turn",
    plan: (plan) => withOneFairnessKey(withSharedKeys(plan)),
    code: () => {
      let passed: readonly KeptRun[] = [];
      const groupOf = (run: KeptRun) => JSON.stringify([queueOf(run), run.flow.fairnessKey]);
      const stops = [
        replace(MemoryTurns.prototype, "update", (update) =>
          function (runs) {
            passed = runs;
            update.call(this, runs);
          }),
        replace(Gates.prototype, "opensAt", (opensAt) =>
          function (run) {
            const { flow: { fairnessKey } } = run;
            const first = fairnessKey === null ? run : passed.find((other) => groupOf(other) === groupOf(run)) ?? run;
            return opensAt.call(this, first) === Infinity ? Infinity : opensAt.call(this, run);
          }),
      ];
      return () => stops.forEach((stop) => stop());
    },
  },
  {
    name: "a parked run keeps its place under the limit of its job",
    rule: "F5: what waits holds nothing",
    plan: withJobs({ limits: { concurrency: 1 } }),
    code: () =>
      replace(MemoryRuns.prototype, "park", (park) =>
        function (run, awaited, retryAt, now) {
          park.call(this, run, awaited, retryAt, now);
          const { id: runId, jobName, generation, claimId } = run;
          this.keys.keep({
            runId,
            jobName,
            generation,
            claimId: claimId!,
            concurrencyKey: null,
            expiresAt: now + 1_000,
          });
        }),
  },
  {
    name: "a claim is told too late when it has to look again",
    rule: "F5: a claim says when the next run may go, or something expires",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, nextTimerAt: result.nextTimerAt === null ? null : result.nextTimerAt + 20 };
      },
    })),
  },
  {
    name: "a rate holds back what has begun",
    rule: "F5: a rate counts first starts, and holds back nothing else",
    plan: withJobs({ limits: { rate: { limit: 1, period: 700 } } }),
    code: () =>
      replace(Gates.prototype, "rateOpensAt", (opensAt) =>
        function (run) {
          return opensAt.call(this, { ...run, startedAt: null });
        }),
  },
  {
    name: "a clock that is set back closes a rate",
    rule: "F5: a start in the future becomes one of now",
    plan: (plan) => {
      const jump: Plan["faults"][number] = { at: 2_000, fault: { fault: "jump", ms: -3_000 } };
      return { ...withJobs({ limits: { rate: { limit: 1, period: 200 } } })(plan), faults: [...plan.faults, jump] };
    },
    code: () => replace(MemoryRates.prototype, "update", () => function () {}),
  },
  {
    name: "a worker fails a run before its deadline",
    rule: "F8: a run fails as late only if it is",
    client: overClient((store) => ({ claim: withDeadlines(store, (finishInMs) => Math.max(0, finishInMs - 30)) })),
  },
  {
    name: "a late run goes on",
    rule: "F8: nothing is recorded in a run after its end",
    client: overClient((store) => ({ claim: withDeadlines(store, () => null) })),
  },
  {
    name: "the deadline of a run begins anew when it resumes",
    rule: "F8: the deadline of a run never moves",
    store: over((store) => ({
      claim: withDeadlines(store, (finishInMs, startedAgoMs) => finishInMs + startedAgoMs),
    })),
  },
  {
    name: "an engine waits for half of the delay of a retry",
    rule: "F9: an attempt begins no earlier than its delay after the one before",
    client: overClient((store) => ({
      saveStep: async (...parameters) => {
        const saved = await store.saveStep(...parameters);
        return { ...saved, retry: saved.retry && { ...saved.retry, inMs: saved.retry.inMs / 2 } };
      },
    })),
  },
  {
    name: "a paused job makes workers spin",
    from: 13,
    rule: "F12: a system in which nothing changes is quiet",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        const isPaused = (await getPausedJobs(store)).length > 0;
        return isPaused && hasTaken(result) ? { ...result, nextTimerAt: result.now } : result;
      },
    })),
  },
  {
    name: "a delayed run makes workers spin",
    rule: "F12: a system in which nothing changes is quiet",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        const { runs } = await getRuns(store, { status: "pending" });
        const isDelayed = runs.some(({ startAt }: Run) => startAt !== null && Date.parse(startAt) > result.now);
        return isDelayed && hasTaken(result) ? { ...result, hasMore: true } : result;
      },
    })),
  },
  {
    name: "a run is claimed that was to start before",
    rule: "F1: nothing begins after it was to start",
    plan: withJobs({ startWithin: 60, limits: { concurrency: 1 } }),
    store: withBlindClaims("startWithin", () => true),
  },
  {
    name: "a run that waits does not fail when it is late",
    rule: "F8: a run that waits has to end in time, too",
    plan: withJobs({ finishWithin: 300 }),
    store: withBlindClaims("finishWithin", ({ status }) => status === "waiting"),
  },
  {
    name: "a run of a paused job holds up its key",
    from: 37,
    rule: "F5: a paused job holds up nobody",
    code: () => {
      let runs: MemoryRuns | undefined;
      const paused = new Set<string>();
      const stops = [
        replace(MemoryRuns.prototype, "add", (add) =>
          function (...parameters) {
            runs = this;
            return add.apply(this, parameters);
          }),
        replace(MemoryStore.prototype, "pauseJob", (pause) =>
          function (jobName, by) {
            paused.add(jobName);
            return pause.call(this, jobName, by);
          }),
        replace(MemoryStore.prototype, "resumeJob", (resume) =>
          function (jobName) {
            paused.delete(jobName);
            return resume.call(this, jobName);
          }),
        replace(Gates.prototype, "opensAt", (opensAt) =>
          function (run) {
            const isBehind = runs!.open.some(({ concurrencyKey, seq, jobName, status, dueAt }) =>
              concurrencyKey === run.concurrencyKey && seq < run.seq && paused.has(jobName) && status === "pending" &&
              dueAt === null
            );
            return run.concurrencyKey !== null && isBehind ? Infinity : opensAt.call(this, run);
          }),
      ];
      return () => stops.forEach((stop) => stop());
    },
  },
  {
    name: "a trigger forgets its priority",
    rule: "I12: a run has the options of its trigger",
    client: overClient((store) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, flow: { ...run.flow, priority: 0 } }))),
    })),
  },
  {
    name: "a trigger forgets when the run has to end",
    from: 2,
    rule: "I12: a run has the options of its trigger",
    client: overClient((store) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, flow: { ...run.flow, finishWithin: null } }))),
    })),
  },
];

/** A store whose claims do not see a deadline of some runs. */
function withBlindClaims(
  deadline: "startWithin" | "finishWithin",
  isBlind: (run: KeptRun) => boolean,
): NonNullable<Mutant["store"]> {
  return (make, host) => {
    let isClaiming = false;
    const stop = replace(MemoryRuns.prototype, "add", (add) =>
      function (...parameters) {
        const run = add.apply(this, parameters);
        const ms = run.flow[deadline];
        const get = () => isClaiming && isBlind(run) ? null : ms;
        run.flow = Object.defineProperty({ ...run.flow }, deadline, { enumerable: true, get });
        return run;
      });
    return over((store) => ({
      claim: async (request) => {
        isClaiming = true;
        const claimed = store.claim(request); // done when it returns, for a MemoryStore
        isClaiming = false;
        const result = await claimed;
        return { ...result, nextTimerAt: result.now + 20 }; // which is not what is wrong
      },
      close: () => (stop(), store.close()),
    }))(make, host);
  };
}

/** Whether a claim had room, and found nothing. */
function hasTaken({ claims, failed }: ClaimResult): boolean {
  return claims.length + failed.length === 0;
}

/** A `claim` that says something else about when its runs have to end. */
function withDeadlines(store: Store, change: (finishInMs: number, startedAgoMs: number) => number | null) {
  return async (request: ClaimRequest): Promise<ClaimResult> => {
    const result = await store.claim(request);
    const claims = result.claims.map((claim) => ({
      ...claim,
      finishInMs: claim.finishInMs === null ? null : change(claim.finishInMs, claim.startedAgoMs),
    }));
    return { ...result, claims };
  };
}

/** A plan in which all jobs have this definition. */
function withJobs(definition: FlowDefinition): (plan: Plan) => Plan {
  const both = [definition, definition] as const;
  return (plan) => ({ ...plan, flow: { ...plan.flow!, jobs: { imports: both, reports: both, mails: both } } });
}

/** A plan in which all jobs but one share their concurrency keys. */
function withSharedKeys(plan: Plan): Plan {
  const [shared, alone] = [{ limits: { perKey: { concurrency: 3 } } }, { limits: {} }];
  const jobs = { imports: [shared, shared], reports: [shared, shared], mails: [alone, alone] } as const;
  return { ...plan, flow: { ...plan.flow!, jobs } };
}

/** A plan in which all runs have one fairness key, and half of them one concurrency key. */
function withOneFairnessKey(plan: Plan): Plan {
  const requests = plan.requests.map((planned, no) => {
    const { request } = planned;
    if (request.ask !== "trigger") return planned;
    const options = {
      ...request.options,
      fairnessKey: "tenant",
      ...(no % 2 === 0 ? { concurrencyKey: "shared" } : {}),
    };
    return { ...planned, manner: null, request: { ...request, options } };
  });
  return { ...plan, requests };
}

/** A plan with several fairness keys, and little room. */
function withFairness(plan: Plan): Plan {
  const requests = plan.requests.map((planned, no) => {
    const { request } = planned;
    if (request.ask !== "trigger") return planned;
    const options = { ...request.options, fairnessKey: `tenant-${no % 3}` };
    return { ...planned, manner: null, request: { ...request, options } };
  });
  const limited = withJobs({ limits: { concurrency: 1 } })(plan);
  return { ...limited, requests, worker: { ...plan.worker, concurrency: 1 } };
}

/** Lets each process know other jobs, from the beginning. */
function withOtherJobs(plan: Plan): Plan {
  const stops = PROCESS_NAMES.map((_, process) => {
    const fault = { fault: "stop", process, timeout: 0, downMs: 1, without: JOB_NAMES[process]!, version: 1 } as const;
    return { at: 1, fault };
  });
  return { ...plan, faults: [...plan.faults.filter(({ fault }) => fault.fault !== "stop"), ...stops] };
}
