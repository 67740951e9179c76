import type { RunEvent } from "../event.ts";
import type { Cursor } from "../journal.ts";
import type { RunIdentity } from "../run.ts";

/** Receives the events of a run, or of all runs that it chooses, in the order of the journal. */
export interface Follower {
  /** The row number of the run; `null`: all runs that {@linkcode Follower.follows} chooses, without their steps. */
  readonly runSeq: number | null;
  /** Fires when it wants nothing more. */
  readonly abortSignal: AbortSignal;
  /** Whether it follows a run, if it does not follow a single one. */
  follows(run: RunIdentity): boolean;
  /** Receives the next event. */
  next(event: RunEvent): void;
  /** Is called when it has received all events of a row that had some for it. */
  reach(place: Cursor): void;
  /** Is called when no more events come, with the error if something went wrong. */
  end(error?: Error): void;
  /** Resolves when it can take more, while it catches up. */
  ready(): Promise<void>;
}
