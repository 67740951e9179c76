/** What the examiner has read from the database: clients choose from it what to ask for. */
export interface Observations {
  /** How many runs have not ended. */
  unfinished: number;
  /** How many runs were asked for since. */
  triggered: number;
  /** Runs that have ended and were checked, latest last. */
  ended: { run: string; job: string; token: string }[];
}
