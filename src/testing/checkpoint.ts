import type { Lease } from "../model/lease.ts";
import type { StepWrite } from "../model/step.ts";
import type { Store } from "../store/store.ts";
import type { ClaimResult, Ending } from "../store/claim.ts";
import type { PauseRequest } from "../store/pause_request.ts";

/** On which side of its commit something happens. */
export type Moment = "before" | "after";

/** A place in the execution of a run where a process can die. */
export interface Checkpoint {
  /** What it is, without what differs between executions: `record "charge"`. */
  name: string;
  /** What it is, for a trace. */
  what: string;
  /** The run; `null`: it belongs to none. */
  runId: string | null;
}

/** The checkpoint that a call to a store is; `null`: it is none, or only its answer tells. */
export function checkpointOf(method: keyof Store, parameters: readonly unknown[]): Checkpoint | null {
  if (method === "saveStep") {
    const [{ runId }, { name, result: { status } }] = parameters as [Lease, StepWrite]; // as `Store` has them
    return { name: `record "${name}"`, what: `record "${name}" (${status})`, runId };
  }
  if (method === "pause") {
    const [{ runId }, { pauses, retryAt }] = parameters as [Lease, PauseRequest];
    const names = pauses.map(({ kind, name }) => `${kind} "${name}"`);
    const name = `pause on ${[...names, ...(retryAt === null ? [] : ["a retry"])].join(", ")}`;
    return { name, what: name, runId };
  }
  if (method === "finish") {
    const [{ runId }, { status }] = parameters as [Lease, Ending];
    return { name: "the ending", what: `the ending (${status})`, runId };
  }
  return null;
}

/** The checkpoint of a claim that was answered; `null`: it has claimed nothing. */
export function claimOf({ claims: [first] }: ClaimResult): Checkpoint | null {
  if (first === undefined) return null;
  return { name: "claim", what: `claim (execution ${first.execution})`, runId: first.run.id };
}
