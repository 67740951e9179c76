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
 * @throws {TypeError} The address is relative, and there is no page that it could be relative to.
 */
export function openService({ url, headers, fetch = globalThis.fetch }: ServiceOptions): Service {
  const base = URL.parse(url, globalThis.location?.href)?.href.replace(/\/$/, "");
  if (!base) throw new TypeError(`url must be absolute here: ${url}`);
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
    for (const key in labels) query[`label.${key}`] = labels[key];
    for (const name in query) {
      for (const value of [query[name]].flat()) if (value != null) target.searchParams.append(name, value as string);
    }
    const all = new Headers(typeof headers === "function" ? await headers() : headers);
    all.set("accept", "text/event-stream, */*");
    if (body) all.set("content-type", "application/json");
    // Headers and body are for this address alone.
    const init = { method, headers: all, body: JSON.stringify(body), signal: abortSignal, redirect: "error" } as const;
    const answer = await fetch(target, init).catch(throwLost);
    // The signal ends the body, too, whatever `fetch` was given.
    const response = new Response(answer.body?.pipeThrough(new TransformStream(), init), answer);
    if (response.ok) return isStream ? response : response.json().catch(throwLost);
    const { status } = response;
    const { error, code = `http_${status}`, issues = [] } =
      await response.json().catch(() => abortSignal?.throwIfAborted()) ?? {};
    throw new ClientError(`${route} was answered ${status}${error ? `: ${error}` : ""}`, code, {
      status,
      issues,
      retryAfter: (response.headers.get("retry-after") as never) * 1_000 || null,
    });
  };
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
