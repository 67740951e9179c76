import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { aRefusal } from "./tenants.ts";

/** What `authenticate` may return, whatever hosts make of it. */
export const CONTEXTS: readonly unknown[] = [{ org: "b" }, undefined, null, 0, "", NaN];

/** The two ways to call a route of a handler. */
export const WAYS = ["by its path", "by its function"] as const;
/** One of {@linkcode WAYS}. */
export type Way = typeof WAYS[number];

/** A context that names an organization. */
export interface Org {
  org: string;
}

/** What hosts usually write. */
export const CAREFUL: HandlerAuth<Org> = {
  authenticate: (request) => ({ org: request.headers.get("x-org")! }),
  onTrigger: ({ org }, { labels }) => {
    if (labels.org !== org) throw aRefusal();
  },
  onRunAccess: ({ org }, { labels }) => {
    if (labels.org !== org) throw aRefusal();
  },
  scopeRuns: ({ org }, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
};
