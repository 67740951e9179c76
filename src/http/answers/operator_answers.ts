import { METRICS_TYPE, writeMetrics } from "../metrics/write_metrics.ts";
import { readJobName, readNote, readScheduleName, readSeriesQuery } from "../requests/request.ts";
import { JSON_HEADERS, jsonResponse } from "../response.ts";
import type { RouteCall } from "../route_call.ts";

/** Answers `GET /stats`. */
export async function showStats({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getStats());
}

/** Answers `GET /series`. */
export async function showSeries({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getSeries(readSeriesQuery(query)));
}

/** Answers `GET /jobs`. */
export async function listJobs({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getJobs());
}

/** Answers `POST /jobs/pause`. */
export async function pauseJob(call: RouteCall): Promise<Response> {
  const jobName = readJobName(call.query);
  return jsonResponse(await call.operator.pauseJob(jobName, await readNote(call)));
}

/** Answers `POST /jobs/resume`. */
export async function resumeJob({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.resumeJob(readJobName(query)));
}

/** Answers `GET /workers`. */
export async function listWorkers({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.getWorkers());
}

/** Answers `GET /health`. */
export async function showHealth({ operator }: RouteCall): Promise<Response> {
  const { shown, isFine } = await operator.getHealth();
  return jsonResponse(shown, isFine ? 200 : 503);
}

/** Answers `GET /health/live`. */
export async function showLiveness({ operator }: RouteCall): Promise<Response> {
  const { shown, isFine } = await operator.getLiveness();
  return jsonResponse(shown, isFine ? 200 : 503);
}

/** Answers `GET /metrics`. */
export async function showMetrics({ operator, settings }: RouteCall): Promise<Response> {
  const text = writeMetrics(await operator.getMetrics(), settings.limits.maxMetricJobs);
  return new Response(text, { headers: { "content-type": METRICS_TYPE, ...JSON_HEADERS } });
}

/** Answers `GET /schedules`. */
export async function listSchedules({ operator }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.listSchedules());
}

/** Answers `POST /schedules/pause`. */
export async function pauseSchedule({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.pauseSchedule(readScheduleName(query)));
}

/** Answers `POST /schedules/resume`. */
export async function resumeSchedule({ operator, query }: RouteCall): Promise<Response> {
  return jsonResponse(await operator.resumeSchedule(readScheduleName(query)));
}

/** Answers `POST /schedules/trigger`. */
export async function triggerSchedule({ operator, query }: RouteCall): Promise<Response> {
  const { id: runId, disposition, status } = await operator.triggerSchedule(readScheduleName(query));
  return jsonResponse({ runId, disposition, status });
}

/** Answers `GET /openapi.json`. */
export async function showDocument({ operator, document }: RouteCall): Promise<Response> {
  return new Response(await operator.getDocument(document), {
    headers: { "content-type": "application/json", ...JSON_HEADERS },
  });
}
