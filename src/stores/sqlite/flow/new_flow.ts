import { positionOf } from "../../../model/flow.ts";
import type { NewRun } from "../../../store/new_run.ts";
import { deadlineAt } from "../../../model/wait.ts";
import { queueName } from "../../queue_name.ts";
import type { FlowColumn, RunRow } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { stateOfNewRun, updateQueue } from "./concurrency_keys.ts";
import { touchGroup } from "./turns.ts";

/** The columns of a run that uses no flow. */
export const NO_FLOW: Pick<RunRow, FlowColumn> = {
  start_at: null,
  priority: null,
  fairness_key: null,
  start_by: null,
  finish_by: null,
  parent_id: null,
  held: null,
};

/** What a run that uses no flow asks of its key. */
export const PLAIN_KEY = { key_concurrency: 1, key_rate_limit: null, key_rate_period: null };

/** Whether a new run has a row of `holdfast_flow`. */
export function usesFlow({ flow, concurrencyKey }: NewRun): boolean {
  const { start, priority, fairnessKey, startWithin, finishWithin, keyConcurrency, keyRate } = flow;
  return priority !== 0 || start !== null || fairnessKey !== null || startWithin !== null || finishWithin !== null ||
    (concurrencyKey !== null && (keyConcurrency !== 1 || keyRate !== null));
}

/** Adds the row of a new run, and puts the run into its queue unless it is delayed. */
export function insertFlow(
  db: SqliteDatabase,
  seq: number,
  { jobName, version, concurrencyKey, flow }: NewRun,
  now: number,
): Pick<RunRow, Exclude<FlowColumn, "parent_id" | "held">> {
  const startAt = deadlineAt(flow.start, now);
  const isDelayed = startAt !== null && startAt > now;
  const startBy = flow.startWithin === null ? null : Math.max(startAt ?? now, now) + flow.startWithin;
  const row = {
    run_seq: seq,
    job: queueName(jobName, version),
    concurrency_key: concurrencyKey,
    fairness_key: flow.fairnessKey,
    priority: flow.priority,
    position: positionOf(seq, flow.priority),
    begun: 0,
    key_concurrency: flow.keyConcurrency,
    key_rate_limit: flow.keyRate?.limit ?? null,
    key_rate_period: flow.keyRate?.period ?? null,
    start_at: startAt,
    due_at: isDelayed ? startAt : null,
    start_within: flow.startWithin,
    start_by: startBy,
    finish_within: flow.finishWithin,
    deadline_at: startBy,
  };
  const state = isDelayed
    ? null
    : concurrencyKey === null
    ? "R"
    : stateOfNewRun(db, { ...row, concurrency_key: concurrencyKey }, now);
  db.run(
    `INSERT INTO holdfast_flow (run_seq, job, concurrency_key, fairness_key, priority, position, begun, key_concurrency,
       key_rate_limit, key_rate_period, start_at, due_at, start_within, start_by, finish_within, deadline_at,
       queue_state)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    ...Object.values(row),
    isDelayed ? null : state ?? "B",
  );
  if (state === "R") touchGroup(db, row.job, flow.fairnessKey);
  if (!isDelayed && state === null && concurrencyKey !== null) updateQueue(db, concurrencyKey, now);
  return { ...row, finish_by: null };
}
