import { toFailure } from "../../model/to_failure.ts";
import type { Job, StepContext } from "../../model/job.ts";
import type { PayloadOptions, WaitForSignalOptions } from "../../model/job/step_calls.ts";
import type { ReceiveOptions } from "../../model/job/job_messages.ts";
import { encode, type JsonText, parseValue } from "../../values/json.ts";
import { fitLine, type LogLevel } from "../../model/log.ts";
import { tidyText } from "../../values/text.ts";
import type { Wait } from "../../model/wait.ts";
import type { Execution } from "../execution.ts";
import { ChildCalls } from "./child_calls.ts";
import { Parking } from "./parking.ts";
import { PauseCalls } from "./pause_calls.ts";
import { MessageCalls } from "./message_calls.ts";
import type { Replay } from "../replay/replay_guard.ts";
import { StepCalls } from "./step_calls.ts";
import { TransactionCalls } from "./transaction_calls.ts";

type WaitOptions = WaitForSignalOptions & PayloadOptions<unknown>;

const MAX_MESSAGE_LENGTH = 1_024;
const MAX_LOG_LENGTH = 8_192;

/** Creates the `StepContext` of a job's function: returns recorded results, and executes and records new steps. */
export function stepContext(execution: Execution, replay: Replay): StepContext {
  const { claim, deps, abortSignal } = execution;
  const parking = new Parking(execution);
  const steps = new StepCalls(execution, parking, replay);
  // Made when they are first called: most runs use none of them.
  const pauses = lazy(() => new PauseCalls(execution, parking, replay));
  const transactions = lazy(() => new TransactionCalls(execution, steps));
  const messages = lazy(() => new MessageCalls(execution, { pauses: pauses(), steps }, replay.history));
  const children = lazy(() => new ChildCalls(execution, parking, { pauses: pauses(), steps }, replay));
  /**
   * Whether a report is published. Code that a replay repeats has reported before, except in the function of a step,
   * which is only called if the step is not recorded. Reports after the end of the run are dropped.
   */
  const isSilent = () =>
    execution.state.isOver || (execution.order.isReplaying && deps.currentStep.getStore() === undefined);
  const forJob = <T>(method: keyof StepContext, name: unknown, call: Promise<T>): Promise<T> =>
    execution.calls.forJob(call, method, name);
  const log = (level: LogLevel) => (message: string, data?: unknown) => {
    if (isSilent()) return;
    const text = tidyText(String(message), MAX_LOG_LENGTH);
    const line = fitLine({ message: text, data: logData(execution, data) });
    execution.reports.add({
      kind: "log",
      stepName: deps.currentStep.getStore() ?? null,
      level,
      message: line.message,
      data: parseValue(line.data),
    });
  };
  return {
    runId: claim.run.id,
    execution: claim.execution,
    slotAt: claim.slotAt,
    slot: claim.slot === null ? null : JSON.parse(claim.slot),
    abortSignal,
    // The recorded value has the return type of the function: it is the same step.
    run: (name, work, options) => forJob("run", name, steps.run(name, work, options ?? undefined)) as never,
    transaction: (name, source, work, options) =>
      forJob("transaction", name, transactions().transaction(name, source, work as never, options ?? {})) as never,
    sleep: (name, after) => forJob("sleep", name, pauses().sleep(name, { after })),
    sleepUntil: (name, date) => forJob("sleepUntil", name, pauses().sleep(name, { at: new Date(date).getTime() })),
    prepareWait: (name: string, options?: WaitOptions) =>
      forJob("prepareWait", name, pauses().prepareWait(name, options ?? {})) as never,
    waitFor: (wait: Pick<Wait, "id">, options?: PayloadOptions<unknown>) =>
      forJob("waitFor", (wait as Partial<Wait> | undefined)?.name, pauses().waitFor(wait, options ?? {})) as never,
    wait: (name: string, options?: WaitOptions) => forJob("wait", name, pauses().wait(name, options ?? {})) as never,
    // The output is stored as JSON: it has the type that the job infers from its function.
    invoke: (name, job, input, options) =>
      forJob("invoke", name, children().invoke(name, job as Job, input, options ?? {})) as never,
    invokeAll: (name, job, items) => forJob("invokeAll", name, children().invokeAll(name, job as Job, items)) as never,
    trigger: (name, job, input, options) =>
      forJob("trigger", name, children().trigger(name, job as Job, input, options ?? {})),
    // A message has the type that the schema of its name has.
    receive: (name: string, options?: ReceiveOptions) =>
      forJob("receive", name, messages().receive(name, options ?? {})) as never,
    respond: (message, value) =>
      forJob("respond", (message as { id?: unknown } | undefined)?.id, messages().respond(message, value)),
    send: (name, to, message, payload) => forJob("send", name, messages().send(name, to, message, payload)),
    patch: (name) => forJob("patch", name, pauses().patch(name)),
    progress: (current, total, message) => {
      checkProgress(current);
      if (total !== undefined) checkProgress(total);
      if (isSilent()) return;
      const progress = {
        current,
        ...(total === undefined ? {} : { total }),
        ...(message === undefined ? {} : { message: tidyText(String(message), MAX_MESSAGE_LENGTH) }),
      };
      execution.reports.add({ kind: "progress", progress });
    },
    log: { info: log("info"), warn: log("warn"), error: log("error") },
  };
}

/** Returns a function that makes something when it is called first, and returns the same from then on. */
function lazy<T extends object>(make: () => T): () => T {
  let made: T | undefined;
  return () => made ??= make();
}

function checkProgress(number: unknown): void {
  if (!Number.isFinite(number)) throw new RangeError(`Progress must be finite numbers, not ${String(number)}`);
}

/** A log line must not fail a run: data that cannot be stored is replaced by a note. */
function logData({ deps: { maxValueBytes: maxBytes } }: Execution, data: unknown): JsonText | null {
  try {
    return encode(data, { subject: "The data of this line", maxBytes, errorsAsText: true });
  } catch (error) {
    return JSON.stringify({ error: toFailure(error).message });
  }
}
