import { operate } from "../access/guards.ts";
import { toClientSchedule } from "../client_schedule.ts";
import { METRICS_TYPE, writeMetrics } from "../metrics.ts";
import { listOf, oneOf, ref } from "../openapi/json_schema.ts";
import { NO_BODY, NOTE } from "../requests/bodies.ts";
import { all, milliseconds, optional, type Query, required } from "../requests/parameters.ts";
import { JSON_HEADERS, jsonResponse } from "../response.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import { route } from "../route.ts";

const JOB = required("jobName");
const SCHEDULE = required("name");
const WINDOWS = ["1h", "24h", "7d"] as const;
const ofSchedule = {
  query: SCHEDULE,
  body: NO_BODY,
  answers: ref("Schedule"),
  errors: ["not_found", "conflict"],
} as const;

const DEFAULT_TICK_MS = 25_000;
// Its guard could have a name, too.
const TICK_TIMEOUT: Query<{ timeout?: number; name?: string }> = milliseconds(
  "timeout",
  1_000,
  900_000,
  { default: DEFAULT_TICK_MS },
);

/** The routes that concern no single run: numbers, jobs, workers, health, schedules, and the document of the routes. */
export const OPERATOR_ROUTES = {
  stats: route("GET /stats", "Shows the numbers of the store", {
    answers: ref("Stats"),
    guard: operate("stats"),
    does: async ({ engine, access }) => {
      const stats = await engine.getStats();
      return { ...stats, jobs: await Promise.all(stats.jobs.map((job) => access.shownJob(job))) };
    },
  }),
  series: route("GET /series", "Shows what happened lately", {
    query: all(required<"window", (typeof WINDOWS)[number]>("window", oneOf(WINDOWS)), optional("jobName")),
    answers: ref("Series"),
    guard: operate("stats"),
    does: ({ engine, query }) => engine.getSeries(query),
  }),
  jobs: route("GET /jobs", "Lists the jobs", {
    answers: listOf(ref("Job")),
    guard: operate("jobs"),
    does: async ({ engine, access }) => await Promise.all((await engine.getJobs()).map((job) => access.shownJob(job))),
  }),
  jobsPause: route("POST /jobs/pause", "Pauses a job", {
    query: JOB,
    body: NOTE,
    answers: ref("Job"),
    errors: ["not_found"],
    guard: operate("pause"),
    does: async ({ engine, access, query: { jobName }, body }) => {
      const options = { ...withoutUndefined(body), ...await access.actorOptions() };
      return await access.changedJob(await engine.pauseJob(jobName, options));
    },
  }),
  jobsResume: route("POST /jobs/resume", "Ends the pause of a job", {
    query: JOB,
    answers: ref("Job"),
    errors: ["not_found"],
    guard: operate("resume"),
    does: async ({ engine, access, query: { jobName } }) => await access.changedJob(await engine.resumeJob(jobName)),
  }),
  workers: route("GET /workers", "Lists the workers", {
    answers: listOf(ref("Worker")),
    guard: operate("workers"),
    does: ({ engine }) => engine.getWorkers(),
  }),
  health: route("GET /health", "Shows the health of the process; 503 if it is not ready", {
    part: "health",
    answers: ref("Health"),
    answersUnavailable: true,
    guard: operate("health"),
    does: async ({ engine, access }) => {
      const health = await engine.health();
      return jsonResponse(access.shownHealth(health), health.ready ? 200 : 503);
    },
  }),
  healthLive: route("GET /health/live", "Shows whether the process should go on; 503 if not", {
    part: "health",
    isProbe: true,
    answers: ref("Health"),
    answersUnavailable: true,
    guard: operate("health"),
    does: ({ internals, access }) => {
      const health = internals.monitor.liveness();
      return jsonResponse(access.shownHealth(health), health.live ? 200 : 503);
    },
  }),
  metrics: route("GET /metrics", "Shows metrics for Prometheus", {
    answers: "text",
    guard: operate("metrics"),
    does: async ({ internals, streams, settings }) => {
      const source = { ...await internals.monitor.metrics(), streams: streams.count() };
      return new Response(writeMetrics(source, settings.limits.maxMetricJobs), {
        headers: { "content-type": METRICS_TYPE, ...JSON_HEADERS },
      });
    },
  }),
  schedules: route("GET /schedules", "Lists the schedules", {
    answers: listOf(ref("Schedule")),
    guard: operate("schedules"),
    does: async ({ engine }) => (await engine.schedules.list()).map(toClientSchedule),
  }),
  schedulesPause: route("POST /schedules/pause", "Pauses a schedule", {
    ...ofSchedule,
    guard: operate("pause"),
    does: async ({ engine, access, query: { name } }) =>
      toClientSchedule(await engine.schedules.pause(name, await access.actorOptions())),
  }),
  schedulesResume: route("POST /schedules/resume", "Ends the pause of a schedule", {
    ...ofSchedule,
    guard: operate("resume"),
    does: async ({ engine, access, query: { name } }) =>
      toClientSchedule(await engine.schedules.resume(name, await access.actorOptions())),
  }),
  schedulesTrigger: route("POST /schedules/trigger", "Triggers a schedule now, without a slot", {
    query: SCHEDULE,
    body: NO_BODY,
    answers: ref("TriggerResult"),
    errors: ["invalid_input", "not_found", "conflict"],
    guard: operate("trigger"),
    does: async ({ engine, access, query: { name } }) => {
      const { id: runId, disposition, status } = await engine.schedules.trigger(name, await access.actorOptions());
      return { runId, disposition, status };
    },
  }),
  tick: route("POST /tick", "Executes what is due, and says when something is due again", {
    query: TICK_TIMEOUT,
    answers: ref("TickResult"),
    guard: operate("tick"),
    does: async ({ engine, query: { timeout = DEFAULT_TICK_MS } }) => await engine.runUntilIdle({ timeout }),
  }),
  openapi: route("GET /openapi.json", "Describes the routes", {
    answers: "document",
    guard: operate("docs"),
    does: async ({ document }) =>
      new Response(await document(), { headers: { "content-type": "application/json", ...JSON_HEADERS } }),
  }),
};
