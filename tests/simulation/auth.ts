import type { HandlerAuth } from "../../src/http/access/auth_hooks.ts";

/** Each tenant sees its own runs: those with its name as a label. What it may not see is not there. */
export const AUTH: HandlerAuth<string> = {
  authenticate: (request) => request.headers.get("x-org") ?? "nobody",
  tenant: (org) => org,
  actor: (org) => org,
  onTrigger: (org, { labels }) => {
    if (labels.org !== org) throw Response.json({ error: "Not yours", code: "forbidden" }, { status: 403 });
  },
  onRunAccess: (org, { labels }) => {
    if (labels.org !== org) throw Response.json({ error: "Not found", code: "not_found" }, { status: 404 });
  },
  scopeRuns: (org, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
};
