import { StepError, ValidationError } from "../model/error.ts";
import { isInstance } from "../values/unknown_values.ts";
import { type Failure, failureText, toError } from "../model/failure.ts";
import type { EndData } from "../model/end.ts";
import type { Job, StepContext } from "../model/job.ts";
import { decode, type JsonText } from "../values/json.ts";
import { parse } from "../model/schema.ts";
import type { NewHold } from "../store/hold_record.ts";
import { tidyText } from "../values/text.ts";
import { type CurrentInput, isInputCurrent, upgradeInput } from "./replay/current_input.ts";
import { divergenceMessage } from "./replay/divergence_message.ts";
import type { Execution } from "./execution.ts";
import { RecordedHistory } from "./replay/recorded_history.ts";
import { type Divergence, type Replay, ReplayGuard } from "./replay/replay_guard.ts";
import { startDeadline } from "./run_deadline.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";
import { cleanUp, readEnd } from "./calls/end_calls.ts";
import { stepContext } from "./calls/step_context.ts";

/** How an execution of a run ended. */
export type Outcome =
  | { kind: "completed"; text: JsonText | null }
  | { kind: "failed"; failure: Failure; failedStepName: string | null; thrown: unknown; stillExecuting?: boolean }
  | { kind: "waiting" }
  | { kind: "held"; hold: NewHold }
  | { kind: "interrupted" };

type Refusal = Exclude<CurrentInput, { input: JsonText | null }>;

/** The result of an execution. */
export interface Executed {
  /** How it ended. */
  outcome: Outcome;
  /** Resolves when no code of the job runs any more, in steps or outside; after an interruption possibly never. */
  bodyEnded: Promise<void>;
}

/**
 * Executes a claimed run: calls the job's function, and saves and publishes the outcome. Never throws.
 *
 * @param replay The records of the run and their guard; left out: made from its claim.
 */
export async function executeRun(execution: Execution, replay: Replay = newReplay(execution)): Promise<Executed> {
  const isNew = replay.guard.isClear; // it has recorded nothing that its job could leave out
  const deadline = startDeadline(execution);
  execution.checkDeadline = deadline.check;
  // A trigger inside a step of another run may have woken the worker. Clear the AsyncLocalStorage value of that step,
  // so that this job does not appear to run inside it.
  const body = execution.deps.currentStep.run(undefined, () => callFunction(execution, replay));
  const ends = [
    body,
    execution.state.released.then((): Outcome => ({ kind: "waiting" })),
    execution.state.interrupted.then((): Outcome => ({ kind: "interrupted" })),
  ];
  if (execution.claim.finishInMs !== null) ends.push(deadline.exceeded.then(lateOutcome));
  if (!isNew) ends.push(replay.guard.diverged.then((divergence) => divergedOutcome(execution, divergence)));
  const first = await Promise.race(ends);
  deadline.check();
  // A run that returned after its deadline is late, too.
  const isLate = execution.state.isLate && first.kind !== "waiting" && first.kind !== "interrupted";
  const late = isLate ? lateOutcome(await deadline.exceeded) : first;
  // Functions that ignore their `abortSignal` keep what the run holds.
  const outcome = execution.state.isLate && late.kind === "failed"
    ? { ...late, stillExecuting: !execution.hasEnded }
    : late;
  const bodyEnded = execution.bodyEnded();
  const settled = await settle(execution, outcome);
  deadline.cancel();
  publishDivergence(execution, replay, settled);
  return { outcome: settled, bodyEnded };
}

function newReplay(execution: Execution): Replay {
  const { claim, definition: { job: { changes } }, onDivergence } = execution;
  const history = new RecordedHistory(claim, changes);
  return { history, guard: new ReplayGuard(execution, history, changes, onDivergence) };
}

async function callFunction(execution: Execution, replay: Replay): Promise<Outcome> {
  const { definition: { job } } = execution;
  let outcome: Outcome;
  let thrown: { error: unknown } | null = null;
  try {
    const read: CurrentInput = isInputCurrent(execution)
      ? execution.claim
      : await execution.begin(() => execution.track(upgradeInput(execution)));
    const refused = "refusal" in read ? refusedOutcome(execution, read) : null;
    if (refused !== null) {
      execution.state.noteReturn();
      return refused;
    }
    if (replay.guard.isClear) execution.slot.noteFit();
    const { input } = "refusal" in read ? execution.claim : read;
    const end = job.endOf ? await execution.begin(() => execution.track(endOf(execution, input))) : null;
    const { surroundings } = execution.deps;
    const output = await execution.begin(async () => {
      const value = decode(input);
      const context = stepContext(execution, replay);
      const call = end === null
        ? (step: StepContext) => job.run(step, value)
        : (step: StepContext) => cleanUp(execution, job, step, end);
      const returned = await surroundings.callJob(execution.claim, value, context, call);
      execution.calls.warnOfUnawaited(); // not of one that has thrown, perhaps before its `await`
      return returned;
    });
    await execution.track(checkOutput(execution, job, output)); // prevents parking meanwhile
    outcome = { kind: "completed", text: execution.encode(output, `The output of job "${job.name}"`) };
  } catch (error) {
    outcome = failedOutcome(execution, error);
    thrown = { error };
  }
  await replay.guard.untilMayEnd(thrown);
  execution.state.noteReturn();
  // Wait for the steps that nobody awaited, or that lost in `Promise.race()`: their results are still recorded.
  await execution.workEnded();
  return outcome;
}

/** How the run ended after which this one cleans up. */
function endOf({ deps, abortSignal }: Execution, input: JsonText | null): Promise<EndData> {
  return retryStoreCall(() => readEnd(deps.store, decode(input)), deps, abortSignal);
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
  if (outcome.kind === "held") return await hold(execution, outcome);
  const duration = Math.round(claim.startedAgoMs + deps.host.monotonic() - execution.claimedAt);
  try {
    const ending = outcome.kind === "completed"
      ? { status: "completed" as const, output: outcome.text, durationMs: duration }
      : {
        status: "failed" as const,
        failure: outcome.failure,
        failedStepName: outcome.failedStepName,
        ...(outcome.stillExecuting === true ? { stillExecuting: true as const } : {}),
      };
    const finish = execution.writeEnd((reports) => deps.store.finish(execution.lease, ending, reports));
    await execution.state.release(finish, () => true);
  } catch {
    return { kind: "interrupted" }; // refused, or given up after an interruption
  }
  if (outcome.kind === "completed") {
    const output = execution.outputFor("run:complete", outcome.text);
    execution.publish({ type: "run:complete", output, duration });
  } else {
    const { failure, failedStepName, thrown } = outcome;
    const error = failureText(failure);
    deps.recorder.noteFailed(claim.run.jobName, "duration", duration);
    execution.publish({ type: "run:fail", error, failedStepName, failureKind: failure.kind, thrown });
  }
  return outcome;
}

/** Saves and publishes that a run is held. */
async function hold(execution: Execution, outcome: Outcome & { kind: "held" }): Promise<Outcome> {
  const { deps } = execution;
  try {
    const holding = execution.writeEnd((reports) => deps.store.hold(execution.lease, outcome.hold, reports));
    await execution.state.release(holding, () => true);
  } catch {
    return { kind: "interrupted" };
  }
  const { code, message } = outcome.hold;
  execution.publish({ type: "run:hold", code, message });
  return outcome;
}

/** What becomes of a run whose job did not ask for what the run has recorded. */
function divergedOutcome(execution: Execution, divergence: Divergence): Outcome {
  const { code, isNew, unasked } = divergence;
  const details = { isNew, unasked: unasked.slice(0, MAX_UNASKED), issues: [] };
  return refusedBy(execution, { code, message: divergenceMessage(divergence), details });
}

/** What becomes of a run whose input does not fit any more; `null`: the job's function receives it. */
function refusedOutcome(execution: Execution, { refusal, issues }: Refusal): Outcome | null {
  if (execution.onDivergence === "continue") return null;
  const details = { isNew: null, unasked: [], issues };
  return refusedBy(execution, { code: "input_refused", message: refusal, details });
}

function refusedBy(execution: Execution, reason: Omit<NewHold, "print">): Outcome {
  if (execution.onDivergence === "fail") return failedOutcome(execution, new Error(reason.message));
  const message = tidyText(`Held: ${reason.message}`, MAX_MESSAGE_LENGTH);
  return { kind: "held", hold: { ...reason, message, print: execution.definition.print } };
}

/** Publishes how a run differed that went on although its job had not asked for all that it has recorded. */
function publishDivergence(execution: Execution, { history, guard }: Replay, { kind }: Outcome): void {
  if (execution.onDivergence !== "continue" || execution.state.isSuperseded) return;
  const hasEnded = kind === "completed" || kind === "failed";
  if (guard.begunAnyway.length === 0 && !(hasEnded && !guard.isClear)) return;
  execution.publish({ type: "run:diverged", isNew: guard.begunAnyway, unasked: history.unasked() });
}

/** The failure of a run that did not end in time. */
function lateOutcome(failure: Failure): Outcome {
  return { kind: "failed", failure, failedStepName: null, thrown: toError(failure) };
}

/** The failure of a run whose function threw. */
function failedOutcome(execution: Execution, thrown: unknown): Outcome {
  return {
    kind: "failed",
    // If a step timed out, the run has failed with an error: the run itself has no timeout.
    failure: { ...execution.toFailure(thrown), kind: "error" },
    failedStepName: findFailedStep(thrown),
    thrown,
  };
}

const MAX_UNASKED = 100;
const MAX_MESSAGE_LENGTH = 2_048;
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
