import { type ErrorCode, HoldfastError, StoreError } from "../../error.ts";
import type { Json } from "../../values/json.ts";
import type { Service } from "./service.ts";

/** The parameters of a route; those that are `undefined` are left out. */
export type Query = { readonly [name: string]: string | number | readonly string[] | undefined };

/**
 * Asks a route, and reads its JSON.
 *
 * @throws {HoldfastError} The request was refused; a {@linkcode StoreError}: the service cannot answer.
 */
export async function askApi<T>(
  service: Service,
  method: "GET" | "POST" | "DELETE",
  path: string,
  { query = {}, body }: { query?: Query; body?: unknown } = {},
): Promise<T> {
  const init: RequestInit = body === undefined
    ? { method }
    : { method, body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const response = await service.ask(`${path}${toSearch(query)}`, init);
  const text = await response.text();
  if (!response.ok) throw refusalOf(response, text);
  try {
    return JSON.parse(text); // a service of this version answers what the route promises
  } catch (error) {
    throw new StoreError(`The service has answered something else than JSON to ${method} ${path}`, { cause: error });
  }
}

/** The query of an address. */
export function toSearch(query: Query): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : value === undefined ? [] : [value]) {
      search.append(name, String(one));
    }
  }
  return search.size === 0 ? "" : `?${search}`;
}

/** The error that a response stands for. */
export function refusalOf(response: Response, text: string): HoldfastError {
  const body = readBody(text);
  const { status } = response;
  if (body === null) {
    const answer = `${status} ${response.statusText}`.trim();
    // A hook of the host answers as it likes.
    if (status === 401 || status === 403) {
      return new HoldfastError("forbidden", `The service has refused this: ${answer}`);
    }
    return new StoreError(`There is no Holdfast service at this address: it has answered ${answer}`);
  }
  const message = [body.error, ...body.issues.map(({ path, message }) => `${path.join(".")}: ${message}`)].join("; ");
  if (status >= 500) return new StoreError(message);
  return new HoldfastError(body.code as ErrorCode, message); // a service of this version has no other codes
}

interface ErrorBody {
  error: string;
  code: string;
  issues: { path: (string | number)[]; message: string }[];
}

function readBody(text: string): ErrorBody | null {
  try {
    const { error, code, issues = [] } = JSON.parse(text) as { [name: string]: Json };
    if (typeof error !== "string" || typeof code !== "string") return null;
    return { error, code, issues: issues as unknown as ErrorBody["issues"] };
  } catch {
    return null;
  }
}
