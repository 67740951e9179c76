/**
 * How long a store knows which runs were deleted, in milliseconds: an `enqueue` that is repeated after an unknown
 * outcome must not make them anew.
 */
export const DELETED_RUNS_KNOWN_MS = 600_000;
