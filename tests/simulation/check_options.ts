import type { TriggerOptions } from "../../src/engine/triggers/new_run.ts";
import type { FlowDefinition } from "../../src/model/flow.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import type { Facts, RunFacts } from "./facts.ts";
import { jobOf } from "./renames_plan.ts";

/** A run that somebody has asked for. */
export interface AskedRun {
  jobName: string;
  payload: string;
  options: TriggerOptions;
  /** The priority that it has unless the options say another one; `undefined`: that of its job. */
  priority?: number;
  /** Whether others than the options decide on its fairness key: the tenant, or the run that starts it. */
  hasOtherFairness?: boolean;
}

/** A new run has what somebody who asked for it has given as options, and what its job says. */
export function checkOptions(facts: Facts, made: NewRun): void {
  const asked = facts.askedRuns.get(made.payload ?? "")?.filter(({ jobName }) => jobName === jobOf(made.jobName)) ?? [];
  facts.expect(
    asked.length === 0 || asked.some((one) => isMadeSo(facts, made, one)),
    "I12",
    () => `${made.id} was made as ${JSON.stringify(made)}, asked for was ${JSON.stringify(asked)}`,
  );
}

/** Whether a run is the one that was asked for, by the code of one of the versions. */
export function isMadeSo(facts: Facts, made: NewRun, asked: AskedRun): boolean {
  const definitions: readonly FlowDefinition[] = facts.definitions?.[made.jobName] ?? [{}];
  return definitions.some((job) => isMadeBy(made, asked, job));
}

function isMadeBy(
  { flow, concurrencyKey, coalesce }: NewRun,
  { options, priority, hasOtherFairness }: AskedRun,
  job: FlowDefinition,
): boolean {
  const { delay, startAt } = options;
  const start = startAt !== undefined
    ? { at: new Date(startAt).getTime() }
    : delay === undefined
    ? null
    : { afterMs: delay };
  // A tenant's keys have its name in front.
  const hasKey = options.concurrencyKey === undefined
    ? concurrencyKey === null
    : concurrencyKey?.endsWith(options.concurrencyKey) === true;
  const hasFairness = hasOtherFairness || options.fairnessKey === undefined || flow.fairnessKey === options.fairnessKey;
  return hasKey && hasFairness && coalesce === (options.coalesce ?? null) &&
    flow.priority === (options.priority ?? priority ?? job.priority ?? 0) &&
    flow.startWithin === (options.startWithin ?? job.startWithin ?? null) &&
    flow.finishWithin === (options.finishWithin ?? job.finishWithin ?? null) &&
    flow.keyConcurrency === (concurrencyKey === null ? 1 : job.limits?.perKey?.concurrency ?? 1) &&
    JSON.stringify(flow.start) === JSON.stringify(start);
}

/** A retry has the order, the turns and the key of the run that it retries, and starts at once. */
export function checkRetryOptions(
  facts: Facts,
  { id, flow, concurrencyKey }: NewRun,
  { request: old }: RunFacts,
): void {
  facts.expect(
    flow.priority === old.flow.priority && flow.fairnessKey === old.flow.fairnessKey && flow.start === null &&
      concurrencyKey === old.concurrencyKey && (flow.startWithin === null) === (old.flow.startWithin === null),
    "I12",
    () => `${id} has the flow ${JSON.stringify(flow)}, that of ${old.id} was ${JSON.stringify(old.flow)}`,
  );
}
