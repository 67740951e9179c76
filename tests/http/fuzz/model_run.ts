import type { Json } from "../../../src/values/json.ts";
import type { Tenant } from "./tenants.ts";

/** A run, as somebody would keep it who has read the contract. Instants are in milliseconds. */
export interface ModelRun {
  id: string;
  jobName: string;
  status: string;
  input: Json;
  /** The input as its schema parsed it. */
  parsed: Json;
  output: Json;
  error: string | null;
  labels: Record<string, string>;
  idempotencyKey: string | null;
  concurrencyKey: string | null;
  /** Runs with different ones take turns. */
  fairnessKey: Tenant | null;
  createdAt: number;
  startedAt: number | null;
  completedAt: number | null;
  /** When the lease of a worker ends that has died. */
  leasedUntil: number | null;
  /** How often in a row workers have died that had it. */
  abandonments: number;
  /** When it can be claimed again after that; `null`: at once. */
  claimableAt: number | null;
  steps: ModelStep[];
  wait: ModelWait | null;
  /** The run of which it is a retry. */
  retriggerOf: string | null;
  /** Its newest retry. */
  retriggeredAs: string | null;
  /** The first of its retries, or of theirs, that completed. */
  completedAs: string | null;
}

/** A step that has completed. */
export interface ModelStep {
  name: string;
  output: Json;
  at: number;
}

/** The one wait that a run may have. */
export interface ModelWait {
  /** `null` until somebody has told. */
  id: string | null;
  status: "pending" | "resolved" | "cancelled";
  outcome: "signal" | "timeout" | null;
  payload: Json;
  signalId: string | null;
  createdAt: number;
  deadlineAt: number;
  resolvedAt: number | null;
  resumedAt: number | null;
}

/** Whether a run has ended. */
export function hasEnded({ status }: ModelRun): boolean {
  return ["completed", "failed", "cancelled"].includes(status);
}

/** Whether a worker may take a run, as far as the run itself is concerned. */
export function isDue({ status, wait, claimableAt }: ModelRun): boolean {
  return (status === "pending" && claimableAt === null) || (status === "waiting" && wait?.status === "resolved");
}

/** Whether a run matches what is asked of a list. */
export function isListed(
  run: Pick<ModelRun, "jobName" | "labels"> & { status?: string },
  { jobName, labels, status = [] }: { jobName: string[]; labels: [key: string, value: string][]; status?: string[] },
): boolean {
  return (jobName.length === 0 || jobName.includes(run.jobName)) &&
    (status.length === 0 || status.includes(run.status!)) &&
    labels.every(([key, value]) => run.labels[key] === value);
}

/** A run, as `/run` and `/runs` show it. */
export function showRun(run: ModelRun): Record<string, unknown> {
  return {
    id: run.id,
    jobName: run.jobName,
    status: run.status,
    input: run.input,
    output: run.output,
    ...(run.error === null ? {} : { error: run.error }),
    labels: run.labels,
    createdAt: isoText(run.createdAt),
    ...(run.startedAt === null ? {} : { startedAt: isoText(run.startedAt) }),
    ...(run.completedAt === null ? {} : { completedAt: isoText(run.completedAt) }),
    ...(run.status === "failed" ? { failureKind: "error" } : {}),
    ...(run.retriggerOf === null ? {} : { retriggerOf: run.retriggerOf }),
    ...(run.retriggeredAs === null ? {} : { retriggeredAs: run.retriggeredAs }),
    ...(run.completedAs === null ? {} : { completedAs: run.completedAs }),
    isTerminal: hasEnded(run),
    isActive: ["pending", "leased", "running"].includes(run.status),
    isWaiting: run.status === "waiting",
  };
}

/** The steps of a run, as `/steps` shows them, but for their ids. */
export function showSteps({ id, steps }: ModelRun): unknown[] {
  return steps.map(({ name, output, at }, index) => ({
    runId: id,
    name,
    index,
    status: "completed",
    output,
    error: null,
    attempts: 1,
    startedAt: isoText(at),
    completedAt: isoText(at),
  }));
}

/** A wait, as `/waits`, `/wait` and `/signal` show it. */
export function showWait(runId: string, wait: ModelWait): Record<string, unknown> {
  return {
    id: wait.id,
    runId,
    name: "review",
    metadata: { changes: 3 },
    status: wait.status,
    outcome: wait.outcome,
    payload: wait.payload,
    signalId: wait.signalId,
    createdAt: isoText(wait.createdAt),
    deadlineAt: isoText(wait.deadlineAt),
    suspendedAt: isoText(wait.createdAt),
    resolvedAt: isoText(wait.resolvedAt),
    firstResumedAt: isoText(wait.resumedAt),
  };
}

/** What a run has logged, as `/logs` shows it, but for the ids. */
export function showLogs({ id, jobName, status, parsed, completedAt }: ModelRun): unknown[] {
  if (jobName !== "echo" || status !== "completed") return [];
  return [{ runId: id, stepName: null, level: "info", message: "echo", data: parsed, timestamp: isoText(completedAt) }];
}

/** The types of the events that `/subscribe` tells at once. */
export function showEvents({ status }: ModelRun): string[] {
  switch (status) {
    case "running":
      return ["run:leased", "run:start"];
    case "waiting":
      return ["run:waiting"]; // until it is claimed, also when its wait is over
    case "completed":
      return ["run:complete"];
    case "failed":
      return ["run:fail"];
    case "cancelled":
      return ["run:cancel"];
    default:
      return [];
  }
}

function isoText(at: number | null): string | null {
  return at === null ? null : new Date(at).toISOString();
}
