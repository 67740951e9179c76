import { ConflictError, NotFoundError, WaitExpiredError } from "../../error.ts";
import { isoTime } from "../../values/iso_time.ts";
import { isSameJson } from "../../values/json.ts";
import type { CreatedChild, PauseResult } from "../../store/pause_request.ts";
import { nextDeadlineInMs, type Signal, type SignalOutcome } from "../../wait.ts";
import { type IdentityRow, toRunIdentity, toWait, type WaitRow } from "../rows.ts";
import { type PauseRow, toPauseRecord } from "./rows.ts";

/** What `fn.pause()` returns. */
export interface PauseAnswer {
  parked: boolean;
  pauses: PauseRow[];
  created: (IdentityRow & { start_at: number | null; retry_of: IdentityRow | null })[];
  cancelled: IdentityRow[];
  now: number;
}

/** What `fn.pause()` returns, as the result of a pause. */
export function toPauseResult({ parked, pauses, created, cancelled, now }: PauseAnswer): PauseResult {
  const records = pauses.map(toPauseRecord);
  return {
    parked,
    pauses: records,
    created: created.map((row): CreatedChild => ({
      run: toRunIdentity(row),
      startAt: isoTime(row.start_at),
      retryOf: row.retry_of === null ? null : toRunIdentity(row.retry_of),
    })),
    cancelled: cancelled.map(toRunIdentity),
    nextDeadlineInMs: nextDeadlineInMs(records, now),
  };
}

/** What `fn.signal()` returns: the wait as the signal has left it, or found it. */
export type SignalAnswer =
  | { state: "none" }
  | { state: "expired" }
  | { state: "accepted" | "over"; run: IdentityRow; wait: WaitRow };

/** What `fn.signal()` returns, as the result of a signal; throws if it was refused. */
export function toSignalOutcome(answer: SignalAnswer, waitId: string, signal: Signal): SignalOutcome {
  if (answer.state === "none") throw new NotFoundError(`There is no wait "${waitId}"`);
  if (answer.state === "expired") throw new WaitExpiredError(`The deadline of wait "${waitId}" has passed`);
  const run = toRunIdentity(answer.run);
  if (answer.state === "accepted") return { wait: toWait(run.id, answer.wait), disposition: "accepted", run };
  if (answer.wait.outcome !== "signal") {
    throw new ConflictError(`Cannot signal wait "${waitId}": it is ${answer.wait.status}`);
  }
  // The receipt of the first acceptance: the run had not resumed by then.
  const wait = toWait(run.id, { ...answer.wait, first_resumed_at: null });
  const isSame = wait.signalId === signal.signalId && isSameJson(wait.payload, signal.payload);
  if (!isSame) throw new ConflictError(`Cannot signal wait "${waitId}": another signal came first`);
  return { wait, disposition: "duplicate", run };
}
