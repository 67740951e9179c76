// Has what the tests in tests/jsr use of jsr:@std/http/unstable-route.

type Handler = (
  request: Request,
  params?: URLPatternResult,
  info?: Deno.ServeHandlerInfo,
) => Response | Promise<Response>;

/** A pattern, and who answers: one for all methods, or one for each. */
export type Route =
  | { pattern: URLPattern; handler: Handler; handlers?: never }
  | { pattern: URLPattern; handler?: never; handlers: Record<string, Handler> };

/** The first route whose pattern matches answers a request. */
export function route(
  routes: Route[],
): (request: Request, info?: Deno.ServeHandlerInfo) => Response | Promise<Response> {
  return (request, info) => {
    for (const { pattern, handler, handlers } of routes) {
      const match = pattern.exec(request.url);
      if (match === null) continue;
      const found = handler ?? handlers[request.method];
      return found === undefined ? new Response("Method Not Allowed", { status: 405 }) : found(request, match, info);
    }
    return new Response("Not Found", { status: 404 });
  };
}
