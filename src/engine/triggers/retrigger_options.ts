import { ValidationError } from "../../model/error.ts";
import type { ActorOptions } from "../../model/origin.ts";
import type { RetriggerFrom } from "../../model/run.ts";

/** How a run is triggered again. */
export interface RetriggerOptions extends ActorOptions {
  /**
   * `start` (default): from the beginning. `failure`: with the completed steps, finished sleeps, resolved waits and
   * completed children of the old run; a wait whose answer or timeout is the last record, and after which the run has not parked, is prepared again, and children
   * that failed are retried from their failure. The steps keep their `idempotencyKey`.
   */
  from?: RetriggerFrom;
}

/** The names of the options of a retrigger. */
export const RETRIGGER_OPTIONS: Record<keyof RetriggerOptions, true> = { from: true, by: true };

/** Checks where a retry begins. */
export function checkFrom({ from = "start" }: RetriggerOptions): RetriggerFrom {
  if (from === "start" || from === "failure") return from;
  throw new ValidationError('from must be "start" or "failure"');
}
