import type { ExecutionDeps } from "../../execution/execution.ts";
import { newTriggerInfo, refused, runAround, type TriggerInfo, type TriggerOutcome } from "../../model/around.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import { actorOf, encodeOrigin, type TraceContext, traceOf } from "../../model/origin.ts";

type AddAroundDeps = Pick<ExecutionDeps, "store" | "around">;

/**
 * Adds runs of one job, and calls the plugins' hooks around triggers. The new runs have the trace that a plugin has set.
 *
 * @param add Adds them, once or several times.
 * @param toEnqueued What was added or found, in the order of the requests; `null`: nothing was.
 * @returns What `add` returns.
 */
export async function addAround<T>(
  requests: readonly NewRun[],
  add: (requests: readonly NewRun[]) => Promise<T>,
  toEnqueued: (answer: T) => readonly Enqueued[] | null,
  { store, around }: AddAroundDeps,
): Promise<T> {
  const [first] = requests;
  if (around.trigger === null || first === undefined) return await add(requests);
  const { jobName, retriggerOf, schedule } = first;
  const info: TriggerInfo = {
    ...newTriggerInfo(jobName, requests.length),
    retriggerOf: retriggerOf === null ? null : { ...retriggerOf, trace: await traceOfRun(retriggerOf.runId, store) },
    isScheduled: retriggerOf === null && schedule !== null && schedule.slotAt !== null,
  };
  return await runAround(around.trigger, info, async (end) => {
    const answer = await add(
      requests.map((request) => ({ ...request, trace: encodeOrigin(info.trace, actorOf(request.trace)) })),
    );
    toOutcome(toEnqueued(answer), store).then(end); // the caller does not wait for what it reads
    return answer;
  }, refused);
}

async function toOutcome(
  enqueued: readonly Enqueued[] | null,
  store: AddAroundDeps["store"],
): Promise<TriggerOutcome> {
  if (enqueued === null) return { kind: "skipped" };
  const runs = enqueued.map(async ({ run: { id }, disposition }) => ({
    id,
    disposition,
    trace: disposition === "created" ? null : await traceOfRun(id, store),
  }));
  return { kind: "triggered", runs: await Promise.all(runs) };
}

/** The trace of a run; `null` also if it cannot be read: no trigger fails for that. */
async function traceOfRun(runId: string, store: AddAroundDeps["store"]): Promise<TraceContext | null> {
  const state = await store.getRunState(runId).catch(() => null);
  return traceOf(state?.trace ?? null);
}
