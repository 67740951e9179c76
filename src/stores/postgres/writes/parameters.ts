import type { Report } from "../../../model/execution_report.ts";
import { attemptError, coalescedFacts, failedFact, toFact } from "../../../model/fact.ts";
import { failureText } from "../../../model/failure.ts";
import { type KnownJob, PLAIN_FLOW } from "../../../model/flow.ts";
import type { Lease } from "../../../model/lease.ts";
import type { Run } from "../../../model/run.ts";
import type { ExecutingStep, StepWrite } from "../../../model/step.ts";
import type { CancelledExecution, ClaimRequest, Ending } from "../../../store/claim.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { NewPause, PauseRequest } from "../../../store/pause_request.ts";
import type { Deadline } from "../../../model/wait.ts";
import { limitsOf } from "../../operate/blocker_facts.ts";
import { toOnEnd } from "../../end_runs.ts";
import { queueName } from "../../queue_name.ts";
import { fromInput } from "../../rows.ts";
import type { AddedRun } from "./write_group.ts";

/** The lease of a write. */
export function toLeaseParameter({ runId, generation, claimId, recorded }: Lease): object {
  return { runId, generation, claimId, recorded };
}

/** The reports of a write: each with its fact, but for the bracket and the run at its begin. */
export function toReportParameters(reports: readonly Report[]): object[] {
  return reports.map((report) => ({
    no: report.no,
    fact: restOf(toFact(0, report)),
    ...(report.kind === "progress" ? { progress: JSON.stringify(report.progress) } : {}),
  }));
}

/** The text of a fact after its run. */
function restOf(fact: readonly unknown[]): string {
  return JSON.stringify(fact.slice(1)).slice(1);
}

/** An attempt at a step. */
export function toStepParameter(step: StepWrite, reports: readonly Report[]): object {
  const { name, index, attempts, result, chunks = [] } = step;
  const last = reports.at(-1);
  return {
    name,
    index,
    attempts,
    agoMs: Math.round(step.startedAgoMs),
    status: result.status,
    startsLast: last?.kind === "start" && last.stepName === name && last.attempt === attempts,
    ...(result.status === "completed" ? { output: result.output } : { failure: JSON.stringify(result.failure) }),
    ...(result.status === "retrying" ? { delayMs: result.delayMs, message: attemptError(result.failure) } : {}),
    ...(chunks.length === 0 ? {} : { chunks }),
  };
}

/** How a run ends. */
export function toEndingParameter(ending: Ending): object {
  if (ending.status === "completed") {
    const { status, output, durationMs } = ending;
    return { status, output, fact: restOf([0, "completed", durationMs]) };
  }
  const { status, failure, failedStepName } = ending;
  return {
    status,
    error: failureText(failure),
    failure: JSON.stringify(failure),
    failedStep: failedStepName,
    fact: restOf(failedFact(0, failure.kind)),
    ...(ending.stillExecuting === true ? { stillExecuting: true } : {}),
  };
}

/** The execution that a cancel ends. */
export function toExecutionParameter({ lease, steps, reports }: CancelledExecution): object {
  return { ...toLeaseParameter(lease), steps: steps.map(toExecutingStep), reports: toReportParameters(reports) };
}

function toExecutingStep({ name, index, attempts, startedAgoMs }: ExecutingStep): object {
  return { name, index, attempts, agoMs: Math.round(startedAgoMs) };
}

/** A run to add. */
export function toNewRunParameter(run: NewRun): AddedRun {
  const { id, jobName, version, payload, labels, schedule, retriggerOf } = run;
  const parameter = {
    id,
    queue: queueName(jobName, version),
    payload,
    input: fromInput(payload, run.input),
    schemaPrint: run.schemaPrint,
    labels: JSON.stringify(labels),
    labelMap: labels,
    idempotencyKey: run.idempotencyKey,
    concurrencyKey: run.concurrencyKey,
    retriggerOf: retriggerOf?.runId ?? null,
    retriggerFrom: retriggerOf?.from ?? null,
    coalesce: run.coalesce,
    trace: run.trace,
    flow: toFlowParameter(run),
  };
  return {
    ...parameter,
    ...(run.idempotencyKey === null && run.coalesce === null ? {} : { names: namesOf(run) }),
    ...(run.onEnd === undefined ? {} : { onEnd: toOnEnd(run) }),
    ...(run.idempotencyUntil === undefined ? {} : { until: run.idempotencyUntil }),
    ...(run.coalesce === null ? {} : { joinOnly: run.joinOnly ?? null, skipped: skippedOf(run) }),
    ...(schedule === null ? {} : {
      scheduleName: schedule.name,
      slotAt: schedule.slotAt === null ? null : Date.parse(schedule.slotAt),
      slot: schedule.slot ?? null,
      schedule: JSON.stringify({ name: schedule.name, slotAt: schedule.slotAt }),
    }),
  };
}

/** The names of the job of a run. */
function namesOf({ jobName, aliases }: NewRun): string[] {
  return [jobName, ...aliases];
}

/** The input and the labels of a trigger that joins another run, as its fact has them. */
function skippedOf({ payload, labels }: NewRun): string {
  const joined = { id: "", status: "pending" } as Run; // the only fields of a run that a fact needs
  const [fact] = coalescedFacts(0, joined, { payload, labels });
  return fact!.slice(3).map((value) => JSON.stringify(value)).join(","); // it joins any run: there is a fact
}

/** `null` for a run that uses none of it. */
function toFlowParameter({ flow, concurrencyKey }: NewRun): object | null {
  const { start, priority, fairnessKey, startWithin, finishWithin, keyConcurrency, keyRate } = flow;
  const isPlain = start === null && priority === PLAIN_FLOW.priority && fairnessKey === null && startWithin === null &&
    finishWithin === null && (concurrencyKey === null || (keyConcurrency === 1 && keyRate === null));
  if (isPlain) return null;
  return {
    ...toStart(start),
    priority,
    fairnessKey,
    startWithin,
    finishWithin,
    keyConcurrency,
    keyRateLimit: keyRate?.limit ?? null,
    keyRatePeriod: keyRate?.period ?? null,
  };
}

function toStart(start: Deadline): object {
  if (start === null) return {};
  return "at" in start ? { startAt: start.at } : { startAfterMs: start.afterMs };
}

/** A request to pause. */
export function toPauseParameter({ pauses, retryAt, park, reports }: PauseRequest): object {
  return { pauses: pauses.map(toNewPause), retryAt, park, reports: toReportParameters(reports) };
}

function toNewPause({ children, ...pause }: NewPause): object {
  if (children === null) return { ...pause, children: null };
  const { total, from, runs } = children;
  // A child is not known to be a retry: the store finds out what it retries.
  return {
    ...pause,
    children: { total, from, runs: runs.map((run) => ({ ...toNewRunParameter(run), names: namesOf(run) })) },
  };
}

/** A request for runs. */
export function toClaimParameter({ jobs, holding, worker, ...request }: ClaimRequest): object {
  return {
    ...request,
    worker: JSON.stringify(worker),
    jobs: jobs.map(toKnownJob),
    limits: limitsOf(jobs),
    holding: holding.map(toLeaseParameter),
  };
}

function toKnownJob({ name, names, version, print, concurrency, rate }: KnownJob): object {
  return {
    name,
    names,
    queue: queueName(name, version),
    printQueue: queueName(name, version, print),
    print,
    concurrency,
    rateLimit: rate?.limit ?? null,
    ratePeriod: rate?.period ?? null,
  };
}
