import type { DatabaseSync } from "node:sqlite";
import type { Host } from "../../../src/model/host.ts";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import type { HandlerLinks } from "../../../src/http/handler_options.ts";
import type { Respond } from "../../../src/http/route.ts";
import type { Store } from "../../../src/store/store.ts";
import type { Part, Plan } from "../plan.ts";

/** A bug that a simulation has to find: mostly a double that stands before a store or a host. */
export interface Mutant {
  /** What it does wrong. */
  name: string;
  /** The rule that it breaks. */
  rule: string;
  /** The first seed to try: one that is known to catch it, if that takes long to find. Default 1. */
  from?: number;
  /** Changes the plan of each seed, so that the rare situation in which the bug shows occurs often. */
  plan?: (plan: Plan) => Plan;
  /** The store that all processes share, made wrong. `make` makes a right one that takes its time from a host. */
  store?: (make: (host: Host) => Store, host: Host) => Store;
  /** The store as one process sees it, made wrong. */
  client?: (store: Store, host: Host) => Store;
  /** How long an engine really lets its jobs go on when it stops, for how long it was asked to. */
  stopTimeout?: (timeout: number) => number;
  /** A double that reaches past a `SqliteStore` into its database: this mutant is looked for over `sqlite`. */
  database?: (store: Store, database: DatabaseSync) => Store;
  /** The host of a process, made wrong. */
  host?: (host: Host) => Host;
  /** Hooks that do not what they should. */
  auth?: Partial<HandlerAuth<string>>;
  /** What reads the tokens of links, made wrong. */
  links?: (links: HandlerLinks) => HandlerLinks;
  /** Replaces code of the project itself, until the returned function is called. */
  code?: () => () => void;
  /** Whether it is looked for over `sqlite`. */
  isOfSqlite?: boolean;
  /** What it is a bug of, beside what all simulations have: it is looked for in plans that have this. */
  parts?: readonly Part[];
  /** What serves HTTP, made wrong. */
  fetch?: (fetch: Respond) => Respond;
}
