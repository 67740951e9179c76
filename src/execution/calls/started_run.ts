import { NotFoundError } from "../../model/error.ts";
import type { Job, StepTriggerOptions } from "../../model/job.ts";
import type { NewRun } from "../../store/new_run.ts";
import { isPromise, type Soon } from "../../values/at_once.ts";
import { checkLabels } from "../../values/name.ts";
import type { Execution } from "../execution.ts";

/** The request for a run that a run starts: it inherits the labels, the priority and the fairness key. */
export function startedRun(
  { deps, claim: { run, priority, fairnessKey } }: Execution,
  call: string,
  job: Job | string,
  input: unknown,
  { labels = {}, ...options }: StepTriggerOptions,
): Soon<NewRun> {
  const explain = (error: unknown): never => {
    if (!(error instanceof NotFoundError)) throw error;
    const name = typeof job === "string" ? job : job.name;
    // The error lists the jobs of the engine. This one becomes that of the run, which clients see.
    throw new TypeError(`${call} cannot start a run of job "${name}": the engine that executes it has no such job`);
  };
  try {
    const started = deps.runs.create(job, input, {
      priority,
      ...(fairnessKey === null ? {} : { fairnessKey }),
      ...options,
      labels: { ...run.labels, ...checkLabels(labels) },
    });
    return isPromise(started) ? started.catch(explain) : started;
  } catch (error) {
    return explain(error);
  }
}
