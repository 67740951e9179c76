import type { HoldCode } from "../../model/hold.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import type { StoredRun } from "../../model/run.ts";
import type { ChildResult, PauseRecord } from "../../model/wait.ts";
import {
  type IdentityRow,
  type PauseColumns,
  readPauseColumns,
  type TakenMessageRow,
  toFailure,
  toRunIdentity,
} from "../rows.ts";
import { readRunColumns, type RunColumns } from "../run_columns.ts";

/** What `fn.run_json()` returns of a run. */
export interface RunRow extends RunColumns {
  seq: number;
  interruptions: number;
  slot: JsonText | null;
  origin_id: string | null;
  /** Its hold; `null`: it is not held. */
  held: { code: HoldCode; message: string; since: number } | null;
}

/** What `fn.run_json()` returns, as a run with its values as stored JSON. */
export function toRunText(row: RunRow): StoredRun {
  return readRunColumns(row, row.held === null ? null : { ...row.held, since: isoTime(row.held.since) });
}

/** What `fn.pause_json()` returns of a pause. */
export type PauseRow = PauseColumns & {
  awaited: boolean;
  /** How its only child ended; `null`: it is not over, or has no child or several ones. */
  child: ChildRow | null;
  /** The messages that it took; `null`: none have ended it. */
  messages: TakenMessageRow[] | null;
};

/** What `fn.pause_json()` returns, as a replay needs it. */
export function toPauseRecord(row: PauseRow): PauseRecord {
  return readPauseColumns(row, row.child === null ? null : toChildResult(row.child), row.messages);
}

/** What `fn.child_json()` returns: a child that has ended. Of a deleted one `labels` and `job` are those it had. */
export interface ChildRow extends IdentityRow {
  status: ChildResult["status"];
  output: JsonText | null;
  failure: JsonText | null;
  failed_step: string | null;
}

/** What `fn.child_json()` returns, as the result of a child. */
export function toChildResult(row: ChildRow): ChildResult {
  return {
    run: toRunIdentity(row),
    status: row.status,
    output: row.output,
    failure: toFailure(row.failure),
    failedStepName: row.failed_step,
  };
}
