/**
 * How long a store remembers deleted runs, in milliseconds: an `enqueue` that is repeated after an unknown outcome
 * must not create them again.
 */
export const DELETED_RUNS_KNOWN_MS = 600_000;
