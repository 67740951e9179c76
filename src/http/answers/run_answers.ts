import { toClientRun } from "../../client_run.ts";
import type { BulkOperation } from "../../run.ts";
import { streamJson } from "../lists/json_stream.ts";
import {
  checkNoFrom,
  readBulk,
  readFrom,
  readListFilter,
  readListView,
  readRunFilter,
  readRunId,
  readSignal,
  readTrigger,
  readWaitId,
} from "../requests/request.ts";
import { jsonResponse } from "../response.ts";
import type { RouteCall } from "../route_call.ts";
import { readResume } from "../streams/resume.ts";

/** Answers `POST /trigger`. */
export async function trigger(call: RouteCall): Promise<Response> {
  const { jobName, input, ...options } = await readTrigger(call);
  const { run: { id: runId, status }, disposition } = await call.engine.trigger(jobName, input, options);
  return jsonResponse({ runId, disposition, status });
}

/** Answers `GET /subscribe`. */
export async function subscribe({ engine, query, request }: RouteCall): Promise<Response> {
  return await engine.followRun(readRunId(query), readResume(request, query));
}

/** Answers `GET /runs/subscribe`. */
export async function subscribeRuns({ engine, query, request }: RouteCall): Promise<Response> {
  return await engine.followRuns(readListFilter(query), readResume(request, query));
}

/** Answers `GET /runs`. */
export async function listRuns({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listRuns(readRunFilter(query), readListView(query)), report);
}

/** Answers `GET /run`. */
export async function showRun({ engine, query }: RouteCall): Promise<Response> {
  return jsonResponse(toClientRun(await engine.getRun(readRunId(query))));
}

/** Answers `GET /steps`. */
export async function showSteps({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listSteps(readRunId(query)), report);
}

/** Answers `GET /waits`. */
export async function showWaits({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listWaits(readRunId(query)), report);
}

/** Answers `GET /wait`. */
export async function showWait({ engine, query }: RouteCall): Promise<Response> {
  return jsonResponse(await engine.getWait(readRunId(query), readWaitId(query)));
}

/** Answers `GET /logs`. */
export async function showLogs({ engine, query, report }: RouteCall): Promise<Response> {
  return await streamJson(await engine.listLogs(readRunId(query)), report);
}

/** Answers `POST /signal`. */
export async function signal(call: RouteCall): Promise<Response> {
  const [runId, waitId] = [readRunId(call.query), readWaitId(call.query)];
  return jsonResponse(await call.engine.signal(runId, waitId, await readSignal(call)));
}

/** Answers `POST /retrigger` and `POST /retry`. */
export async function retrigger(call: RouteCall): Promise<Response> {
  const [oldId, from] = [readRunId(call.query), readFrom(call.query)];
  await checkNoFrom(call);
  const { id: runId, status } = await call.engine.retrigger(oldId, { from });
  return jsonResponse({ success: true, runId, status });
}

/** Answers `POST /cancel`. */
export async function cancel({ engine, query }: RouteCall): Promise<Response> {
  await engine.cancel(readRunId(query));
  return jsonResponse({ success: true });
}

/** Answers `POST /resume`. */
export async function resume({ engine, query }: RouteCall): Promise<Response> {
  await engine.resume(readRunId(query));
  return jsonResponse({ success: true });
}

/** Answers `DELETE /run`. */
export async function deleteRun({ engine, query }: RouteCall): Promise<Response> {
  await engine.deleteRun(readRunId(query));
  return jsonResponse({ success: true });
}

/** Answers `POST /runs/cancel` and `POST /runs/retrigger` and `POST /runs/delete`. */
export async function performBulk(operation: BulkOperation, call: RouteCall): Promise<Response> {
  const { selection, options } = await readBulk(operation, call);
  return jsonResponse(await call.engine.performBulk(operation, selection, options));
}
