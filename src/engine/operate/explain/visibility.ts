import type { Blocker } from "../../../store/blockers.ts";

/** What may be shown to the one who asks. */
export interface Visibility {
  /** Whether workers may be named. */
  workers: boolean;
  /** Of which runs the numbers may be shown: of all, of those with the key of the run, or of none. */
  counts: "all" | "key" | "none";
  /** Whether a run may be named. */
  mayRead(runId: string): boolean;
}

/** Shows everything. */
export const ALL_VISIBLE: Visibility = { workers: true, counts: "all", mayRead: () => true };

/** A reason with numbers of runs. */
export type Counting = Extract<Blocker, { ahead: number }>;

/** Whether the numbers of a reason may be shown. */
export function mayCount(blocker: Counting, { counts }: Visibility): boolean {
  return counts === "all" || (counts === "key" && (blocker.kind === "key" || "of" in blocker && blocker.of === "key"));
}
