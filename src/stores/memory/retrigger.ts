import type { KeptPause, KeptRun } from "./records.ts";

/** Gives a retry from the failure what the old run has recorded, in the order in which that was recorded. */
export function copyHistory(old: KeptRun, run: KeptRun, newId: () => string): void {
  run.originId = old.originId;
  run.lastRecordedNo = old.lastRecordedNo;
  for (const step of old.steps.values()) {
    if (step.result.status === "completed") run.steps.set(step.name, { ...step });
  }
  for (const pause of old.pauses) {
    if (isToBeCopied(pause, old.lastRecordedNo)) run.pauses.push({ ...pause, id: newId() });
  }
}

/** A wait that timed out as the last thing that was recorded is what the old run failed of: it is asked for again. */
function isToBeCopied({ kind, state }: KeptPause, lastRecordedNo: number): boolean {
  if (state.status !== "resolved") return false;
  const { outcome, recordedNo } = state.resolution;
  return kind === "sleep" || outcome === "signal" || recordedNo < lastRecordedNo;
}
