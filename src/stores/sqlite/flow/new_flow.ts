import type { NewRun } from "../../../store/new_run.ts";
import { deadlineAt } from "../../../model/wait.ts";

/** The columns of a run for flow control. */
export interface FlowColumns {
  fairness_key: string | null;
  priority: number;
  key_concurrency: number;
  key_rate_limit: number | null;
  key_rate_period: number | null;
  start_at: number | null;
  due_at: number | null;
  start_within: number | null;
  start_by: number | null;
  finish_within: number | null;
  deadline_at: number | null;
}

/** The columns of a run that uses no flow control. */
export const NO_FLOW: FlowColumns = {
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
export function flowOf({ flow, concurrencyKey }: NewRun, now: number): FlowColumns {
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
