import { NotFoundError } from "../../../error.ts";
import type { TraceText } from "../../../trace_context.ts";
import type { Signal, SignalOutcome } from "../../../wait.ts";
import { toIdentity, toWait } from "../copies.ts";
import { checkPending, commitDeadlines, isEndedBy, isQueued, isWoken, resolvePause } from "../pauses.ts";
import type { MemoryRuns } from "../runs.ts";

/** Ends a wait by a signal. See `Store.signal()`. */
export function signalWait(
  runs: MemoryRuns,
  waitId: string,
  signal: Signal,
  trace: TraceText | null,
  now: number,
): SignalOutcome {
  const found = runs.findWait(waitId);
  if (found === undefined) throw new NotFoundError(`There is no wait "${waitId}"`);
  const { run, pause: wait } = found;
  if (isEndedBy(wait, signal)) {
    // The receipt of the first acceptance: the run had not resumed by then.
    const receipt = { ...toWait(run.id, wait), firstResumedAt: null };
    return { wait: receipt, disposition: "duplicate", run: toIdentity(run) };
  }
  checkPending(wait);
  const payload = JSON.stringify(signal.payload);
  const wasDue = isWoken(run) || isQueued(run);
  // Deadlines that passed before the signal are committed, even if one of them refuses the signal.
  if (commitDeadlines(run, now)) runs.noteResolution(run, wasDue, now);
  checkPending(wait);
  wait.trace = trace;
  resolvePause(run, wait, { outcome: "signal", payload, signalId: signal.signalId }, now);
  runs.noteResolution(run, wasDue, now);
  return { wait: toWait(run.id, wait), disposition: "accepted", run: toIdentity(run) };
}
