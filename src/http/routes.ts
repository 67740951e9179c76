import { NotFoundError } from "../error.ts";
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
} from "./answers/operator_answers.ts";
import {
  cancel,
  deleteRun,
  listRuns,
  performBulk,
  resume,
  retrigger,
  showLogs,
  showRun,
  showSteps,
  showWait,
  showWaits,
  signal,
  subscribe,
  subscribeRuns,
  trigger,
} from "./answers/run_answers.ts";
import { PARAMETERS as P } from "./openapi/route_description.ts";
import { MethodNotAllowedError } from "./response.ts";
import type { Route, RouteFunctions } from "./route.ts";

/** Every route. The paths, the methods and the functions of a handler are derived from this. */
export const routes: { readonly [Name in keyof RouteFunctions]: Route } = {
  trigger: {
    method: "POST",
    path: "/trigger",
    answer: trigger,
    description: {
      summary: "Asks for a run",
      body: "TriggerRequest",
      answer: { schema: "TriggerResult" },
      errors: ["invalid_input", "not_found", "conflict", "key_in_use"],
    },
  },
  subscribe: {
    method: "GET",
    path: "/subscribe",
    answer: subscribe,
    description: {
      summary: "Streams the events of a run",
      parameters: [P.runId, P.lastEventId],
      answer: "events",
      errors: ["not_found", "too_many_streams"],
    },
  },
  runs: {
    method: "GET",
    path: "/runs",
    answer: listRuns,
    description: { summary: "Lists runs, newest first", parameters: P.runFilter, answer: { schema: "RunList" } },
  },
  run: {
    method: "GET",
    path: "/run",
    answer: showRun,
    description: { summary: "Shows a run", parameters: [P.runId], answer: { schema: "Run" }, errors: ["not_found"] },
  },
  steps: {
    method: "GET",
    path: "/steps",
    answer: showSteps,
    description: {
      summary: "Shows the recorded steps of a run",
      parameters: [P.runId],
      answer: { listOf: "Step" },
      errors: ["not_found"],
    },
  },
  waits: {
    method: "GET",
    path: "/waits",
    answer: showWaits,
    description: {
      summary: "Shows the waits of a run",
      parameters: [P.runId],
      answer: { listOf: "Wait" },
      errors: ["not_found"],
    },
  },
  wait: {
    method: "GET",
    path: "/wait",
    answer: showWait,
    description: {
      summary: "Shows a wait",
      parameters: [P.runId, P.waitId],
      answer: { schema: "Wait" },
      errors: ["not_found"],
    },
  },
  signal: {
    method: "POST",
    path: "/signal",
    answer: signal,
    description: {
      summary: "Ends a wait",
      parameters: [P.runId, P.waitId],
      body: "SignalRequest",
      answer: { schema: "SignalReceipt" },
      errors: ["not_found", "conflict", "wait_expired"],
    },
  },
  logs: {
    method: "GET",
    path: "/logs",
    answer: showLogs,
    description: {
      summary: "Shows the log lines of a run",
      parameters: [P.runId],
      answer: { listOf: "LogEntry" },
      errors: ["not_found"],
    },
  },
  runsSubscribe: {
    method: "GET",
    path: "/runs/subscribe",
    answer: subscribeRuns,
    description: {
      summary: "Streams the events of all runs",
      parameters: [...P.listFilter, P.lastEventId],
      answer: "events",
      errors: ["too_many_streams"],
    },
  },
  retrigger: {
    method: "POST",
    path: "/retrigger",
    answer: retrigger,
    description: {
      summary: "Retriggers a run that has ended",
      parameters: [P.runId, P.from],
      answer: { schema: "RetriggerResult" },
      errors: ["invalid_input", "not_found", "conflict", "body_timeout"],
    },
  },
  retry: {
    method: "POST",
    path: "/retry",
    answer: retrigger,
    description: {
      summary: "The same as /retrigger",
      parameters: [P.runId, P.from],
      answer: { schema: "RetriggerResult" },
      errors: ["invalid_input", "not_found", "conflict", "body_timeout"],
    },
  },
  cancel: {
    method: "POST",
    path: "/cancel",
    answer: cancel,
    description: {
      summary: "Cancels a run that has not ended",
      parameters: [P.runId],
      answer: { schema: "Success" },
      errors: ["not_found", "conflict"],
    },
  },
  resume: {
    method: "POST",
    path: "/resume",
    answer: resume,
    description: {
      summary: "Lets a held run be tried again",
      parameters: [P.runId],
      answer: { schema: "Success" },
      errors: ["not_found", "conflict"],
    },
  },
  delete: {
    method: "DELETE",
    path: "/run",
    answer: deleteRun,
    description: {
      summary: "Deletes a run that has ended",
      parameters: [P.runId],
      answer: { schema: "Success" },
      errors: ["not_found", "conflict"],
    },
  },
  runsCancel: {
    method: "POST",
    path: "/runs/cancel",
    answer: (call) => performBulk("cancel", call),
    description: { summary: "Cancels many runs", body: "BulkRequest", answer: { schema: "BulkResult" } },
  },
  runsRetrigger: {
    method: "POST",
    path: "/runs/retrigger",
    answer: (call) => performBulk("retrigger", call),
    description: { summary: "Retriggers many runs", body: "BulkRetriggerRequest", answer: { schema: "BulkResult" } },
  },
  runsDelete: {
    method: "POST",
    path: "/runs/delete",
    answer: (call) => performBulk("delete", call),
    description: { summary: "Deletes many runs", body: "BulkRequest", answer: { schema: "BulkResult" } },
  },
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
};

/** The routes of a path, one for each of its methods. */
export function routesAt(path: string): Route[] {
  return Object.values(routes).filter((route) => route.path === path);
}

/**
 * Picks the route of a method.
 *
 * @throws {NotFoundError} There are no candidates.
 * @throws {MethodNotAllowedError} No candidate has the method.
 */
export function pickRoute(candidates: readonly Route[], method: string): Route {
  if (candidates.length === 0) throw new NotFoundError("There is no such path");
  const route = candidates.find((candidate) => candidate.method === method);
  if (route === undefined) throw new MethodNotAllowedError(candidates.map((candidate) => candidate.method));
  return route;
}
