import type { Rate } from "../model/flow.ts";
import type { RunStatus, StoredRun } from "../model/run.ts";
import type { HoldCode } from "../model/hold.ts";

// Instants are milliseconds by the store's clock.

/** What holds up a run, in the order in which a claim checks it, and what to act on first at the front. */
export interface RunBlockers {
  /** The run. */
  run: StoredRun;
  /** The reasons: at least one. */
  blockers: Blocker[];
  /** The current instant of the store's clock. */
  now: number;
}

/** A worker that a reason names. */
export interface BlockingWorker {
  /** Its id. */
  id: string;
  /** Its name in the options; `null`: it has none, or is not known any more. */
  name: string | null;
  /** The name of its machine; `null`: it is not known. */
  hostname: string | null;
  /** What identifies its code; `null`: it is not known. */
  deployment: string | null;
  /** When it claimed last; `null`: it is not known any more. */
  lastSeenAt: number | null;
}

/** A run that a reason names. */
export interface BlockingRun {
  /** Its id. */
  runId: string;
  /** The name of its job. */
  jobName: string;
  /** Its status. */
  status: RunStatus;
}

/** How many messages of a name a run has not received. */
export interface UnreadName {
  /** The name. */
  name: string;
  /** How many. */
  count: number;
}

/** A reason why a run is not executed, or that it is. */
export type Blocker =
  /** It has ended. */
  | { kind: "ended"; endedAt: number }
  /** It has ended, and no receive took these messages: how many, by their names, the name of the oldest one first. */
  | { kind: "unread"; messages: readonly UnreadName[] }
  /** A worker executes it. */
  | { kind: "executing"; worker: BlockingWorker; since: number; leaseExpiresAt: number }
  /** Its lease has expired: the next claim of a worker that has the job takes it over, or fails it. */
  | { kind: "worker_lost"; worker: BlockingWorker; leaseExpiresAt: number }
  /** The run that waited for it has ended: the next claim cancels it. */
  | { kind: "parent_ended"; runId: string }
  /** A deadline of its own has passed: the next claim fails it. */
  | { kind: "late"; deadline: "startBy" | "finishBy"; at: number }
  /**
   * It was abandoned so often in a row that it is claimed alone: not before `until`, or, `null`, by the next worker that
   * has its job and executes nothing.
   */
  | { kind: "alone"; abandonments: number; until: number | null }
  /** Its start has not come. */
  | { kind: "delayed"; until: number }
  /** It waits for a signal. */
  | { kind: "signal"; waitId: string; name: string; deadlineAt: number | null }
  /** It waits for a message of one of these names. `others`: how many unread messages have other names. */
  | {
    kind: "message";
    name: string;
    names: readonly string[];
    since: number;
    deadlineAt: number | null;
    others: number;
  }
  /** It sleeps. */
  | { kind: "sleep"; name: string; until: number }
  /** It waits for another attempt at a step. */
  | { kind: "retry"; stepName: string; attempts: number; error: string; at: number }
  /** It waits for a child run: the first that has not ended of `open` ones. */
  | { kind: "child"; child: BlockingRun; open: number }
  /** It is held: no code that has tried it fits what it has recorded. */
  | { kind: "held"; code: HoldCode; message: string; since: number }
  /** Its job is paused. */
  | { kind: "job_paused"; by: string | null; since: number; note: string | null }
  /** No worker is live. `lastSeenAt`: when the last one claimed; `null`: none is known. */
  | { kind: "no_worker"; lastSeenAt: number | null }
  /** No live worker has its job and version. `hasOtherVersion`: one has the job in another version. */
  | { kind: "unknown_job"; hasOtherVersion: boolean; lastKnownBy: BlockingWorker | null }
  /**
   * Its concurrency key is held by `holder`; `null`: the key is free, but an older run of it comes first. `ahead` runs
   * come before it in the queue of the key, counted up to 1,000.
   */
  | {
    kind: "key";
    holder: BlockingRun & { since: number; worker: BlockingWorker | null } | null;
    ahead: number;
  }
  /**
   * As many runs are executed, or have started, as a limit allows, or will with the `ahead` runs that come before it.
   * `rate` is set exactly if the limit is a rate.
   */
  | {
    kind: "limit";
    of: "job" | "key";
    inUse: number;
    max: number;
    ahead: number;
    rate: (Rate & { opensAt: number }) | null;
  }
  /** All slots are taken of the live workers that have its job, or will be by the `ahead` runs that come before it. */
  | { kind: "slots"; busy: number; total: number; ahead: number }
  /** Nothing holds it up: the next claim takes it. */
  | { kind: "due"; since: number };
