import type { StepContext } from "../model/job.ts";
import type { StepTools } from "../model/job/step_calls.ts";
import type { RetriggerFrom, StoredRun } from "../model/run.ts";
import type { Claim } from "../store/claim.ts";
import type { NewRun } from "../store/new_run.ts";

/** A call of the function of a step. */
export interface StepCall {
  /** The claim of the run. */
  claim: Claim;
  /** The name of the step, with its occurrence. */
  stepName: string;
  /** The argument of the function. */
  tools: StepTools;
  /** Calls the function. */
  work: () => unknown;
}

/** What surrounds an engine: a test kit replaces it. */
export interface Surroundings {
  /**
   * Whether others change the store without notice, so that the engine has to poll for it. If not, the engine does what
   * is due when it is due, and looks for more when it is woken.
   */
  readonly polls: boolean;
  /** Calls the function of a job with its input and its `step`, or with another object that does what `step` does. */
  callJob<T>(claim: Claim, input: unknown, step: StepContext, body: (step: StepContext) => T): T;
  /** Calls the function of a step; a test kit may return another result or throw in its place. */
  callStep(call: StepCall): unknown;
  /** Called before a transaction of a step commits. What it throws rolls the transaction back. */
  beforeCommit?(claim: Claim, stepName: string): void;
  /** Makes the request for the retry of a run. Left out: the engine does, by the definition of its job. */
  requestRetry?: RequestRetry;
}

/** Makes the request for the retry of a run that has ended, and finds that run. `by`: who asks for it. */
export type RequestRetry = (
  runId: string,
  from: RetriggerFrom,
  by: string | null,
) => Promise<{ request: NewRun; old: StoredRun }>;

/** The surroundings of an engine in production. */
export const PRODUCTION: Surroundings = {
  polls: true,
  callJob: (_claim, _input, step, body) => body(step),
  callStep: ({ work }) => work(),
};
