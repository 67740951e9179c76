import type { Report } from "../model/execution_report.ts";
import type { JsonText } from "../values/json.ts";
import type { Receive } from "../model/message.ts";
import type { RunIdentity } from "../model/run.ts";
import type { NewRun } from "./new_run.ts";
import type { Deadline, PauseKind, PauseRecord } from "../model/wait.ts";

/** A pause that a worker asks for. If the run already has one of this kind and name, that one is kept. */
export interface NewPause {
  /** A UUIDv7. */
  id: string;
  /** What it waits for. The names of each kind are counted separately. */
  kind: PauseKind;
  /** Its name, with its occurrence. */
  name: string;
  /** Child runs to add to it; `null` for a wait or a sleep, or if all its children were added before. */
  children: NewChildren | null;
  /** When it ends without a signal. */
  deadline: Deadline;
  /** Information from the job for those who may signal. */
  metadata: JsonText | null;
  /** Of a receive: what it takes. If the run has the receive already and it waits, this replaces what it took before. */
  receive?: Receive;
  /** Of a wait: the JSON schema of the payload that the job asks for; left out: it is not known. */
  payloadSchema?: JsonText | null;
  /** Whether the job receives it without pausing on it: then the preparation is a record of its own. */
  prepared: boolean;
}

/** Child runs to add to a pause. */
export interface NewChildren {
  /** How many children the pause has in all, over all calls that add some: 1 to 10,000. */
  total: number;
  /** The number of the first of `runs` among them, from 0. */
  from: number;
  /** The runs, in order. A number that has a child already keeps it. */
  runs: readonly NewRun[];
}

/** A request to pause a run. */
export interface PauseRequest {
  /** The waits and sleeps. */
  pauses: readonly NewPause[];
  /** When the earliest retry is due, by the store's clock (`SavedStep.retry`); `null` if the run waits for none. */
  retryAt: number | null;
  /** Whether to park the run; otherwise the pauses are only prepared. */
  park: boolean;
  /** The reports of the execution since the last acknowledged write. */
  reports: readonly Report[];
}

/** The result of a request to pause. */
export interface PauseResult {
  /** Whether the run waits now, and the lease is released. */
  parked: boolean;
  /** The stored pauses, in the order of the request. */
  pauses: PauseRecord[];
  /** The children that this call, or an earlier one of which it is a repetition, has created, in their order. */
  created: CreatedChild[];
  /** The children of the old run that this call has cancelled, before it retried them. */
  cancelled: RunIdentity[];
  /** How long until the first deadline of those that are not over, in milliseconds; `null` if they have none. */
  nextDeadlineInMs: number | null;
}

/** A child run that was created. */
export interface CreatedChild {
  /** The child. */
  run: RunIdentity;
  /** Not claimed before this instant: ISO 8601 in UTC; `null`: at once. */
  startAt: string | null;
  /** The run of which it is a retry; `null` if it is none. */
  retryOf: RunIdentity | null;
}
