import { NotFoundError } from "../error.ts";
import { type BulkOperation, toClientRun } from "../run.ts";
import type { RouteCall } from "./route_call.ts";
import { readResume } from "./streams/resume.ts";
import { streamJson } from "./lists/json_stream.ts";
import {
  checkNoFrom,
  readBulk,
  readFrom,
  readJobName,
  readListFilter,
  readNote,
  readRunFilter,
  readRunId,
  readScheduleName,
  readSeriesQuery,
  readSignal,
  readTrigger,
  readWaitId,
} from "./requests/request.ts";
import { JSON_HEADERS, jsonResponse, MethodNotAllowedError } from "./response.ts";
import type { OpenPart } from "./access/auth_hooks.ts";
import { METRICS_TYPE, writeMetrics } from "./metrics/write_metrics.ts";

/** Handles a request. The promise never rejects: errors become responses. */
export type Respond = (request: Request) => Promise<Response>;

/** A function for each route: it ignores the path of the request, and otherwise behaves like the route. */
export interface RouteFunctions {
  /** `POST /trigger`: asks for a run. */
  readonly trigger: Respond;
  /** `GET /subscribe?runId=`: streams the events of a run. */
  readonly subscribe: Respond;
  /** `GET /runs`: lists runs, newest first. */
  readonly runs: Respond;
  /** `GET /run?runId=`: shows a run. */
  readonly run: Respond;
  /** `GET /steps?runId=`: shows the recorded steps of a run. */
  readonly steps: Respond;
  /** `GET /waits?runId=`: shows the waits of a run. */
  readonly waits: Respond;
  /** `GET /wait?runId=&waitId=`: shows a wait. */
  readonly wait: Respond;
  /** `POST /signal?runId=&waitId=`: ends a wait. */
  readonly signal: Respond;
  /** `GET /logs?runId=`: shows the log lines of a run. */
  readonly logs: Respond;
  /** `GET /runs/subscribe`: streams the events of all runs. */
  readonly runsSubscribe: Respond;
  /** `POST /retrigger?runId=`: retriggers a run that has ended. */
  readonly retrigger: Respond;
  /** `POST /retry?runId=`: the same as `retrigger`. */
  readonly retry: Respond;
  /** `POST /cancel?runId=`: cancels a run that has not ended. */
  readonly cancel: Respond;
  /** `POST /resume?runId=`: lets a held run be tried again. */
  readonly resume: Respond;
  /** `DELETE /run?runId=`: deletes a run that has ended. */
  readonly delete: Respond;
  /** `POST /runs/cancel`: cancels many runs. */
  readonly runsCancel: Respond;
  /** `POST /runs/retrigger`: retriggers many runs. */
  readonly runsRetrigger: Respond;
  /** `POST /runs/delete`: deletes many runs. */
  readonly runsDelete: Respond;
  /** `GET /stats`: shows the numbers of the store. */
  readonly stats: Respond;
  /** `GET /series?window=&jobName=`: shows what happened lately. */
  readonly series: Respond;
  /** `GET /jobs`: lists the jobs, by name. */
  readonly jobs: Respond;
  /** `POST /jobs/pause?jobName=`: pauses a job, and shows it. */
  readonly jobsPause: Respond;
  /** `POST /jobs/resume?jobName=`: ends the pause of a job, and shows it. */
  readonly jobsResume: Respond;
  /** `GET /workers`: lists the workers, by their first claims. */
  readonly workers: Respond;
  /** `GET /health`: shows the health of the process; 503 if it is not ready. */
  readonly health: Respond;
  /** `GET /health/live`: shows whether the process should go on, without a call to the store; 503 if not. */
  readonly healthLive: Respond;
  /** `GET /metrics`: shows metrics for Prometheus. */
  readonly metrics: Respond;
  /** `GET /schedules`: lists the schedules, by name. */
  readonly schedules: Respond;
  /** `POST /schedules/pause?name=`: pauses a schedule, and shows it. */
  readonly schedulesPause: Respond;
  /** `POST /schedules/resume?name=`: ends the pause of a schedule, and shows it. */
  readonly schedulesResume: Respond;
  /** `POST /schedules/trigger?name=`: triggers a schedule now, without a slot. */
  readonly schedulesTrigger: Respond;
}

/** One method of a path. */
export interface Route {
  /** The method. */
  method: "GET" | "POST" | "DELETE";
  /** The path after the prefix. */
  path: string;
  /** What a host opens to show it to callers that are not authenticated; left out: it cannot be opened. */
  part?: OpenPart;
  /** Handles the request. */
  answer(call: RouteCall): Promise<Response>;
}

/** Every route. The paths, the methods and the functions of a handler are derived from this. */
export const routes: { readonly [Name in keyof RouteFunctions]: Route } = {
  trigger: { method: "POST", path: "/trigger", answer: trigger },
  subscribe: { method: "GET", path: "/subscribe", answer: subscribe },
  runs: { method: "GET", path: "/runs", answer: listRuns },
  run: { method: "GET", path: "/run", answer: showRun },
  steps: { method: "GET", path: "/steps", answer: showSteps },
  waits: { method: "GET", path: "/waits", answer: showWaits },
  wait: { method: "GET", path: "/wait", answer: showWait },
  signal: { method: "POST", path: "/signal", answer: signal },
  logs: { method: "GET", path: "/logs", answer: showLogs },
  runsSubscribe: { method: "GET", path: "/runs/subscribe", answer: subscribeRuns },
  retrigger: { method: "POST", path: "/retrigger", answer: retrigger },
  retry: { method: "POST", path: "/retry", answer: retrigger },
  cancel: { method: "POST", path: "/cancel", answer: cancel },
  resume: { method: "POST", path: "/resume", answer: resume },
  delete: { method: "DELETE", path: "/run", answer: deleteRun },
  runsCancel: { method: "POST", path: "/runs/cancel", answer: (call) => performBulk("cancel", call) },
  runsRetrigger: { method: "POST", path: "/runs/retrigger", answer: (call) => performBulk("retrigger", call) },
  runsDelete: { method: "POST", path: "/runs/delete", answer: (call) => performBulk("delete", call) },
  stats: { method: "GET", path: "/stats", answer: showStats },
  series: { method: "GET", path: "/series", answer: showSeries },
  jobs: { method: "GET", path: "/jobs", answer: listJobs },
  jobsPause: { method: "POST", path: "/jobs/pause", answer: pauseJob },
  jobsResume: { method: "POST", path: "/jobs/resume", answer: resumeJob },
  workers: { method: "GET", path: "/workers", answer: listWorkers },
  health: { method: "GET", path: "/health", part: "health", answer: showHealth },
  healthLive: { method: "GET", path: "/health/live", part: "health", answer: showLiveness },
  metrics: { method: "GET", path: "/metrics", answer: showMetrics },
  schedules: { method: "GET", path: "/schedules", answer: listSchedules },
  schedulesPause: { method: "POST", path: "/schedules/pause", answer: pauseSchedule },
  schedulesResume: { method: "POST", path: "/schedules/resume", answer: resumeSchedule },
  schedulesTrigger: { method: "POST", path: "/schedules/trigger", answer: triggerSchedule },
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

async function trigger(call: RouteCall): Promise<Response> {
  const { jobName, input, ...options } = await readTrigger(call);
  const { id: runId, disposition, status } = await call.engine.trigger(jobName, input, options);
  return jsonResponse({ runId, disposition, status });
}

async function subscribe({ engine, query, request }: RouteCall): Promise<Response> {
  return await engine.followRun(readRunId(query), readResume(request, query));
}

async function subscribeRuns({ engine, query, request }: RouteCall): Promise<Response> {
  return await engine.followRuns(readListFilter(query), readResume(request, query));
}

async function listRuns({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listRuns(readRunFilter(query)), report);
}

async function showRun({ engine, query }: RouteCall): Promise<Response> {
  return jsonResponse(toClientRun(await engine.getRun(readRunId(query))));
}

async function showSteps({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listSteps(readRunId(query)), report);
}

async function showWaits({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listWaits(readRunId(query)), report);
}

async function showWait({ engine, query }: RouteCall): Promise<Response> {
  return jsonResponse(await engine.getWait(readRunId(query), readWaitId(query)));
}

async function showLogs({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listLogs(readRunId(query)), report);
}

async function signal(call: RouteCall): Promise<Response> {
  const [runId, waitId] = [readRunId(call.query), readWaitId(call.query)];
  return jsonResponse(await call.engine.signal(runId, waitId, await readSignal(call)));
}

async function retrigger(call: RouteCall): Promise<Response> {
  const [oldId, from] = [readRunId(call.query), readFrom(call.query)];
  await checkNoFrom(call);
  const { id: runId, status } = await call.engine.retrigger(oldId, { from });
  return jsonResponse({ success: true, runId, status });
}

async function cancel({ engine, query }: RouteCall): Promise<Response> {
  await engine.cancel(readRunId(query));
  return jsonResponse({ success: true });
}

async function resume({ engine, query }: RouteCall): Promise<Response> {
  await engine.resume(readRunId(query));
  return jsonResponse({ success: true });
}

async function deleteRun({ engine, query }: RouteCall): Promise<Response> {
  await engine.deleteRun(readRunId(query));
  return jsonResponse({ success: true });
}

async function performBulk(operation: BulkOperation, call: RouteCall): Promise<Response> {
  const { selection, options } = await readBulk(operation, call);
  return jsonResponse(await call.engine.performBulk(operation, selection, options));
}

async function showStats({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getStats());
}

async function showSeries({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getSeries(readSeriesQuery(query)));
}

async function listJobs({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getJobs());
}

async function pauseJob(call: RouteCall): Promise<Response> {
  const jobName = readJobName(call.query);
  return jsonResponse(await call.operator.pauseJob(jobName, await readNote(call)));
}

async function resumeJob({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.resumeJob(readJobName(query)));
}

async function listWorkers({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getWorkers());
}

async function showHealth({ operator }: RouteCall): Promise<Response> {
  const { shown, isFine } = await operator.getHealth();
  return jsonResponse(shown, isFine ? 200 : 503);
}

async function showLiveness({ operator }: RouteCall): Promise<Response> {
  const { shown, isFine } = await operator.getLiveness();
  return jsonResponse(shown, isFine ? 200 : 503);
}

async function showMetrics({ operator, settings }: RouteCall): Promise<Response> {
  const text = writeMetrics(await operator.getMetrics(), settings.limits.maxMetricJobs);
  return new Response(text, { headers: { "content-type": METRICS_TYPE, ...JSON_HEADERS } });
}

async function listSchedules({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.listSchedules());
}

async function pauseSchedule({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.pauseSchedule(readScheduleName(query)));
}

async function resumeSchedule({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.resumeSchedule(readScheduleName(query)));
}

async function triggerSchedule({ operator, query }: RouteCall): Promise<Response> {
  const { id: runId, disposition, status } = await operator.triggerSchedule(readScheduleName(query));
  return jsonResponse({ runId, disposition, status });
}
