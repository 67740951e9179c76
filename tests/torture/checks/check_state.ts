import { isOver, type RunRows } from "../rows.ts";

/**
 * Checks that a run is in a state that some sequence of committed transactions leads to, by its rows alone: so it has
 * to hold in every copy, however much of the end of the log is missing.
 *
 * @returns What is wrong.
 */
export function checkState(run: RunRows): string[] {
  const { status, place, dueAt, leaseOwner, leaseExpiresAt, completedAt, timerAt } = run;
  const problems: string[] = [];
  const expect = (isTrue: boolean, what: string) => {
    if (!isTrue) problems.push(`run ${run.id} is ${status}, and ${what}`);
  };
  expect(isOver(status) === (completedAt !== null), `has ${completedAt === null ? "no" : "a"} time of its end`);
  expect((status === "running") === (leaseOwner !== null), `its lease is that of ${leaseOwner}`);
  expect((status === "running") === (leaseExpiresAt !== null), `its lease ends at ${leaseExpiresAt}`);
  expect((status === "pending") <= (place !== null || dueAt !== null), "stands in no line");
  expect(place === null || dueAt === null, `stands in line at ${place}, which it enters at ${dueAt}`);
  expect(dueAt === null || status === "pending", `enters its line at ${dueAt}`);
  expect(place === null || status === "pending" || status === "waiting", `stands in line at ${place}`);
  expect(timerAt === null || status === "waiting", `wakes at ${timerAt}`);
  for (const step of run.steps) expect(step.recordedNo <= run.recorded, `has counted ${run.recorded} records only`);
  for (const pause of run.pauses) {
    const { name, value, hasSignal, deadlineAt, resolvedAt } = pause;
    expect((pause.status === "resolved") === (value !== null), `pause "${name}" is ${pause.status} by ${value}`);
    expect(!isOver(status) || pause.status !== "pending", `pause "${name}" is still open`);
    expect(value === null || value !== "timeout" || resolvedAt === deadlineAt, `pause "${name}" ended at another time`);
    expect(!hasSignal || deadlineAt === null || resolvedAt! < deadlineAt, `wait "${name}" was signalled too late`);
  }
  if (status === "waiting") problems.push(...checkWaiting(run));
  return problems;
}

/** A run that waits is either due, or something will make it so. */
function checkWaiting({ id, place, timerAt, steps, pauses }: RunRows): string[] {
  if (place !== null) return [];
  const awaited = pauses.filter(({ isAwaited }) => isAwaited);
  const over = awaited.find(({ status }) => status === "resolved");
  if (over !== undefined) return [`run ${id} waits, and is not due though "${over.name}" is over`];
  if (timerAt !== null || awaited.length > 0) return [];
  return [`run ${id} waits for nothing; its steps are ${steps.map(({ status }) => status).join(", ")}`];
}
