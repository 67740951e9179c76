import type { IdleResult } from "../../engine/lifecycle.ts";
import type { Health, HealthCheck } from "../../engine/operate/health.ts";
import type { HeldInfo, JobInfo, JobLimitsInfo } from "../../engine/operate/job_info.ts";
import type { Stats } from "../../engine/operate/operator.ts";
import type { Rates, Windows } from "../../engine/operate/statistics/recent_statistics.ts";
import type { Series } from "../../engine/operate/statistics/series.ts";
import type { WorkerInfo } from "../../engine/operate/worker_info.ts";
import { COALESCE_MODES, ENDED, RUN_STATUSES } from "../../model/run.ts";
import type { Latency } from "../../statistics/latencies.ts";
import type { Counts } from "../../store/operate.ts";
import type { ClientSchedule } from "../client_schedule.ts";
import type { ClientWait } from "../../model/wait.ts";
import type { Explanation } from "../../engine/operate/explanation.ts";
import type { Reason, WorkerRef } from "../../engine/operate/reason.ts";
import type { FailureGroup, FailureGroups, HeldGroup, HeldGroups } from "../../engine/operate/run_groups.ts";
import type { OpenWait, OpenWaitsPage } from "../../engine/operate/open_waits.ts";
import type { Timeline, TimelineRow, TimelineSpan } from "../../engine/operate/timeline.ts";
import type { Children } from "../../model/children.ts";
import { type Failure, FAILURE_KINDS } from "../../model/failure.ts";
import { HOLD_CODES } from "../../model/hold.ts";
import type { FoundBy } from "../../store/operator_reads.ts";
import type { ShownFailures } from "../access/run_reads.ts";
import {
  ANY,
  COUNT,
  fields,
  FLAG,
  INSTANT,
  type JsonSchema,
  LABELS,
  listOf,
  NUMBER,
  objectOf,
  oneOf,
  optional,
  orNull,
  ref,
  TEXT,
} from "./json_schema.ts";
import { WAIT_FIELDS } from "./run_schemas.ts";

const HEALTH_STATUS = oneOf(["ok", "degraded", "failing"]);
const SAMPLED = listOf(orNull(NUMBER));
const HELD = orNull(objectOf<HeldInfo>()({ runs: COUNT, since: INSTANT }));
const PERCENTILES = objectOf<Series["duration"]>()({ p50: SAMPLED, p95: SAMPLED });

/** The schemas of what operators see. */
export const OPERATOR_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  Counts: objectOf<Counts>()(
    Object.fromEntries(RUN_STATUSES.map((status) => [status, COUNT])) as {
      [Status in keyof Counts]: JsonSchema; // one for each status
    },
  ),
  Latency: objectOf<Latency>()({ count: COUNT, p50: NUMBER, p95: NUMBER, p99: NUMBER }),
  Rates: objectOf<Rates>()({
    ...fields(COUNT, "triggered started completed failed cancelled steps stepFailures"),
    perMinute: NUMBER,
    failureRate: orNull(NUMBER),
    ...fields(orNull(ref("Latency")), "startDelay duration stepDuration"),
  }),
  Windows: objectOf<Windows>()({ "5m": ref("Rates"), "1h": ref("Rates") }),
  TickResult: objectOf<IdleResult>()({ executed: COUNT, nextDueAt: orNull(INSTANT) }),
  Stats: objectOf<Stats>()({
    at: INSTANT,
    total: COUNT,
    byStatus: ref("Counts"),
    held: HELD,
    slots: objectOf<Stats["slots"]>()({ total: COUNT, busy: COUNT }),
    windows: ref("Windows"),
    nextTimerAt: orNull(INSTANT),
    jobs: listOf(ref("Job")),
  }),
  Series: objectOf<Series>()({
    from: INSTANT,
    stepMs: COUNT,
    ...fields(listOf(COUNT), "triggered completed failed cancelled"),
    ...fields(SAMPLED, "pending running waiting busy"),
    startDelay: PERCENTILES,
    duration: PERCENTILES,
  }),
  Job: objectOf<JobInfo>()({
    jobName: TEXT,
    isKnownHere: FLAG,
    liveWorkers: COUNT,
    paused: orNull(
      objectOf<NonNullable<JobInfo["paused"]>>()({ since: INSTANT, by: orNull(TEXT), note: orNull(TEXT) }),
    ),
    byStatus: ref("Counts"),
    oldestDue: orNull(objectOf<NonNullable<JobInfo["oldestDue"]>>()({ runId: orNull(TEXT), dueSince: INSTANT })),
    held: HELD,
    unread: COUNT,
    waits: orNull({ type: "object", additionalProperties: ANY }),
    messages: orNull({ type: "object", additionalProperties: ANY }),
    limits: orNull(
      objectOf<JobLimitsInfo>()({
        concurrency: orNull(COUNT),
        inUse: COUNT,
        rate: orNull(objectOf<NonNullable<JobLimitsInfo["rate"]>>()({ limit: COUNT, period: NUMBER })),
        opensAt: orNull(INSTANT),
      }),
    ),
    windows: ref("Windows"),
  }),
  Worker: objectOf<WorkerInfo>()({
    ...fields(TEXT, "id runtime version"),
    ...fields(orNull(TEXT), "name hostname deployment"),
    pid: orNull(COUNT),
    startedAt: INSTANT,
    lastSeenAt: INSTANT,
    state: oneOf(["live", "stopping", "lost"]),
    jobs: listOf(TEXT),
    concurrency: COUNT,
    leases: COUNT,
    leaseMs: NUMBER,
  }),
  Health: {
    ...objectOf<Health>()({
      status: HEALTH_STATUS,
      live: optional(FLAG),
      ready: optional(FLAG),
      checks: optional(listOf(
        objectOf<HealthCheck>()({ name: TEXT, status: HEALTH_STATUS, message: TEXT, value: optional(NUMBER) }),
      )),
    }),
    description: "A caller that is not authenticated sees the status alone",
  },
  Schedule: objectOf<ClientSchedule>()({
    ...fields(TEXT, "name jobName cron timezone"),
    input: ANY,
    catchUp: oneOf(["last", "none", "all"]),
    overlap: oneOf(["skip", "allow"]),
    coalesce: optional(oneOf(COALESCE_MODES)),
    labels: optional(LABELS),
    priority: optional({ type: "integer" }),
    startWithin: optional(NUMBER),
    finishWithin: optional(NUMBER),
    declared: FLAG,
    ...fields(orNull(INSTANT), "pausedAt dueSince lastSlotAt"),
    ...fields(orNull(TEXT), "pausedBy lastRunId error"),
    nextRuns: listOf(INSTANT),
    skipped: COUNT,
  }),
};

const STATUS = oneOf(RUN_STATUSES);
const WORKER = orNull(ref("WorkerRef"));

type FieldsOf<Kind extends Reason["kind"]> = {
  [Name in Exclude<keyof Extract<Reason, { kind: Kind }>, "kind" | "message">]-?: JsonSchema;
};

/** What each reason has besides its kind and its message. */
const REASON_FIELDS: { [Kind in Reason["kind"]]: FieldsOf<Kind> } = {
  ended: { status: oneOf(ENDED), endedAt: INSTANT },
  unread: { count: COUNT, names: listOf(TEXT) },
  executing: { worker: WORKER, since: INSTANT, leaseExpiresAt: INSTANT },
  worker_lost: { worker: WORKER, leaseExpiresAt: INSTANT },
  parent_ended: { runId: orNull(TEXT) },
  late: { deadline: oneOf(["startBy", "finishBy"]), at: INSTANT },
  alone: { abandonments: COUNT, until: orNull(INSTANT) },
  delayed: { until: INSTANT },
  signal: { waitId: TEXT, name: TEXT, deadlineAt: orNull(INSTANT) },
  message: { name: TEXT, names: listOf(TEXT), since: INSTANT, deadlineAt: orNull(INSTANT), unread: COUNT },
  sleep: { name: TEXT, until: INSTANT },
  retry: { stepName: TEXT, attempts: COUNT, error: TEXT, at: INSTANT },
  child: { runId: orNull(TEXT), jobName: orNull(TEXT), status: orNull(STATUS), open: COUNT },
  held_child: {
    runId: orNull(TEXT),
    jobName: orNull(TEXT),
    code: orNull(oneOf(HOLD_CODES)),
    since: orNull(INSTANT),
    count: COUNT,
  },
  held: { code: oneOf(HOLD_CODES), since: INSTANT },
  job_paused: { jobName: TEXT, by: orNull(TEXT), since: INSTANT, note: orNull(TEXT) },
  no_worker: { lastSeenAt: orNull(INSTANT) },
  unknown_job: { jobName: TEXT, version: COUNT, lastKnownBy: WORKER },
  key: {
    concurrencyKey: TEXT,
    holder: orNull(
      objectOf<NonNullable<Extract<Reason, { kind: "key" }>["holder"]>>()({
        runId: orNull(TEXT),
        jobName: orNull(TEXT),
        status: orNull(STATUS),
        since: orNull(INSTANT),
      }),
    ),
    ahead: orNull(COUNT),
  },
  limit: { name: TEXT, inUse: orNull(COUNT), max: COUNT, opensAt: orNull(INSTANT) },
  slots: { busy: orNull(COUNT), total: COUNT, ahead: orNull(COUNT) },
  due: { since: INSTANT },
};

/** The schemas of what operators read of runs. */
export const READ_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  Explanation: objectOf<Explanation>()({
    runId: TEXT,
    status: STATUS,
    at: INSTANT,
    message: TEXT,
    reasons: { ...listOf(ref("Reason")), minItems: 1 },
  }),
  Reason: {
    oneOf: Object.entries(REASON_FIELDS).map(([kind, fields]) =>
      objectOf<Record<string, unknown>>()({ kind: { const: kind }, message: TEXT, ...fields })
    ),
  },
  WorkerRef: objectOf<WorkerRef>()({
    id: TEXT,
    name: orNull(TEXT),
    hostname: orNull(TEXT),
    lastSeenAt: orNull(INSTANT),
  }),
  Timeline: objectOf<Timeline>()({
    runId: TEXT,
    from: INSTANT,
    triggeredBy: optional(TEXT),
    cancelledBy: optional(TEXT),
    to: orNull(INSTANT),
    rows: listOf(ref("TimelineRow")),
    next: orNull(TEXT),
    total: COUNT,
  }),
  TimelineRow: objectOf<TimelineRow>()({
    kind: oneOf(["queued", "step", "wait", "sleep", "receive", "child", "recovery"]),
    name: TEXT,
    status: TEXT,
    startedAt: INSTANT,
    endedAt: orNull(INSTANT),
    activeMs: NUMBER,
    spans: listOf(ref("TimelineSpan")),
    ...fields(optional(TEXT), "waitId signalledBy childRunId workerId"),
    deadlineAt: optional(INSTANT),
  }),
  TimelineSpan: objectOf<TimelineSpan>()({
    kind: oneOf(["queued", "active", "interrupted", "retry-delay", "paused"]),
    status: TEXT,
    from: INSTANT,
    to: orNull(INSTANT),
    attempt: optional(COUNT),
    error: optional(TEXT),
  }),
  Children: objectOf<Children>()({
    runId: TEXT,
    ...fields(orNull(COUNT), "total held executedAgain"),
    byStatus: orNull(ref("Counts")),
    children: listOf(ref("RunSummary")),
    next: orNull(TEXT),
  }),
  RunFailures: objectOf<ShownFailures>()({
    run: orNull(ref("Failure")),
    steps: listOf(
      objectOf<ShownFailures["steps"][number]>()({ name: TEXT, attempt: COUNT, failure: ref("Failure") }),
    ),
    details: objectOf<ShownFailures["details"]>()({
      version: COUNT,
      leaseGeneration: COUNT,
      ...fields(orNull(TEXT), "leaseOwner idempotencyKey concurrencyKey fairnessKey"),
    }),
  }),
  Failure: objectOf<Failure>()({
    kind: oneOf(FAILURE_KINDS),
    name: TEXT,
    message: TEXT,
    stack: orNull(TEXT),
    cause: orNull(ref("Failure")),
    maxAttempts: optional(COUNT),
  }),
  OpenWaits: objectOf<OpenWaitsPage>()({
    waits: listOf(ref("OpenWait")),
    total: orNull(COUNT),
    next: orNull(TEXT),
  }),
  OpenWait: objectOf<Omit<OpenWait, "signalledBy"> & ClientWait>()(
    { ...WAIT_FIELDS, jobName: TEXT, labels: LABELS, payloadSchema: ANY },
  ),
  HeldGroups: objectOf<HeldGroups>()({ groups: listOf(ref("HeldGroup")), examined: COUNT }),
  HeldGroup: objectOf<HeldGroup>()({
    jobName: TEXT,
    code: oneOf(HOLD_CODES),
    message: TEXT,
    remedy: orNull(TEXT),
    count: COUNT,
    since: INSTANT,
    runIds: listOf(TEXT),
  }),
  FailureGroups: objectOf<FailureGroups>()({ groups: listOf(ref("FailureGroup")), examined: COUNT }),
  FailureGroup: objectOf<FailureGroup>()({
    jobName: TEXT,
    stepName: orNull(TEXT),
    error: TEXT,
    count: COUNT,
    firstAt: INSTANT,
    lastAt: INSTANT,
    runIds: listOf(TEXT),
  }),
  FoundRun: objectOf<{ run: unknown; by: FoundBy }>()({
    run: ref("Run"),
    by: oneOf(["id", "waitId", "idempotencyKey", "concurrencyKey", "label"]),
  }),
};
