import type { Json } from "../../../src/values/json.ts";
import type { Tenant } from "./tenants.ts";

/** What somebody does to the service, or what happens to it. */
export type Action = RequestAction | EngineAction;

/** A request of a tenant. */
export type RequestAction =
  | { kind: "trigger"; by: Tenant; body: TriggerBody }
  | { kind: RunRequest; by: Tenant; runId: string }
  | { kind: "retrigger"; by: Tenant; runId: string; from: "start" | "failure" | null }
  | { kind: "wait"; by: Tenant; runId: string; waitId: string }
  | { kind: "signal"; by: Tenant; runId: string; waitId: string; signalId: string; payload: Json }
  | { kind: "runs"; by: Tenant; query: ListQuery };

/** What happens without a request. */
export type EngineAction =
  /** The house triggers a run, in process. */
  | { kind: "house"; body: TriggerBody }
  /** A tenant watches its runs from now on. */
  | { kind: "listen"; by: Tenant; query: FollowQuery }
  /** The engine does what is due. */
  | { kind: "work" }
  /** A worker in another process takes a run, and dies. */
  | { kind: "crash" }
  /** Time passes. */
  | { kind: "pass"; ms: number };

/** A request that needs nothing but a run. */
export type RunRequest = "run" | "steps" | "waits" | "logs" | "subscribe" | "cancel" | "delete";

/** What is asked of `POST /trigger`. */
export interface TriggerBody {
  jobName: string;
  input: Json;
  labels?: Record<string, string>;
  idempotencyKey?: string;
  concurrencyKey?: string;
  coalesce?: "skip" | "queue" | "active";
}

/** What is asked of `GET /runs`. Labels may be given several times. */
export interface ListQuery {
  jobName: string[];
  status: string[];
  labels: [key: string, value: string][];
  limit: number | null;
  offset: number | null;
}

/** What is asked of `GET /runs/subscribe`. */
export type FollowQuery = Pick<ListQuery, "jobName" | "labels">;

const METHODS: { [Kind in RequestAction["kind"]]: string } = {
  trigger: "POST",
  run: "GET",
  steps: "GET",
  waits: "GET",
  logs: "GET",
  subscribe: "GET",
  cancel: "POST",
  delete: "DELETE",
  retrigger: "POST",
  wait: "GET",
  signal: "POST",
  runs: "GET",
};

/** The request that an action is: its method, its path with the query, and its body. */
export function toRequest(action: RequestAction): { method: string; path: string; body?: Record<string, unknown> } {
  const method = METHODS[action.kind];
  switch (action.kind) {
    case "trigger":
      return { method, path: "/trigger", body: { ...action.body } };
    case "delete":
      return { method, path: `/run?runId=${action.runId}` };
    case "retrigger": {
      const from = action.from === null ? "" : `&from=${action.from}`;
      return { method, path: `/retrigger?runId=${action.runId}${from}` };
    }
    case "wait":
      return { method, path: `/wait?runId=${action.runId}&waitId=${action.waitId}` };
    case "signal": {
      const { runId, waitId, signalId, payload } = action;
      return { method, path: `/signal?runId=${runId}&waitId=${waitId}`, body: { signalId, payload } };
    }
    case "runs":
      return { method, path: `/runs?${toQuery(action.query)}` };
    default:
      return { method, path: `/${action.kind}?runId=${action.runId}` };
  }
}

/** The parameters of a list. */
export function toQuery(
  { jobName, labels, ...rest }: FollowQuery & Partial<ListQuery>,
): string {
  return [
    ...jobName.map((name) => ["jobName", name]),
    ...(rest.status ?? []).map((status) => ["status", status]),
    ...labels.map(([key, value]) => [`label.${key}`, value]),
    ...(["limit", "offset"] as const).flatMap((name) => typeof rest[name] === "number" ? [[name, rest[name]]] : []),
  ].map(([name, value]) => `${name}=${encodeURIComponent(value!)}`).join("&");
}

/** Whether an action is a request. */
export function isRequest(action: Action): action is RequestAction {
  return action.kind in METHODS;
}

/** An action in words. */
export function describeAction(action: Action): string {
  if (!isRequest(action)) return JSON.stringify(action);
  const { method, path, body } = toRequest(action);
  return `${action.by}: ${method} ${path}${body === undefined ? "" : ` ${JSON.stringify(body)}`}`;
}
