import type { AuthorizedEngine } from "./authorized_engine.ts";
import type { Settings } from "./handler_options.ts";

/** A request whose route has been found, with what the route works with. */
export interface Call {
  /** The request; its body has not been read. */
  request: Request;
  /** The parameters of its URL. */
  query: URLSearchParams;
  /** Who sent it, and all that they may see and do. */
  caller: AuthorizedEngine;
  /** Reports what went wrong after the answer had begun. */
  report: (thrown: unknown) => void;
  /** How the handler was set up, as far as the reading of a request goes. */
  settings: Pick<Settings, "limits" | "host">;
}
