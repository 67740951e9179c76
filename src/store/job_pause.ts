/** The pause of a job. */
export interface JobPause {
  /** The name of the job. */
  jobName: string;
  /** Since when it is paused: ISO 8601 in UTC. */
  since: string;
  /** Who has paused it; `null`: nobody said so. */
  by: string | null;
  /** Why; `null`: nobody said so. */
  note: string | null;
}
