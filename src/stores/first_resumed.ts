/** When a run first resumed after a wait that timed out; empty for other pauses. See `PauseRecord.firstResumedAt`. */
export function firstResumed(
  pause: { kind: string; outcome: string | null; first_resumed_at: number | null },
): { firstResumedAt?: number } {
  const { kind, outcome, first_resumed_at: at } = pause;
  return kind === "wait" && outcome === "timeout" && at !== null ? { firstResumedAt: at } : {};
}
