import { copyChildren } from "./children.ts";
import { type KeptPause, type KeptRun, resultOf } from "./records.ts";

/** Copies the records of the old run to a retry from the failure, in their order. */
export function copyHistory(old: KeptRun, run: KeptRun, newId: () => string): void {
  run.originId = old.originId;
  run.lastRecordedNo = old.lastRecordedNo;
  for (const step of old.steps.values()) {
    if (step.result.status === "completed") run.steps.set(step.name, { ...step });
  }
  for (const pause of old.pauses) {
    if (!isToBeCopied(pause, old.lastRecordedNo)) continue;
    const copy = { ...pause, id: newId() };
    copyChildren(run, copy, pause);
    run.pauses.push(copy);
  }
}

/**
 * Whether a resolved pause is copied. If the last record is the timeout of a wait, that wait is not copied, so the
 * retry prepares it again.
 */
function isToBeCopied({ kind, state, children }: KeptPause, lastRecordedNo: number): boolean {
  if (state.status !== "resolved") return false;
  if (children !== null) return children.members.every((member) => resultOf(member)?.status === "completed");
  const { outcome, recordedNo } = state.resolution;
  return kind === "sleep" || outcome === "signal" || recordedNo < lastRecordedNo;
}
