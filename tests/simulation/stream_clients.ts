import { type Cursor, formatCursor } from "../../src/model/journal.ts";
import { Chance } from "../support/chance.ts";
import { readMessage } from "../support/http/stream_message.ts";
import type { RunFacts } from "./facts.ts";
import { Following } from "./following.ts";
import type { Incarnation } from "./incarnation.ts";
import type { Node } from "./node.ts";
import { readParts } from "./read_parts.ts";
import type { Web, WebDeps } from "./web.ts";

/** How a client follows over HTTP. */
export interface FollowManner {
  /** How long it takes to read a piece of a stream, in milliseconds. */
  readMs: number;
  /**
   * How it says that it reads event streams: as an `EventSource` does, or by its query (`query`); `null`: not at all, and
   * then it gets no ids and cannot resume.
   */
  resumesBy: "header" | "query" | null;
  /** The id that it has before it has received one: of another journal. */
  foreignId: Cursor | null;
}

/** What a client wants to follow. */
export interface Wanted {
  shows: { run: RunFacts } | { org: string };
  path: string;
  org: string;
  /** Ends it. */
  leave: AbortSignal;
}

// After so long a client connects again.
const RECONNECT_MS = 30;
const CUT_PROBABILITY = 0.4;
const MOST_MESSAGES = 10;
const MAX_CONNECTIONS = 200;

/** Clients that follow runs over HTTP, over as many connections as it takes. */
export class StreamClients {
  readonly #deps: WebDeps;
  readonly #web: Web;
  readonly #nodes: readonly Node[];
  readonly #countsEvents: boolean;
  readonly #followings: Set<Following>;
  #streams = 0;

  /** Follows nothing yet. */
  constructor(deps: WebDeps, web: Web, nodes: readonly Node[]) {
    this.#deps = deps;
    this.#web = web;
    this.#nodes = nodes;
    this.#countsEvents = deps.countsEvents;
    this.#followings = deps.followings;
  }

  /**
   * Follows until the client has everything, leaves, or is refused, and answers the last status: `null` if it has to ask
   * again.
   */
  async follow(first: Node, wanted: Wanted, manner: FollowManner): Promise<{ status: number | null; of: Following }> {
    const { facts, history, world, faults } = this.#deps;
    const { shows, leave } = wanted;
    const { resumesBy, readMs } = manner;
    const hasIds = resumesBy !== null;
    const options = { shows, over: "web", isCounted: this.#countsEvents, hasIds } as const;
    const following = new Following(facts, history, options, hasIds ? manner.foreignId : null);
    const name = `stream ${++this.#streams}`;
    if (readMs === 0) this.#followings.add(following);
    try {
      for (let connection = 0; connection < MAX_CONNECTIONS && !leave.aborted; connection++) {
        const node = this.#nodes[(this.#nodes.indexOf(first) + connection) % this.#nodes.length]!;
        const chance = new Chance(this.#deps.seed, name, connection);
        const isCut = faults.happensAtRandom(`${name}:${connection} is cut`, CUT_PROBABILITY, chance);
        const mostMessages = isCut ? chance.int(MOST_MESSAGES) : Infinity;
        const status = await this.#connect(node, following, wanted, manner, mostMessages);
        following.disconnect();
        const isAnswer = status !== null && status !== 200 && status !== 503;
        if (isAnswer || !hasIds) return { status: status === 503 ? null : status, of: following };
        await world.pass(chance.next() * RECONNECT_MS);
      }
      return { status: leave.aborted ? 200 : null, of: following };
    } finally {
      this.#followings.delete(following);
    }
  }

  async #connect(
    node: Node,
    following: Following,
    { path, org, leave, shows }: Wanted,
    manner: FollowManner,
    mostMessages: number,
  ): Promise<number | null> {
    const { facts, faults, world, maxStreamMs } = this.#deps;
    const { incarnation } = node;
    if (incarnation === null) return null;
    const askedAt = world.now;
    const wasWhole = following.isWhole;
    const isCalm = faults.isOver;
    following.connect(incarnation);
    const response = await this.#web.send(node, { method: "GET", org, ...requestOf(path, following.cursor, manner) });
    if (response === null || response.status === 503) return null;
    const { status } = response;
    if (status === 204) {
      facts.notice("a client that had everything was answered 204");
      facts.expect(wasWhole, "J5", () => `a client that does not have the end of ${path} was answered 204`);
    }
    if (status !== 200) return status;
    // Its time counts from the request on, so that it may be over before the store has told how to resume.
    const isTimeOver = world.now - askedAt >= maxStreamMs;
    const mayResume = !wasWhole || isTimeOver || !following.isCursorKept || ("run" in shows && shows.run.isDeleted);
    const end = await this.#receive(response, { node, incarnation }, following, manner, { leave, mostMessages });
    facts.expect(
      mayResume || following.wasReset || end !== "ended" || !incarnation.isWorking,
      "J5",
      () => `a client that has the end of ${path} was not answered 204`,
    );
    // A run may be deleted between the hooks and the first look at it.
    const isGone = "run" in shows && shows.run.isDeleted;
    const isOver = "org" in shows || isGone || following.isOver;
    const mayEnd = isOver || !isCalm || !incarnation.isWorking || this.#deps.streamsEnd();
    facts.expect(mayEnd || end !== "ended", "I9", () => `${path} of ${incarnation.label} ended before its run`);
    return status;
  }

  async #receive(
    response: Response,
    { node, incarnation }: { node: Node; incarnation: Incarnation },
    following: Following,
    { readMs }: FollowManner,
    { leave, mostMessages }: { leave: AbortSignal; mostMessages: number },
  ): Promise<"cut" | "left" | "ended"> {
    const { facts, world } = this.#deps;
    const down = new AbortController();
    const stopListening = node.onDown(() => down.abort());
    let left = mostMessages;
    try {
      for await (const part of readParts(response, AbortSignal.any([leave, down.signal]))) {
        for (const message of part) {
          if (left-- <= 0) {
            facts.notice("a connection was cut");
            return "cut";
          }
          this.#take(message, following, incarnation);
        }
        // The time to come back is one with the event that follows.
        following.endPart(part.filter((message) => readMessage(message)?.kind !== "retry").length);
        if (readMs > 0) await world.pass(readMs);
      }
    } finally {
      stopListening();
    }
    return leave.aborted || down.signal.aborted ? "left" : "ended";
  }

  #take(text: string, following: Following, incarnation: Incarnation): void {
    const { facts, trace } = this.#deps;
    trace.note(`a client hears ${text}`);
    const message = readMessage(text);
    if (message?.kind === "event") return following.hear(message.event);
    if (message?.kind === "gap") return following.hearGap();
    const [, position, at] = /^(\d+)-([0-9a-z]+)$/.exec(message?.kind === "id" ? message.id : "") ?? [];
    if (position !== undefined) return following.hearId({ position: Number(position), at: parseInt(at!, 36) });
    if (message?.kind === "comment" && message.text === "keep-alive") return;
    if (message?.kind === "retry" && message.ms === 86_400_000) return; // the last event of the run follows
    // The one that has answered: its process may have stopped, and another one started, before this is read.
    if (message?.kind === "retry" && message.ms === 1_000) {
      return facts.expect(!incarnation.isWorking, "I17", () => "a stream ended at once");
    }
    facts.violate("I20", `this is no message of an event stream: ${text}`);
  }
}

function requestOf(path: string, cursor: Cursor | null, { resumesBy }: FollowManner) {
  const id = cursor === null ? null : formatCursor(cursor);
  if (resumesBy === null) return { path, headers: { accept: "*/*" } };
  if (resumesBy === "query") return { path: `${path}${path.includes("?") ? "&" : "?"}lastEventId=${id ?? ""}` };
  return { path, headers: { accept: "text/event-stream", ...(id === null ? {} : { "last-event-id": id }) } };
}
