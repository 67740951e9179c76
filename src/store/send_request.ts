import type { RunIdentity } from "../model/run.ts";
import type { OriginText } from "../model/origin.ts";
import type { JsonText } from "../values/json.ts";
import type { Enqueued, NewRun } from "./new_run.ts";

/** The run to which a message is sent: by its id, or by its job and its idempotency key. */
export type SendTarget =
  | { runId: string }
  /** The newest retry of the run of a job with this idempotency key. `jobNames`: the name of the job, then its aliases. */
  | { jobNames: readonly string[]; key: string };

/** A message to send. */
export interface SendRequest {
  /** Its run. */
  to: SendTarget;
  /** The message: `payload` as it was given, `input` as the schema has parsed it (`null`: `undefined`). */
  message: { id: string; name: string; payload: JsonText; input: JsonText | null; trace: OriginText | null };
  /**
   * The run to add if no run with the key takes messages: it has the key, `idempotencyUntil: "ended"` and no `coalesce`.
   * `null`: that is refused. Only with a key.
   */
  start: NewRun | null;
  /**
   * The id of the run that the caller has found (with `start`: the one that takes messages, or has another one with this
   * id); `null`: none. If it is another one now, nothing is sent. Left out: whatever run it is.
   */
  expect?: string | null;
}

/** What a store did with a message that it has taken. */
export interface SendReceipt {
  /** The run that has the message. */
  run: RunIdentity;
  /** Whether this call was the first with the id of the message. */
  disposition: "accepted" | "duplicate";
  /** The new run, if the call, or an earlier one of which it is a repetition, has added one. */
  started: Enqueued | null;
}

/** What a store did with a message. */
export type SendOutcome =
  | SendReceipt
  /** The run is not the expected one: it is `found`. */
  | { changed: true; found: RunIdentity | null };
