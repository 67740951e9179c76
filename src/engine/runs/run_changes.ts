import { runAround, type SignalInfo, type SignalResult } from "../../model/around.ts";
import { ConflictError, NotFoundError } from "../../model/error.ts";
import type { Worker } from "../../execution/worker.ts";
import { isTerminal, type StoredRun } from "../../model/run.ts";
import { encodeOrigin, type TraceContext, withActor } from "../../model/origin.ts";
import type { Signal, SignalOutcome, SignalReceipt } from "../../model/wait.ts";
import { untilKnown } from "../triggers/until_known.ts";
import { getRun, getSteps } from "../../store/reads.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import { readRun } from "./read_run.ts";

type RunChangesDeps = Pick<ExecutionDeps, "store" | "hub" | "host" | "around" | "recorder"> & {
  /** The current worker. */
  worker: () => Pick<Worker, "executionOf" | "cancel" | "nudge" | "wake">;
};

/** Cancels, deletes and signals runs. */
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
    const run = await this.#deps.store.delete(runId, by);
    if (run === null) {
      const { status, endRunId } = await readRun(this.#deps.store, runId);
      const end = endRunId === null ? null : await getRun(this.#deps.store, endRunId);
      if (isTerminal(status) && end !== null) {
        throw new ConflictError(`Run "${runId}" is being cleaned up: run "${end.id}" (${end.status})`);
      }
      throw new ConflictError(`Cannot delete run "${runId}": it is ${status}`);
    }
    this.#deps.hub.publish(run, { type: "run:delete", by });
  }

  /** Does `Engine.signal()`, with a signal that was checked. */
  async signal(waitId: string, signal: Signal, by: string | null): Promise<SignalReceipt> {
    const outcome = await this.#signalAround(waitId, signal, by)
      .catch((error) => this.#explainUnknownWait(waitId, error));
    return this.noteSignal(outcome);
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
    return runAround<SignalInfo, SignalResult, SignalOutcome>(around.signal, info, async (end) => {
      const outcome = await send(info.trace);
      const { run: { id: runId, jobName }, wait: { name: waitName }, disposition: kind } = outcome;
      end({ kind, runId, jobName, waitName });
      return outcome;
    }, (error) => ({ kind: "refused", error }));
  }

  /** Explains an id that is not a wait's, if it is a run's. Otherwise throws the error. */
  async #explainUnknownWait(id: string, error: unknown): Promise<never> {
    if (!(error instanceof NotFoundError) || await getRun(this.#deps.store, id) === null) throw error;
    throw new NotFoundError(`"${id}" is the id of a run: signal one of its waits, which engine.getWaits() lists`);
  }
}
