import type { ClientEvent, ClientJobs, ClientWait, RunOf, RunSnapshot } from "@holdfast/jobs/client";

/** A run of any job. */
export type AnyRun = RunOf<ClientJobs>;

/** What a page knows of a run. */
export interface RunState<R extends AnyRun> {
  /** The run; `null` until it was read, and when it was deleted. */
  run: R | null;
  /** Its waits. */
  waits: readonly ClientWait[];
  /** Why the run cannot be followed. */
  error: Error | null;
}

/** What changes the state: what `client.watch()` yields, or the error that has ended it. */
export type RunChange<R extends AnyRun> = RunSnapshot<R> | ClientEvent | { type: "error"; error: Error };

/** The state before anything is known. */
export const NOTHING_KNOWN: RunState<never> = { run: null, waits: [], error: null };

/** The state of a run after a change. */
export function reduce<R extends AnyRun>(state: RunState<R>, change: RunChange<R>): RunState<R> {
  if (change.type === "snapshot") return { run: change.run, waits: change.waits, error: null };
  if (change.type === "error") return { ...state, error: change.error };
  if (change.type === "run:delete") return { ...state, run: null };
  const { run } = state;
  // Events can repeat what the snapshot has shown. A run that has ended does not change.
  if (run === null || run.isTerminal) return state;
  return { ...state, run: { ...run, ...changesOf(change) } };
}

function changesOf(event: ClientEvent): Partial<AnyRun> {
  switch (event.type) {
    case "run:leased":
      return withStatus("leased");
    case "run:start":
      return withStatus("running");
    case "run:waiting":
      return withStatus("waiting");
    case "run:progress":
      return { progress: event.progress };
    case "run:complete":
      return { ...withStatus("completed"), output: event.output, completedAt: event.timestamp };
    case "run:fail": {
      const { error, failedStepName, timestamp } = event;
      return { ...withStatus("failed"), error, ...(failedStepName && { failedStepName }), completedAt: timestamp };
    }
    case "run:cancel":
      return { ...withStatus("cancelled"), completedAt: event.timestamp };
    default:
      return {}; // steps and log lines are not shown here
  }
}

function withStatus(status: AnyRun["status"]): Partial<AnyRun> {
  return {
    status,
    isTerminal: status === "completed" || status === "failed" || status === "cancelled",
    isActive: status === "pending" || status === "leased" || status === "running",
    isWaiting: status === "waiting",
  };
}

/** Whether an event leaves out what a page shows: which waits are open, or why a run is held. */
export function isPartial({ type }: { type: string }): boolean {
  return type === "run:waiting" || type === "run:start" || type === "run:hold" || type === "run:resume";
}
