import {
  listJobs,
  listSchedules,
  listWorkers,
  pauseJob,
  pauseSchedule,
  resumeJob,
  resumeSchedule,
  showDocument,
  showHealth,
  showLiveness,
  showMetrics,
  showSeries,
  showStats,
  triggerSchedule,
} from "../answers/operator_answers.ts";
import { PARAMETERS as P } from "../openapi/route_description.ts";
import type { DescribedRoute } from "../route.ts";

/** The routes that concern no single run: numbers, jobs, workers, health, schedules, and the document of the routes. */
export const OPERATOR_ROUTES = {
  stats: {
    method: "GET",
    path: "/stats",
    answer: showStats,
    description: { summary: "Shows the numbers of the store", answer: { schema: "Stats" } },
  },
  series: {
    method: "GET",
    path: "/series",
    answer: showSeries,
    description: {
      summary: "Shows what happened lately",
      parameters: [P.window, P.optionalJob],
      answer: { schema: "Series" },
    },
  },
  jobs: {
    method: "GET",
    path: "/jobs",
    answer: listJobs,
    description: { summary: "Lists the jobs", answer: { listOf: "Job" } },
  },
  jobsPause: {
    method: "POST",
    path: "/jobs/pause",
    answer: pauseJob,
    description: {
      summary: "Pauses a job",
      parameters: [P.requiredJob],
      body: "PauseRequest",
      isBodyOptional: true,
      answer: { schema: "Job" },
      errors: ["not_found"],
    },
  },
  jobsResume: {
    method: "POST",
    path: "/jobs/resume",
    answer: resumeJob,
    description: {
      summary: "Ends the pause of a job",
      parameters: [P.requiredJob],
      answer: { schema: "Job" },
      errors: ["not_found"],
    },
  },
  workers: {
    method: "GET",
    path: "/workers",
    answer: listWorkers,
    description: { summary: "Lists the workers", answer: { listOf: "Worker" } },
  },
  health: {
    method: "GET",
    path: "/health",
    part: "health",
    answer: showHealth,
    description: {
      summary: "Shows the health of the process; 503 if it is not ready",
      answer: { schema: "Health" },
      answersUnavailable: true,
    },
  },
  healthLive: {
    method: "GET",
    path: "/health/live",
    part: "health",
    isProbe: true,
    answer: showLiveness,
    description: {
      summary: "Shows whether the process should go on; 503 if not",
      answer: { schema: "Health" },
      answersUnavailable: true,
    },
  },
  metrics: {
    method: "GET",
    path: "/metrics",
    answer: showMetrics,
    description: { summary: "Shows metrics for Prometheus", answer: "text" },
  },
  schedules: {
    method: "GET",
    path: "/schedules",
    answer: listSchedules,
    description: { summary: "Lists the schedules", answer: { listOf: "Schedule" } },
  },
  schedulesPause: {
    method: "POST",
    path: "/schedules/pause",
    answer: pauseSchedule,
    description: {
      summary: "Pauses a schedule",
      parameters: [P.scheduleName],
      answer: { schema: "Schedule" },
      errors: ["not_found", "conflict"],
    },
  },
  schedulesResume: {
    method: "POST",
    path: "/schedules/resume",
    answer: resumeSchedule,
    description: {
      summary: "Ends the pause of a schedule",
      parameters: [P.scheduleName],
      answer: { schema: "Schedule" },
      errors: ["not_found", "conflict"],
    },
  },
  schedulesTrigger: {
    method: "POST",
    path: "/schedules/trigger",
    answer: triggerSchedule,
    description: {
      summary: "Triggers a schedule now, without a slot",
      parameters: [P.scheduleName],
      answer: { schema: "TriggerResult" },
      errors: ["invalid_input", "not_found", "conflict"],
    },
  },
  openapi: {
    method: "GET",
    path: "/openapi.json",
    answer: showDocument,
    description: { summary: "Describes the routes", answer: "document" },
  },
} satisfies Record<string, DescribedRoute>;
