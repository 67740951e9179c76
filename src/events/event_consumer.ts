import type { RunEvent } from "../model/event.ts";
import type { Cursor } from "../model/journal.ts";
import type { RunIdentity } from "../model/run.ts";

/** Receives the events of a run, or of all runs that it chooses, in the order of the journal. */
export interface EventConsumer {
  /** The row number of the run; `null`: the runs that {@linkcode EventConsumer.follows} chooses, without their steps. */
  readonly runSeq: number | null;
  /** Fires when it unsubscribes. */
  readonly abortSignal: AbortSignal;
  /** Whether it receives the events of a run; only used if it follows several runs. */
  follows(run: RunIdentity): boolean;
  /** Receives the next event. */
  next(event: RunEvent): void;
  /** Called when it has received all its events of a row. */
  reach(place: Cursor): void;
  /** Called when there are no more events, with the error if there was one. */
  end(error?: unknown): void;
  /** While it catches up: resolves when it can receive so many bytes more (default 0); `null`: it can. */
  ready(bytes?: number): Promise<void> | null;
}
