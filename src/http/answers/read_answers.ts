import {
  readFailuresQuery,
  readOpenWaitsQuery,
  readRunId,
  readSearch,
  readTimelineOptions,
} from "../requests/request.ts";
import { jsonResponse } from "../response.ts";
import type { RouteCall } from "../route_call.ts";

/** Answers `GET /explain`. */
export async function explain({ reads, query }: RouteCall): Promise<Response> {
  return jsonResponse(await reads.explain(readRunId(query)));
}

/** Answers `GET /timeline`. */
export async function showTimeline({ reads, query }: RouteCall): Promise<Response> {
  return jsonResponse(await reads.getTimeline(readRunId(query), readTimelineOptions(query)));
}

/** Answers `GET /failure`. */
export async function showFailure({ reads, query }: RouteCall): Promise<Response> {
  return jsonResponse(await reads.getFailure(readRunId(query)));
}

/** Answers `GET /waits/open`. */
export async function listOpenWaits({ reads, query }: RouteCall): Promise<Response> {
  return jsonResponse(await reads.getOpenWaits(readOpenWaitsQuery(query)));
}

/** Answers `GET /failures`. */
export async function listFailures({ reads, query }: RouteCall): Promise<Response> {
  return jsonResponse(await reads.getFailures(readFailuresQuery(query)));
}

/** Answers `GET /find`. */
export async function findRuns({ reads, query }: RouteCall): Promise<Response> {
  return jsonResponse(await reads.findRuns(readSearch(query)));
}
