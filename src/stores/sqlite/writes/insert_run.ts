import { actorOf } from "../../../model/origin.ts";
import { positionOf } from "../../../model/flow.ts";
import type { Host } from "../../../model/host.ts";
import type { StoredRun, TerminalStatus } from "../../../model/run.ts";
import type { JsonText } from "../../../values/json.ts";
import type { NewRun } from "../../../store/new_run.ts";
import { readOnEnd, toEndRun, toOnEnd } from "../../end_runs.ts";
import { END_LEAD } from "../../rules.ts";
import { queueName, versionOf } from "../../queue_name.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { drawNumber } from "../journal/journal.ts";
import { stateOfNewRun, updateQueue } from "../flow/concurrency_keys.ts";
import { touchGroup } from "../flow/turns.ts";
import { linkRetry } from "./retry_links.ts";
import { fromInput, toLabels } from "../../rows.ts";
import type { RunWith } from "../rows.ts";
import { deadlineAt } from "../../../model/wait.ts";
import { isoTime } from "../../../values/iso_time.ts";

/** The parent of a new run, and the pause that waits for it. */
export interface ParentOfRun {
  seq: number;
  id: string;
  pauseSeq: number;
  /** How many parents the new run has above it. */
  depth: number;
}

/**
 * Adds a run, perhaps as a child, or to clean up after another, unless one with its id or its idempotency key exists: then returns `null`.
 *
 * @returns The run and its row number.
 */
export function insertRun(
  db: SqliteDatabase,
  run: NewRun,
  host: Pick<Host, "newId">,
  now: number,
  parent: ParentOfRun | null = null,
  endedRunId: string | null = null,
): { run: StoredRun; seq: number } | null {
  const seq = drawNumber(db);
  // A retry of an end run cleans up after the same run, and a retry has what the engine has stored of the slot.
  const old = run.retriggerOf === null ? undefined : db.get<{ end_of: string | null; slot: JsonText | null }>`
    SELECT end_of, slot FROM holdfast_runs WHERE id = ${run.retriggerOf.runId}`;
  const endOf = endedRunId ?? old?.end_of ?? null;
  const { slot = null, slotAt: slotTime = null } = run.schedule ?? {};
  const slotAt = slotTime === null ? null : Date.parse(slotTime);
  const queue = queueName(run.jobName, run.version);
  const key = run.concurrencyKey;
  const flow = flowOf(run, now);
  const isFirst = endOf !== null && key !== null;
  const position = positionOf(seq, flow.priority) - (isFirst ? END_LEAD : 0);
  const isDelayed = flow.due_at !== null;
  // One that goes before others is found by updateQueue().
  const state = isDelayed || isFirst
    ? null
    : key === null
    ? "R"
    : stateOfNewRun(db, key, { ...flow, queue, position }, now);
  const labels = JSON.stringify(run.labels);
  const retriggerOf = run.retriggerOf?.runId ?? null;
  const columns = [
    seq,
    run.id,
    queue,
    queue,
    position,
    labels,
    run.idempotencyKey,
    key,
    isDelayed ? null : state ?? "B",
    retriggerOf,
    now,
    now,
    run.trace,
  ];
  const onEnd = toOnEnd(run);
  const isPlain = flow === NO_FLOW && run.schedule === null && parent === null && onEnd === null && endOf === null;
  const isAdded = isPlain ? db.run(INSERT_PLAIN, ...columns) : db.run(
    INSERT,
    ...columns,
    ...FLOW_COLUMNS.map((column) => flow[column]),
    run.schedule?.name ?? null,
    slotAt,
    run.schedule !== null && run.retriggerOf !== null ? old?.slot ?? null : slot,
    parent?.id ?? null,
    parent?.seq ?? null,
    parent?.pauseSeq ?? null,
    parent?.depth ?? 0,
    onEnd,
    endOf,
  );
  if (isAdded === 0) return null;
  moveRun(db, queue, null, "pending");
  db.run`
    INSERT INTO holdfast_inputs (run_seq, payload, input, schema_print)
      VALUES (${seq}, ${run.payload}, ${fromInput(run.payload, run.input)}, ${run.schemaPrint})`;
  for (const [name, value] of Object.entries(run.labels)) {
    db.run`INSERT INTO holdfast_labels (key, value, run_seq) VALUES (${name}, ${value}, ${seq})`;
  }
  if (run.retriggerOf !== null) linkRetry(db, run.id, run.retriggerOf, actorOf(run.trace), host);
  if (state === "R") touchGroup(db, queue, flow.fairness_key);
  if (!isDelayed && state === null && key !== null) updateQueue(db, key, now);
  // One literal: an object of so many members takes long to be put together.
  const createdAt = isoTime(now);
  const added: StoredRun = {
    id: run.id,
    jobName: run.jobName,
    labels: toLabels(labels),
    status: "pending",
    payload: run.payload,
    output: null,
    error: null,
    failedStepName: null,
    failure: null,
    progress: null,
    idempotencyKey: run.idempotencyKey,
    concurrencyKey: key,
    leaseOwner: null,
    leaseExpiresAt: null,
    leaseGeneration: 0,
    createdAt,
    updatedAt: createdAt,
    startedAt: null,
    completedAt: null,
    startAt: isoTime(flow.start_at),
    priority: flow.priority,
    fairnessKey: flow.fairness_key,
    startBy: isoTime(flow.start_by),
    finishBy: null,
    failureKind: null,
    parentRunId: parent?.id ?? null,
    scheduleName: run.schedule?.name ?? null,
    slotAt: isoTime(slotAt),
    version: run.version,
    held: null,
    endOf,
    endRunId: null,
    retriggerOf,
    retriggeredAs: null,
    completedAs: null,
    triggeredBy: actorOf(run.trace),
    cancelledBy: null,
  };
  return { run: added, seq };
}

/** The columns of a run for flow control. */
type FlowColumns =
  & RunWith<"fairness_key priority key_concurrency key_rate_limit key_rate_period start_at due_at start_within">
  & RunWith<"start_by finish_within deadline_at">;

/** The columns of a run that uses no flow control. */
const NO_FLOW: FlowColumns = {
  fairness_key: null,
  priority: 0,
  key_concurrency: 1,
  key_rate_limit: null,
  key_rate_period: null,
  start_at: null,
  due_at: null,
  start_within: null,
  start_by: null,
  finish_within: null,
  deadline_at: null,
};

/** The columns of a new run for flow control, or {@linkcode NO_FLOW} itself. */
function flowOf({ flow, concurrencyKey }: NewRun, now: number): FlowColumns {
  const { start, priority, fairnessKey, startWithin, finishWithin, keyConcurrency, keyRate } = flow;
  const usesFlow = priority !== 0 || start !== null || fairnessKey !== null || startWithin !== null ||
    finishWithin !== null || (concurrencyKey !== null && (keyConcurrency !== 1 || keyRate !== null));
  if (!usesFlow) return NO_FLOW;
  const startAt = deadlineAt(start, now);
  const startBy = startWithin === null ? null : Math.max(startAt ?? now, now) + startWithin;
  return {
    fairness_key: fairnessKey,
    priority,
    key_concurrency: keyConcurrency,
    key_rate_limit: keyRate?.limit ?? null,
    key_rate_period: keyRate?.period ?? null,
    start_at: startAt,
    due_at: startAt !== null && startAt > now ? startAt : null,
    start_within: startWithin,
    start_by: startBy,
    finish_within: finishWithin,
    deadline_at: startBy,
  };
}

const PLAIN_COLUMNS =
  `seq, id, job, queue, position, labels, idempotency_key, concurrency_key, queue_state, retrigger_of,
  created_at, updated_at, trace`.split(/,\s+/);
const FLOW_COLUMNS = Object.keys(NO_FLOW) as (keyof FlowColumns)[]; // it has these keys alone
// Most runs need no other columns: the wide statement costs a quarter more.
const INSERT_PLAIN = insertOf(PLAIN_COLUMNS);
const INSERT = insertOf([
  ...PLAIN_COLUMNS,
  ...FLOW_COLUMNS,
  ...["schedule_name", "slot_at", "slot", "parent_id", "parent_seq", "parent_pause", "depth", "on_end", "end_of"],
]);

function insertOf(columns: readonly string[]): string {
  return `INSERT INTO holdfast_runs (status, ${columns.join(", ")})
    VALUES ('pending', ${columns.map(() => "?").join(", ")}) ON CONFLICT DO NOTHING`;
}

/** Adds the run that cleans up after a run, which ends now, if it has one for this end. */
export function addEndRun(
  db: SqliteDatabase,
  { seq, id, on_end }: { seq: number; id: string; on_end: JsonText },
  status: TerminalStatus,
  now: number,
): void {
  const end = readOnEnd(on_end);
  if (!end.statuses.includes(status)) return;
  const row = db.one<
    RunWith<"job labels trace concurrency_key fairness_key priority key_concurrency key_rate_limit key_rate_period">
  >`
    SELECT job, labels, trace, concurrency_key, fairness_key, priority, key_concurrency, key_rate_limit,
      key_rate_period
    FROM holdfast_runs WHERE seq = ${seq}`;
  const { key_rate_limit: limit, key_rate_period: period } = row;
  const request = toEndRun({
    id,
    version: versionOf(row.job),
    labels: toLabels(row.labels),
    concurrencyKey: row.concurrency_key,
    flow: {
      priority: row.priority,
      fairnessKey: row.fairness_key,
      keyConcurrency: row.key_concurrency,
      keyRate: limit === null || period === null ? null : { limit, period },
    },
    trace: row.trace,
  }, end);
  const host: Pick<Host, "newId"> = { newId: () => "" }; // it has no copies
  if (insertRun(db, request, host, now, null, id) === null) throw new Error(`There is a run "${end.id}" already`);
}
