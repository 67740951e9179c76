import { PERSIST_LOGS } from "../engine/plugin.ts";
import type { Engine } from "../engine/engine.ts";
import type { Jobs } from "../engine/job_handle.ts";
import type { EngineParts } from "../engine/assemble_engine.ts";
import { internalsOf } from "../engine/engine_internals.ts";
import { NotFoundError, StoreError, ValidationError } from "../model/error.ts";
import { isInstance } from "../values/unknown_values.ts";
import { toClientRun } from "../model/client_run.ts";
import { nextTurn } from "../model/host.ts";
import { PACKAGE_VERSION } from "../model/version.ts";
import { Access, type AccessDeps } from "./access/access.ts";
import { checkCrossSite, checkHost } from "./access/request_origin.ts";
import { describeGaps } from "./access/auth_hooks.ts";
import { authenticate, callHook } from "./access/caller.ts";
import { operate, run as runGuard } from "./access/guards.ts";
import { getWaits } from "../store/reads.ts";
import {
  checkBasePath,
  checkOptions,
  type HandlerLinks,
  type HandlerMcp,
  type HandlerOptions,
  type HandlerUi,
  type Settings,
} from "./handler_options.ts";
import { openApiDocument } from "./openapi/document.ts";
import { checkParameterNames } from "./requests/parameters.ts";
import { MethodNotAllowedError, refuse, report } from "./response.ts";
import { type Respond, type Route, route, type RouteCall } from "./route.ts";
import { type RouteFunctions, routes } from "./routes.ts";
import { type OpenStream, Streams } from "./streams/streams.ts";

/**
 * Serves an engine over HTTP. {@linkcode createHandler} makes one. Its functions do not use `this`. `Context` is
 * what `auth.authenticate` returns.
 */
export interface Handler<Context = unknown> extends RouteFunctions {
  /** Answers a request whose path is `basePath` and a route: `Deno.serve(handler.fetch)`. */
  readonly fetch: Respond;
  /** Answers a request whose path is this prefix and a route. Rejects with a `TypeError` if the prefix lacks its slash. */
  readonly handle: (request: Request, basePath: string) => Promise<Response>;
  /**
   * Ends the event streams for which a predicate returns `true`, at once: those of a user who has lost a right, for
   * example. Their clients connect again and are authorised anew. This includes streams whose request is still being
   * authorised: they end as soon as they open. Revoke the right before you call this.
   *
   * If the predicate throws, no stream is ended.
   *
   * @returns How many were ended.
   * @throws {TypeError} The predicate returns something other than a boolean, such as a promise.
   */
  readonly closeStreams: (predicate: (stream: OpenStream<Context>) => boolean) => number;
}

/**
 * Creates a handler of HTTP requests.
 *
 * @example
 * ```ts
 * import { createEngine, createHandler, defineJob, MemoryStore } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   run: (_step, input) => `Hello, ${input.name}!`,
 * });
 *
 * await using engine = createEngine({ store: new MemoryStore(), jobs: { greet } });
 * const handler = createHandler(engine, { basePath: "/api/jobs" });
 *
 * // Deno.serve(handler.fetch);
 * const request = new Request("http://localhost/api/jobs/trigger", {
 *   method: "POST",
 *   body: JSON.stringify({ jobName: "greet", input: { name: "Ada" } }),
 * });
 * console.log(await (await handler.fetch(request)).json());
 * ```
 *
 * @throws {TypeError} An option has the wrong type, or the engine is not from `createEngine()`.
 * @throws {RangeError} A number is out of range.
 */
export function createHandler<Context>(
  engine: Engine<Jobs, never>,
  options: HandlerOptions<Context> = {},
): Handler<Context> {
  const internals = internalsOf(engine);
  const settings = checkOptions(options, (error) => logError(error, internals.outages));
  const { host, auth, limits, sseThrottleMs: throttleMs } = settings;
  const gaps = auth === null ? null : describeGaps(auth);
  if (gaps !== null) console.warn(gaps);
  const jobNames = Array.from(internals.jobs.newest.values(), ({ name }) => name);
  const missing = settings.mcp?.jobNames.find((name) => !jobNames.includes(name));
  if (missing !== undefined) throw new TypeError(`mcp has a tool of job "${missing}", which the engine does not have`);
  const streams = new Streams(internals, { ...limits, throttleMs, host });
  const source = { store: internals.store, nextTurn: () => nextTurn(host) };
  const deps = { served: { engine, internals, streams, source }, auth, host, showFailures: settings.showFailures };
  let document: string | null = null;
  const readDocument = async () => {
    const { bodySchemas } = await import("./requests/body_schemas.ts"); // zod is loaded when first needed
    return document ??= JSON.stringify(
      openApiDocument(routes, internals.jobs.newest.values(), settings.basePath, bodySchemas()),
    );
  };
  const answerLink = async (request: Request, url: URL, links: HandlerLinks): Promise<Response> => {
    const { answerLink } = await import("./links/answer_link.ts"); // loaded when a link is first opened
    const reportTo = (error: unknown, request: Request) => void report(error, request, settings);
    const { store, jobs } = internals;
    return await answerLink(request, url, { links, engine, store, jobs, settings, report: reportTo });
  };
  const respond = async (request: Request, candidates: Candidates): Promise<Response> => {
    try {
      const response = await answer(request, candidates, settings, { ...deps, document: readDocument, answerLink });
      return request.method === "HEAD" ? await withoutBody(response) : response;
    } catch (thrown) {
      return refuseRequest(thrown, request, settings);
    }
  };
  // Each context is what authenticate() returned.
  const closeStreams: Handler<Context>["closeStreams"] = (predicate) =>
    streams.close((stream) => predicate(stream as OpenStream<Context>));
  const handle: Handler["handle"] = async (request, basePath) => {
    checkBasePath(basePath);
    return await respond(request, ({ pathname }) => {
      const path = withoutPrefix(pathname, basePath);
      if (settings.links !== null && path === LINK) return settings.links;
      if (settings.ui !== null && isUiPath(path)) return [uiRoute(settings.ui, path)];
      return settings.mcp !== null && path === "/mcp" ? [mcpRoute(settings.mcp)] : routesAt(path);
    });
  };
  const functions = Object.fromEntries(
    Object.entries(routes).map(([name, route]) => [name, (request: Request) => respond(request, () => [route])]),
  ) as { [Name in keyof RouteFunctions]: Respond }; // one for each route
  return { ...functions, handle, closeStreams, fetch: (request) => handle(request, settings.basePath) };
}

/** The routes that match the URL of a request, one for each method; or the links, for which nobody is authenticated. */
type Candidates = (url: URL) => readonly Route[] | HandlerLinks;

const LINK = "/link";

/**
 * Handles a request: checks its host, authenticates its sender unless the host has opened the route, checks its origin,
 * calls `onRequest`, unless a probe asks, and picks the route. The route then checks its parameters and its body, the job, the input's schema, and the hook of its operation,
 * and performs the operation.
 */
async function answer(
  request: Request,
  candidates: Candidates,
  settings: Settings,
  deps: AccessDeps & Pick<RouteCall, "document"> & {
    answerLink: (request: Request, url: URL, links: HandlerLinks) => Promise<Response>;
  },
): Promise<Response> {
  const url = readUrl(request); // before any hook receives a request with an invalid URL
  if (settings.allowedHosts !== null) checkHost(request, url, settings.allowedHosts);
  const matching = candidates(url);
  if ("read" in matching) return await deps.answerLink(request, url, matching);
  const found = findRoute(matching, request.method);
  const isAnonymous = isOpen(found, deps);
  const access = new Access(isAnonymous ? null : await authenticate(request, deps), isAnonymous, deps);
  checkCrossSite(request, url, settings.trustedOrigins);
  const { onRequest, host } = settings;
  if (onRequest !== null && found?.isProbe !== true) await callHook("onRequest", onRequest, host);
  const route = found ?? pickRoute(matching, request.method);
  checkParameterNames(url.searchParams, route.parameters);
  const report = (thrown: unknown) => void refuseRequest(thrown, request, settings);
  return await route.answer({
    request,
    parameters: url.searchParams,
    access,
    document: deps.document,
    report,
    settings,
  });
}

/** The routes of a path, one for each of its methods. */
function routesAt(path: string): Route[] {
  return Object.values(routes).filter((route) => route.path === path);
}

/** The route of a method, if there is one. */
function findRoute(candidates: readonly Route[], method: string): Route | undefined {
  return candidates.find((route) => methodsOf(route).includes(method));
}

/**
 * Picks the route of a method.
 *
 * @throws {NotFoundError} There are no candidates.
 * @throws {MethodNotAllowedError} No candidate has the method.
 */
function pickRoute(candidates: readonly Route[], method: string): Route {
  if (candidates.length === 0) throw new NotFoundError("There is no such path");
  const route = findRoute(candidates, method);
  if (route === undefined) throw new MethodNotAllowedError(candidates.flatMap(methodsOf));
  return route;
}

/** The methods of a route: load balancers ask with `HEAD` for what a host can open. */
function methodsOf({ method, part, hasHead = part !== undefined }: Route): readonly string[] {
  return hasHead ? [method, "HEAD"] : [method];
}

/** Whether the host has opened a route to callers that are not authenticated. */
function isOpen(route: Route | undefined, { auth }: AccessDeps): boolean {
  return route?.part !== undefined && (auth?.open ?? []).includes(route.part);
}

/** The same response as to `GET`, without its body (RFC 9110, section 9.3.2). */
async function withoutBody(response: Response): Promise<Response> {
  await response.body?.cancel();
  return new Response(null, response);
}

/** Converts a thrown value to a response, and reports what the response hides. */
function refuseRequest(thrown: unknown, request: Request, settings: Settings): Response {
  const { response, hidden } = refuse(thrown);
  if (hidden !== null) report(hidden.error, request, settings);
  return response;
}

const UI = "/ui";

/** Whether a path is one of the dashboard. */
function isUiPath(path: string): boolean {
  return path === UI || path.startsWith(`${UI}/`);
}

/** The route of a file of the dashboard. Files hold no data, so the host can open them to everybody. */
function uiRoute(ui: HandlerUi, path: string): Route {
  return route(`GET ${path}`, "A file of the dashboard", {
    part: "ui",
    answers: "text",
    guard: operate("ui"),
    does: ({ internals }) => {
      const response = ui.respond(path.slice(UI.length), {
        version: PACKAGE_VERSION,
        keepsLogs: internals.plugins.has(PERSIST_LOGS),
      });
      if (response === null) throw new NotFoundError("There is no such file");
      return response;
    },
  });
}

/** The route of MCP. What it does for a caller, it asks of the other routes. */
function mcpRoute(mcp: HandlerMcp): Route {
  return {
    name: "POST /mcp",
    method: "POST",
    path: "/mcp",
    summary: "Jobs as tools of the Model Context Protocol",
    parameters: [],
    answers: "text",
    guard: { hook: "authenticate" },
    answer: (call) => {
      const { request, access, settings: { host, limits, links } } = call;
      const { engine, internals: { retention } } = access.admitted;
      return mcp.answer({
        request,
        context: access.context,
        host,
        retention,
        limits,
        readRun: async (runId) => toClientRun((await runGuard("read", true).admit(access, { runId }, undefined)).run),
        readWaits: async (runId) => {
          const { run, internals } = await runGuard("waits").admit(access, { runId }, undefined);
          return await getWaits(internals.store, run.id);
        },
        ask: async (name, query, body) => {
          const { method, answer } = routes[name];
          const sent = body === undefined ? {} : { body: JSON.stringify(body) };
          const asked = new Request(request.url, { method, ...sent });
          return await (await answer({ ...call, request: asked, parameters: new URLSearchParams(query) })).json();
        },
        linkTo: links === null ? null : (wait, options) => links.toWait(wait, options),
        // However it ends, its route shows it. A stop of the engine ends the events, so that the server can shut down.
        waitForEnd: async (runId, timeout) => {
          const events = engine.subscribe(runId).getReader();
          const stopTimer = host.schedule(timeout, () => void events.cancel());
          const readAll = async () => {
            while (!(await events.read()).done);
          };
          await readAll().catch(() => {});
          stopTimer();
        },
      });
    },
  };
}

/** The path after a prefix; a path outside of the prefix matches no route. */
function withoutPrefix(path: string, basePath: string): string {
  const url = new URL("http://localhost");
  url.pathname = basePath; // writes it as the path of a request is written
  const prefix = url.pathname.replace(/\/$/, "");
  return path.startsWith(prefix) ? path.slice(prefix.length) : "";
}

/** What `onError` does by default. An outage of the store is logged as that of the worker is: once a minute. */
function logError(error: unknown, outages: EngineParts["outages"]): void {
  if (isInstance(error, StoreError) && error.code === "unavailable") outages.noteFailure(error);
  else console.error("A request failed:", error);
}

/**
 * Reads the URL of a request.
 *
 * @throws {ValidationError} It cannot be parsed: a server may build it from untrusted data, such as the Host header.
 */
function readUrl(request: Request): URL {
  const url = URL.parse(request.url);
  if (url === null) throw new ValidationError("The URL of the request cannot be parsed");
  // A server that builds the URL from an unchecked Host would let it set the path (RFC 9112, section 3.2).
  if (/[/\\?#]/.test(request.headers.get("host") ?? "")) {
    throw new ValidationError("The Host header of the request is not valid");
  }
  return url;
}
