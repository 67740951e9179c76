import { isLastEvent } from "../../src/model/event.ts";
import type { Chance } from "../support/chance.ts";
import { MessageSplitter } from "../support/http/message_splitter.ts";
import { readMessage } from "../support/http/stream_message.ts";
import { type HttpClient, StormOver } from "./http_client.ts";
import type { Chain, Connection } from "./checks/check_chain.ts";
import type { Member } from "./worker_pool.ts";
import { nap } from "./nap.ts";
import type { Tally } from "./tally.ts";

/** How a client comes back: with the header that an `EventSource` sends, with a parameter, or as if it were new. */
export const RETURNS = ["header", "query", "anew"] as const;

/** What somebody who follows needs. */
export interface SubscriberDeps {
  http: HttpClient;
  chance: Chance;
  tally: Tally;
  /** Whether somebody has asked to delete a run. */
  mayBeGone: (run: string) => boolean;
  /** Hears of what cannot be, and of which run. */
  onProblem: (message: string, run: string | null) => void;
  /** Hears of what was received, once that is all. */
  onChain: (chain: Chain) => void;
}

/** What somebody follows. */
export interface Followed {
  /** `null`: a list. */
  runId: string | null;
  /** Which runs the list shows. */
  filter: Chain["filter"];
  returns: typeof RETURNS[number];
}

const CONNECTED_MS = [200, 4_000] as const;
const AWAY_MS = 300;

/** A client that follows a run or a list, and comes back after each break: to any process. */
export class Subscriber {
  readonly #deps: SubscriberDeps;
  readonly #followed: Followed;
  readonly #chain: Chain;
  #lastId: string | null = null;
  #isOver = false;

  /** Does nothing yet. */
  constructor(followed: Followed, deps: SubscriberDeps) {
    this.#deps = deps;
    this.#followed = followed;
    const { runId, filter, returns } = followed;
    this.#chain = { runId, filter, hasIds: returns !== "anew", connections: [] };
  }

  /** Where a list must have come at least; see {@linkcode Subscriber.follow}. */
  hasComeTo(position: number): boolean {
    const { connections, hasIds } = this.#chain;
    const last = connections.at(-1);
    if (!hasIds || this.#lastId === null || last?.messages[0]?.kind === "gap") return true;
    return Number(this.#lastId.split("-")[0]) >= position;
  }

  /** Follows until the run has ended and was deleted or answered 204, or the signal is aborted. */
  async follow(abortSignal: AbortSignal): Promise<void> {
    const { http, chance, onChain } = this.#deps;
    try {
      while (!abortSignal.aborted && !this.#isOver) {
        await this.#connect(await http.findMember(), abortSignal);
        if (!this.#isOver) await nap(chance.int(AWAY_MS), abortSignal);
      }
    } catch (error) {
      if (!(error instanceof StormOver)) throw error;
    }
    onChain(this.#chain);
  }

  async #connect(member: Member, abortSignal: AbortSignal): Promise<void> {
    const { chance, tally } = this.#deps;
    const leaving = new AbortController();
    const timer = setTimeout(() => leaving.abort(), chance.between(...CONNECTED_MS));
    const signal = AbortSignal.any([leaving.signal, abortSignal]);
    const askedAt = performance.now();
    try {
      const response = await fetch(...this.#request(member, signal)).catch(() => null);
      if (response === null || !await this.#isStream(response)) return;
      const connection: Connection = {
        lastId: this.#lastId,
        status: response.status,
        messages: [],
        askedAt,
        readAt: 0,
        openedAt: Date.now(),
        pid: member.child.pid,
        owner: null,
      };
      this.#chain.connections.push(connection);
      tally.add("streams read");
      if (this.#lastId !== null) tally.add("streams resumed");
      if (response.status === 200) await this.#read(response, connection, () => member.isGoing || signal.aborted);
      connection.owner = member.owner;
    } finally {
      clearTimeout(timer);
    }
  }

  #request(member: Member, signal: AbortSignal): [string, RequestInit] {
    const { runId, filter, returns } = this.#followed;
    const query = new URLSearchParams(runId === null ? {} : { runId });
    for (const [key, value] of Object.entries(filter.labels ?? {})) query.append(`label.${key}`, value);
    for (const job of [filter.jobName ?? []].flat()) query.append("jobName", job);
    if (returns === "query") query.append("lastEventId", this.#lastId ?? "");
    const headers: Record<string, string> = returns === "header" ? { accept: "text/event-stream" } : {};
    if (returns === "header" && this.#lastId !== null) headers["last-event-id"] = this.#lastId;
    const path = runId === null ? "/runs/subscribe" : "/subscribe";
    return [`http://127.0.0.1:${member.port}${path}?${query}`, { headers, signal }];
  }

  /** Whether an answer is part of the chain. */
  async #isStream(response: Response): Promise<boolean> {
    const { mayBeGone, onProblem, tally } = this.#deps;
    const { runId } = this.#followed;
    if (response.status === 200) return true;
    const text = await response.text().catch(() => "");
    if (response.status === 503) return false;
    this.#isOver = true;
    if (response.status === 404 && runId !== null && mayBeGone(runId)) return false;
    if (response.status !== 204 || runId === null || this.#lastId === null) {
      onProblem(`following was answered ${response.status} ${text.slice(0, 2_000)}`, runId);
      return false;
    }
    tally.add("streams answered 204");
    return true;
  }

  async #read(response: Response, connection: Connection, isExcused: () => boolean): Promise<void> {
    const { onProblem } = this.#deps;
    const { runId } = this.#followed;
    const splitter = new MessageSplitter();
    try {
      for await (const chunk of response.body!) {
        for (const message of splitter.split(chunk)) this.#take(message, connection);
      }
      const rest = splitter.end();
      if (rest !== "") onProblem(`a stream ended within a message: ${rest}`, runId);
    } catch (error) {
      // What reading itself throws. All else says that what was read is no stream.
      const isCutOff = error instanceof TypeError || error instanceof DOMException;
      if (!isCutOff || !isExcused()) {
        onProblem(`a stream was ${isCutOff ? "cut off by a server that goes on" : "none"}: ${error}`, runId);
      }
    }
    connection.readAt = performance.now();
  }

  #take(text: string, { messages }: Connection): void {
    const { tally } = this.#deps;
    const message = readMessage(text);
    if (message === null) throw new Error(`this is no message of an event stream: ${text}`);
    if (message.kind === "comment" || message.kind === "retry") return;
    if (message.kind === "id") this.#lastId = message.id;
    if (message.kind === "gap") tally.add("gaps told");
    if (message.kind !== "event") return void messages.push(message);
    messages.push({ ...message, heardAt: Date.now() });
    tally.add("events received");
    const { runId, returns } = this.#followed;
    if (runId === null || !isLastEvent(message.event)) return;
    // Who has ids comes back once more, and is to be answered 204.
    if (returns === "anew" || message.event.type === "run:delete") this.#isOver = true;
    tally.add("streams read to the end of the run");
  }
}
