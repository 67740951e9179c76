import {
  type BulkRetriggerOptions,
  type BulkSelection,
  checkBulk,
  type CheckedBulk,
} from "../../engine/bulk/bulk_selection.ts";
import { type BulkResult, performBulk } from "../../engine/bulk/perform_bulk.ts";
import { derivedRunId } from "../../execution/calls/derived_run_id.ts";
import { retryFlow } from "../../engine/triggers/trigger_flow.ts";
import { ConflictError, NotFoundError } from "../../error.ts";
import type { JobFlow } from "../../flow.ts";
import { type Host, systemHost } from "../../host.ts";
import { isTerminal, type RetriggerFrom } from "../../run.ts";
import type { Store } from "../../store.ts";
import type { NewRun } from "../../store/new_run.ts";

/** Retriggers runs, as `Engine.retriggerRuns()` does. */
export type Retrigger = (selection: BulkSelection, options: BulkRetriggerOptions) => Promise<BulkResult>;

/**
 * Retriggers runs of jobs whose code is not here: with the stored input, which nothing checks again, and the version that
 * the old run has. The limits of a concurrency key are in the code: such a retry shares its key with no other run.
 */
export function retryStoredRuns(store: Store, host: Host = systemHost): Retrigger {
  return async (selection, { from = "failure", ...options }) => {
    const bulk: CheckedBulk = checkBulk(selection, options, "retry");
    const prepare = async (runId: string) => {
      const request = await requestRetry(store, runId, from);
      return () => store.enqueue([request]);
    };
    return await performBulk("retrigger", bulk, { store, host, guard: null, prepare });
  };
}

async function requestRetry(store: Store, runId: string, from: RetriggerFrom): Promise<NewRun> {
  const history = await store.getHistory(runId);
  if (history === null) throw new NotFoundError(`There is no run "${runId}"`);
  const { run, input, schemaPrint } = history;
  if (!isTerminal(run.status)) throw new ConflictError(`Cannot retrigger run "${runId}": it is ${run.status}`);
  if (run.retriggeredAs !== null) throw new ConflictError(`Run "${runId}" was retriggered before`);
  const { jobName, version, payload, labels, concurrencyKey, scheduleName, slotAt } = run;
  return {
    // That of the engine: of calls at the same time, all find the one run that the first has made.
    id: derivedRunId(runId, `bulk retrigger of ${runId}`),
    jobName,
    version,
    aliases: [],
    schemaPrint,
    payload,
    input,
    labels,
    idempotencyKey: null,
    concurrencyKey,
    coalesce: null,
    trace: null,
    retriggerOf: { runId, from },
    flow: retryFlow(run, { job: UNKNOWN, hasKey: concurrencyKey !== null }),
    schedule: scheduleName === null ? null : { name: scheduleName, slotAt },
  };
}

// What a retry takes of the flow of its job.
const UNKNOWN = { finishWithin: null, keyConcurrency: 1, keyRate: null } as JobFlow;
