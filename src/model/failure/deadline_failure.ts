import type { Failure, FailureKind } from "../failure.ts";

/** Why a run failed that missed a deadline of its own: `startWithin` (`expired`) or `finishWithin` (`timeout`). */
export function deadlineFailure(kind: Extract<FailureKind, "expired" | "timeout">, withinMs: number): Failure {
  const message = kind === "expired"
    ? `The run did not start within ${withinMs} ms after it was due (startWithin)`
    : `The run did not end within ${withinMs} ms after its start (finishWithin)`;
  return { kind, name: kind === "expired" ? "Error" : "TimeoutError", message, stack: null, cause: null };
}
