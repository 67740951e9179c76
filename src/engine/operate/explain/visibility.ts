/** What may be shown to the one who asks. */
export interface Visibility {
  /** Whether workers may be named. */
  workers: boolean;
  /** Whether a run may be named. */
  mayRead(runId: string): boolean;
}

/** Shows everything. */
export const ALL_VISIBLE: Visibility = { workers: true, mayRead: () => true };
