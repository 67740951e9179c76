import type { RunStatus } from "../../../model/run.ts";

/** A run that has passed the gates of its key and of its job. */
export interface Candidate {
  seq: number;
  id: string;
  /** Its queue. */
  job: string;
  status: RunStatus;
  position: number;
  concurrency_key: string | null;
  fairness_key: string | null;
  lease_generation: number;
  /** 1 if it was claimed before. */
  begun: number;
  /** 1 if it has a row of `holdfast_flow`. */
  flow: number | null;
}

/** Leaves out the runs that have missed a deadline: the timers fail them, a bounded number in each claim. */
export const IN_TIME = "(f.deadline_at IS NULL OR f.deadline_at > ?)";

/** Reads candidates that have a row of `holdfast_flow`. */
export const FLOW_CANDIDATE = `r.seq, r.id, f.job, r.status, f.position, r.concurrency_key, f.fairness_key,
  r.lease_generation, f.begun, r.flow
  FROM holdfast_flow f JOIN holdfast_runs r ON r.seq = f.run_seq`;
