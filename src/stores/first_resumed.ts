/** When a run first resumed after a wait that timed out; empty for other pauses. See `PauseRecord.firstResumedAt`. */
export function firstResumed(
  kind: string,
  outcome: string | null,
  at: number | null,
): { firstResumedAt?: number } {
  return kind === "wait" && outcome === "timeout" && at !== null ? { firstResumedAt: at } : {};
}
