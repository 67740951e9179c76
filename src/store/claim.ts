import type { Report } from "../model/execution_report.ts";
import type { Failure, FailureKind } from "../model/failure.ts";
import type { KnownJob } from "../model/flow.ts";
import type { JsonText } from "../values/json.ts";
import type { Lease } from "../model/lease.ts";
import type { RunIdentity } from "../model/run.ts";
import type { ExecutingStep, StepRecord } from "../model/step.ts";
import type { OriginText } from "../model/origin.ts";
import type { PauseRecord, ResumedPause } from "../model/wait.ts";
import type { CopiedHistory } from "./hold_record.ts";
import type { WorkerDetails } from "./operate.ts";

/** A worker's request for runs. */
export interface ClaimRequest {
  /** The id of the worker; never reused. */
  workerId: string;
  /** What the worker says of itself. */
  worker: WorkerDetails;
  /** Identifies a repeated call: unique among the claims of the worker. */
  claimId: string;
  /** The jobs that the worker knows. */
  jobs: readonly KnownJob[];
  /**
   * The leases that the worker holds. Those that expired while it was blocked are extended instead of being revoked.
   */
  holding: readonly Lease[];
  /** The maximum number of runs. With 0 only the timers are processed. */
  limit: number;
  /** Whether held runs are claimed, to try whether the code fits them now, and no others; otherwise none of them is. */
  triesHeld: boolean;
  /**
   * Whether to claim runs that are claimed alone, and no others. The worker holds nothing then, and claims nothing more
   * until the run has recorded something, or its execution has ended.
   */
  isAlone: boolean;
  /** How long the leases last unless renewed, in milliseconds. */
  leaseMs: number;
  /**
   * A run fails if its lease expires this many times in a row with nothing recorded in between, those times not counted
   * when its worker held other runs.
   */
  maxAbandonments: number;
}

/** The result of a claim. */
export interface ClaimResult {
  /** The claimed runs, in the order in which they were claimed. */
  claims: Claim[];
  /** Runs that failed: they were abandoned too often, or a deadline passed. */
  failed: { run: RunIdentity; error: string; failureKind: FailureKind }[];
  /** Child runs that were cancelled because the run that waited for them has ended. */
  cancelled: RunIdentity[];
  /**
   * When the next timer expires, by the store's clock; `null` if there is none. Timers are all leases, the deadlines
   * and retries that waiting runs wait for, the starts of delayed runs, the deadlines of runs (`startBy`, `finishBy`),
   * the keys that cancelled runs hold, their places under limits of this worker, and the openings of rates that hold up
   * a run that this worker could claim otherwise, if it can claim no other at once.
   */
  nextTimerAt: number | null;
  /** Whether there is more to do at once than this call did; with a `limit` of 0, `false` may be wrong. */
  hasMore: boolean;
  /**
   * Since when a run is due that is claimed alone, and whose job the worker has; `null`: none is, or the worker holds
   * runs, and another live one whose id comes first has the job, too. A run does not count while it is blocked by its
   * key, unless the worker knows a limit of its job: others that the limit does not hold back can take the key each time.
   */
  aloneSince: number | null;
  /** Whether a run is held, of whatever job: otherwise a claim with `triesHeld` finds none. */
  hasHeld: boolean;
  /** The current instant of the store's clock. */
  now: number;
}

/** A claimed run, with its history for the replay. */
export interface Claim {
  /** Its identity. */
  run: RunIdentity;
  /** The right to write to it. */
  lease: Lease;
  /** When the lease expires unless it is renewed, by the store's clock. */
  leaseExpiresAt: number;
  /** The input that the job's function receives. */
  input: JsonText | null;
  /** 1 for the first execution, one more after each interruption. Parking is no interruption. */
  execution: number;
  /** How long ago its function was first called, in milliseconds. */
  startedAgoMs: number;
  /**
   * How long it was due when its function was first called, in milliseconds: since its trigger, or its delayed start.
   * `null`: it was called before this claim.
   */
  startDelayMs: number | null;
  /** Its priority, which its children inherit. */
  priority: number;
  /** Its fairness key, which its children inherit. */
  fairnessKey: string | null;
  /** How many parents it has above it: 0 for a run that is no child. */
  depth: number;
  /** The slot of its schedule; `null`: no schedule has made it. ISO 8601 in UTC. */
  slotAt: string | null;
  /** What the engine has stored of the slot; `null`: nothing. */
  slot: JsonText | null;
  /** The trace of its trigger; `null`: it has none. */
  trace: OriginText | null;
  /** How long until the run fails as `timeout`, in milliseconds; `null`: it has no `finishWithin`. */
  finishInMs: number | null;
  /**
   * The `finishWithin` of the run, for its failure. Left out: it follows from `startedAgoMs` and `finishInMs`, which is
   * right unless the clock was set back since the start, or the claim was repeated after the deadline.
   */
  finishWithin?: number | null;
  /** The version of the job that triggered the run. */
  version: number;
  /** The print of the schema that parsed its input; `null`: the schema had none. */
  schemaPrint: string | null;
  /** Whether it was held until this claim. */
  isResumed: boolean;
  /** Whether somebody has resumed the run with `onDivergence: "continue"`: then it is never held again. */
  continues: boolean;
  /** What it has as copies; `null`: it is no retry from the failure. */
  copied: CopiedHistory | null;
  /** The first run of the chain of retries from the failure to which the run belongs; its own id without one. */
  originId: string;
  /** The recorded steps, in any order. */
  steps: StepRecord[];
  /** All its waits and sleeps, in the order in which they were prepared. */
  pauses: PauseRecord[];
  /** Those of them that the run had parked on and has resumed after, now or earlier. */
  resumed: ResumedPause[];
}

/** A lease to extend. */
export interface Renewal {
  /** The lease. */
  lease: Lease;
  /** The reports of the execution since the last acknowledged write. */
  reports: readonly Report[];
}

/** An execution that a cancel ends. */
export interface CancelledExecution {
  /** Its lease: if that is lost, nothing of the execution is stored. */
  lease: Lease;
  /** The steps that are being executed. */
  steps: readonly ExecutingStep[];
  /** Its reports since the last acknowledged write. */
  reports: readonly Report[];
}

/** How a run ends, other than by a cancel. */
export type Ending =
  | { status: "completed"; output: JsonText | null; durationMs: number }
  | {
    status: "failed";
    failure: Failure;
    failedStepName: string | null;
    /** Functions of the run may still run: like a cancelled one, it keeps its concurrency key until its lease is released. */
    stillExecuting?: true;
  };
