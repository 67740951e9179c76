import { isDeepStrictEqual } from "node:util";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";

/** Those who share the service. A run belongs to the one that its label `org` names; without it, to the house. */
export const TENANTS = ["a", "b"] as const;

/** One of those who share the service. */
export type Tenant = typeof TENANTS[number];

/** The header in which a tenant says who it is. */
export const TOKEN = "x-token";

/** What `onSignal` refuses as a payload. */
export const REFUSED_PAYLOAD = "refused";

/** Whether the service knows the names of tenants: then each has keys of its own. */
export const NAMINGS = ["named", "nameless"] as const;

/** Whether the service knows the names of tenants. */
export type Naming = typeof NAMINGS[number];

/** The key that is stored for the one that a tenant gives; `null` stands for the house, which asks in process. */
export function storedKey(naming: Naming, by: Tenant | null, key: string | null): string | null {
  return naming === "nameless" || by === null || key === null ? key : `${by}/${key}`;
}

/** The hooks of a service. */
export function tenantAuth(naming: Naming): HandlerAuth<{ org: string }> {
  return naming === "nameless" ? namelessAuth : { ...namelessAuth, tenant: ({ org }) => org };
}

/** Keeps the tenants apart, with every hook that there is but for names. Each refusal has a code of its own. */
const namelessAuth: HandlerAuth<{ org: string }> = {
  authenticate: (request) => {
    const org = request.headers.get(TOKEN);
    if (org !== "a" && org !== "b") throw refusal(401, "who_are_you");
    return { org };
  },
  onTrigger: ({ org }, { labels }) => {
    if (labels.org !== org) throw refusal(403, "foreign_labels");
  },
  onRunAccess: ({ org }, { labels }) => {
    if (labels.org !== org) throw refusal(404, "foreign_run");
  },
  onSignal: (_context, _run, wait, { signalId, payload }) => {
    if (isDeepStrictEqual([wait.outcome, wait.signalId, wait.payload], ["signal", signalId, payload])) {
      throw new TypeError("onSignal is asked for a duplicate");
    }
    if (payload === REFUSED_PAYLOAD) throw refusal(400, "refused_payload");
  },
  scopeRuns: ({ org }, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
  scopeRunsSubscribe: ({ org }, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
};

/** Each status with which a hook refuses, with its code. */
export const HOOK_CODES: Record<number, string> = {
  400: "refused_payload",
  401: "who_are_you",
  403: "foreign_labels",
  404: "foreign_run",
};

function refusal(status: number, code: string): Response {
  return Response.json({ error: "The host refuses this", code }, { status });
}
