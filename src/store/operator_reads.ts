import type { JsonText } from "../values/json.ts";
import type { RunIdentity } from "../model/run.ts";
import type { Wait } from "../model/wait.ts";

/** Where the next open waits are: after the one with this deadline and this number. */
export interface OpenWaitPlace {
  /** Its deadline, in milliseconds; `null`: it has none. */
  deadlineAt: number | null;
  /** Its number. */
  seq: number;
}

/** An open wait, with its run. */
export interface OpenWaitRecord {
  /** The wait. */
  wait: Wait;
  /** Its run. */
  run: RunIdentity;
  /** The JSON schema of the payload that its run asks for; `null`: it is not known. */
  payloadSchema: JsonText | null;
  /** Where it is. */
  place: OpenWaitPlace;
}

/** A part of the open waits. */
export interface OpenWaits {
  /** The waits, the soonest deadline first, those without one last. */
  waits: OpenWaitRecord[];
  /** How many there are in all, counted up to 1,001. */
  total: number;
}

/** By what a search has found a run. */
export type FoundBy = "id" | "waitId" | "idempotencyKey" | "concurrencyKey" | "label";

/** A run that a search has found. */
export interface SearchHit {
  /** The run. */
  runId: string;
  /** By what. */
  by: FoundBy;
}
