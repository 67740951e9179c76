import type { RunEvent, RunHappening } from "../model/event.ts";
import type { StoredRun } from "../model/run.ts";
import type { RunState } from "../store/run_query.ts";
import { parseValue } from "../values/json.ts";

/**
 * The events with which the stream of a run begins. They show its state:
 *
 * - `pending`: its hold, if it is held.
 * - `leased`: its lease.
 * - `running`: its lease, its start and its latest progress.
 * - `waiting`: its pauses, and how many of the children have ended that it waits for, if they are several.
 * - If it has ended: only its last event.
 *
 * Their sequence numbers end with twice the state's position in the journal: all later events have higher ones.
 */
export function openingEvents(state: RunState): RunEvent[] {
  const { run: { id, jobName, labels, updatedAt }, place } = state;
  return standingHappenings(state).map((happening, at, { length }) => ({
    ...happening,
    runId: id,
    jobName,
    labels,
    timestamp: updatedAt,
    sequence: 2 * place.position - (length - 1 - at),
  }));
}

function standingHappenings({ run, execution, pauses }: RunState): RunHappening[] {
  switch (run.status) {
    case "pending":
      return run.held === null ? [] : [{ type: "run:hold", code: run.held.code, message: run.held.message }];
    case "leased":
      return [leased(run)];
    case "running":
      return [leased(run), { type: "run:start", execution }, ...progressOf(run)];
    case "waiting":
      return [
        ...pauses.map(({ name: waitName, children: _, ...pause }): RunHappening => ({
          type: "run:waiting",
          waitName,
          ...pause,
        })),
        ...childProgressOf(pauses),
      ];
    case "completed":
      return [{ type: "run:complete", output: parseValue(run.output), duration: durationOf(run) }];
    case "failed": {
      const { failedStepName, failureKind } = run;
      return [{ type: "run:fail", error: run.error ?? "", failedStepName, failureKind: failureKind ?? "error" }];
    }
    case "cancelled":
      return [{ type: "run:cancel", by: run.cancelledBy }];
  }
}

/** How many children have ended; nothing if it is one child, or none. */
function childProgressOf(pauses: RunState["pauses"]): RunHappening[] {
  const children = pauses.flatMap(({ children }) => children ?? []);
  const sumOf = (name: "total" | "unfinished") => children.reduce((sum, one) => sum + one[name], 0);
  const total = sumOf("total");
  if (total < 2) return [];
  return [{ type: "run:progress", progress: { current: total - sumOf("unfinished"), total }, of: "children" }];
}

function leased({ leaseOwner, leaseExpiresAt }: StoredRun): RunHappening {
  return { type: "run:leased", leaseOwner: leaseOwner!, leaseExpiresAt: leaseExpiresAt! }; // set while it is leased
}

function progressOf({ progress }: StoredRun): RunHappening[] {
  return progress === null ? [] : [{ type: "run:progress", progress }];
}

/** The duration of a run; never negative, even if the clock was set back. */
function durationOf({ startedAt, completedAt }: StoredRun): number {
  return Math.max(0, Date.parse(completedAt!) - Date.parse(startedAt!)); // set once it has completed
}
