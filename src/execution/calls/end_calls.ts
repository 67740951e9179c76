import type { EndContext, EndData, UndoOptions, UndoTools } from "../../model/end.ts";
import { undoName } from "../../model/end.ts";
import { idempotencyKeyOf } from "../../model/step.ts";
import type { Job, StepContext } from "../../model/job.ts";
import type { JobChanges } from "../../model/job/job_changes.ts";
import type { TerminalStatus } from "../../model/run.ts";
import type { RunHistory } from "../../store/hold_record.ts";
import type { Store } from "../../store/store.ts";
import { retryStoreCall } from "../../events/retry_store_call.ts";
import { decode, type Json } from "../../values/json.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Execution } from "../execution.ts";
import { oldNamesOf } from "../replay/recorded_history.ts";

// How long an end run sleeps until it looks again whether its run is still executed.
const LOOK_AGAIN_MS = 250;

/**
 * The input of an end run: how its run ended. An exported history has it; otherwise it is read.
 *
 * @throws {TypeError} The run was deleted.
 */
export async function readEnd(store: Pick<Store, "getHistory">, input: Json | undefined): Promise<EndData> {
  const given = input as unknown as EndData | { runId: string }; // what the store has made, or an export
  if ("steps" in given) return given;
  const history = await store.getHistory(given.runId);
  if (history === null) throw new TypeError(`There is no run "${given.runId}" any more, after which to clean up`);
  return toEndData(history);
}

function toEndData({ run, input, steps, copied, originId }: RunHistory): EndData {
  const undone = copied?.undone ?? {};
  const completed = steps.filter(({ result }) => result.status === "completed")
    .sort((left, right) => left.recordedNo - right.recordedNo);
  const [given, output] = [decode(input), decode(run.output)];
  return {
    runId: run.id,
    status: run.status as TerminalStatus, // its end has added the end run
    ...(given === undefined ? {} : { input: given }),
    ...(run.status !== "completed" || output === undefined ? {} : { output }),
    error: run.error,
    failureKind: run.failureKind,
    steps: completed.map(({ name, result }) => {
      const value = result.status === "completed" ? decode(result.output) : undefined;
      return { name, key: idempotencyKeyOf(name, originId, undone), ...(value === undefined ? {} : { output: value }) };
    }),
    originId,
    undone,
  };
}

/** Calls the function that cleans up after a run, when no code of that run is executed any more. */
export async function cleanUp(execution: Execution, job: Job, step: StepContext, data: EndData): Promise<unknown> {
  const { deps, abortSignal } = execution;
  const isExecuted = async () => {
    const leases = await retryStoreCall(() => deps.store.getLeases(), deps, abortSignal);
    return leases.some(({ runId }) => runId === data.runId);
  };
  while (await step.run("look whether the run is still executed", isExecuted)) {
    await step.sleep("until the run is not executed", LOOK_AGAIN_MS);
  }
  return await job.run(step, toContext(step, data, job.endOf!)); // it cleans up
}

const UNDO_OPTIONS: Record<keyof UndoOptions, true> = { always: true, retry: true, timeout: true };

function toContext(step: StepContext, data: EndData, changes: JobChanges): EndContext {
  const { runId, status, input, output, error, failureKind } = data;
  const steps = new Map(data.steps.map((one) => [one.name, one]));
  const recordedName = (name: string) => [name, ...oldNamesOf(name, changes)].find((one) => steps.has(one)) ?? name;
  const result = <T>(name: string) => steps.get(recordedName(name))?.output as T | undefined;
  return {
    runId,
    status,
    input,
    output,
    error,
    failureKind,
    completed: data.steps.map(({ name }) => name),
    result,
    undo: async (givenName, work, options = {}) => {
      checkOptionNames(options, UNDO_OPTIONS, "end.undo()");
      const { always = false, ...ofStep } = options;
      const name = recordedName(givenName);
      if (!steps.has(name) && !always) return undefined;
      return await step.run(undoName(name), ({ idempotencyKey, attempt, abortSignal }) => {
        const tools: UndoTools = {
          stepKey: idempotencyKeyOf(name, data.originId, data.undone),
          idempotencyKey,
          attempt,
          abortSignal,
        };
        return work(result<Json>(name), tools);
      }, ofStep);
    },
  };
}
