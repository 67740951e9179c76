import fc from "fast-check";
import { TOKEN } from "./tenants.ts";
import { aWildBody, type WildBody } from "./wild_body.ts";
import { BASE_PATH } from "./world.ts";

/** A request of somebody who may want no good. Texts may have placeholders: `{completed}` is a run of the tenant. */
export interface WildRequest {
  /** The function of the handler that is called. */
  through: string;
  method: string;
  path: string;
  query: string;
  headers: readonly (readonly [name: string, value: string])[];
  body: WildBody;
}

/** What each route is asked with, from the interface. */
export const ROUTES: Record<string, { method: string; path: string }> = {
  trigger: { method: "POST", path: "/trigger" },
  subscribe: { method: "GET", path: "/subscribe" },
  runs: { method: "GET", path: "/runs" },
  run: { method: "GET", path: "/run" },
  steps: { method: "GET", path: "/steps" },
  waits: { method: "GET", path: "/waits" },
  wait: { method: "GET", path: "/wait" },
  signal: { method: "POST", path: "/signal" },
  logs: { method: "GET", path: "/logs" },
  runsSubscribe: { method: "GET", path: "/runs/subscribe" },
  retrigger: { method: "POST", path: "/retrigger" },
  retry: { method: "POST", path: "/retry" },
  cancel: { method: "POST", path: "/cancel" },
  delete: { method: "DELETE", path: "/run" },
};

/** Values of parameters: some good, some odd, some that no text can be made of. */
const VALUES = [
  ...["{completed}", "{failed}", "{waiting}", "{pending}", "{wait}", "{foreign}", "{foreign wait}"],
  ...[
    "",
    "0",
    "1",
    "50",
    "1000",
    "1001",
    "1000000",
    "1000001",
    "-1",
    "1.5",
    "1e3",
    "0x10",
    "٣",
    "NaN",
    "9".repeat(400),
  ],
  ...["waiting", "completed", "leased", "start", "failure", "a", "b", "echo", "approval", "null", "undefined"],
  ...["__proto__", "constructor", "toString", "' OR 1=1 --", "<script>", "\u{1F4A9}", "ä", "x".repeat(300)],
  ...[
    "%00",
    "%0d%0aset-cookie:x",
    "%ff",
    "%ED%A0%80",
    "%",
    "%zz",
    "%F0%9F%92%A9",
    "%2e%2e%2f",
    "+",
    "%26runId=x",
    "{%22a%22:1}",
  ],
];

const NAMES = [
  ...["runId", "runId", "runId", "runId", "waitId", "waitId", "jobName", "status", "limit", "offset", "from"],
  ...["label.org", "label.team", "label.", "label", "label.__proto__", "label.a%20b", "label.%ED%A0%80", "label%2Eorg"],
  ...["__proto__", "runId[]", "RunId", "RunId", "", "constructor", "%00", "\u{1F4A9}"],
];

const aPair = fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom(...VALUES)).map(([name, value]) =>
  `${name}=${value}`
);

const aQuery = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.constantFrom("completed", "failed", "waiting", "pending", "foreign").map((run) => `runId={${run}}`),
  },
  {
    weight: 2,
    arbitrary: fc.constantFrom("{wait}", "{foreign wait}", "%00", "x").map((wait) => `runId={waiting}&waitId=${wait}`),
  },
  {
    weight: 5,
    arbitrary: fc.array(fc.oneof(aPair, aPair, fc.constantFrom("", "&", "runId", "=", "?", ";", "#")), { maxLength: 5 })
      .map((pairs) => pairs.join("&")),
  },
  { weight: 1, arbitrary: fc.webQueryParameters() },
);

const REAL_PATHS = [...new Set(Object.values(ROUTES).map(({ path }) => path))];
const ODD_PATHS = [
  ...[
    "",
    "/",
    "//",
    "/runs/",
    "//runs",
    "/RUN",
    "/run%20",
    "/r%75n",
    "/run%00",
    "/runs%2Fsubscribe",
    "/run;a=1",
    "/run.json",
  ],
  ...[
    "/runs/subscribe/",
    "/runs/subscribe/x",
    "/x/../run",
    "/./run",
    "/run/.",
    "/run/..",
    "/%2e%2e/run",
    "/\\run",
    "/ru n",
  ],
  ...[
    "/__proto__",
    "/constructor",
    "/toString",
    "/trigger\u0000",
    "/\u{1F4A9}",
    "/%ED%A0%80",
    "/%",
    "/%zz",
    `/${"a".repeat(5_000)}`,
  ],
];
const PREFIXES = [
  "",
  "/",
  "/api",
  "/api/job",
  "/API/jobs",
  "/api/jobsx",
  "/api//jobs",
  "/api/%6aobs",
  `${BASE_PATH}${BASE_PATH}`,
];

const aPath = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...ODD_PATHS).map((path) => BASE_PATH + path) },
  {
    weight: 3,
    arbitrary: fc.tuple(fc.constantFrom(...PREFIXES), fc.constantFrom(...REAL_PATHS)).map((parts) => parts.join("")),
  },
  { weight: 1, arbitrary: fc.webPath().map((path) => BASE_PATH + path) },
);

const aToken = fc.oneof(
  { weight: 20, arbitrary: fc.constant([[TOKEN, "a"]] as const) },
  {
    weight: 1,
    arbitrary: fc.constantFrom([], [[TOKEN, ""]] as const, [[TOKEN, "__proto__"]] as const, [[TOKEN, "a, a"]] as const),
  },
);

/** Where a browser says that it comes from. */
const ORIGINS: Record<string, string[]> = {
  "sec-fetch-site": ["same-origin", "none", "cross-site", "same-site", "", "x"],
  "origin": [
    "http://localhost",
    "https://localhost",
    "https://evil.example",
    "null",
    "",
    "localhost",
    "http://localhost@evil.example",
  ],
};

const OTHER_HEADERS: Record<string, string[]> = {
  "content-encoding": ["identity", " Identity ", "gzip", "br, identity", ""],
  "content-length": ["0", "5", "1048577", "99999999999999999999", "-1", "abc", ""],
  "content-type": ["application/json", "text/plain", "multipart/form-data", "application/json; charset=utf-16"],
  "x-http-method-override": ["DELETE"],
  "accept": ["text/html"],
};

/** Up to two headers of some. */
function someOf(headers: Record<string, string[]>) {
  const one = fc.constantFrom(...Object.entries(headers)).chain(([name, values]) =>
    fc.constantFrom(...values).map((value) => [name, value] as const)
  );
  return fc.uniqueArray(one, { minLength: 1, maxLength: 2, selector: ([name]) => name });
}

const headersOrNone = fc.tuple(
  fc.oneof({ weight: 5, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: someOf(ORIGINS) }),
  fc.oneof({ weight: 2, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: someOf(OTHER_HEADERS) }),
).map((lists) => lists.flat());

const METHODS = ["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH", "patch", "PROPFIND", "get"];

/** A route, asked as it should be, but for the rest: that of the body, or any. */
const aRoutedRequest = fc.record({
  body: aWildBody,
  any: fc.constantFrom(...Object.keys(ROUTES)),
  isAny: fc.constantFrom(false, false, true),
  isDirect: fc.boolean(),
}).map(({ body, any, isAny, isDirect }) => {
  const name = isAny ? any : body.expected?.route ?? any;
  const { method, path } = ROUTES[name]!;
  return { through: isDirect ? name : "fetch", method, path: BASE_PATH + path, body };
});

const aStrayRequest = fc.record({
  through: fc.oneof(
    { weight: 4, arbitrary: fc.constant("fetch") },
    { weight: 1, arbitrary: fc.constantFrom(...Object.keys(ROUTES)) },
  ),
  method: fc.constantFrom(...METHODS),
  path: fc.oneof(aPath, fc.constantFrom(...REAL_PATHS).map((path) => BASE_PATH + path)),
  body: aWildBody,
});

/** Any request. */
export const aWildRequest: fc.Arbitrary<WildRequest> = fc.record({
  target: fc.oneof({ weight: 3, arbitrary: aRoutedRequest }, { weight: 1, arbitrary: aStrayRequest }),
  query: aQuery,
  token: aToken,
  headers: headersOrNone,
}).map(({ target, query, token, headers }) => ({ ...target, query, headers: [...token, ...headers] }));

/**
 * Makes a request of a wild one; `null` if the runtime refuses to.
 *
 * @param names What the placeholders stand for.
 */
export function toWildRequest(
  { method, path, query, headers, body: { parts, ending } }: WildRequest,
  names: Record<string, string>,
): Request | null {
  const fill = (text: string) => text.replace(/\{([a-z ]+)\}/g, (whole, name) => names[name] ?? whole);
  const hasBody = parts !== null && !["GET", "HEAD"].includes(method.toUpperCase());
  const encoder = new TextEncoder();
  const bytes = (parts ?? []).map((part) => typeof part === "string" ? encoder.encode(fill(part)) : part);
  try {
    return new Request(`http://localhost${path}${query === "" ? "" : `?${fill(query)}`}`, {
      method,
      headers: headers.map(([name, value]): [string, string] => [name, value]),
      ...(hasBody ? { body: toStream(bytes, ending), duplex: "half" } : {}),
    });
  } catch {
    return null;
  }
}

function toStream(
  parts: Uint8Array<ArrayBuffer>[],
  ending: WildBody["ending"],
): ReadableStream<Uint8Array<ArrayBuffer>> {
  const left = [...parts];
  return new ReadableStream({
    pull: async (controller) => {
      const part = left.shift();
      if (part !== undefined) controller.enqueue(part);
      else if (ending === "end") controller.close();
      else if (ending === "break off") controller.error(new Error("The connection was reset"));
      else await new Promise(() => {});
    },
  }, { highWaterMark: 0 });
}
