// Has what the tests in tests/jsr use of jsr:@std/http/unstable-route, with the types of version 1.1.3.

type RequestHandler = (request: Request, info?: Deno.ServeHandlerInfo) => Response | Promise<Response>;

type Handler = (
  request: Request,
  params: URLPatternResult,
  info?: Deno.ServeHandlerInfo,
) => Response | Promise<Response>;

/** A pattern, and who answers: for all methods, or for these. */
export interface Route {
  /** What the address of a request has to match. */
  pattern: URLPattern;
  /** The methods, in any case; left out: all. */
  method?: string | string[];
  /** Who answers. */
  handler: Handler;
}

/** The first route whose method and pattern match answers a request. */
export function route(routes: Route[], defaultHandler: RequestHandler): RequestHandler {
  return (request, info) => {
    for (const { pattern, method, handler } of routes) {
      const methods = [method ?? request.method].flat().map((name) => name.toUpperCase());
      const match = methods.includes(request.method) ? pattern.exec(request.url) : null;
      if (match !== null) return handler(request, match, info);
    }
    return defaultHandler(request, info);
  };
}
