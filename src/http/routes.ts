import { NotFoundError } from "../error.ts";
import { MethodNotAllowedError } from "./response.ts";
import type { DescribedRoute, Route, RouteFunctions } from "./route.ts";
import { OPERATOR_ROUTES } from "./routes/operator_routes.ts";
import { READ_ROUTES } from "./routes/read_routes.ts";
import { RUN_ROUTES } from "./routes/run_routes.ts";

/** Every route. The paths, the methods and the functions of a handler are derived from this. */
export const routes: { readonly [Name in keyof RouteFunctions]: DescribedRoute } = {
  ...RUN_ROUTES,
  ...READ_ROUTES,
  ...OPERATOR_ROUTES,
};

/** The routes of a path, one for each of its methods. */
export function routesAt(path: string): Route[] {
  return Object.values(routes).filter((route) => route.path === path);
}

/**
 * Picks the route of a method.
 *
 * @throws {NotFoundError} There are no candidates.
 * @throws {MethodNotAllowedError} No candidate has the method.
 */
export function pickRoute(candidates: readonly Route[], method: string): Route {
  if (candidates.length === 0) throw new NotFoundError("There is no such path");
  const route = candidates.find((candidate) => candidate.method === method);
  if (route === undefined) throw new MethodNotAllowedError(candidates.map((candidate) => candidate.method));
  return route;
}
