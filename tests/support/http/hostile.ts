import assert from "node:assert/strict";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import { type RouteFunctions, routes } from "../../../src/http/routes.ts";
import type { StoreTest } from "../stores/for_each_store.ts";
import { type Answer, aService, type Asked, type Service } from "./http.ts";

/** Every route, with its name. */
export const allRoutes = Object.entries(routes) as [keyof RouteFunctions, typeof routes["run"]][];

const OF_NO_RUN =
  /^\/(runs|schedules|stats|series|jobs|workers|health|metrics|failures|held|find|tick|waits\/open|openapi\.json)(\/|$)/;

/** The routes that need a run. */
export const routesOfRuns = allRoutes.filter(([name, { path }]) => name !== "trigger" && !OF_NO_RUN.test(path));

/** What a route of a run needs in its query besides the run and the wait. */
export function ownQuery(name: string): string {
  return name === "stream" ? "&name=tokens" : "";
}

/** The body that a route of a run needs. */
export function ownBody(name: string): Asked {
  if (name === "signal") return { body: SIGNAL };
  return name === "send" ? { body: { name: "text", payload: null } } : {};
}

/** What shows how the service is built: a stack, a path, a module, the database. */
export const INTERNALS = /\n\s+at |file:\/\/|node:|ext:|SQLITE|holdfast_/;
const HEADERS = [
  "allow",
  "cache-control",
  "content-type",
  "cross-origin-resource-policy",
  "retry-after",
  "x-content-type-options",
];

/** The names that every object has a member of, and a few that JavaScript looks for. */
export const MEMBERS = [
  "__proto__",
  "constructor",
  "prototype",
  "toString",
  "hasOwnProperty",
  "valueOf",
  "then",
  "toJSON",
];

/** What every object, list, text and function has: nothing that a client sends may add to it, or take from it. */
function membersOfAll(): PropertyKey[][] {
  return [Object, Array, String, Function, Map, Set, Promise].map(({ prototype }) => Reflect.ownKeys(prototype));
}

const membersBefore = membersOfAll();

/** Looks at what is true of every answer to a client who does something wrong. */
export function assertTidy({ status, headers, body }: Answer): void {
  assert.ok(status >= 200 && status < 500, `${status}`);
  assert.deepEqual([...headers.keys()].filter((name) => !HEADERS.includes(name)), []);
  if (status === 200) return;
  const { issues = [], ...rest } = body;
  assert.deepEqual(Object.keys(rest), ["error", "code"]);
  for (const issue of issues) assert.deepEqual(Object.keys(issue), ["path", "message"]);
  assert.doesNotMatch(JSON.stringify(body), INTERNALS);
}

/** Asks for what should not be asked for. */
export async function provoke(service: Service, method: string, path: string, asked?: Asked): Promise<Answer> {
  const answer = await service.ask(method, path, asked);
  assertTidy(answer);
  return answer;
}

/** The service does what it is there for, and nothing that all objects share has changed. */
export async function assertWell({ engine, ask }: Service): Promise<void> {
  const { status, body } = await ask("POST", "/trigger", { body: { jobName: "echo", input: { well: true } } });
  await engine.runUntilIdle();
  assert.equal(status, 200);
  assert.deepEqual((await engine.getRun(body.runId))!.output, { well: true });
  assert.deepEqual(membersOfAll(), membersBefore);
}

/** Hooks that let everybody do everything, but for those that are given. */
function hooks(given: Partial<HandlerAuth<unknown>> = {}): HandlerAuth<unknown> {
  return {
    authenticate: () => "ada",
    onTrigger: () => {},
    onRunAccess: () => {},
    onSignal: () => {},
    scopeRuns: (_context, filter) => filter,
    ...given,
  };
}

/** A service with all hooks, and what its host is told of what is hidden. */
export function aGuardedService(
  given: Partial<HandlerAuth<unknown>> = {},
  context?: StoreTest,
  jobs = {},
  options: HandlerOptions = {},
): Service & { heard: unknown[] } {
  const heard: unknown[] = [];
  const onError = (error: unknown) => void heard.push(error);
  return { ...aService({ auth: hooks(given), onError, ...options }, context, jobs), heard };
}

/** A request with a body that comes as it likes. */
export function aStreamedRequest(path: string, body: ReadableStream<Uint8Array>): Request {
  // Node asks for `duplex`; the type of a request does not know it everywhere.
  return new Request(`http://localhost${path}`, { method: "POST", body, duplex: "half" } as RequestInit);
}

/** A string in UTF-8. */
export const bytesOf = (text: string) => new TextEncoder().encode(text);
/** The body of a signal. */
export const SIGNAL = '{"signalId":"s","payload":1}';
