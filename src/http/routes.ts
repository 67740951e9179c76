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

/** The route of a method, if there is one. */
export function findRoute(candidates: readonly Route[], method: string): Route | undefined {
  return candidates.find((route) => methodsOf(route).includes(method));
}

/**
 * Picks the route of a method.
 *
 * @throws {NotFoundError} There are no candidates.
 * @throws {MethodNotAllowedError} No candidate has the method.
 */
export function pickRoute(candidates: readonly Route[], method: string): Route {
  if (candidates.length === 0) throw new NotFoundError("There is no such path");
  const route = findRoute(candidates, method);
  if (route === undefined) throw new MethodNotAllowedError(candidates.flatMap(methodsOf));
  return route;
}

/** The methods of a route: load balancers ask with `HEAD` for what a host can open. */
function methodsOf({ method, part }: Route): readonly string[] {
  return part === undefined ? [method] : [method, "HEAD"];
}
