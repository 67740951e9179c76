import { ValidationError } from "../error.ts";
import { failureText } from "../failure.ts";
import type { Job } from "../job.ts";
import { decode } from "../json.ts";
import { parse } from "../schema.ts";
import { type Execution, failedOutcome, type Outcome } from "./execution.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";
import { stepContext } from "./step_context.ts";

/** The result of a pass. */
export interface Executed {
  /** How it ended. */
  outcome: Outcome;
  /** Resolves when no code of the job runs any more, in steps or outside; after an interruption possibly never. */
  bodyEnded: Promise<void>;
}

/** One pass over a claimed run: calls the job's function, and saves and publishes the outcome. Never throws. */
export async function execute(execution: Execution, job: Job): Promise<Executed> {
  // Leaves the async context of any step: a trigger inside a step may have woken the worker.
  const body = execution.deps.currentStep.run(undefined, () => callFunction(execution, job));
  const outcome = await Promise.race([
    body,
    execution.parked.then((): Outcome => ({ kind: "waiting" })),
    execution.interrupted.then((): Outcome => ({ kind: "interrupted" })),
  ]);
  const bodyEnded = execution.bodyEnded();
  return { outcome: await settle(execution, outcome), bodyEnded };
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
  execution.noteReturn();
  // Steps that nobody awaited, or that lost a race, end first: their results are still recorded.
  await execution.attemptsSettled();
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
  const { claim, deps, abortSignal } = execution;
  const duration = Math.round(claim.startedAgoMs + deps.host.monotonic() - execution.claimedAt);
  try {
    const ending = outcome.kind === "completed"
      ? { status: "completed" as const, output: outcome.text, durationMs: duration }
      : { status: "failed" as const, failure: outcome.failure, failedStepName: outcome.failedStepName };
    const finish = () => execution.writeWithReports((reports) => deps.store.finish(claim.lease, ending, reports));
    await execution.leave(retryStoreCall(finish, deps, abortSignal), () => true);
  } catch (error) {
    execution.noteRefusal(error);
    return { kind: "interrupted" };
  }
  if (outcome.kind === "completed") {
    execution.publish({ type: "run:complete", output: decode(outcome.text) ?? null, duration });
  } else {
    const { failure, failedStepName, thrown } = outcome;
    execution.publish({ type: "run:fail", error: failureText(failure), failedStepName, thrown });
  }
  return outcome;
}
