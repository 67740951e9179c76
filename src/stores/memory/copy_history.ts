import { undoneSteps } from "../../model/end.ts";
import type { RecordName } from "../../model/hold.ts";
import { undoersOf, type UndoingRun } from "../end_runs.ts";
import { copyChildren } from "./children.ts";
import { type KeptPause, type KeptRun } from "./records.ts";
import { resultOf } from "./copies.ts";
import { copyStreams } from "./streams.ts";

/**
 * Copies the records of the old run to a retry from the failure, in their order, and notes what it leaves out.
 *
 * @param undone The steps that runs which clean up have undone, with the run that did: they are not copied.
 */
export function copyHistory(
  old: KeptRun,
  run: KeptRun,
  undone: ReadonlyMap<string, string>,
  newId: () => string,
): void {
  run.originId = old.originId;
  run.lastRecordedNo = old.lastRecordedNo;
  const unfinished = [...old.copied?.unfinished ?? []];
  const leaveOut = (kind: RecordName["kind"], name: string) => {
    if (!unfinished.some((other) => other.kind === kind && other.name === name)) unfinished.push({ kind, name });
  };
  for (const step of old.steps.values()) {
    if (step.result.status === "completed" && !undone.has(step.name)) {
      run.steps.set(step.name, { ...step, pastAttempts: [] });
    } else leaveOut("step", step.name);
  }
  copyStreams(old, run);
  for (const pause of old.pauses) {
    if (!isToBeCopied(pause, old)) {
      if (pause.kind !== "patch") leaveOut(pause.kind, pause.name);
      continue;
    }
    const copy = { ...pause, id: newId() };
    copyChildren(run, copy, pause);
    run.pauses.push(copy);
  }
  const allUndone = { ...old.copied?.undone, ...Object.fromEntries(undone) };
  run.copied = {
    upTo: old.lastRecordedNo,
    unfinished,
    ...(Object.keys(allUndone).length === 0 ? {} : { undone: allUndone }),
  };
}

/** The steps of a run that its end runs have undone, with the end run that did. */
export function undoneIn({ deletedEnds, steps }: KeptRun, endRuns: readonly KeptRun[]): Map<string, string> {
  return undoneSteps(undoersOf([...endRuns.map(toUndoingRun), ...deletedEnds]), steps.keys());
}

/** What an end run has undone. */
export function toUndoingRun({ id, seq, steps }: KeptRun): UndoingRun {
  const undoing = [...steps.values()].filter(({ name, result }) =>
    name.startsWith("undo ") && result.status === "completed"
  );
  return { id, seq, undoing: undoing.map(({ name }) => name) };
}

/**
 * Copies the messages of the old run to a retry, in their order. Those that a copied receive took are taken, all others
 * unread.
 */
export function copyMessages(old: KeptRun, run: KeptRun): void {
  for (const message of old.messages.values()) {
    const { takenBy } = message;
    const copy = run.pauses.find(({ kind, name }) => kind === takenBy?.kind && name === takenBy.name) ?? null;
    run.messages.set(message.id, { ...message, takenBy: copy });
  }
}

/**
 * Whether a pause is copied: one that is resolved, or a patch. If the last record is the end of a wait, and the run has begun
 * and not parked since, it has failed of that: the wait is not copied, so the retry prepares it again.
 */
function isToBeCopied({ kind, state, children }: KeptPause, { lastRecordedNo, parkedNo, startedAt }: KeptRun): boolean {
  if (kind === "patch") return true;
  if (state.status !== "resolved") return false;
  if (children !== null) return children.members.every((member) => resultOf(member)?.status === "completed");
  const { recordedNo } = state.resolution;
  if (kind === "sleep" || kind === "receive") return true;
  return recordedNo < lastRecordedNo || recordedNo <= parkedNo || startedAt === null;
}
