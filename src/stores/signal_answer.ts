import { ConflictError, NotFoundError, WaitExpiredError } from "../model/error.ts";
import type { Signal, SignalOutcome } from "../model/wait.ts";
import { isSameJson } from "../values/json.ts";
import { type IdentityRow, toRunIdentity, toWait, type WaitRow } from "./rows.ts";

/** What the write of a signal answers: the wait as the signal has left it, or found it. */
export type SignalAnswer =
  | { state: "none" }
  | { state: "expired" }
  | { state: "accepted" | "over"; run: IdentityRow; wait: WaitRow };

/** Such an answer as the result of a signal; throws if it was refused. */
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
