import type { ActivityCursor } from "./store.ts";

/**
 * For how long runs that have ended or fallen asleep stay in the answers of `Store.getActivity()`, in milliseconds: as
 * long as it may take from reading the clock to the commit.
 */
export const ACTIVITY_LASTS_MS = 5_000;

/**
 * When runs have ended or fallen asleep of which a list has news: spans of the store's clock, both ends included.
 *
 * Two of them after the clock was set back: what came right before that is news, and what comes after it, but not all
 * that had happened in between when the clock showed these hours for the first time.
 */
export function newsSpans(since: ActivityCursor | null, now: number): { from: number; to: number }[] {
  const at = since?.at ?? now;
  const spans = at <= now ? [[at, now] as const] : [[now, now] as const, [at, at] as const];
  return spans.map(([from, to]) => ({ from: from - ACTIVITY_LASTS_MS, to: to + ACTIVITY_LASTS_MS }));
}
