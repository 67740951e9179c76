import type { JsonText } from "../values/json.ts";
import type { RunIdentity, RunStatus } from "../model/run.ts";
import type { Wait } from "../model/wait.ts";
import type { Failure } from "../model/failure.ts";

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

// Instants are milliseconds by the store's clock.

/** Where the next part of a timeline begins: how many records of each kind come before it. */
export interface TimelinePlace {
  /** Steps, in the order of their index. */
  steps: number;
  /** Pauses, in the order of their preparation. */
  pauses: number;
  /** Interrupted executions, in their order. */
  interruptions: number;
}

/** A part of the records of a run, for its timeline. Each list has up to as many records as asked for. */
export interface TimelineRecords {
  /** The run. */
  run: TimelineRun;
  /** The steps after the place, with their failed attempts. */
  steps: TimelineStep[];
  /** The waits, sleeps and pauses on children after the place. */
  pauses: TimelinePause[];
  /** The executions after the place that lost their lease without an end. */
  interruptions: Interruption[];
  /** How many records of each kind the run has. */
  totals: TimelinePlace;
  /** The current instant. */
  now: number;
}

/** What a timeline needs to know of its run. */
export interface TimelineRun {
  /** Its id. */
  id: string;
  /** Its status. */
  status: RunStatus;
  /** When it was triggered. */
  createdAt: number;
  /** Who triggered it. */
  triggeredBy: string | null;
  /** Not claimed before this instant. */
  startAt: number | null;
  /** When it was claimed first. */
  startedAt: number | null;
  /** When it ended. */
  completedAt: number | null;
  /** Who cancelled it. */
  cancelledBy: string | null;
}

/** A step of a timeline. */
export interface TimelineStep {
  /** Its name, with its occurrence. */
  name: string;
  /** How it ended; `retrying`: it waits for another attempt. */
  status: "completed" | "failed" | "cancelled" | "retrying";
  /** How many attempts have ended. */
  attempts: number;
  /** When its first attempt began. */
  startedAt: number;
  /** When its last attempt ended; `null`: another one follows. */
  completedAt: number | null;
  /** Its latest failure; `null`: it has not failed. */
  error: string | null;
  /** When its next attempt may begin; `null`: none follows. */
  retryAt: number | null;
  /** When its last attempt began; `null`: that is not known. */
  lastStartedAt: number | null;
  /** The failed attempts that another one followed, or is to follow, in their order. */
  failedAttempts: FailedAttempt[];
}

/** A failed attempt that another one followed. */
export interface FailedAttempt {
  /** Its number, from 1. */
  attempt: number;
  /** When it began. */
  startedAt: number;
  /** When it ended. */
  endedAt: number;
  /** When the next one could begin. */
  retryAt: number;
  /** What it failed of. */
  error: string;
}

/** A pause of a timeline. */
export interface TimelinePause {
  /** What it waits for. */
  kind: "wait" | "sleep" | "children" | "receive";
  /** Its id. */
  id: string;
  /** Its name, with its occurrence. */
  name: string;
  /** Its status. */
  status: "pending" | "resolved" | "cancelled" | "closed";
  /** What resolved it. */
  outcome: "signal" | "timeout" | "children" | "messages" | null;
  /** Who signalled. */
  signalledBy: string | null;
  /** When it was prepared. */
  createdAt: number;
  /** When the run first paused on it. */
  suspendedAt: number | null;
  /** When it was resolved. */
  resolvedAt: number | null;
  /** When the run first resumed after that. */
  firstResumedAt: number | null;
  /** When it ends without a signal. */
  deadlineAt: number | null;
  /** Its first child; `null`: it has none. */
  childRunId: string | null;
}

/** An execution that lost its lease without an end. */
export interface Interruption {
  /** How: its lease expired, or was revoked (`lost`), its worker released it, or held the run. */
  kind: "lost" | "released" | "held";
  /** The worker that had it. */
  workerId: string | null;
  /** When the lease was given; `null`: that is not known. */
  leasedAt: number | null;
  /** When it was lost. */
  endedAt: number;
}

/** The failures of a run: its own, and those of its steps. */
export interface RunFailures {
  /** What the run failed of; `null`: it has not failed. */
  run: Failure | null;
  /** The failures of its steps, in the order of the steps, each attempt of its own: 1,000 at most. */
  steps: { name: string; attempt: number; failure: Failure }[];
}
