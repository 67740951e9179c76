import type { HoldCode } from "../../hold.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import type { CopiedHistory, HoldRecord, NewHold, RunHistory, StrandedJob } from "../../store/hold_record.ts";
import { byNameAndVersion } from "../by_name_and_version.ts";
import { jobNameOf, versionOf } from "../queue_name.ts";
import { namesOfPrints } from "../tried_prints.ts";
import { type ReplayedStepRow, toInput, toStepRecord } from "../rows.ts";
import { type PauseRow, type RunRow, toPauseRecord, toRunText } from "./rows.ts";

/** A request to hold a run. */
export function toHoldParameter({ details, ...hold }: NewHold): object {
  return { ...hold, details: JSON.stringify(details) };
}

/** What `fn.get_hold()` returns. */
export interface HoldRow {
  code: HoldCode;
  message: string;
  details: JsonText;
  since: number;
  prints: string[];
}

/** What `fn.get_hold()` returns, as a hold. */
export function toHoldRecord({ code, message, details, since, prints }: HoldRow): HoldRecord {
  return { code, message, since: isoTime(since), details: JSON.parse(details), prints: namesOfPrints(prints) };
}

/** What `fn.get_history()` returns. */
export interface HistoryAnswer {
  run: RunRow;
  input: JsonText | null;
  schema_print: string | null;
  steps: ReplayedStepRow[];
  pauses: PauseRow[];
  copied: CopiedHistory | null;
  now: number;
}

/** What `fn.get_history()` returns, as the history of a run. */
export function toHistory({ run, input, schema_print, steps, pauses, copied, now }: HistoryAnswer): RunHistory {
  return {
    run: toRunText(run),
    input: toInput({ payload: run.payload, input }),
    schemaPrint: schema_print,
    slot: run.slot,
    steps: steps.map((step) => toStepRecord(step, now)),
    pauses: pauses.map(toPauseRecord),
    copied,
  };
}

/** What `fn.get_stranded_jobs()` returns of a queue. */
export interface StrandedRow {
  job: string;
  runs: number;
  oldest_at: number;
}

/** What `fn.get_stranded_jobs()` returns, by name and version. */
export function toStrandedJobs(rows: readonly StrandedRow[]): StrandedJob[] {
  return rows.map(({ job, runs, oldest_at }) => ({
    jobName: jobNameOf(job),
    version: versionOf(job),
    runs,
    oldestAt: isoTime(oldest_at),
  })).sort(byNameAndVersion);
}
