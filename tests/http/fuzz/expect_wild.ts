import { TOKEN } from "./tenants.ts";
import { ROUTES, type WildRequest } from "./wild_request.ts";
import { BASE_PATH } from "./world.ts";

/** What may be answered. */
export interface WildExpectation {
  /** The function of the handler that answers in the end; `null` if nobody does. */
  route: string | null;
  /** One of these. */
  statuses: readonly number[];
  /** The code of a refusal, if only one is right. */
  code?: string;
}

/** The routes that take no run: to them its id is a parameter like any other that they do not know. */
const WITHOUT_RUN = ["trigger", "runs", "runsSubscribe"];

const BODY = [400, 408, 413, 415];

/** What a request can come to that has found its route. */
const STATUSES: Record<string, readonly number[]> = {
  trigger: [200, 403, 404, 409, ...BODY],
  signal: [200, 404, 409, 410, ...BODY],
  runs: [200, 400],
  runsSubscribe: [200, 400],
  run: [200, 400, 404],
  subscribe: [200, 400, 404],
  steps: [200, 400, 404],
  waits: [200, 400, 404],
  wait: [200, 400, 404],
  logs: [200, 400, 404],
  retrigger: [200, 400, 404, 409],
  retry: [200, 400, 404, 409],
  cancel: [200, 400, 404, 409],
  delete: [200, 400, 404, 409],
};

/** Says what may be answered, in the contract's order: who asks, from where, for what, and with which body. */
export function expectWild({ through, body }: WildRequest, request: Request): WildExpectation {
  const { method, headers } = request;
  const { pathname, host, searchParams } = new URL(request.url);
  if (headers.get(TOKEN) !== "a") return { route: null, statuses: [401] };
  if (!["GET", "HEAD", "OPTIONS"].includes(method) && isCrossSite(headers, host)) {
    return { route: null, statuses: [403] };
  }
  const candidates = Object.entries(ROUTES).filter(([name, { path }]) =>
    through === "fetch" ? pathname === BASE_PATH + path : name === through
  );
  if (candidates.length === 0) return { route: null, statuses: [404] };
  const route = candidates.find(([, candidate]) => candidate.method === method)?.[0] ?? null;
  if (route === null) return { route, statuses: [405] };
  if (searchParams.has("RunId") && !WITHOUT_RUN.includes(route)) {
    return { route, statuses: [400], code: "invalid_request" };
  }
  const encoding = headers.get("content-encoding")?.trim().toLowerCase() ?? "identity";
  if (route === "trigger" && encoding !== "" && encoding !== "identity") return { route, statuses: [415] };
  const isPlain = encoding === "identity" && !headers.has("content-length") && body.ending === "end";
  if (!isPlain || body.expected?.route !== route) return { route, statuses: STATUSES[route]! };
  // A signal needs a wait as well.
  if (route === "signal") return { route, statuses: [400, 404] };
  const { status, code } = body.expected;
  return { route, statuses: [status], ...(code === undefined ? {} : { code }) };
}

function isCrossSite(headers: Headers, host: string): boolean {
  const site = headers.get("sec-fetch-site");
  const origin = headers.get("origin");
  if (site !== null) return site !== "same-origin" && site !== "none";
  return origin !== null && URL.parse(origin)?.host !== host;
}
