import type { Caller } from "./caller.ts";
import type { Settings } from "./options.ts";

/** A request whose route has been found, with what the route works with. */
export interface Call {
  /** The request; its body has not been read. */
  request: Request;
  /** The parameters of its URL. */
  query: URLSearchParams;
  /** Who sent it, and the way to everything that can be shown or done. */
  caller: Caller;
  /** How the handler was set up. */
  settings: Settings;
}
