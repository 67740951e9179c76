import type { StrandedJob } from "../model/hold.ts";

/** Compares jobs by name, then by version. */
export function byNameAndVersion(one: StrandedJob, other: StrandedJob): number {
  if (one.jobName !== other.jobName) return one.jobName < other.jobName ? -1 : 1;
  return one.version - other.version;
}
