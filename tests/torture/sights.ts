/** What the examiner saw last: what a client may look for. */
export interface Sights {
  /** How many runs have not ended. */
  unfinished: number;
  /** How many runs were asked for since. */
  triggered: number;
  /** Runs that have ended and were checked, latest last. */
  ended: { run: string; job: string; token: string }[];
}
