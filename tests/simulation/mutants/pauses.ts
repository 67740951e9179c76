import { ConflictError, WaitExpiredError } from "../../../src/model/error.ts";
import { pause as passTime } from "../../../src/model/host.ts";
import type { Store } from "../../../src/store/store.ts";
import type { NewPause } from "../../../src/store/pause_request.ts";
import type { PauseKind, PauseRecord } from "../../../src/model/wait.ts";
import { double, over, overClient } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";
import { getRun } from "../../../src/store/reads.ts";

/** Bugs of sleeps, waits, signals and deadlines. */
export const PAUSE_MUTANTS: readonly Mutant[] = [
  {
    name: "a signal is taken after its deadline",
    from: 22,
    rule: "a signal counts strictly before the deadline",
    store: (make, host) => {
      let lagMs = 0;
      const store = make({ ...host, now: () => host.now() - lagMs });
      return double(store, {
        signal: (waitId, signal) => {
          lagMs = 300;
          const outcome = store.signal(waitId, signal);
          lagMs = 0;
          return outcome;
        },
      });
    },
  },
  {
    name: "a deadline passes too early",
    rule: "a timeout comes at its deadline",
    store: (make, host) => {
      let leadMs = 0;
      const store = make({ ...host, now: () => host.now() + leadMs });
      return double(store, {
        claim: (request) => {
          leadMs = 40;
          const result = store.claim(request);
          leadMs = 0;
          return result;
        },
      });
    },
  },
  {
    name: "a deadline is half as far as it was asked for",
    rule: "a sleep takes as long as it was asked for",
    store: over((store) => ({
      pause: (lease, request) =>
        store.pause(lease, {
          ...request,
          pauses: request.pauses.map((pause) => ({
            ...pause,
            deadline: pause.deadline !== null && "afterMs" in pause.deadline
              ? { afterMs: pause.deadline.afterMs / 2 }
              : pause.deadline,
          })),
        }),
    })),
  },
  {
    name: "a deadline is worked out anew",
    rule: "nothing moves a deadline",
    store: (make, host) => {
      const store = make(host);
      return double(store, {
        readWaits: async (...place) => {
          const part = await store.readWaits(...place);
          const items = part?.items.map((wait) => {
            if (wait.deadlineAt === null || wait.status !== "pending") return wait;
            return { ...wait, deadlineAt: new Date(host.now() + 1_000).toISOString() };
          });
          return part && { ...part, items: items! };
        },
      });
    },
  },
  {
    name: "a run parks in two steps",
    rule: "preparing a wait and parking is one transaction",
    store: (make, host) => {
      const store = make(host);
      return double(store, {
        pause: async (lease, request) => {
          const first = await store.pause(lease, { ...request, park: false });
          if (!request.park || first.pauses.some(({ resolution }) => resolution !== null)) return first;
          await passTime(host, 30);
          const second = await store.pause(lease, { ...request, park: true });
          if (second.parked) return second;
          // It was signalled meanwhile: nobody looks again.
          const [pause] = request.pauses;
          if (pause === undefined) return second;
          const other = { ...pause, id: `${pause.id}-other`, name: `${pause.name}-other`, deadline: null };
          const { parked } = await store.pause(lease, { ...request, pauses: [other], retryAt: null });
          return { ...first, parked };
        },
      });
    },
  },
  {
    name: "two signals are accepted",
    rule: "a wait has one outcome",
    store: over((store) => ({
      signal: (waitId, signal) =>
        store.signal(waitId, signal).catch(async (error) => {
          const wait = error instanceof ConflictError ? await store.getWait(waitId) : null;
          if (wait?.status !== "resolved") throw error;
          const { id, jobName, labels } = (await getRun(store, wait.runId))!;
          return { wait: { ...wait, ...signal }, disposition: "accepted" as const, run: { id, jobName, labels } };
        }),
    })),
  },
  {
    name: "a receipt changes",
    rule: "a repeated signal gets its first receipt",
    store: over((store) => ({
      signal: async (waitId, signal) => {
        const outcome = await store.signal(waitId, signal);
        return outcome.disposition === "accepted" ? outcome : { ...outcome, wait: (await store.getWait(waitId))! };
      },
    })),
  },
  {
    name: "a job is given another payload",
    rule: "an accepted signal is its wait's one outcome",
    store: over((store) => ({
      claim: async (request) => {
        const result = await store.claim(request);
        return { ...result, claims: result.claims.map((claim) => ({ ...claim, pauses: claim.pauses.map(garbled) })) };
      },
      pause: async (lease, request) => {
        const result = await store.pause(lease, request);
        return { ...result, pauses: result.pauses.map(garbled) };
      },
    })),
  },
  {
    name: "a sleep begins anew when its run parks again",
    rule: "nothing moves a deadline",
    store: (make, host) => {
      const store = make(host);
      return double(store, {
        pause: async (lease, request) => {
          const result = await store.pause(lease, request);
          const pauses = result.pauses.map((pause) =>
            pause.kind === "sleep" && pause.resolution === null && pause.createdAt < host.now()
              ? { ...pause, deadlineAt: host.now() + 1_000 }
              : pause
          );
          return { ...result, pauses };
        },
      });
    },
  },
  {
    name: "sleepers wake late",
    rule: "a deadline wakes its run in time",
    database: (store, database) =>
      double(store, {
        pause: async (lease, request) => {
          const result = await store.pause(lease, request);
          if (result.parked) {
            database.prepare("UPDATE holdfast_runs SET timer_at = timer_at + 2000 WHERE id = ?").run(lease.runId);
          }
          return result;
        },
      }),
  },
  {
    name: "a signal comes too late, and the wait stays open",
    from: 24,
    rule: "who was too late once is so for ever",
    store: (make, host) => {
      const store = make(host);
      return double(store, { signal: refusingAt(store, (deadlineAt) => deadlineAt <= host.now()) });
    },
  },
  {
    name: "a signal that comes shortly before the deadline is too late",
    rule: "a signal counts strictly before the deadline",
    store: (make, host) => {
      const store = make(host);
      return double(store, { signal: refusingAt(store, (deadlineAt) => deadlineAt <= host.now() + 300) });
    },
  },
  {
    name: "a wait ends after a third of its time",
    rule: "a deadline is as far away as was asked for",
    client: overClient((store) => ({
      pause: (lease, request) => store.pause(lease, { ...request, pauses: request.pauses.map(lasting(1 / 3, "wait")) }),
    })),
  },
  {
    name: "a sleep takes three times as long",
    rule: "a deadline is as far away as was asked for",
    client: overClient((store) => ({
      pause: (lease, request) => store.pause(lease, { ...request, pauses: request.pauses.map(lasting(3, "sleep")) }),
    })),
  },
];

/** A signal that is told too late when the wait has a deadline for which `isOver` holds, without any change. */
function refusingAt(store: Store, isOver: (deadlineAt: number) => boolean): Store["signal"] {
  return async (waitId, signal) => {
    const wait = await store.getWait(waitId);
    const isRefused = wait?.status === "pending" && wait.deadlineAt !== null && isOver(Date.parse(wait.deadlineAt));
    if (isRefused) throw new WaitExpiredError(`The deadline of wait "${waitId}" has passed`);
    return await store.signal(waitId, signal);
  };
}

/** Makes pauses of a kind last longer or shorter than was asked for. */
function lasting(factor: number, kind: PauseKind): (pause: NewPause) => NewPause {
  return (pause) => {
    const { deadline } = pause;
    if (pause.kind !== kind || deadline === null || !("afterMs" in deadline)) return pause;
    return { ...pause, deadline: { afterMs: factor * deadline.afterMs } };
  };
}

/** A pause that another signal seems to have ended. */
function garbled(pause: PauseRecord): PauseRecord {
  const { resolution } = pause;
  return resolution?.outcome === "signal" ? { ...pause, resolution: { ...resolution, payload: "77" } } : pause;
}
