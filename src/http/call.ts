import type { Engine } from "../engine/engine.ts";
import type { Settings } from "./options.ts";
import type { Streams } from "./streams.ts";

/** A request whose route has been found, with what the route works with. */
export interface Call {
  /** The request; its body has not been read. */
  request: Request;
  /** The parameters of its URL. */
  query: URLSearchParams;
  /** Where everything is done. */
  engine: Engine;
  /** The event streams of the handler. */
  streams: Streams;
  /** How the handler was set up. */
  settings: Settings;
}
