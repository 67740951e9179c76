import type { RunStatus } from "../../../run.ts";

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
  start_by: number | null;
  finish_by: number | null;
}

/** Reads candidates that have a row of `holdfast_flow`. */
export const FLOW_CANDIDATE = `r.seq, r.id, f.job, r.status, f.position, r.concurrency_key, f.fairness_key,
  r.lease_generation, f.begun, r.flow, f.start_by, f.finish_by
  FROM holdfast_flow f JOIN holdfast_runs r ON r.seq = f.run_seq`;
