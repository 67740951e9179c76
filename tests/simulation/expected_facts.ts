import {
  coalescedFacts,
  type Fact,
  factBy,
  type FactValue,
  failedFact,
  toFact,
  triggeredFact,
} from "../../src/model/fact.ts";
import { endRunId } from "../../src/model/end.ts";
import { failureText } from "../../src/model/failure.ts";
import { actorOf } from "../../src/model/origin.ts";
import type { Lease } from "../../src/model/lease.ts";
import type { Report } from "../../src/model/execution_report.ts";
import type { Chunk } from "../../src/model/stream.ts";
import { noteChunks } from "./stream_facts.ts";
import type { Run, RunIdentity } from "../../src/model/run.ts";
import type { SavedStep, StepWrite } from "../../src/model/step.ts";
import type { CancelledExecution, ClaimRequest, ClaimResult, Ending, Renewal } from "../../src/store/claim.ts";
import type { NewHold } from "../../src/store/hold_record.ts";
import type { Enqueued, NewRun } from "../../src/store/new_run.ts";
import type { Firing } from "../../src/store/schedule_record.ts";
import type { PauseRequest, PauseResult } from "../../src/store/pause_request.ts";
import type { SendOutcome, SendRequest } from "../../src/store/send_request.ts";
import type { Call } from "./check_calls.ts";
import type { Facts, RunFacts } from "./facts.ts";

/** A fact that a committed call makes, and the value that it leaves out. */
export interface ExpectedFact {
  runId: string;
  /** The fact without its run. */
  what: Tail<Fact>;
  value: FactValue | null;
}

type Tail<T> = T extends readonly [unknown, ...infer Rest] ? Rest : never;

/**
 * The facts that a committed call makes, by its true answer and by what was committed before: none if it was refused, or
 * carried out before.
 */
export function factsOf(facts: Facts, { method, parameters, outcome, wallNow }: Call): ExpectedFact[] {
  if ("error" in outcome) return [];
  const expected = FACTS_OF[method]?.(facts, parameters, outcome.value, wallNow) ?? [];
  const ends = expected.flatMap((one) => endFacts(facts, one));
  if (ends.length === 0) return expected;
  const isTrigger = ({ what }: ExpectedFact) => what[0] === "triggered";
  return [...expected.filter(isTrigger), ...ends, ...expected.filter((one) => !isTrigger(one))];
}

// deno-lint-ignore no-explicit-any -- each function knows what its method takes and answers
const FACTS_OF: Record<string, (facts: Facts, parameters: any, value: any, wallNow: number) => ExpectedFact[]> = {
  enqueue: (facts, [requests]: [NewRun[]], enqueued: Enqueued[]) =>
    enqueued.flatMap((one, at) => enqueuedFacts(facts, requests[at]!, one)),
  fireSchedule: (facts, [{ run }]: [Firing], fired: { run: Enqueued | null } | null) =>
    run === null || fired === null || fired.run === null ? [] : enqueuedFacts(facts, run, fired.run),
  send: (facts, [{ start }]: [SendRequest], outcome: SendOutcome) =>
    start === null || "changed" in outcome || outcome.started === null
      ? []
      : enqueuedFacts(facts, start, outcome.started),
  claim: (facts, [{ claimId, workerId }]: [ClaimRequest], { claims, failed, cancelled }: ClaimResult) => {
    const isNew = ({ runId, generation }: Lease) => facts.runs.get(runId)?.claimIds.get(generation) !== claimId;
    return [
      ...cancelled.map(({ id }) => made(id, ["cancelled"])),
      ...failed.map(({ run, error, failureKind }) => made(run.id, tail(failedFact(0, failureKind)), { error })),
      ...claims.filter(({ lease }) => isNew(lease)).flatMap((claim) => {
        const { lease: { runId, generation }, leaseExpiresAt, execution } = claim;
        const claimed = made(runId, ["claimed", generation, workerId, leaseExpiresAt, execution]);
        return (facts.runs.get(runId)?.changed.heldUnder ?? null) === null
          ? [claimed]
          : [made(runId, ["resumed"]), claimed];
      }),
    ];
  },
  renew: (facts, [renewals]: [Renewal[]], ends: (number | null)[]) => {
    return renewals.flatMap(({ lease, reports }, at) => {
      return ends[at] === null ? [] : reportFacts(facts.run(lease.runId), lease.generation, reports);
    });
  },
  release: (facts, [{ runId, generation }, reports]: [Lease, Report[]]) => {
    const run = facts.run(runId);
    return run.heldUnder === generation ? reportFacts(run, generation, reports) : [];
  },
  saveStep: (facts, [lease, step, reports]: [Lease, StepWrite, Report[]], { retry }: SavedStep, wallNow) => {
    const run = facts.run(lease.runId);
    const { name, attempts, index, result } = step;
    const said = reportFacts(run, lease.generation, reports);
    const earlier = run.steps.get(name);
    if (earlier !== undefined && (earlier.isOver || earlier.attempts >= attempts)) return said;
    const last = said.at(-1)?.what;
    // Its beginning is told with its end if nothing was said between them.
    const isWhole = last?.[0] === "step_started" && last[2] === name && last[4] === attempts;
    if (isWhole) said.pop();
    const startedAt = isWhole ? wallNow - Math.round(step.startedAgoMs) : null;
    if (result.status === "completed") {
      const durationMs = Math.round(step.startedAgoMs);
      const what: Tail<Fact> = ["step_completed", name, index, attempts, startedAt, durationMs];
      return [...said, made(run.request.id, what, { json: result.output })];
    }
    const { failure: { message } } = result;
    const error = result.status === "retrying" ? message : null;
    const what: Tail<Fact> = ["step_failed", name, index, attempts, startedAt, error, retry?.at ?? null];
    return [...said, made(run.request.id, what, error === null ? { error: message } : null)];
  },
  appendItems: (facts, [writes]: [{ lease: Lease; chunks: Chunk[] }[]], held: boolean[]) =>
    writes.flatMap(({ lease: { runId }, chunks }, at) =>
      held[at] && noteChunks(facts.run(runId), chunks) ? [made(runId, ["streamed"])] : []
    ),
  pause: (
    facts,
    [lease, { reports, pauses }]: [Lease, PauseRequest],
    { parked, pauses: stored, created }: PauseResult,
  ) => {
    const run = facts.run(lease.runId);
    if (parked && run.heldUnder !== lease.generation) return []; // it has parked before
    const payloads = new Map(
      pauses.flatMap(({ children }) => children?.runs ?? []).map(({ id, payload }) => [id, payload]),
    );
    const added = created.filter(({ run }) => !facts.runs.has(run.id));
    const triggered = added.map(({ run: { id }, startAt }) => {
      const at = startAt === null ? null : Date.parse(startAt);
      return made(id, tail(triggeredFact(0, at, run.request.id)), { json: payloads.get(id) ?? null });
    });
    const retried = added.flatMap(({ run: { id }, retryOf }) =>
      retryOf === null ? [] : [made(retryOf.id, ["retried", id])]
    );
    const said = [...triggered, ...reportFacts(run, lease.generation, reports), ...retried];
    if (!parked) return said;
    const retries = [...run.steps].filter(([, { isOver }]) => !isOver)
      .sort(([, left], [, right]) => left.index - right.index);
    return [
      ...said,
      ...stored.map(({ id, kind, name, deadlineAt }) =>
        made(run.request.id, ["waiting", kind === "wait" ? id : null, name, deadlineAt])
      ),
      ...retries.map(([name, step]) => made(run.request.id, ["waiting", null, name, step.retryAt])),
    ];
  },
  finish: (facts, [lease, ending, reports]: [Lease, Ending, Report[]]) => {
    const run = facts.run(lease.runId);
    if (run.hasEnded) return [];
    const end = ending.status === "completed"
      ? made(lease.runId, ["completed", ending.durationMs], { json: ending.output })
      : made(lease.runId, tail(failedFact(0, ending.failure.kind)), {
        error: failureText(ending.failure),
        failedStepName: ending.failedStepName,
      });
    return [...reportFacts(run, lease.generation, reports), end];
  },
  hold: (facts, [{ runId, generation }, { code, message }, reports]: [Lease, NewHold, Report[]]) => {
    const run = facts.run(runId);
    if (run.heldUnder !== generation) return []; // it was held by this call before
    return [...reportFacts(run, generation, reports), made(runId, ["held", code, message])];
  },
  resumeHeld: (_facts, [runId, , by = null]: [string, boolean, (string | null)?], run: Run | null) =>
    run === null ? [] : [made(runId, tail(factBy([0, "resumed"], by)))],
  cancel: (
    facts,
    [runId, requestId, execution]: [string, string, CancelledExecution | null],
    cancelled: Run | null,
  ) => {
    const run = facts.run(runId);
    if (cancelled === null || run.isCancelled) return [];
    const isHeld = execution !== null && run.heldUnder === execution.lease.generation;
    const steps = (isHeld ? execution.steps : []).filter(({ name }) => run.steps.get(name)?.isOver !== true);
    return [
      ...(isHeld ? reportFacts(run, execution.lease.generation, execution.reports) : []),
      ...steps.map(({ name, index }) => made(runId, ["step_cancelled", name, index])),
      made(runId, tail(factBy([0, "cancelled"], actorOf(requestId)))),
    ];
  },
  delete: (_facts, [, by = null]: [string, (string | null)?], run: RunIdentity | null) =>
    run === null ? [] : [deleted(run, by)],
  purge: (_facts, _parameters, runs: RunIdentity[]) => runs.map((run) => deleted(run, null)),
};

/** The trigger of the clean-up that is added in the commit that ends a run. */
function endFacts(facts: Facts, { runId, what: [kind] }: ExpectedFact): ExpectedFact[] {
  if (kind !== "completed" && kind !== "failed" && kind !== "cancelled") return [];
  const { request: { onEnd, trace } } = facts.run(runId);
  if (onEnd === undefined || !onEnd.statuses.includes(kind)) return [];
  const triggered = tail(triggeredFact(0, null, null, null, actorOf(trace)));
  return [made(endRunId(runId), triggered, { json: JSON.stringify({ runId }) })];
}

function enqueuedFacts(facts: Facts, request: NewRun, { run, disposition }: Enqueued): ExpectedFact[] {
  const { id, payload, retriggerOf, schedule, trace } = request;
  if (facts.runs.has(id) || disposition === "idempotent") return [];
  if (disposition === "coalesced") return coalescedFacts(0, run, request).map((fact) => made(run.id, tail(fact)));
  const startAt = run.startAt === null ? null : Date.parse(run.startAt);
  const by = actorOf(trace);
  const triggered = made(id, tail(triggeredFact(0, startAt, null, schedule, by)), { json: payload });
  return retriggerOf === null
    ? [triggered]
    : [triggered, made(retriggerOf.runId, tail(factBy([0, "retried", id], by)))];
}

/** The facts of the reports that are new under a lease. */
function reportFacts(run: RunFacts, generation: number, reports: readonly Report[]): ExpectedFact[] {
  const known = run.reportNos.get(generation) ?? 0;
  run.reportNos.set(generation, Math.max(known, reports.at(-1)?.no ?? 0));
  return reports.filter(({ no }) => no > known).map((report) => made(run.request.id, tail(toFact(0, report))));
}

function deleted({ id, jobName, labels }: RunIdentity, by: string | null): ExpectedFact {
  return made(id, tail(factBy([0, "deleted", id, jobName, labels], by)));
}

function made(runId: string, what: Tail<Fact>, value: Partial<FactValue> | null = null): ExpectedFact {
  return { runId, what, value: value && { json: null, error: null, failedStepName: null, ...value } };
}

function tail(fact: Fact): Tail<Fact> {
  const [, ...what] = fact;
  return what;
}
