import type { IdleResult } from "../../engine/lifecycle.ts";
import type { Health, HealthCheck } from "../../engine/operate/health.ts";
import type { HeldInfo, JobInfo, JobLimitsInfo } from "../../engine/operate/job_info.ts";
import type { Stats } from "../../engine/operate/operator.ts";
import type { Rates, Windows } from "../../engine/operate/statistics/recent_statistics.ts";
import type { Series } from "../../engine/operate/statistics/series.ts";
import type { WorkerInfo } from "../../engine/operate/worker_info.ts";
import { COALESCE_MODES, RUN_STATUSES } from "../../model/run.ts";
import type { Latency } from "../../statistics/latencies.ts";
import type { Counts } from "../../store/operate.ts";
import type { ClientSchedule } from "../client_schedule.ts";
import {
  ANY,
  COUNT,
  FLAG,
  INSTANT,
  type JsonSchema,
  LABELS,
  listOf,
  NUMBER,
  objectOf,
  oneOf,
  orNull,
  ref,
  TEXT,
} from "./json_schema.ts";

const HEALTH_STATUS = oneOf(["ok", "degraded", "failing"]);
const SAMPLED = listOf(orNull(NUMBER));
const HELD = orNull(objectOf<HeldInfo>({ runs: COUNT, since: INSTANT }));
const PERCENTILES = objectOf<Series["duration"]>({ p50: SAMPLED, p95: SAMPLED });

/** The schemas of what operators see. */
export const OPERATOR_SCHEMAS: Readonly<Record<string, JsonSchema>> = {
  Counts: objectOf<Counts>(
    Object.fromEntries(RUN_STATUSES.map((status) => [status, COUNT])) as {
      [Status in keyof Counts]: JsonSchema; // one for each status
    },
  ),
  Latency: objectOf<Latency>({ count: COUNT, p50: NUMBER, p95: NUMBER, p99: NUMBER }),
  Rates: objectOf<Rates>({
    triggered: COUNT,
    started: COUNT,
    completed: COUNT,
    failed: COUNT,
    cancelled: COUNT,
    perMinute: NUMBER,
    failureRate: orNull(NUMBER),
    steps: COUNT,
    stepFailures: COUNT,
    startDelay: orNull(ref("Latency")),
    duration: orNull(ref("Latency")),
    stepDuration: orNull(ref("Latency")),
  }),
  Windows: objectOf<Windows>({ "5m": ref("Rates"), "1h": ref("Rates") }),
  TickResult: objectOf<IdleResult>({ executed: COUNT, nextDueAt: orNull(INSTANT) }),
  Stats: objectOf<Stats>({
    at: INSTANT,
    total: COUNT,
    byStatus: ref("Counts"),
    held: HELD,
    slots: objectOf<Stats["slots"]>({ total: COUNT, busy: COUNT }),
    windows: ref("Windows"),
    nextTimerAt: orNull(INSTANT),
    jobs: listOf(ref("Job")),
  }),
  Series: objectOf<Series>({
    from: INSTANT,
    stepMs: COUNT,
    triggered: listOf(COUNT),
    completed: listOf(COUNT),
    failed: listOf(COUNT),
    cancelled: listOf(COUNT),
    pending: SAMPLED,
    running: SAMPLED,
    waiting: SAMPLED,
    busy: SAMPLED,
    startDelay: PERCENTILES,
    duration: PERCENTILES,
  }),
  Job: objectOf<JobInfo>({
    jobName: TEXT,
    isKnownHere: FLAG,
    liveWorkers: COUNT,
    paused: orNull(
      objectOf<NonNullable<JobInfo["paused"]>>({ since: INSTANT, by: orNull(TEXT), note: orNull(TEXT) }),
    ),
    byStatus: ref("Counts"),
    oldestDue: orNull(objectOf<NonNullable<JobInfo["oldestDue"]>>({ runId: orNull(TEXT), dueSince: INSTANT })),
    held: HELD,
    unread: COUNT,
    waits: orNull({ type: "object", additionalProperties: ANY }),
    messages: orNull({ type: "object", additionalProperties: ANY }),
    limits: orNull(objectOf<JobLimitsInfo>({
      concurrency: orNull(COUNT),
      inUse: COUNT,
      rate: orNull(objectOf<NonNullable<JobLimitsInfo["rate"]>>({ limit: COUNT, period: NUMBER })),
      opensAt: orNull(INSTANT),
    })),
    windows: ref("Windows"),
  }),
  Worker: objectOf<WorkerInfo>({
    id: TEXT,
    name: orNull(TEXT),
    hostname: orNull(TEXT),
    pid: orNull(COUNT),
    runtime: TEXT,
    version: TEXT,
    deployment: orNull(TEXT),
    startedAt: INSTANT,
    lastSeenAt: INSTANT,
    state: oneOf(["live", "stopping", "lost"]),
    jobs: listOf(TEXT),
    concurrency: COUNT,
    leases: COUNT,
    leaseMs: NUMBER,
  }),
  Health: {
    ...objectOf<Health>({
      status: HEALTH_STATUS,
      live: FLAG,
      ready: FLAG,
      checks: listOf(
        objectOf<HealthCheck>({ name: TEXT, status: HEALTH_STATUS, message: TEXT, value: NUMBER }, ["value"]),
      ),
    }, ["live", "ready", "checks"]),
    description: "A caller that is not authenticated sees the status alone",
  },
  Schedule: objectOf<ClientSchedule>({
    name: TEXT,
    jobName: TEXT,
    input: ANY,
    cron: TEXT,
    timezone: TEXT,
    catchUp: oneOf(["last", "none", "all"]),
    overlap: oneOf(["skip", "allow"]),
    coalesce: oneOf(COALESCE_MODES),
    labels: LABELS,
    priority: { type: "integer" },
    startWithin: NUMBER,
    finishWithin: NUMBER,
    declared: FLAG,
    pausedAt: orNull(INSTANT),
    pausedBy: orNull(TEXT),
    nextRuns: listOf(INSTANT),
    dueSince: orNull(INSTANT),
    lastSlotAt: orNull(INSTANT),
    lastRunId: orNull(TEXT),
    skipped: COUNT,
    error: orNull(TEXT),
  }, ["coalesce", "labels", "priority", "startWithin", "finishWithin"]),
};
