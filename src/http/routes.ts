import { NotFoundError } from "../error.ts";
import { type Run, toClientRun } from "../run.ts";
import type { Wait } from "../wait.ts";
import type { Call } from "./call.ts";
import { readFrom, readParameter, readRunFilter, readSignal, readStreamFilter, readTrigger } from "./request.ts";
import { jsonResponse, MethodNotAllowedError } from "./response.ts";

/** Answers a request. Its promise is never rejected: whatever goes wrong is an answer, too. */
export type Respond = (request: Request) => Promise<Response>;

/** A function for each route: it ignores the path of the request, and otherwise does what the route does. */
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
  /** `GET /logs?runId=`: shows what a run has logged. */
  readonly logs: Respond;
  /** `GET /runs/subscribe`: streams the events of all runs. */
  readonly runsSubscribe: Respond;
  /** `POST /retrigger?runId=`: makes a new run of one that has ended. */
  readonly retrigger: Respond;
  /** `POST /retry?runId=`: the same as `retrigger`. */
  readonly retry: Respond;
  /** `POST /cancel?runId=`: cancels a run that has not ended. */
  readonly cancel: Respond;
  /** `DELETE /run?runId=`: deletes a run that has ended. */
  readonly delete: Respond;
}

/** What is served at a path, for one method. */
export interface Route {
  /** The method. */
  method: "GET" | "POST" | "DELETE";
  /** The path after the prefix. */
  path: string;
  /** Does what is asked for. */
  answer(call: Call): Promise<Response>;
}

/** Every route. The paths, the methods and the functions of a handler all follow from this. */
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
  delete: { method: "DELETE", path: "/run", answer: deleteRun },
};

/** The routes of a path, one for each of its methods. */
export function routesAt(path: string): Route[] {
  return Object.values(routes).filter((route) => route.path === path);
}

/**
 * Picks the route of a method.
 *
 * @throws {NotFoundError} There are no routes to pick from.
 * @throws {MethodNotAllowedError} There are, but none for the method.
 */
export function pickRoute(candidates: readonly Route[], method: string): Route {
  if (candidates.length === 0) throw new NotFoundError("There is no such path");
  const route = candidates.find((candidate) => candidate.method === method);
  if (route === undefined) throw new MethodNotAllowedError(candidates.map((candidate) => candidate.method));
  return route;
}

async function trigger(call: Call): Promise<Response> {
  const { jobName, input, ...options } = await readTrigger(call);
  const { id: runId, disposition, status } = await call.engine.trigger(jobName, input, options);
  return jsonResponse({ runId, disposition, status });
}

async function subscribe(call: Call): Promise<Response> {
  const { id } = await namedRun(call);
  return call.streams.openRun(id);
}

function subscribeRuns({ query, streams }: Call): Promise<Response> {
  return Promise.resolve(streams.openList(readStreamFilter(query)));
}

async function listRuns({ engine, query }: Call): Promise<Response> {
  const filter = readRunFilter(query);
  if (filter === null) return jsonResponse({ runs: [], total: 0, hasMore: false });
  const { runs, total, hasMore } = await engine.getRuns(filter);
  return jsonResponse({ runs: runs.map(toClientRun), total, hasMore });
}

async function showRun(call: Call): Promise<Response> {
  return jsonResponse(toClientRun(await namedRun(call)));
}

async function showSteps(call: Call): Promise<Response> {
  const { id } = await namedRun(call);
  return jsonResponse(await call.engine.getSteps(id));
}

async function showWaits(call: Call): Promise<Response> {
  const { id } = await namedRun(call);
  return jsonResponse(await call.engine.getWaits(id));
}

async function showWait(call: Call): Promise<Response> {
  const runId = readParameter(call.query, "runId");
  const waitId = readParameter(call.query, "waitId");
  return jsonResponse(await findWait(call, await findRun(call, runId), waitId));
}

async function showLogs(call: Call): Promise<Response> {
  const { id } = await namedRun(call);
  return jsonResponse(await call.engine.getLogs(id));
}

async function signal(call: Call): Promise<Response> {
  const runId = readParameter(call.query, "runId");
  const waitId = readParameter(call.query, "waitId");
  const signal = await readSignal(call);
  const wait = await findWait(call, await findRun(call, runId), waitId);
  return jsonResponse(await call.engine.signal(wait.id, signal));
}

async function retrigger(call: Call): Promise<Response> {
  const from = readFrom(call.query);
  const { id } = await namedRun(call);
  const { id: runId, status } = await call.engine.retrigger(id, { from });
  return jsonResponse({ success: true, runId, status });
}

async function cancel(call: Call): Promise<Response> {
  const { id } = await namedRun(call);
  await call.engine.cancel(id);
  return jsonResponse({ success: true });
}

async function deleteRun(call: Call): Promise<Response> {
  const { id } = await namedRun(call);
  await call.engine.deleteRun(id);
  return jsonResponse({ success: true });
}

/** The run that the parameter `runId` names, for routes that need nothing else. */
async function namedRun(call: Call): Promise<Run> {
  return await findRun(call, readParameter(call.query, "runId"));
}

/** Everything that a route shows of a run or does to it passes here first. */
async function findRun({ engine }: Call, runId: string): Promise<Run> {
  const run = await engine.getRun(runId);
  if (run === null) throw new NotFoundError(`There is no run "${runId}"`);
  return run;
}

/** A wait of this run: one of another run is as good as none. */
async function findWait({ engine }: Call, run: Run, waitId: string): Promise<Wait> {
  const wait = await engine.getWait(waitId);
  if (wait?.runId !== run.id) throw new NotFoundError(`There is no wait "${waitId}"`);
  return wait;
}
