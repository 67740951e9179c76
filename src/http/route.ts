import type { ErrorCode } from "../model/error.ts";
import { isInstance } from "../values/unknown_values.ts";
import type { Access } from "./access/access.ts";
import type { OpenPart } from "./access/auth_hooks.ts";
import type { Guard } from "./access/guards.ts";
import type { Settings } from "./handler_options.ts";
import type { JsonSchema } from "./openapi/json_schema.ts";
import type { Body } from "./requests/bodies.ts";
import { NO_QUERY, type ParameterDescription, type Query } from "./requests/parameters.ts";
import { jsonResponse } from "./response.ts";

/** Handles a request. The promise never rejects: errors become responses. */
export type Respond = (request: Request) => Promise<Response>;

/** A request with a matched route. */
export interface RouteCall {
  /** The request; its body has not been read. */
  request: Request;
  /** The parameters of its URL. */
  parameters: URLSearchParams;
  /** What the sender may do. */
  access: Access;
  /** The OpenAPI document of the handler, as JSON. */
  document: () => Promise<string>;
  /** Reports an error after the response has begun. */
  report: (thrown: unknown) => void;
  /** The handler's settings. */
  settings: Settings;
}

/** What a route answers: JSON of a schema, a stream of events, items of a stream, plain text, or an OpenAPI document. */
export type AnswerDescription = JsonSchema | "events" | "items" | "text" | "document";

/** One method of a path: all that the handler and the OpenAPI document know of it. `Result` is what it answers. */
export interface Route<Name extends string = string, Result = unknown> {
  /** Its method and its path after the prefix: `GET /run`. */
  readonly name: Name;
  /** The method. */
  readonly method: string;
  /** The path after the prefix. */
  readonly path: string;
  /** What it does, in a few words. */
  readonly summary: string;
  /** The parameters of its URL. */
  readonly parameters: readonly ParameterDescription[];
  /** Its body; left out: it takes none. */
  readonly body?: Pick<Body<unknown>, "schema" | "isOptional">;
  /** What it answers. */
  readonly answers: AnswerDescription;
  /** Whether it answers 503 with the same schema. */
  readonly answersUnavailable?: boolean;
  /** The codes of the errors that not every route has; `not_found` follows from a parameter `runId`. */
  readonly errors?: readonly ErrorCode[];
  /** The hook that decides who may ask. */
  readonly guard: Pick<Guard<never, never, unknown>, "hook" | "operation">;
  /**
   * What a host opens to show it to callers that are not authenticated; left out: it cannot be opened. Such a route is
   * asked by load balancers, so it answers `HEAD`, too.
   */
  readonly part?: OpenPart;
  /** Whether it answers `HEAD`, too, for another reason. Default: `false`. */
  readonly hasHead?: boolean;
  /** Whether it is answered without `onRequest`, which may wait for the store. Default: `false`. */
  readonly isProbe?: boolean;
  /** Handles the request. */
  answer(call: RouteCall): Promise<Response>;
  /** Only a type: what it answers. */
  readonly result?: Result;
}

/** What a route does with a request that was read, and that its guard has let pass. */
export type Asked<Q, B, Given> =
  & Given
  & Pick<RouteCall, "document" | "report" | "settings">
  & { readonly query: Q; readonly body: B };

/** A route as it is declared. */
interface Declaration<Q, B, Given, Result>
  extends Pick<Route, "answers" | "answersUnavailable" | "errors" | "part" | "hasHead" | "isProbe"> {
  /** The parameters of its URL; left out: it takes none. */
  readonly query?: Query<Q>;
  /** Its body; left out: it takes none. */
  readonly body?: Body<B>;
  /** Decides who may ask, and gives the route what it works with. */
  readonly guard: Guard<NoInfer<Q>, NoInfer<B>, Given>;
  /** Answers: a response, or what is sent as JSON. */
  does(asked: Asked<Q, B, Given>): Result | Promise<Result>;
}

/**
 * Makes a route: it reads the parameters and the body, then asks its guard, and then does what it is for.
 *
 * @param name Its method and its path: `GET /run`.
 * @param summary What it does, in a few words.
 */
export function route<Name extends string, Given, Result, Q = object, B = undefined>(
  name: Name,
  summary: string,
  { query, body, guard, does, ...rest }: Declaration<Q, B, Given, Result>,
): Route<Name, Exclude<Result, Response>> {
  const [method, path] = name.split(" ") as [string, string]; // a name has both
  const { parameters, read } = query ?? NO_QUERY as Query<Q>;
  return {
    ...rest,
    name,
    method,
    path,
    summary,
    parameters,
    ...(body === undefined ? {} : { body }),
    guard,
    answer: async ({ access, request, parameters, document, report, settings }) => {
      const asked = read(parameters, request);
      const sent = (body === undefined ? undefined : await body.read(request, settings)) as B; // B is the type of both
      const given = await guard.admit(access, asked, sent);
      const result = await does({ ...given, query: asked, body: sent, document, report, settings });
      return isInstance(result, Response) ? result : jsonResponse(result);
    },
  };
}
