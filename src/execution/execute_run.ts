import { toFailure } from "../to_failure.ts";
import { StepError, ValidationError } from "../error.ts";
import { isInstance } from "../is_instance.ts";
import { type Failure, failureText, toError } from "../failure.ts";
import type { Job } from "../job.ts";
import { decode, type JsonText } from "../json.ts";
import { parse } from "../schema.ts";
import type { Execution } from "./execution.ts";
import { startDeadline } from "./run_deadline.ts";
import { stepContext } from "./step_context.ts";

/** How an execution of a run ended. */
export type Outcome =
  | { kind: "completed"; text: JsonText | null }
  | { kind: "failed"; failure: Failure; failedStepName: string | null; thrown: unknown }
  | { kind: "waiting" }
  | { kind: "interrupted" };

/** The result of an execution. */
export interface Executed {
  /** How it ended. */
  outcome: Outcome;
  /** Resolves when no code of the job runs any more, in steps or outside; after an interruption possibly never. */
  bodyEnded: Promise<void>;
}

/** Executes a claimed run: calls the job's function, and saves and publishes the outcome. Never throws. */
export async function executeRun(execution: Execution, job: Job): Promise<Executed> {
  const deadline = startDeadline(execution);
  execution.checkDeadline = deadline.check;
  // A trigger inside a step of another run may have woken the worker. Clear the AsyncLocalStorage value of that step,
  // so that this job does not appear to run inside it.
  const body = execution.deps.currentStep.run(undefined, () => callFunction(execution, job));
  const first = await Promise.race([
    body,
    execution.state.released.then((): Outcome => ({ kind: "waiting" })),
    execution.state.interrupted.then((): Outcome => ({ kind: "interrupted" })),
    deadline.exceeded.then(lateOutcome),
  ]);
  deadline.check();
  // A run that returned after its deadline is late, too.
  const isLate = execution.state.isLate && (first.kind === "completed" || first.kind === "failed");
  const outcome = isLate ? lateOutcome(await deadline.exceeded) : first;
  const bodyEnded = execution.bodyEnded();
  const settled = await settle(execution, outcome);
  deadline.cancel();
  return { outcome: settled, bodyEnded };
}

async function callFunction(execution: Execution, job: Job): Promise<Outcome> {
  let outcome: Outcome;
  try {
    const output = await execution.begin(async () =>
      await job.run(stepContext(execution), decode(execution.claim.input))
    );
    await execution.track(checkOutput(execution, job, output)); // prevents parking meanwhile
    outcome = { kind: "completed", text: execution.encode(output, `The output of job "${job.name}"`) };
  } catch (error) {
    outcome = failedOutcome(error);
  }
  execution.state.noteReturn();
  // Wait for the steps that nobody awaited, or that lost in `Promise.race()`: their results are still recorded.
  await execution.workEnded();
  return outcome;
}

async function checkOutput({ deps, abortSignal }: Execution, job: Job, output: unknown): Promise<void> {
  if (job.output === null) return;
  const subject = `The schema of the output of job "${job.name}"`;
  const parsed = await parse(job.output, output, { host: deps.host, subject, abortSignal });
  if (parsed.ok) return;
  const { issues, issuesLeftOut } = parsed;
  const options = { code: "invalid_input", issues, issuesLeftOut } as const;
  throw new ValidationError(`The output of job "${job.name}" does not fit its schema`, options);
}

/** The only place where an ending is saved and published. Returns how the run actually ended. */
async function settle(execution: Execution, outcome: Outcome): Promise<Outcome> {
  if (outcome.kind === "interrupted" || outcome.kind === "waiting") return outcome;
  const { claim, deps } = execution;
  const duration = Math.round(claim.startedAgoMs + deps.host.monotonic() - execution.claimedAt);
  try {
    const ending = outcome.kind === "completed"
      ? { status: "completed" as const, output: outcome.text, durationMs: duration }
      : { status: "failed" as const, failure: outcome.failure, failedStepName: outcome.failedStepName };
    const finish = execution.writeEnd((reports) => deps.store.finish(claim.lease, ending, reports));
    await execution.state.release(finish, () => true);
  } catch {
    return { kind: "interrupted" }; // refused, or given up after an interruption
  }
  if (outcome.kind === "completed") {
    execution.publish({ type: "run:complete", output: decode(outcome.text) ?? null, duration });
  } else {
    const { failure, failedStepName, thrown } = outcome;
    const error = failureText(failure);
    execution.publish({ type: "run:fail", error, failedStepName, failureKind: failure.kind, thrown });
  }
  return outcome;
}

/** The failure of a run that did not end in time. */
function lateOutcome(failure: Failure): Outcome {
  return { kind: "failed", failure, failedStepName: null, thrown: toError(failure) };
}

/** The failure of a run whose function threw. */
function failedOutcome(thrown: unknown): Outcome {
  return {
    kind: "failed",
    // If a step timed out, the run has failed with an error: the run itself has no timeout.
    failure: { ...toFailure(thrown), kind: "error" },
    failedStepName: findFailedStep(thrown),
    thrown,
  };
}

// How many errors are searched: the thrown one and its causes. A stored failure has as many at most.
const MAX_ERRORS = 5;

/** The step whose failure was thrown, or is the cause of what was thrown; `null` if there is none. */
function findFailedStep(thrown: unknown): string | null {
  let error = thrown;
  for (let depth = 0; depth < MAX_ERRORS && isInstance(error, Error); depth++) {
    if (isInstance(error, StepError)) return error.stepName;
    try {
      error = error.cause;
    } catch {
      return null; // a getter that throws
    }
  }
  return null;
}
