import type { Failure } from "../model/failure.ts";

// The numbers of the law: what all stores have to do alike. `SqliteStore` and `PostgresStore` compose their statements of
// them, and `MemoryStore` reads them.

/**
 * How many expired timers of each kind one claim processes, so that a thousand deadlines at once take several short
 * transactions.
 */
export const MAX_TIMERS = 40;

/** How many children of ended runs a claim passes over in the queues: the next claims cancel them. */
export const MAX_PASSED_OVER = 256;

/** How many held runs one claim offers, so that a claim is always short. */
export const MAX_OFFERS = 20;

/** How many held runs are counted, and how many unread messages. */
export const MAX_COUNTED_HELD = 10_000;

/** A run that kept its key over a retry delay comes this much before its position, and a held one this much after it. */
export const HEAD_START = 2 ** 52;

/** A run that cleans up after one with a concurrency key comes this much before its position: before all urgent runs. */
export const END_LEAD = 2 ** 50;

/** The position below which a run has kept its key. No other position comes near. */
export const LAST_KEPT = -HEAD_START / 2;

/** A start is kept this much longer than its rate counts it, in milliseconds: the clock may be set back. */
export const STARTS_KEPT_MS = 3_600_000;

/** How many starts, or fairness keys, that say nothing any more are removed at once. */
export const MAX_FORGOTTEN = 100;

/** How many runs are examined for each queue to tell when a rate opens: one of them can be behind a run of another job. */
export const MAX_BEFORE_OPENING = 8;

/** How many chunks of a stream are read at once. */
export const MAX_CHUNKS_READ = 512;

/** Of how many runs one purge deletes the items of their streams. */
export const MAX_PURGED_STREAMS = 200;

/** How many holders of a key are read to say what holds up a run. */
export const MAX_HOLDERS = 20;

/** How many runs of a queue are counted to say what holds up a run: those with a fairness key are not in order. */
export const MAX_COUNTED_READY = 5_000;

/**
 * How long a store remembers deleted runs, in milliseconds: an `enqueue` that is repeated after an unknown outcome
 * must not create them again.
 */
export const DELETED_RUNS_KNOWN_MS = 600_000;

/** How many lengths of its lease after its last claim a worker is still listed. */
export const LISTED_LEASES = 100;

/**
 * How long after its last hold the same code tries a run once more whose function ended early, in milliseconds: what it
 * threw may have come from outside.
 */
export const SECOND_TRY_MS = 60_000;

/** A run that was abandoned so many times in a row is claimed alone. */
export const ALONE_FROM = 2;

/** A run that is claimed alone waits for so large a part of a lease, times its abandonments but the first. */
export const ALONE_DELAY = 1 / 4;

/** How long a run waits before it is claimed alone, in milliseconds. `leaseMs`: the length of the lost lease. */
export function aloneDelayMs(abandonments: number, leaseMs: number): number {
  return Math.ceil((abandonments - 1) * leaseMs * ALONE_DELAY);
}

/** The failure of a run that was abandoned too many times in a row. */
export function abandonedFailure(abandonments: number): Failure {
  const message = `Abandoned ${abandonments} times in a row without recording anything: ` +
    "its worker keeps dying or stalling";
  return { kind: "abandoned", name: "Error", message, stack: null, cause: null };
}
