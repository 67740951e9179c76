import type { Failure } from "../../model/failure.ts";
import { type Flow, type KnownJob, PLAIN_FLOW } from "../../model/flow.ts";
import { uuidV7 } from "../../model/host.ts";
import type { NewLogEntry } from "../../model/log.ts";
import type { Report } from "../../model/execution_report.ts";
import type { Progress } from "../../model/run.ts";
import type { StepWrite } from "../../model/step.ts";
import type { WorkerDetails } from "../../store/operate.ts";
import type { ClaimRequest } from "../../store/claim.ts";
import type { NewHold } from "../../store/hold_record.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { NewPause } from "../../store/pause_request.ts";
import { FAKE_START } from "../fake_host.ts";

/** The job of every fixture that names no other. */
export const A_JOB = "import-csv";

/** A run to add: without keys and labels, and with an id of its own. */
export function aRun(overrides: Partial<NewRun> = {}): NewRun {
  return {
    id: uuidV7(FAKE_START),
    jobName: A_JOB,
    version: 1,
    aliases: [],
    schemaPrint: null,
    payload: '{"path":"a.csv"}',
    input: '{"path":"a.csv","encoding":"utf-8"}',
    labels: {},
    idempotencyKey: null,
    concurrencyKey: null,
    coalesce: null,
    retriggerOf: null,
    flow: PLAIN_FLOW,
    schedule: null,
    trace: null,
    ...overrides,
  };
}

/** The flow of a run that uses nothing else of it. */
export function aFlow(overrides: Partial<Flow> = {}): Flow {
  return { ...PLAIN_FLOW, ...overrides };
}

/** What a step or a run failed of. */
export function aFailure(overrides: Partial<Failure> = {}): Failure {
  return {
    kind: "error",
    name: "Error",
    message: "no",
    stack: "Error: no\n    at job.ts:1:1",
    cause: null,
    ...overrides,
  };
}

/** A step that completed at the first attempt. */
export function aStep(overrides: Partial<StepWrite> = {}): StepWrite {
  return {
    name: "read",
    index: 0,
    attempts: 1,
    startedAgoMs: 0,
    result: { status: "completed", output: '"rows"' },
    ...overrides,
  };
}

/** A report of an execution, the first one, that a step begins for the first time. */
export function aStart(overrides: Partial<Report & { kind: "start" }> = {}): Report {
  return { kind: "start", no: 1, at: FAKE_START, stepName: "read", stepIndex: 0, attempt: 1, ...overrides };
}

/** A report of an execution, the first one unless it has another number, of how far it has come. */
export function aProgress(progress: Progress, no = 1): Report {
  return { kind: "progress", no, at: FAKE_START, progress };
}

/** A report of an execution, the first one, of a log line. */
export function aLogged(overrides: Partial<Report & { kind: "log" }> = {}): Report {
  return {
    kind: "log",
    no: 1,
    at: FAKE_START,
    stepName: null,
    level: "info",
    message: "hello",
    data: null,
    ...overrides,
  };
}

/** A wait without a deadline, with an id of its own. */
export function aPause(overrides: Partial<NewPause> = {}): NewPause {
  return {
    id: uuidV7(FAKE_START),
    kind: "wait",
    name: "review",
    children: null,
    deadline: null,
    metadata: null,
    prepared: false,
    ...overrides,
  };
}

/** Jobs without limits, as a worker knows them. */
export function unlimited(jobNames: readonly string[]): KnownJob[] {
  return jobNames.map((name) => aKnownJob({ name }));
}

/** A job as a worker knows it, without limits. */
export function aKnownJob(overrides: Partial<KnownJob> = {}): KnownJob {
  const { name = A_JOB } = overrides;
  return { name, names: [name], version: 1, print: "print-1", concurrency: null, rate: null, ...overrides };
}

/** What a test says about a claim; `jobNames` are those of jobs without limits. */
export type ClaimOverrides = Partial<ClaimRequest> & { jobNames?: readonly string[] };

/** A claim by worker A, with an id of its own, of up to ten runs for one second. */
export function aClaimRequest({ jobNames = [A_JOB], ...overrides }: ClaimOverrides = {}): ClaimRequest {
  return {
    workerId: "worker-a",
    worker: someDetails(),
    claimId: uuidV7(FAKE_START),
    jobs: unlimited(jobNames),
    holding: [],
    limit: 10,
    triesHeld: false,
    isAlone: false,
    leaseMs: 1_000,
    maxAbandonments: 10,
    ...overrides,
  };
}

/** What a worker says of itself. */
export function someDetails(overrides: Partial<WorkerDetails> = {}): WorkerDetails {
  return {
    name: null,
    hostname: "host-1",
    pid: 7,
    runtime: "deno 2.0.0",
    version: "0.1.0",
    deployment: null,
    concurrency: 10,
    ...overrides,
  };
}

/** A request to hold a run, by code with the print of {@linkcode aKnownJob}. */
export function aHold(overrides: Partial<NewHold> = {}): NewHold {
  return {
    code: "diverged",
    message: 'step "charge card" is new',
    details: { isNew: { kind: "step", name: "charge card" }, unasked: [{ kind: "step", name: "charge" }], issues: [] },
    print: "print-1",
    ...overrides,
  };
}

/** A log line of a run, with an id of its own. */
export function aLine(runId: string, overrides: Partial<NewLogEntry> = {}): NewLogEntry {
  return {
    id: uuidV7(FAKE_START),
    runId,
    stepName: null,
    level: "info",
    message: "hello",
    data: null,
    writtenAt: FAKE_START,
    ...overrides,
  };
}
