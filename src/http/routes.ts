import type { Respond } from "./route.ts";
import { OPERATOR_ROUTES } from "./routes/operator_routes.ts";
import { READ_ROUTES } from "./routes/read_routes.ts";
import { RUN_ROUTES } from "./routes/run_routes.ts";

/** A function for each route: it ignores the path of the request, and otherwise behaves like the route. */
export interface RouteFunctions {
  /** `POST /trigger`: asks for a run. */
  readonly trigger: Respond;
  /** `GET /subscribe?runId=`: streams the events of a run. */
  readonly subscribe: Respond;
  /** `GET /stream?runId=&name=&offset=&live=`: reads the items of a stream of a run. */
  readonly stream: Respond;
  /** `GET /streams?runId=`: shows the streams of a run. */
  readonly streams: Respond;
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
  /** `GET /messages?runId=`: shows the messages of a run. */
  readonly messages: Respond;
  /** `POST /send?runId=`: sends a message to a run, or starts one. */
  readonly send: Respond;
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
  /** `GET /explain?runId=`: says why a run is not executed. */
  readonly explain: Respond;
  /** `GET /timeline?runId=&from=&limit=`: shows what has happened in a run. */
  readonly timeline: Respond;
  /** `GET /children?runId=&status=&held=&limit=&cursor=`: counts the children of a run, and lists them. */
  readonly children: Respond;
  /** `GET /failure?runId=`: shows the stacks and causes of what a run failed of. */
  readonly failure: Respond;
  /** `GET /waits/open`: lists the waits of all runs that nobody has signalled yet. */
  readonly waitsOpen: Respond;
  /** `GET /failures?jobName=&since=`: groups the newest failed runs by their errors. */
  readonly failures: Respond;
  /** `GET /held?jobName=`: groups the newest held runs by their messages. */
  readonly held: Respond;
  /** `GET /find?q=`: finds runs by an id, a key or a label. */
  readonly find: Respond;
  /** `POST /runs/cancel`: cancels many runs. */
  readonly runsCancel: Respond;
  /** `POST /runs/retrigger`: retriggers many runs. */
  readonly runsRetrigger: Respond;
  /** `POST /runs/resume`: resumes many held runs. */
  readonly runsResume: Respond;
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
  /** `GET /health/live`: shows whether the process should go on, without `onRequest` and the store; 503 if not. */
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
  /** `POST /tick?timeout=`: executes what is due, and says when something is due again. */
  readonly tick: Respond;
  /** `GET /openapi.json`: describes all routes, and the inputs of the jobs. */
  readonly openapi: Respond;
}

/** Every route. The paths, the methods and the functions of a handler are derived from this. */
export const routes = { ...RUN_ROUTES, ...READ_ROUTES, ...OPERATOR_ROUTES } satisfies Record<
  keyof RouteFunctions,
  unknown
>;
