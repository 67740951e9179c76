import { Chance } from "../support/chance.ts";
import type { Facts } from "./facts.ts";
import type { Following } from "./following.ts";
import type { History } from "./history.ts";
import type { Trace } from "./trace.ts";
import type { Faults } from "./faults.ts";
import type { Node } from "./node.ts";
import type { World } from "./world.ts";

/** What the clients of a simulated system, and their way to the processes, work with. */
export interface WebDeps {
  seed: number;
  latency: number;
  world: World;
  facts: Facts;
  trace: Trace;
  faults: Faults;
  history: History;
  /** What clients follow that read as fast as they can. */
  followings: Set<Following>;
  /** Whether event streams number their events by themselves. */
  countsEvents: boolean;
  /** How long an event stream may be open, in milliseconds. */
  maxStreamMs: number;
  /** Whether streams may end before their run, although nothing goes wrong. */
  streamsEnd: () => boolean;
  /** Ends all streams: the clients leave. */
  leave: AbortSignal;
}

/** What a client asks for over HTTP. */
export interface WebRequest {
  method: "GET" | "POST" | "DELETE";
  path: string;
  /** Which tenant asks. */
  org: string;
  headers?: Record<string, string>;
  /** Sent as JSON, or as the form that it is. */
  body?: object | URLSearchParams;
}

/** The statuses that a client may be answered that asks for something sensible. */
const STATUSES = new Set([200, 204, 303, 403, 404, 409, 410, 503]);

/** The way between clients and the handlers of processes: it takes its time, and answers get lost. */
export class Web {
  readonly #deps: WebDeps;
  #sent = 0;

  /** Nothing is on its way yet. */
  constructor(deps: WebDeps) {
    this.#deps = deps;
  }

  /** Asks a process. The answer is `null` when none comes: the process is down, or the connection breaks. */
  async send(node: Node, { method, path, org, headers, body }: WebRequest): Promise<Response | null> {
    const { seed, world, latency, facts, faults } = this.#deps;
    const name = `HTTP ${++this.#sent}`;
    const chance = new Chance(seed, name);
    const travel = () => world.pass(chance.next() * latency);
    const { label } = node.process;
    await travel();
    if (node.fetch === null || node.process.label !== label) return null;
    const response = await node.fetch(
      new Request(`http://localhost/jobs${path}`, {
        method,
        headers: { ...headers, "x-org": org },
        ...(body === undefined ? {} : { body: body instanceof URLSearchParams ? body : JSON.stringify(body) }),
      }),
    );
    const { status } = response;
    facts.expect(STATUSES.has(status), "I20", () => `${node.process.label} answers ${method} ${path} ${status}`);
    if (faults.happensAtRandom(`${name} loses its answer`, 0.05, chance)) {
      facts.notice("an answer over HTTP was lost");
      await response.body?.cancel();
      return null;
    }
    await travel();
    return response;
  }
}
