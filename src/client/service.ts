import { ClientError } from "./client_error.ts";
import type { CallOptions } from "./client_types.ts";

/** Where a service is, and how it is called. */
export interface ServiceOptions {
  /** The address of the service, such as `/api/jobs`. Outside of a browser it must be absolute. */
  url: string | URL;
  /** Headers for every request, such as `authorization`. A function is called for each request, reconnections too. */
  headers?: HeadersInit | (() => HeadersInit | Promise<HeadersInit>);
  /** Used in place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** Parameters of a query. A list is repeated, `undefined` is left out. */
export type Query = Readonly<Record<string, unknown>>;

/** A request to a service. */
export interface ServiceRequest extends CallOptions {
  /** The parameters. */
  query?: Query;
  /** A body, which is sent as JSON. */
  body?: unknown;
}

/** A service that can be asked. A route is its method and its path, such as `GET /run`. */
export interface Service {
  /** Sends a request, and returns an answer that is not an error. */
  send(route: string, request?: ServiceRequest): Promise<Response>;
  /** The same, and reads the JSON of the answer. */
  // deno-lint-ignore no-explicit-any -- the service answers what the interface promises, and the client states
  ask(route: string, request?: ServiceRequest): Promise<any>;
}

/**
 * Connects nothing yet, but checks the address.
 *
 * @throws {TypeError} The address is relative, and there is no page that it could be relative to.
 */
export function openService({ url, headers, fetch = globalThis.fetch }: ServiceOptions): Service {
  const base = URL.parse(url, globalThis.location?.href)?.href.replace(/\/$/, "");
  if (!base) throw new TypeError(`url must be absolute here: ${url}`);
  const throwLost = (route: string, abortSignal?: AbortSignal) => (cause: Error) => {
    abortSignal?.throwIfAborted();
    throw new ClientError(`${route} was not answered: ${cause.message}`, "network", { cause });
  };
  const service: Service = {
    async send(route, { query, body, abortSignal } = {}) {
      const [method, path] = route.split(" ");
      const target = new URL(base + path);
      for (const name in query) {
        for (const value of [query[name]].flat()) if (value !== undefined) target.searchParams.append(name, `${value}`);
      }
      const all = new Headers(typeof headers === "function" ? await headers() : headers);
      all.set("accept", "text/event-stream, */*");
      if (body) all.set("content-type", "application/json");
      const init = { method, headers: all, body: JSON.stringify(body), signal: abortSignal };
      const answer = await fetch(target, init).catch(throwLost(route, abortSignal));
      // The signal ends the body, too, whatever `fetch` was given.
      const response = new Response(answer.body?.pipeThrough(new TransformStream(), init), answer);
      const { ok, status } = response;
      if (ok) return response;
      const { error, code = `http_${status}`, issues = [] } =
        await response.json().catch(() => abortSignal?.throwIfAborted()) ?? {};
      throw new ClientError(`${route} was answered ${status}${error ? `: ${error}` : ""}`, code, {
        status,
        issues,
        retryAfter: Number(response.headers.get("retry-after")) * 1_000 || null,
      });
    },
    ask: async (route, request) =>
      await (await service.send(route, request)).json().catch(throwLost(route, request?.abortSignal)),
  };
  return service;
}
