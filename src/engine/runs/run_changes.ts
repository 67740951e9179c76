import type { ExecutionDeps } from "../../execution/execution.ts";
import type { Worker } from "../../execution/worker.ts";
import { untilKnown } from "../../events/retry_store_call.ts";
import { refused, runAround, type SignalInfo, toSignalResult } from "../../model/around.ts";
import { ConflictError, NotFoundError, ValidationError } from "../../model/error.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { type ActorOptions, encodeOrigin, type TraceContext, withActor } from "../../model/origin.ts";
import { isTerminal, type StoredRun } from "../../model/run.ts";
import { checkSignal, type Signal, type SignalOutcome, type SignalReceipt, type Wait } from "../../model/wait.ts";
import { getRun, getSteps } from "../../store/reads.ts";
import { checkPayload } from "./check_payload.ts";
import { readRun } from "./read_run.ts";
import { currentWait } from "./retried_waits.ts";

/** How a held run is resumed. */
export interface ResumeOptions extends ActorOptions {
  /** `continue`: what is new is executed in this run, now and later. Default: it is held again if it diverges again. */
  onDivergence?: "continue";
}

/** The names of the options of a resumption. */
export const RESUME_OPTIONS: Record<keyof ResumeOptions, true> = { onDivergence: true, by: true };

/** Whether a resumed run goes on with what is new. */
export function checkContinues({ onDivergence }: ResumeOptions): boolean {
  if (onDivergence === undefined || onDivergence === "continue") return onDivergence === "continue";
  throw new ValidationError('onDivergence of a resumed run can only be "continue"');
}

type RunChangesDeps = Pick<ExecutionDeps, "store" | "hub" | "host" | "around" | "recorder" | "maxValueBytes"> & {
  jobs: JobCatalog;
  /** The current worker. */
  worker: () => Pick<Worker, "executionOf" | "cancel" | "nudge" | "wake">;
};

/** Cancels, deletes, signals and resumes runs. */
export class RunChanges {
  readonly #deps: RunChangesDeps;

  constructor(deps: RunChangesDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.cancel()`. */
  async cancel(runId: string, by: string | null): Promise<StoredRun> {
    const { store, hub, host, worker } = this.#deps;
    const execution = worker().executionOf(runId);
    const requestId = withActor(host.newId(), by);
    const run = await untilKnown(() => store.cancel(runId, requestId, execution));
    if (run === null) {
      const { status } = await readRun(store, runId);
      throw new ConflictError(`Cannot cancel run "${runId}": it is already ${status}`);
    }
    worker().cancel(runId);
    worker().wake(); // a run that waits for this one is due now
    if (execution !== null) await this.#publishCancelledSteps(run, execution.steps);
    hub.publish(run, { type: "run:cancel", by });
    return run;
  }

  /** Publishes the steps that the cancel recorded as cancelled; a step may have been recorded before it. */
  async #publishCancelledSteps(run: StoredRun, executing: readonly { name: string }[]): Promise<void> {
    if (executing.length === 0) return;
    const names = new Set(executing.map(({ name }) => name));
    const steps = await getSteps(this.#deps.store, run.id).catch(() => []);
    for (const { name, index, status } of steps) {
      if (status !== "cancelled" || !names.has(name)) continue;
      this.#deps.hub.publish(run, { type: "step:cancel", stepName: name, stepIndex: index });
    }
  }

  /** Does `Engine.deleteRun()`. */
  async delete(runId: string, by: string | null): Promise<void> {
    const { store, hub } = this.#deps;
    const run = await store.delete(runId, by);
    if (run === null) {
      const { status, endRunId } = await readRun(store, runId);
      const end = endRunId === null ? null : await getRun(store, endRunId);
      if (isTerminal(status) && end !== null) {
        throw new ConflictError(`Run "${runId}" is being cleaned up: run "${end.id}" (${end.status})`);
      }
      throw new ConflictError(`Cannot delete run "${runId}": it is ${status}`);
    }
    hub.publish(run, { type: "run:delete", by });
  }

  /** Does `Engine.resume()`: lets a held run be tried again. */
  async resume(runId: string, continues: boolean, by: string | null): Promise<StoredRun> {
    const { store, hub, worker } = this.#deps;
    const run = await untilKnown(() => store.resumeHeld(runId, continues, by));
    if (run === null) {
      const { status } = await readRun(store, runId);
      throw new ConflictError(`Cannot resume run "${runId}": it is not held, but ${status}`);
    }
    hub.publish(run, { type: "run:resume", by });
    worker().wake();
    return run;
  }

  /**
   * Does `Engine.signal()`.
   *
   * @param isChecked Whether {@linkcode RunChanges.checkPayload} has allowed it for this very wait.
   */
  async signal(waitId: string, given: Signal, by: string | null, isChecked = false): Promise<SignalReceipt> {
    const { store, maxValueBytes } = this.#deps;
    const signal = checkSignal(given, maxValueBytes);
    const found = isChecked ? null : await store.getWait(waitId);
    const wait = found === null ? null : await currentWait(this.#deps, found);
    if (wait !== null) await this.checkPayload(wait, signal);
    const outcome = await this.#signalAround(wait?.id ?? waitId, signal, by)
      .catch((error) => this.#explainUnknownWait(waitId, error));
    return this.noteSignal(outcome);
  }

  /** Refuses a signal whose payload does not fit the schema of its wait. */
  async checkPayload(wait: Wait, signal: Signal): Promise<void> {
    const { jobs, store, host } = this.#deps;
    const findRun = async (runId: string) => (await store.readRuns([runId], Infinity))[0] ?? null;
    await checkPayload(wait, signal, { jobs, findRun, host });
  }

  /** Notes a signal that the store has answered, and looks at once for what it makes due. */
  noteSignal({ run, ...receipt }: SignalOutcome): SignalReceipt {
    const { recorder, worker } = this.#deps;
    if (receipt.disposition === "accepted") recorder.noteWait(run.jobName, "signal");
    worker().nudge(run.id);
    worker().wake();
    return receipt;
  }

  /** Ends a wait, and calls the plugins' hooks around signals. */
  #signalAround(waitId: string, signal: Signal, by: string | null): Promise<SignalOutcome> {
    const { store, around } = this.#deps;
    const send = (trace: TraceContext | null) =>
      untilKnown(() => store.signal(waitId, signal, encodeOrigin(trace, by)));
    if (around.signal === null) return send(null);
    const info: SignalInfo = { waitId, signalId: signal.signalId, trace: null };
    return runAround(around.signal, info, async (end) => {
      const outcome = await send(info.trace);
      end(toSignalResult(outcome));
      return outcome;
    }, refused);
  }

  /** Explains an id that is not a wait's, if it is a run's. Otherwise throws the error. */
  async #explainUnknownWait(id: string, error: unknown): Promise<never> {
    if (!(error instanceof NotFoundError) || await getRun(this.#deps.store, id) === null) throw error;
    throw new NotFoundError(`"${id}" is the id of a run: signal one of its waits, which engine.getWaits() lists`);
  }
}
