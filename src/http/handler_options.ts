import { type Host, systemHost } from "../model/host.ts";
import { type AllowedHost, allowsHost, readAllowedHosts } from "./access/request_origin.ts";
import { AUTH_FIELDS, checkAuth, type HandlerAuth } from "./access/auth_hooks.ts";
import { withoutUndefined } from "../values/without_undefined.ts";
import { similarNameFinder } from "./similar_name.ts";
import { type Duration, toMs } from "../values/duration.ts";
import type { Wait } from "../model/wait.ts";
import { type Json, MAX_JSON_DEPTH } from "../values/json.ts";
import { namesOf } from "../values/option_names.ts";
import { isObject } from "../values/unknown_values.ts";
import type { ClientRun } from "../model/client_run.ts";
import type { Retention } from "../model/run.ts";

/** Options of {@linkcode createHandler}. `Context` is what `auth.authenticate` returns. */
export interface HandlerOptions<Context = unknown> {
  /** The prefix under which `fetch()` serves, such as `/api/jobs`. Default: none. */
  basePath?: string;
  /**
   * Called for each request that `authenticate` and the check of its origin have accepted, before its route is
   * looked up, for example to start the engine lazily. It may be async. If it throws a `Response`, that is sent. If it
   * throws anything else, or takes more than 30 seconds, the client receives a 500. It is not called for
   * `GET /health/live`: a process is not to be restarted because its store is locked.
   */
  onRequest?: () => unknown;
  /** The minimum interval between two progress events of a run in a stream; 0: no throttling. Default 100 ms. */
  sseThrottleMs?: Duration;
  /** The authorization hooks. Default: every caller may do everything. */
  auth?: HandlerAuth<Context>;
  /** Limits for requests and streams. */
  limits?: HandlerLimits;
  /**
   * Further origins, such as `https://app.example.com`, whose pages may send requests that change something. The origin
   * that a request is addressed to always may. `"*"`: all origins. Default: none.
   */
  trustedOrigins?: readonly string[] | "*";
  /**
   * The hosts that are allowed in the `Host` header, such as `app.example.com`; case is ignored. A host without a port
   * (`localhost`, `[::1]`) allows any port, a host with a port (`localhost:8080`) only that one. A request with another
   * host gets a 421. Name them wherever browsers can reach the server: a page of another site can point its own name at
   * an address of yours. Default: any.
   */
  allowedHosts?: readonly string[];
  /**
   * Whether `GET /failure` shows stacks and causes although there is no `auth`. Default `false`. With `auth`, `onRunAccess`
   * and `onOperate` decide.
   */
  showFailures?: boolean;
  /** The dashboard under `ui/`: `dashboard()` of `@holdfast/jobs/ui`. Default: none. */
  ui?: HandlerUi;
  /** Jobs as tools of the Model Context Protocol under `mcp`: `mcp()` of `@holdfast/jobs/mcp`. Default: none. */
  mcp?: HandlerMcp;
  /**
   * Links that answer a wait without an account: `signedLinks()` of `@holdfast/jobs/links`. Then `GET /link?t=` shows the
   * question, and `POST /link?t=` answers it. Default: none.
   */
  links?: HandlerLinks;
  /**
   * Receives errors that a response hides, such as the error behind a 500. Default: it is printed; that the store does not answer
   * is logged by the engine, once a minute.
   */
  onError?: (error: unknown, request: Request) => unknown;
  /** Time and timers. Default: those of the system. */
  host?: Host;
}

/** Pages that a handler serves under `ui/`. */
export interface HandlerUi {
  /** The response to a path after `ui`, such as `/`; `null`: there is none. The page shows what `service` says. */
  readonly respond: (path: string, service?: { version: string; keepsLogs: boolean }) => Response | null;
}

/** Makes links, and reads their tokens. */
export interface HandlerLinks {
  /** The address of the handler, to which the links lead. */
  readonly url: string;
  /** The address of the page that answers a wait. */
  readonly toWait: (wait: Wait, options?: { for?: string; expiresAt?: Date }) => Promise<string>;
  /** What a token says, expired or not; `null`: it is forged, cut, or of a key that was removed. */
  readonly read: (token: string) => Promise<SignedLink | null>;
}

/** What the token of a link says. */
export interface SignedLink {
  /** The run for which it was made. */
  readonly runId: string;
  /** The name of the wait, with its occurrence. */
  readonly waitName: string;
  /** Who got it; `null`: nobody is named. */
  readonly for: string | null;
  /** The labels of the actions that it offers; `null`: all. */
  readonly actions: readonly string[] | null;
  /** When it expires: ISO 8601 in UTC. */
  readonly expiresAt: string;
  /** The `signalId` of its answer. */
  readonly signalId: string;
}

/** Limits for requests and streams. */
export interface HandlerLimits {
  /** The maximum size of a body, in bytes. Default 1 MiB. */
  maxBodyBytes?: number;
  /** How deep the JSON of a body may be nested, 1 to 1,000. Default 64. */
  maxJsonDepth?: number;
  /** How many event streams may be open at once. Further ones get a 503. Default 10,000. */
  maxStreams?: number;
  /** How many of them one tenant may have; only with `auth.tenant`. Further ones get a 429. Default 1,000. */
  maxStreamsPerTenant?: number;
  /**
   * How long an event stream may be open: then it ends, and its client connects again and is authorised anew. Default: no
   * limit.
   */
  maxStreamMs?: Duration;
  /** How many jobs `GET /metrics` shows by name; further ones are added up as `other`. Default 100. */
  maxMetricJobs?: number;
}

type Limits = Required<HandlerLimits> & { maxStreamMs: number };

/** The options of a handler, checked and complete. */
export interface Settings
  extends
    Required<Omit<HandlerOptions, "auth" | "allowedHosts" | "ui" | "links" | "mcp" | "sseThrottleMs" | "onRequest">> {
  /** The hooks; `null`: every caller may do everything. */
  auth: HandlerAuth<unknown> | null;
  /** The allowed hosts; `null`: any. */
  allowedHosts: readonly AllowedHost[] | null;
  /** The dashboard; `null`: none is served. */
  ui: HandlerUi | null;
  /** The links; `null`: none are served. */
  links: HandlerLinks | null;
  /** The tools for MCP; `null`: none are served. */
  mcp: HandlerMcp | null;
  /** Limits for requests and streams. */
  limits: Limits;
  /** The minimum interval between two progress events of a run, in milliseconds. */
  sseThrottleMs: number;
  /** Called before each request; `null`: nothing is. */
  onRequest: (() => unknown) | null;
}

const KNOWN = namesOf<keyof HandlerOptions>()(
  "basePath onRequest sseThrottleMs auth limits trustedOrigins allowedHosts showFailures ui links mcp onError host",
);
const DEFAULT_SSE_THROTTLE_MS = 100;
const DEFAULT_LIMITS: Limits = {
  maxBodyBytes: 1_048_576,
  maxJsonDepth: 64,
  maxStreams: 10_000,
  maxStreamsPerTenant: 1_000,
  maxStreamMs: Infinity,
  maxMetricJobs: 100,
};
const LIMITS = Object.keys(DEFAULT_LIMITS);
/** The options that are objects themselves, with the names of their fields. */
const GROUPS: Record<string, readonly string[]> = { auth: AUTH_FIELDS, limits: LIMITS };

/**
 * Checks the options of a handler and fills in what is left out.
 *
 * @throws {TypeError} An option has the wrong type, or is unknown.
 * @throws {RangeError} A number is out of range.
 */
export function checkOptions<Context>(
  options: HandlerOptions<Context>,
  logError: (error: unknown) => void = () => {},
): Settings {
  checkNames("", options, Object.keys(KNOWN));
  checkNames("auth.", options.auth, AUTH_FIELDS);
  checkNames("limits.", options.limits, LIMITS);
  const { basePath = "", onRequest, onError = logError, host = systemHost, showFailures = false } = options;
  const { trustedOrigins = [], ui = null, mcp = null, links = null } = options;
  const auth = options.auth === undefined ? null : checkAuth(options.auth);
  const given = { ...DEFAULT_LIMITS, ...withoutUndefined(options.limits ?? {}) };
  const limits = { ...given, maxStreamMs: toMs(given.maxStreamMs) as number }; // checked next
  const sseThrottleMs = toMs(options.sseThrottleMs ?? DEFAULT_SSE_THROTTLE_MS) as number; // checked next
  checkInteger("limits.maxBodyBytes", limits.maxBodyBytes, 1);
  checkInteger("limits.maxJsonDepth", limits.maxJsonDepth, 1, MAX_JSON_DEPTH);
  checkInteger("limits.maxStreams", limits.maxStreams, 0);
  checkInteger("limits.maxStreamsPerTenant", limits.maxStreamsPerTenant, 0);
  checkInteger("limits.maxMetricJobs", limits.maxMetricJobs, 0);
  if (limits.maxStreamMs !== Infinity) checkInteger("limits.maxStreamMs", limits.maxStreamMs, 1);
  checkInteger("sseThrottleMs", sseThrottleMs, 0);
  if (typeof showFailures !== "boolean") throw new TypeError("showFailures must be a boolean");
  checkBasePath(basePath);
  if (ui !== null && typeof ui?.respond !== "function") throw new TypeError("ui must be what dashboard() returns");
  if (links !== null && (typeof links?.read !== "function" || typeof links.url !== "string")) {
    throw new TypeError("links must be what signedLinks() returns");
  }
  if (mcp !== null && typeof mcp?.answer !== "function") throw new TypeError("mcp must be what mcp() returns");
  for (const [name, hook] of Object.entries({ onRequest, onError })) {
    if (hook !== undefined && typeof hook !== "function") throw new TypeError(`${name} must be a function`);
  }
  checkTrustedOrigins(trustedOrigins);
  const allowedHosts = options.allowedHosts === undefined ? null : readAllowedHosts(options.allowedHosts);
  if (links !== null && allowedHosts !== null && !allowsHost(links.url, allowedHosts)) {
    throw new TypeError(`The host of the links, ${new URL(links.url).host}, is not one of allowedHosts`);
  }
  const bound = { onRequest: onRequest?.bind(options) ?? null, onError: onError.bind(options) };
  return {
    basePath,
    sseThrottleMs,
    auth,
    limits,
    trustedOrigins,
    allowedHosts,
    showFailures,
    ui,
    links,
    mcp,
    host,
    ...bound,
  };
}

/** Refuses options that do not exist: a misspelled hook would leave everything open. */
function checkNames(prefix: string, options: unknown, known: readonly string[]): void {
  if (options === undefined) return;
  if (!isObject(options)) {
    throw new TypeError(`${prefix.slice(0, -1) || "The options"} must be an object`);
  }
  const findSimilar = similarNameFinder(known);
  const isPlain = [Object.prototype, null].includes(Object.getPrototypeOf(options));
  for (const name of isPlain ? Object.keys(options) : membersOf(options)) {
    const similar = findSimilar(name);
    if (known.includes(name) || name === "constructor") continue;
    // If the hooks are an instance of a class, it may have other members, which are not checked.
    if (prefix === "auth." && !isPlain && similar === null) continue;
    throw new TypeError(`createHandler() has no option "${prefix}${name}"${hintFor(prefix, name, similar)}`);
  }
}

/**
 * Checks the prefix of the routes.
 *
 * @throws {TypeError} It is no string, or has no slash in front.
 */
export function checkBasePath(basePath: unknown): void {
  if (typeof basePath === "string" && (basePath === "" || basePath.startsWith("/"))) return;
  throw new TypeError(`basePath must be empty or begin with "/", such as "/api/jobs"`);
}

function hintFor(prefix: string, name: string, similar: string | null): string {
  if (similar !== null) return `: did you mean "${prefix}${similar}"?`;
  const [group] = Object.entries(GROUPS).find(([, names]) => names.includes(name)) ?? [];
  return group === undefined ? "" : `: it belongs in ${group}, { ${group}: { ${name} } }`;
}

/** The names of all members of an object, including those that it inherits from its classes. */
function membersOf(object: object): string[] {
  const names = [];
  for (let part = object; part !== null && part !== Object.prototype; part = Object.getPrototypeOf(part)) {
    names.push(...Object.getOwnPropertyNames(part));
  }
  return names;
}

function checkInteger(name: string, value: unknown, smallest: number, largest = Number.MAX_SAFE_INTEGER): void {
  if (typeof value !== "number") throw new TypeError(`${name} must be a number`);
  if (!Number.isInteger(value) || value < smallest || value > largest) {
    throw new RangeError(`${name} must be an integer from ${smallest} to ${largest}, not ${value}`);
  }
}

function checkTrustedOrigins(origins: unknown): void {
  if (origins === "*") return;
  if (!Array.isArray(origins)) throw new TypeError('trustedOrigins must be an array of origins, or "*"');
  for (const origin of origins) {
    if (!isOrigin(origin)) {
      throw new TypeError(`trustedOrigins must contain origins like "https://app.example.com", not "${origin}"`);
    }
  }
}

/** Whether a string is an origin as browsers write it. "null", which any sandboxed page sends, is not one. */
function isOrigin(text: unknown): boolean {
  const url = typeof text === "string" ? URL.parse(text) : null;
  return url !== null && url.host !== "" && text === `${url.protocol}//${url.host}`;
}

/** The routes that MCP asks. */
export type McpRoute =
  | "trigger"
  | "run"
  | "signal"
  | "cancel"
  | "retrigger"
  | "runs"
  | "explain"
  | "failures";

/** What MCP works with: a request that the handler has let pass, and the routes of the same handler. */
export interface McpCall {
  /** The request; its body has not been read. */
  readonly request: Request;
  /** What `auth.authenticate` has returned; `null` without `auth`. */
  readonly context: unknown;
  /** Time and timers. */
  readonly host: Host;
  /** How long runs are kept after their end, in milliseconds. */
  readonly retention: Retention;
  /** The limits of the body. */
  readonly limits: { readonly maxBodyBytes: number; readonly maxJsonDepth: number };
  /**
   * Asks a route of the handler for the same caller: all its hooks are called.
   *
   * @throws {Response} A hook refuses.
   * @throws {HoldfastError} The route does.
   */
  ask(route: McpRoute, query: Readonly<Record<string, string>>, body?: Json): Promise<Json>;
  /** Shows a run, as the route does. The same hooks are called, and it throws the same. */
  readRun(runId: string): Promise<ClientRun>;
  /** Shows the waits of a run, as the route does. The same hooks are called, and it throws the same. */
  readWaits(runId: string): Promise<Wait[]>;
  /** Makes a link that answers a wait; `null`: the handler has none. */
  readonly linkTo: ((wait: Wait, options?: { expiresAt?: Date }) => Promise<string>) | null;
  /** Waits until a run has ended, but not longer than this. */
  waitForEnd(runId: string, ms: number): Promise<void>;
}

/** What a handler serves under `mcp`: `mcp()` of `@holdfast/jobs/mcp` makes it. */
export interface HandlerMcp {
  /** The names of the jobs of its tools. */
  readonly jobNames: readonly string[];
  /** Answers a request. */
  readonly answer: (call: McpCall) => Promise<Response>;
}
