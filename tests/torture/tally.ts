/** What is counted in a storm, in the order in which it is told. */
export const TALLIED = [
  "kills",
  "suspensions",
  "graceful stops",
  "runs that ended",
  "runs that were deleted",
  "steps started",
  "steps recorded",
  "steps started again",
  "steps started by a zombie after they were recorded",
  "stale writes refused",
  "steps and waits replayed",
  "complaints of workers",
  "requests",
  "requests that were repeated",
  "requests without an answer",
  "triggers answered",
  "signals accepted",
  "signal receipts compared",
  "signals refused",
  "cancels confirmed",
  "retriggers",
  "streams read",
  "streams resumed",
  "streams read to the end of the run",
  "streams answered 204",
  "gaps told",
  "events received",
  "events compared with the journal",
  "facts in the journal",
  "trims of the journal",
  "power losses",
  "damaged copies opened",
  "copies opened with nothing to damage",
  "damaged copies drained",
  "copies opened with nothing to drain",
  "backups",
  "terminal runs compared again",
] as const;

/** Something that is counted. */
export type Tallied = typeof TALLIED[number];

/** How often things happened. */
export class Tally {
  readonly #counts = new Map<Tallied, number>();

  /** Counts. */
  add(what: Tallied, times = 1): void {
    this.#counts.set(what, this.get(what) + times);
  }

  /** How often something happened. */
  get(what: Tallied): number {
    return this.#counts.get(what) ?? 0;
  }
}
