import { AssertionError } from "node:assert";
import type { Issue } from "../model/error.ts";
import type { HoldCode, RecordName } from "../model/hold.ts";
import type { Changes } from "../model/job/job_changes.ts";
import type { RunStatus } from "../model/run.ts";
import type { NeededChanges } from "./observed_replay.ts";

/**
 * What the code of a job does with a run:
 *
 * - `goes on`: it asks for all that the run has recorded, and then begins something new, or waits.
 * - `ends the same`: it returns or throws what it did before.
 * - `ends otherwise`: it returns or throws something else, or the run had not ended.
 * - `held`: the engine would hold the run.
 * - `fails`: it throws although the run did not. An open run would fail.
 * - `stranded`: the job does not take runs of this name and version.
 */
export type ReplayOutcome = "goes on" | "ends the same" | "ends otherwise" | "held" | "fails" | "stranded";

/** All values of {@linkcode ReplayOutcome}. */
export const REPLAY_OUTCOMES: readonly ReplayOutcome[] = [
  "goes on",
  "ends the same",
  "ends otherwise",
  "held",
  "fails",
  "stranded",
];

/** What a replay of a history has shown. */
export interface ReplayReport {
  /** The id of the run. */
  runId: string;
  /** The name of the job that triggered it. */
  jobName: string;
  /** The version of that job. */
  version: number;
  /** The status of the run in the history. */
  status: RunStatus;
  /** What the code does with the run. */
  outcome: ReplayOutcome;
  /** Why the engine would hold the run; `null`: it would not. */
  code: HoldCode | null;
  /** The outcome in words: for a run that would be held, the message of the hold. */
  message: string;
  /** The first thing that the job asked for and that is new; `null`: there is none. */
  isNew: RecordName | null;
  /** What the run has recorded and the job has not asked for. */
  unasked: readonly RecordName[];
  /** Why the schema refused the input; empty for other codes. */
  issues: readonly Issue[];
  /** What to declare in `changes` so that the run goes on, if the names tell; read it before you use it. */
  suggestion: Changes | null;
  /** The entries of `changes` that this run needs. */
  neededChanges: NeededChanges;
  /**
   * Checks that the run goes on, or ends.
   *
   * @throws {AssertionError} It would be held, would fail, or is not taken.
   */
  assertGoesOn(): void;
}

/** Whether a run is in trouble with the new code. */
export function isRefused({ outcome }: Pick<ReplayReport, "outcome">): boolean {
  return outcome === "held" || outcome === "fails" || outcome === "stranded";
}

/** Adds the method to the data of a report. */
export function toReport(data: Omit<ReplayReport, "assertGoesOn">): ReplayReport {
  return {
    ...data,
    assertGoesOn() {
      if (!isRefused(data)) return;
      const { outcome: actual, message } = data;
      throw new AssertionError({ message, actual, expected: "goes on", operator: "assertGoesOn" });
    },
  };
}
