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
