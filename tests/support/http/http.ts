import type { Engine } from "../../../src/engine/engine.ts";
import { createHandler, type Handler } from "../../../src/http/handler.ts";
import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import type { Respond } from "../../../src/http/route.ts";
import type { Labels } from "../../../src/model/run.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { checkAnswer } from "./documented_answers.ts";
import { FakeHost } from "../fake_host.ts";
import type { StoreTest } from "../stores/for_each_store.ts";
import { aJob, echo, fail } from "../jobs.ts";
import { createEngine } from "../quiet_engine.ts";

/** What a client was answered. */
export interface Answer {
  /** The status. */
  status: number;
  /** The headers. */
  headers: Headers;
  /** The JSON of the body. */
  // deno-lint-ignore no-explicit-any -- so that a test can look into it without ado
  body: any;
}

/** An engine and its handler, without a network in between. */
export interface Service extends AsyncDisposable {
  /** Does what the handler asks for. */
  engine: Engine;
  /** What is tested. */
  handler: Handler;
  /** The world of both. */
  host: FakeHost;
  /** Asks the handler, as a client does. The path begins after the host. */
  ask(method: string, path: string, options?: Asked): Promise<Answer>;
}

/** What a request has besides its method and path. */
export interface Asked {
  /** Sent as it is, or as JSON. */
  body?: BodyInit | Record<string, unknown>;
  /** Its headers. */
  headers?: Record<string, string>;
}

const approval = aJob((step) => step.wait("review", { timeout: 60_000, metadata: { changes: 3 } }), "approval");

/** A service with the jobs `echo`, `fail` and `approval`, whose runs are executed by `engine.runUntilIdle()`. */
export function aService<Context>(
  options: HandlerOptions<Context> = {},
  { store, host }: StoreTest = aMemory(),
  jobs = {},
): Service {
  const engine: Engine = createEngine({ store, host, jobs: { echo, fail, approval, ...jobs } });
  const handler = createHandler(engine, { host, ...options });
  return {
    engine,
    handler,
    host,
    ask: (method, path, asked) => askFunction(handler.fetch, method, path, asked),
    [Symbol.asyncDispose]: () => engine.stop(),
  };
}

/** A run of the job `approval` that waits, and its wait. */
export async function aWaitingRun(
  { engine }: Pick<Service, "engine">,
  { input = {}, labels = {} }: { input?: unknown; labels?: Labels } = {},
): Promise<{ runId: string; waitId: string; query: string }> {
  const { id: runId } = await engine.trigger("approval", input, { labels });
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(runId);
  return { runId, waitId: wait!.id, query: `runId=${runId}&waitId=${wait!.id}` };
}

/** Calls one function of a handler. Its answer has to fit the OpenAPI document. */
export async function askFunction(respond: Respond, method: string, path: string, asked?: Asked): Promise<Answer> {
  const response = await respond(aRequest(method, path, asked));
  const isJson = response.headers.get("content-type")?.startsWith("application/json") ?? false;
  const body = isJson ? await response.json() : await response.text();
  if (isJson) checkAnswer(method, path, response.status, body);
  return { status: response.status, headers: response.headers, body };
}

/** A request to a service. */
export function aRequest(method: string, path: string, { body, headers = {} }: Asked = {}): Request {
  const isPlain = body !== undefined && Object.getPrototypeOf(body) === Object.prototype;
  const init = {
    method,
    headers,
    duplex: "half", // the Fetch standard asks for it where a body is a stream, and so does Node
    ...(body === undefined ? {} : { body: isPlain ? JSON.stringify(body) : body as BodyInit }),
  };
  return new Request(`http://localhost${path}`, init);
}

function aMemory(): StoreTest {
  const host = new FakeHost();
  return { store: new MemoryStore({ host }), host };
}
