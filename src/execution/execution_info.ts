import type { EndedPause, ExecutionInfo, ExecutionOutcome } from "../around.ts";
import { LeaseLostError } from "../error.ts";
import { isInstance } from "../values/is_instance.ts";
import type { Claim } from "../store/claim.ts";
import { decodeTrace } from "../trace_context.ts";
import type { Outcome } from "./execute_run.ts";
import type { Execution } from "./execution.ts";

/** What plugins learn of an execution, from its claim by a worker that asks for leases of `leaseMs`. */
export function executionInfo(claim: Claim, workerId: string, leaseMs: number): ExecutionInfo {
  const { run: { id: runId, jobName, labels }, execution, startedAgoMs, startDelayMs, leaseExpiresAt, resumed } = claim;
  const claimedAt = leaseExpiresAt - leaseMs;
  const resumedFrom = resumed.filter(({ firstResumedAt }) => firstResumedAt === claimedAt);
  return {
    runId,
    jobName,
    labels,
    execution,
    workerId,
    startedAgoMs,
    startDelayMs,
    trace: decodeTrace(claim.trace),
    resumedFrom: resumedFrom.flatMap(({ kind, trace, firstResumedAt: _, ...pause }): EndedPause[] =>
      kind === "patch" ? [] : [{ ...pause, kind, trace: decodeTrace(trace) }]
    ),
  };
}

/** What plugins learn of how an execution ended. */
export function toExecutionOutcome(outcome: Outcome, { state }: Execution): ExecutionOutcome {
  switch (outcome.kind) {
    case "failed":
      return { kind: "failed", failure: outcome.failure };
    case "interrupted":
      return { kind: isInstance(state.abortSignal.reason, LeaseLostError) ? "lost" : "interrupted" };
    default:
      return { kind: outcome.kind };
  }
}
