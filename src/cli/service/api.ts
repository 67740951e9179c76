import { ConflictError, type ErrorCode, HoldfastError, NotFoundError, StoreError } from "../../model/error.ts";
import { toFailure } from "../../model/to_failure.ts";
import type { Json } from "../../values/json.ts";
import type { Route } from "../../http/route.ts";
import type { routes } from "../../http/routes.ts";
import type { Service } from "./service.ts";

/** The parameters of a route; those that are `undefined` are left out. */
export type Query = { readonly [name: string]: string | number | boolean | readonly string[] | undefined };

type Routes = (typeof routes)[keyof typeof routes];

/** The method and the path of a route: `GET /stats`. */
export type RouteName = Routes["name"];

// deno-lint-ignore no-explicit-any -- a list that is sent as JSON in parts: the caller states what it has
type Listed = any;

/** What a route answers. */
type AnswerOf<Name> = Extract<Routes, { name: Name }> extends Route<string, infer Result>
  ? [Result] extends [never] ? Listed : Result
  : never;

/**
 * Asks a route, and reads its JSON.
 *
 * @throws {HoldfastError} The request was refused; a {@linkcode StoreError}: the service cannot answer.
 */
export async function askApi<Name extends RouteName>(
  service: Service,
  route: Name,
  { query = {}, body }: { query?: Query; body?: unknown } = {},
): Promise<AnswerOf<Name>> {
  const [method, path] = route.split(" ") as [string, string]; // a name has both
  const init: RequestInit = body === undefined
    ? { method }
    : { method, body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const response = await service.ask(`${path}${toSearch(query)}`, init);
  const text = await readText(response);
  if (!response.ok) throw refusalOf(response, text);
  try {
    return JSON.parse(text); // a service of this version answers what the route promises
  } catch (error) {
    throw new StoreError(`The service has answered something else than JSON to ${route}`, { cause: error });
  }
}

/**
 * The text of a response.
 *
 * @throws {StoreError} The connection broke before its end.
 */
export async function readText(response: Response): Promise<string> {
  try {
    return await response.text();
  } catch (error) {
    throw new StoreError(`The answer of the service was cut off: ${toFailure(error).message}`, { cause: error });
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
    if (status >= 500) return new StoreError(`The service cannot answer: ${answer}`); // a proxy before it says so
    return new StoreError(`There is no Holdfast service at this address: it has answered ${answer}`);
  }
  if (body.error === NO_SUCH_PATH) {
    return new StoreError(
      `There is no such path at ${
        response.url.replace(/\?.*$/, "")
      }: --store must end with the basePath of the service`,
    );
  }
  const issues = body.issues.map(({ path, message }) => path.length === 0 ? message : `${path.join(".")}: ${message}`);
  const message = [body.error, ...issues].join("; ");
  if (status >= 500) return new StoreError(message);
  return new HoldfastError(body.code as ErrorCode, message); // a service of this version has no other codes
}

// What a handler answers outside of its routes.
const NO_SUCH_PATH = "There is no such path";

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

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * The id of the run that an argument means: an id, or the start or the end of one.
 *
 * @throws {NotFoundError} No run has such an id.
 * @throws {ConflictError} Several runs have.
 */
export async function findRunId(service: Service, text: string): Promise<string> {
  if (UUID.test(text)) return text.toLowerCase();
  const found = await askApi(service, "GET /find", { query: { q: text } });
  const ids = found.filter(({ by }) => by === "id").map(({ run }) => run.id);
  if (ids.length === 0) throw new NotFoundError(`There is no run "${text}"`);
  if (ids.length > 1) throw new ConflictError(`Several runs have ids like "${text}": ${ids.slice(0, 5).join(", ")}`);
  return ids[0]!;
}
