import type { Issue } from "./error.ts";

/**
 * Why a run is held:
 *
 * - `diverged`: its job asked for something new, but not for what the run has recorded.
 * - `ended_early`: its function returned or threw before it asked for what the run has recorded.
 * - `input_refused`: its stored input does not fit the schema of its job any more.
 */
export type HoldCode = "diverged" | "ended_early" | "input_refused";

/** All codes of holds. */
export const HOLD_CODES: readonly HoldCode[] = ["diverged", "ended_early", "input_refused"];

/** What is done with a run whose job does not ask for what the run has recorded. */
export type OnDivergence = "hold" | "continue" | "fail";

/** All values of `onDivergence`. */
export const ON_DIVERGENCE: readonly OnDivergence[] = ["hold", "continue", "fail"];

/** The hold of a run: no worker executes the run until one has code that fits, or somebody resumes it. */
export interface Held {
  /** Why it is held. */
  code: HoldCode;
  /** Why, in words: which names are new and which were not asked for. */
  message: string;
  /** Since when: ISO 8601 in UTC. */
  since: string;
}

/** A name in the history of a run, with its occurrence. */
export interface RecordName {
  /** What has the name. */
  kind: "step" | "wait" | "sleep" | "children" | "receive";
  /** The name: `charge`, `charge#2`. */
  name: string;
}

/** What a hold says besides its message. */
export interface HoldDetails {
  /** What the job asked for that is new; `null` if its function ended, or the input was refused. */
  isNew: RecordName | null;
  /** What the run has recorded and the job did not ask for, in the order of the records: 100 at most. */
  unasked: readonly RecordName[];
  /** Why the schema refused the input; empty for other codes. */
  issues: readonly Issue[];
}

/** The open runs of a job and version that no live worker knows. */
export interface StrandedJob {
  /** The name of the job. */
  jobName: string;
  /** The version of the job that triggered them. */
  version: number;
  /** How many there are. */
  runs: number;
  /** When the first of them was triggered, in the order of the triggers: ISO 8601 in UTC. */
  oldestAt: string;
}
