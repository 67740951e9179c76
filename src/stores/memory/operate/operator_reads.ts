import { failureText } from "../../../model/failure.ts";
import { actorOf } from "../../../model/origin.ts";
import { isTerminal } from "../../../model/run.ts";
import type {
  FoundBy,
  OpenWaitPlace,
  OpenWaits,
  RunFailures,
  SearchHit,
  TimelinePause,
  TimelinePlace,
  TimelineRecords,
  TimelineStep,
} from "../../../store/operator_reads.ts";
import { MAX_COUNTED_WAITS } from "../../../model/wait.ts";
import { MAX_FAILURES, SEARCHED_BY_END } from "../../operate/timeline_rows.ts";
import { byIndex, type KeptPause, type KeptRun, type KeptStep } from "../records.ts";
import { toIdentity, toWait } from "../copies.ts";
import type { MemoryRuns } from "../runs.ts";

/** A part of the records of a run. See `Store.getTimeline()`. */
export function toTimeline(run: KeptRun, from: TimelinePlace, limit: number, now: number): TimelineRecords {
  const { id, status, createdAt, startAt, startedAt, completedAt } = run;
  const actors = { triggeredBy: actorOf(run.trace), cancelledBy: actorOf(run.cancelRequest) };
  const steps = byIndex(run.steps);
  const pauses = run.pauses.filter(({ kind }) => kind !== "patch");
  return {
    run: { id, status, createdAt, startAt, startedAt, completedAt, ...actors },
    steps: steps.slice(from.steps, from.steps + limit).map(toTimelineStep),
    pauses: pauses.slice(from.pauses, from.pauses + limit).map(toTimelinePause),
    interruptions: structuredClone(run.interrupted.slice(from.interruptions, from.interruptions + limit)),
    totals: { steps: steps.length, pauses: pauses.length, interruptions: run.interrupted.length },
    now,
  };
}

function toTimelineStep({ name, result, attempts, startedAt, completedAt, pastAttempts }: KeptStep): TimelineStep {
  const failure = result.status === "completed" ? null : result.failure;
  return {
    name,
    status: result.status,
    attempts,
    startedAt,
    completedAt,
    error: failure === null ? null : failureText(failure),
    retryAt: result.status === "retrying" ? result.retryAt : null,
    lastStartedAt: pastAttempts.find(({ attempt }) => attempt === attempts)?.startedAt ?? null,
    failedAttempts: pastAttempts.flatMap(({ retryAt, failure, ...attempt }) =>
      retryAt === null ? [] : [{ ...attempt, retryAt, error: failure === null ? "" : failureText(failure) }]
    ),
  };
}

function toTimelinePause(pause: KeptPause): TimelinePause {
  const { kind, id, name, state, createdAt, suspendedAt, firstResumedAt, deadlineAt, children } = pause;
  const resolved = state.status === "resolved" ? state : null;
  return {
    kind: kind as TimelinePause["kind"], // patches are left out
    id,
    name,
    status: state.status,
    outcome: resolved?.resolution.outcome ?? null,
    signalledBy: actorOf(pause.trace),
    createdAt,
    suspendedAt,
    resolvedAt: resolved?.resolvedAt ?? null,
    firstResumedAt,
    deadlineAt,
    childRunId: children?.members[0]?.child.id ?? null,
  };
}

/** The failures of a run. See `Store.getFailures()`. */
export function toRunFailures(run: KeptRun): RunFailures {
  const steps = byIndex(run.steps).flatMap(({ name, attempts, result, pastAttempts }) => {
    const failed = pastAttempts.flatMap(({ attempt, failure }) => failure === null ? [] : [{ name, attempt, failure }]);
    if (failed.length > 0 || result.status === "completed" || result.failure === null) return failed;
    return [{ name, attempt: attempts, failure: result.failure }];
  });
  return structuredClone({ run: run.failure, steps: steps.slice(0, MAX_FAILURES) });
}

/** Open waits, the soonest deadline first. See `Store.getOpenWaits()`. */
export function findOpenWaits(
  runs: MemoryRuns,
  after: OpenWaitPlace | null,
  limit: number,
  runIds?: readonly string[],
): OpenWaits {
  const chosen = runIds && new Set(runIds);
  const open = runs.open.flatMap((run) =>
    run.pauses.filter(({ kind, state }) => kind === "wait" && state.status === "pending").map((pause) => ({
      run,
      pause,
    }))
  );
  const atOf = (deadlineAt: number | null) => deadlineAt ?? Infinity;
  const ordered = open.sort((one, other) => order(placeOf(one.pause), placeOf(other.pause)));
  const own = ordered.filter(({ run }) => chosen === undefined || chosen.has(run.id));
  const waits = own.filter(({ pause }) => after === null || order(placeOf(pause), after) > 0).slice(0, limit);
  return {
    waits: waits.map(({ run, pause }) => ({
      wait: toWait(run.id, pause),
      run: toIdentity(run),
      payloadSchema: pause.payloadSchema,
      place: placeOf(pause),
    })),
    total: Math.min(open.length, MAX_COUNTED_WAITS + 1),
  };

  function order(one: OpenWaitPlace, other: OpenWaitPlace): number {
    const [left, right] = [atOf(one.deadlineAt), atOf(other.deadlineAt)];
    return left === right ? one.seq - other.seq : left < right ? -1 : 1;
  }
}

function placeOf({ deadlineAt, seq }: KeptPause): OpenWaitPlace {
  return { deadlineAt, seq };
}

/** Finds runs by a string. See `Store.searchRuns()`. */
export function searchRuns(runs: MemoryRuns, text: string, limit: number): SearchHit[] {
  const newest = runs.all.toReversed();
  const [key, value] = text.includes("=") ? [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)] : [];
  const byId = runs.all.filter(({ id }) => id.startsWith(text)).sort((one, other) => one.id < other.id ? -1 : 1);
  const rules: [by: FoundBy, runs: KeptRun[]][] = [
    ["id", byId],
    ["id", newest.slice(0, SEARCHED_BY_END).filter(({ id }) => id.endsWith(text))],
    ["waitId", runs.all.filter(({ pauses }) => pauses.some(({ kind, id }) => kind === "wait" && id === text))],
    ["idempotencyKey", runs.all.filter(({ idempotencyKey, isKeyTaken }) => idempotencyKey === text && !isKeyTaken)],
    ["idempotencyKey", newest.filter(({ idempotencyKey, isKeyTaken }) => idempotencyKey === text && isKeyTaken)],
    [
      "concurrencyKey",
      runs.all.filter(({ concurrencyKey, status }) => concurrencyKey === text && !isTerminal(status)),
    ],
    [
      "label",
      value === undefined ? [] : newest.filter(({ labels }) => Object.hasOwn(labels, key!) && labels[key!] === value),
    ],
  ];
  const found = new Map<string, FoundBy>();
  for (const [by, matching] of rules) {
    for (const { id } of matching) if (!found.has(id) && found.size < limit) found.set(id, by);
  }
  return [...found].map(([runId, by]) => ({ runId, by }));
}
