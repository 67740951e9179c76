import { stepFacts, toFact } from "../../../model/fact.ts";
import type { Report } from "../../../model/execution_report.ts";
import { type ExecutingStep, retryTime, type SavedStep, startedAt, type StepWrite } from "../../../model/step.ts";
import type { Chunk } from "../../../model/stream.ts";
import { addChunks, newChunks } from "../streams.ts";
import type { MemoryJournal } from "../journal.ts";
import { type KeptAttempt, type KeptRun, type KeptStep, nextRecordedNo } from "../records.ts";
import type { Lease } from "../../../model/lease.ts";
import type { MemoryRuns } from "../runs.ts";

/**
 * Records how an attempt at a step ended. A step that has ended, or an attempt that is recorded already, is not
 * changed.
 */
export function recordAttempt(
  run: KeptRun,
  step: StepWrite,
  chunks: readonly Chunk[],
  reports: readonly Report[],
  journal: MemoryJournal,
  now: number,
): SavedStep {
  const earlier = run.steps.get(step.name);
  if (earlier !== undefined && (earlier.result.status !== "retrying" || earlier.attempts >= step.attempts)) {
    journal.note(...reports.map((report) => toFact(run.seq, report)));
    return toSaved(earlier, now);
  }
  const { result } = step;
  addChunks(run, chunks, now);
  const recordedNo = nextRecordedNo(run);
  const kept: KeptStep = {
    name: step.name,
    index: earlier?.index ?? step.index,
    attempts: step.attempts,
    result: result.status === "retrying"
      ? { status: "retrying", failure: structuredClone(result.failure), retryAt: now + result.delayMs }
      : structuredClone(result),
    recordedNo,
    startedAt: earlier?.startedAt ?? startedAt(step, now),
    completedAt: result.status === "retrying" ? null : now,
    pastAttempts: pastAttemptsOf(step, earlier, now),
  };
  run.steps.set(step.name, kept);
  const { retry, ...saved } = toSaved(kept, now);
  journal.note(
    ...stepFacts(run.seq, step, reports, { startedAt: startedAt(step, now), retryAt: retry?.at ?? null }),
  );
  return { ...saved, retry };
}

/** The attempts at a step that needs more than one. */
function pastAttemptsOf(step: StepWrite, earlier: KeptStep | undefined, now: number): KeptAttempt[] {
  const { attempts: attempt, result } = step;
  if (attempt === 1 && result.status !== "retrying") return [];
  const retryAt = result.status === "retrying" ? now + result.delayMs : null;
  const failure = result.status === "completed" ? null : structuredClone(result.failure);
  return [...earlier?.pastAttempts ?? [], { attempt, startedAt: startedAt(step, now), endedAt: now, retryAt, failure }];
}

function toSaved({ recordedNo, result }: KeptStep, now: number): SavedStep {
  return { recordedNo, retry: result.status === "retrying" ? retryTime(result.retryAt, now) : null };
}

/** Records as cancelled the steps that are being executed or are between two attempts. */
export function cancelSteps(
  run: KeptRun,
  executing: readonly ExecutingStep[],
  journal: MemoryJournal,
  now: number,
): void {
  for (const step of executing) {
    const { name, index, attempts } = step;
    const earlier = run.steps.get(name);
    if (earlier === undefined || earlier.result.status === "retrying") {
      journal.note([run.seq, "step_cancelled", name, index]);
    }
    if (earlier !== undefined) continue;
    const result = { status: "cancelled", failure: null } as const;
    // No record position: a cancelled run is never replayed.
    run.steps.set(name, {
      name,
      index,
      attempts,
      result,
      recordedNo: 0,
      startedAt: startedAt(step, now),
      completedAt: now,
      pastAttempts: [],
    });
  }
  for (const step of run.steps.values()) {
    if (step.result.status !== "retrying") continue;
    step.result = { status: "cancelled", failure: step.result.failure };
    step.completedAt = now;
  }
}

/** Stores items of streams. See `Store.appendItems()`. */
export function appendItems(
  runs: MemoryRuns,
  writes: readonly { lease: Lease; chunks: readonly Chunk[] }[],
  now: number,
): boolean[] {
  return writes.map(({ lease, chunks }) => {
    const run = runs.findUnder(lease);
    const added = run === undefined ? null : newChunks(run, chunks);
    if (run === undefined || added === null) return false;
    addChunks(run, added, now);
    if (added.length > 0) runs.journal.note([run.seq, "streamed"]);
    if (added.length > 0) runs.countChange();
    return true;
  });
}
