import type { Lease } from "../../../src/model/lease.ts";
import { Execution } from "../../../src/execution/execution.ts";
import { Slots } from "../../../src/execution/slots.ts";
import { RecordedHistory } from "../../../src/execution/replay/recorded_history.ts";
import { ReplayGuard } from "../../../src/execution/replay/replay_guard.ts";
import type { Host } from "../../../src/model/host.ts";
import type { Claim } from "../../../src/store/claim.ts";
import { MemoryRuns } from "../../../src/stores/memory/runs.ts";
import type { Plan } from "../plan.ts";
import { over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";
import { replace } from "./replace.ts";

// The guard waits for so long until it says that a run has diverged.
const QUIET_MS = 1_000;

/** Bugs that show when the code changes while runs are in flight. */
export const CHANGE_MUTANTS: readonly Mutant[] = [
  {
    name: "a run diverges at once",
    from: 49,
    rule: "I-D1: other branches may still be replayed",
    code: () => replace(Execution.prototype, "isQuietBut", () => () => true),
    host: withoutQuiet,
  },
  {
    name: "copies count as what the run itself has recorded",
    from: 492,
    rule: "I-D1: a retry may go another way than the run that failed",
    client: overClaims((claim) => ({ ...claim, copied: null })),
  },
  {
    name: "pauses are not counted",
    from: 5,
    rule: "I-D2: a wait under another name loses its signal",
    code: () => {
      const count = Object.getOwnPropertyDescriptor(RecordedHistory.prototype, "unaskedCount")!;
      Object.defineProperty(RecordedHistory.prototype, "unaskedCount", {
        ...count,
        get(this: RecordedHistory) {
          return this.unasked().filter(({ kind }) => kind === "step").length;
        },
      });
      return () => Object.defineProperty(RecordedHistory.prototype, "unaskedCount", count);
    },
  },
  {
    name: "what is new begins beside what is recorded",
    rule: "I-D2: what is recorded under a name is not executed under another",
    code: () => replace(ReplayGuard.prototype, "mustWait", () => () => false),
  },
  {
    name: "a run ends although its code has not asked for everything",
    rule: "I-D2: no run ends past what it has recorded",
    code: () => replace(ReplayGuard.prototype, "untilMayEnd", () => () => Promise.resolve()),
  },
  {
    name: "a step that was renamed between two attempts goes on under its new name",
    from: 109,
    rule: "I-D2: its key stays the same",
    code: () =>
      replace(RecordedHistory.prototype, "step", (step) =>
        function (name) {
          const record = step.call(this, name);
          return record === undefined ? undefined : { ...record, name };
        }),
  },
  {
    name: "a run parks beneath a step that waits to begin",
    from: 3,
    rule: "I-D3: what waits to begin keeps the run from parking",
    code: () => replace(ReplayGuard.prototype, "untilMayBegin", () => () => new Promise<void>(() => {})),
  },
  {
    name: "a hold is not fenced",
    from: 169,
    rule: "I2: who has lost its lease holds nothing",
    plan: withPauses,
    store: over((store) => {
      const newest = new Map<string, Lease>();
      return {
        claim: async (request) => {
          const result = await store.claim(request);
          for (const { lease } of result.claims) newest.set(lease.runId, lease);
          return result;
        },
        hold: async (lease, hold, reports) => {
          const run = (await store.getRunState(lease.runId))?.run;
          const isElsewhere = run?.status === "running" && run.leaseGeneration > lease.generation;
          await store.hold(isElsewhere ? newest.get(lease.runId)! : lease, hold, reports); // it was claimed
        },
      };
    }),
  },
  {
    name: "a signal is lost when a run is held",
    rule: "I-D4: an accepted signal survives a hold",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, claims: result.claims.map((claim) => claim.isResumed ? withoutSignals(claim) : claim) };
      },
    })),
  },
  {
    name: "held runs are never offered",
    rule: "I-D7: a deploy of code that fits frees held runs",
    client: overClient((store) => ({ claim: (request) => store.claim({ ...request, triesHeld: false }) })),
  },
  {
    name: "held runs are tried in all free slots",
    rule: "I-D8: trials take one slot in ten",
    code: () =>
      replace(Slots.prototype, "countTrials", () =>
        function () {
          return Math.max(0, this.free);
        }),
  },
  {
    name: "a claim takes held runs beside the others",
    rule: "I-D8: held runs come after all others",
    client: overClient((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        const limit = request.limit - result.claims.length;
        if (request.triesHeld || limit === 0) return result;
        const tried = await store.claim({ ...request, claimId: `${request.claimId} 2`, limit, triesHeld: true });
        return { ...result, claims: [...result.claims, ...tried.claims] };
      },
    })),
  },
  {
    name: "versions that the code goes on with are not claimed",
    rule: "I-D5: no run is stranded whose version the code goes on with",
    client: overClient((store) => ({
      claim: (request) => {
        const newest = Math.max(...request.jobs.map(({ version }) => version));
        return store.claim({ ...request, jobs: request.jobs.filter(({ version }) => version === newest) });
      },
    })),
  },
  {
    name: "a patch is forgotten",
    rule: "I-D6: a patch never flips",
    client: overClaims((claim) => ({ ...claim, pauses: claim.pauses.filter(({ kind }) => kind !== "patch") })),
  },
  {
    name: "the code seems new with each claim",
    rule: "I-D7: a held run is tried once by each code",
    client: overClient((store) => {
      let claims = 0;
      return {
        claim: (request) => {
          const jobs = request.jobs.map((job) => ({ ...job, print: `${job.print} ${claims}` }));
          claims += 1;
          return store.claim({ ...request, jobs });
        },
      };
    }),
  },
  {
    name: "a record does not let code try again",
    from: 49,
    rule: "I-D7: who has tried a held run tries it again after a signal",
    code: () =>
      replace(MemoryRuns.prototype, "touch", (touch) =>
        function (run, now) {
          if (run.hold !== null) run.tried.recordedNo = run.lastRecordedNo;
          touch.call(this, run, now);
        }),
  },
  {
    name: "a held run is due for the code that holds it",
    rule: "I-D7: a held run is tried once by each code",
    code: () =>
      replace(MemoryRuns.prototype, "hold", (hold) =>
        function (run, reason, now) {
          hold.call(this, run, reason, now);
          this.offer(run, reason.print);
        }),
  },
  {
    name: "a run that was to go on with what is new is held again",
    rule: "I-D7: who resumes a run decides that it goes on",
    plan: withResumptions,
    store: over((store) => ({ resumeHeld: (runId) => store.resumeHeld(runId, false) })),
  },
];

/** The store as a process sees it, which claims other histories. */
function overClaims(change: (claim: Claim) => Claim): NonNullable<Mutant["client"]> {
  return overClient((store) => ({
    claim: async (request) => {
      const result = await store.claim(request);
      return { ...result, claims: result.claims.map(change) };
    },
  }));
}

function withoutSignals(claim: Claim): Claim {
  const pauses = claim.pauses.map((pause) =>
    pause.resolution?.outcome === "signal" ? { ...pause, resolution: null } : pause
  );
  return { ...claim, pauses };
}

/** A host on which the time for which the guard waits has passed at once. */
function withoutQuiet(host: Host): Host {
  let aheadMs = 0;
  return {
    ...host,
    monotonic: () => host.monotonic() + aheadMs,
    schedule: (ms, callback) => {
      if (ms !== QUIET_MS) return host.schedule(ms, callback);
      return host.schedule(0, () => {
        aheadMs = QUIET_MS;
        callback();
        aheadMs = 0;
      });
    },
  };
}

/** Each held run is resumed to go on with what is new. */
function withResumptions(plan: Plan): Plan {
  const resumptions = Array.from({ length: 20 }, (_, no) => ({
    afterMs: 100 * no,
    request: { ask: "resume", which: (7 * no % 20) / 20, continues: true } as const,
  }));
  return { ...plan, changes: plan.changes === null ? null : { ...plan.changes, resumptions } };
}

/** Processes are suspended for longer than their leases, one after the other, while the others go on. */
function withPauses(plan: Plan): Plan {
  const pauses = Array.from({ length: 9 }, (_, no) => ({
    at: 700 + 350 * no,
    fault: { fault: "pause", process: no % 3, ms: plan.worker.staleThreshold + 500 } as const,
  }));
  return { ...plan, faults: [...plan.faults, ...pauses] };
}
