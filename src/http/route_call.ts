import type { AuthorizedEngine } from "./access/authorized_engine.ts";
import type { AuthorizedReads } from "./access/authorized_reads.ts";
import type { AuthorizedOperator } from "./access/authorized_operator.ts";
import type { Settings } from "./handler_options.ts";

/** A request with a matched route, and the dependencies of the route. */
export interface RouteCall {
  /** The request; its body has not been read. */
  request: Request;
  /** The parameters of its URL. */
  query: URLSearchParams;
  /** The engine, restricted to what the sender may do. */
  engine: AuthorizedEngine;
  /** The operations that do not concern one run, restricted in the same way. */
  operator: AuthorizedOperator;
  /** What operators read of runs, restricted in the same way. */
  reads: AuthorizedReads;
  /** The OpenAPI document of the handler, as JSON. */
  document: () => string;
  /** Reports an error after the response has begun. */
  report: (thrown: unknown) => void;
  /** The handler's settings for reading requests. */
  settings: Pick<Settings, "limits" | "host">;
}
