import type { CallOptions } from "./client_types.ts";
import type { Issue } from "../model/error.ts";

/** Headers in any form that the constructor of `Headers` takes. */
export type ClientHeaders = Headers | Record<string, string> | [string, string][];

/** Where a service is, and how it is called. */
export interface ServiceOptions {
  /** The address of the service, such as `/api/jobs`. Outside of a browser it must be absolute. */
  url: string | URL;
  /** Headers for every request, such as `authorization`. A function is called for each request, reconnections too. */
  headers?: ClientHeaders | (() => ClientHeaders | Promise<ClientHeaders>);
  /** Used in place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Parameters of a query. A list is repeated, `labels` are one parameter each, `undefined` and `abortSignal` are left out. */
export type Query = Readonly<Record<string, unknown>> & CallOptions & {
  readonly labels?: Readonly<Record<string, string>>;
};

/**
 * Sends a request, and returns the JSON of an answer that is not an error, or the answer itself if it is a stream. A
 * route is its method and its path, such as `GET /run`. A body is sent as JSON.
 */
export type Service = (
  route: string,
  query: Query,
  options?: CallOptions,
  body?: unknown,
  isStream?: boolean,
  // deno-lint-ignore no-explicit-any -- the service answers what the interface promises, and the client states
) => Promise<any>;

/**
 * Connects nothing yet, but checks the address.
 *
 * @throws {TypeError} The address has a query or a fragment, or is relative, and there is no page that it could be
 * relative to.
 */
export function openService({ url, headers, fetch = globalThis.fetch }: ServiceOptions): Service {
  const base = URL.parse(url, globalThis.location?.href)?.href.replace(/\/$/, "");
  if (!base || /[?#]/.test(base)) throw new TypeError(`url must be absolute here, without "?" and "#": ${url}`);
  return async (
    route,
    { labels, abortSignal: _, ...query }: Record<string, unknown> & Query,
    { abortSignal } = {},
    body,
    isStream,
  ) => {
    const throwLost = (cause: Error) => {
      abortSignal?.throwIfAborted();
      throw new ClientError(`${route} was not answered: ${cause.message}`, "network", { cause });
    };
    const [method, path] = route.split(" ");
    const target = new URL(base + path);
    for (const key in labels) query[`label.${key}`] = [labels[key]];
    for (const name in query) {
      const value = query[name];
      const values = [value].flat();
      // Without this parameter, the answer would have more than was asked for.
      if (Array.isArray(value) && (!values.length || values.includes(undefined))) {
        throw new TypeError(`${name} has no value`);
      }
      for (const one of values) if (one != null) target.searchParams.append(name, one as string);
    }
    const init = { signal: abortSignal };
    const request = async () => {
      const all = new Headers(typeof headers === "function" ? await headers() : headers);
      all.set("accept", "text/event-stream, */*");
      if (body) all.set("content-type", "application/json");
      // Headers and body are for this address alone.
      return fetch(target, { ...init, method, headers: all, body: JSON.stringify(body, refuseLost), redirect: "error" })
        .catch(throwLost);
    };
    const answer = await untilAborted(request, abortSignal);
    // The signal ends the body, too, whatever `fetch` was given.
    const response = new Response(answer.body?.pipeThrough(new TransformStream(), init), answer);
    const { ok, status } = response;
    if (ok && isStream) return response;
    const text = await response.text().catch((error) => {
      abortSignal?.throwIfAborted();
      if (ok) throwLost(error);
    });
    let json;
    try {
      json = JSON.parse(text!);
      if (ok) return json;
    } catch (error) {
      // The connection was cut, or it is no answer of the service.
      if (ok && /json/.test(response.headers.get("content-type")!)) throwLost(error as Error);
    }
    const { error, code = `http_${status}`, issues = [] } = json ?? {};
    const after = response.headers.get("retry-after")!;
    throw new ClientError(`${route} was answered ${status}${error ? `: ${error}` : ""}`, code, {
      status,
      issues,
      retryAfter: +after * 1_000 || Math.max(0, Date.parse(after) - Date.now()) || null,
    });
  };
}

/** Does something until a signal fires, whatever it waits for. Then it throws the signal's reason. */
async function untilAborted<T>(work: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  signal?.throwIfAborted();
  const over = new AbortController(); // its `signal` removes the listener
  const aborted = new Promise<never>((_, reject) =>
    signal?.addEventListener("abort", () => reject(signal.reason), over)
  );
  return await Promise.race([work(), aborted]).finally(() => over.abort());
}

/** Refuses what JSON would lose without a word, as the engine does. Called for each value, with its object as `this`. */
function refuseLost(this: unknown, name: string, value: unknown): unknown {
  const prototype = value === Object(value) && Object.getPrototypeOf(value);
  const isLost = Array.isArray(this) && value === undefined || typeof value === "symbol" ||
    typeof value === "number" && !isFinite(value) ||
    prototype && !Array.isArray(value) && Object.getPrototypeOf(prototype);
  if (isLost) throw new TypeError(`"${name}" cannot be sent as JSON`);
  return value;
}

/** Why a call of a client failed. */
export class ClientError extends Error {
  /**
   * The `code` of the service's answer, such as `not_found` or `invalid_input`, or one of the client's own: `network`
   * (no answer), `timeout`, `run_failed`, `run_cancelled`, or `http_<status>` for an answer that is not the service's.
   */
  declare readonly code: string;
  /** The HTTP status of the answer; `null` if there was none. */
  declare readonly status: number | null;
  /** What a schema refused, and where. Empty for other errors. */
  declare readonly issues: readonly Issue[];
  /** After how many milliseconds the service asks to be called again; `null` if it did not say. */
  declare readonly retryAfter: number | null;

  /** Creates the error. */
  constructor(
    message: string,
    code: string,
    details?: { status?: number; issues?: readonly Issue[]; retryAfter?: number | null; cause?: unknown },
  ) {
    super(message);
    Object.assign(this, { name: "ClientError", code, status: null, issues: [], retryAfter: null }, details);
  }
}
