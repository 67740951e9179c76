import type { Cursor } from "../model/journal.ts";
import type { StoredRun } from "../model/run.ts";
import type { OriginText } from "../model/origin.ts";

/** A run and its position in the journal, read at one moment. */
export interface RunState {
  /** The run. */
  run: StoredRun;
  /** Its row number, by which facts name it. */
  seq: number;
  /** The end of the journal at that moment: later commits are not in this state. */
  place: Cursor;
  /** The trace of its trigger; `null`: it has none. */
  trace: OriginText | null;
  /** How often it was claimed: 1 before and during its first execution, one more after each interruption. */
  execution: number;
  /** What it has parked on, ended or not, in the order of preparation. */
  pauses: AwaitedPause[];
}

/**
 * Something that a run waits for: a wait, a sleep, or another attempt at a step. `Instant` is the type of its
 * instants.
 */
export interface AwaitedPause<Instant = string> {
  /** The id of the wait; `null` for a sleep or a step. */
  waitId: string | null;
  /** The name of the wait, the sleep or the step. */
  name: string;
  /** When it ends without a signal: ISO 8601 in UTC. */
  deadlineAt: Instant | null;
  /** How many children it waits for, and how many of them have not ended; left out if it waits for none. */
  children?: { total: number; unfinished: number };
}
