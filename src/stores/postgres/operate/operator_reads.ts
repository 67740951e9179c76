import type { JsonText } from "../../../values/json.ts";
import type { OpenWaits, SearchHit } from "../../../store/operator_reads.ts";
import type { RunFailures, TimelineRecords } from "../../../store/timeline_records.ts";
import { type AttemptRow, type TimelineStepRow, toFailures, toTimelineStep } from "../../operate/timeline_rows.ts";
import { type IdentityRow, toFailure, toRunIdentity, toWait, type WaitRow } from "../../rows.ts";

/** What `fn.get_timeline()` returns. */
export interface TimelineAnswer extends Omit<TimelineRecords, "steps"> {
  steps: TimelineStepRow[];
  attempts: AttemptRow[];
}

/** What `fn.get_timeline()` returns, as records. */
export function toTimeline({ steps, attempts, ...records }: TimelineAnswer): TimelineRecords {
  const byStep = Map.groupBy(attempts, ({ step_name }) => step_name);
  return { ...records, steps: steps.map((row) => toTimelineStep(row, byStep.get(row.name) ?? [])) };
}

/** What `fn.get_failures()` returns. */
export interface FailuresAnswer {
  run: JsonText | null;
  steps: { name: string; position: number; attempt: number; failure: JsonText }[];
}

/** What `fn.get_failures()` returns, as failures. */
export function toRunFailures({ run, steps }: FailuresAnswer): RunFailures {
  return { run: toFailure(run), steps: toFailures(steps) };
}

/** What `fn.get_open_waits()` returns. */
export interface OpenWaitsAnswer {
  waits: (WaitRow & Omit<IdentityRow, "id"> & { seq: number; run_id: string; payload_schema: JsonText | null })[];
  total: number;
}

/** What `fn.get_open_waits()` returns, as waits. */
export function toOpenWaits({ waits, total }: OpenWaitsAnswer): OpenWaits {
  return {
    waits: waits.map((row) => ({
      wait: toWait(row.run_id, row),
      run: toRunIdentity({ ...row, id: row.run_id }),
      payloadSchema: row.payload_schema,
      place: { deadlineAt: row.deadline_at, seq: row.seq },
    })),
    total,
  };
}

/** What `fn.search_runs()` returns: each run once, by what has found it first. */
export function toFound(rows: readonly SearchHit[], limit: number): SearchHit[] {
  const found = new Map<string, SearchHit>();
  for (const row of rows) if (!found.has(row.runId) && found.size < limit) found.set(row.runId, row);
  return [...found.values()];
}
