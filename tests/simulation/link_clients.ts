import type { HandlerLinks } from "../../src/http/handler_options.ts";
import { isLinkedTo, type LinkFacts, retriesOf } from "./actor_facts.ts";
import type { WaitFacts } from "./facts.ts";
import type { Node } from "./node.ts";
import type { Request } from "./plan.ts";
import { Web, type WebDeps, type WebRequest } from "./web.ts";

type LinkRequest = Extract<Request, { ask: "link" }>;

/** Links without signatures, which take time of their own to check: whoever has a token has got it. */
export const LINKS: HandlerLinks = {
  url: "http://localhost/jobs",
  toWait: () => Promise.reject(new TypeError("Nobody asks for the address of a page")),
  read: (token) => {
    const { expiresAt, ...link } = JSON.parse(token) as LinkFacts;
    return Promise.resolve({ ...link, actions: null, expiresAt: new Date(expiresAt).toISOString() });
  },
};

const NEVER_MS = 3_600_000;

/** People without an account, who answer waits by links. */
export class LinkClients {
  readonly #deps: WebDeps;
  readonly #web: Web;
  /** The links that were sent, by what was planned. */
  readonly #sent = new Map<LinkRequest, LinkFacts>();

  /** Has sent no link yet. */
  constructor(deps: WebDeps) {
    this.#deps = deps;
    this.#web = new Web(deps);
  }

  /** Sends a link to a wait, unless it was sent before; then somebody opens it, and answers. `null`: there was no answer. */
  async answer(node: Node, request: LinkRequest, wait: WaitFacts | undefined): Promise<string | null> {
    const link = this.#sent.get(request) ?? this.#find(request) ??
      (wait === undefined ? null : this.#send(request, wait));
    if (link === null) return "nothing to send";
    for (let scan = 0; scan < request.scans; scan++) await this.#open(node, link);
    await this.#deps.world.pass(request.readMs);
    const answer = String(request.payload);
    link.posted.add(answer);
    const body = new URLSearchParams({ action: `answer ${answer}` });
    const answered = await this.#ask(node, link, { method: "POST", body });
    if (answered !== 303) return answered === null ? null : `answered ${answered}`;
    return `answered 303, then ${await this.#open(node, link)}`;
  }

  /** A link to a run that was retried, or the link that was sent last, if it is to be an old one. */
  #find({ isOld }: LinkRequest): LinkFacts | undefined {
    const { links, runs } = this.#deps.facts;
    const sent = isOld ? [...links.values()] : [];
    return sent.findLast(({ runId }) => runs.get(runId)?.retry !== null) ?? sent.at(-1);
  }

  #send(request: LinkRequest, { runId, name, deadlineAt }: WaitFacts): LinkFacts {
    const { facts: { links }, world } = this.#deps;
    const no = links.size + 1;
    const ends = [
      ...(deadlineAt === null ? [] : [Date.parse(deadlineAt)]),
      world.wallNow + (request.expiresInMs ?? NEVER_MS),
    ];
    const link: LinkFacts = {
      runId,
      waitName: name,
      for: `person ${no}`,
      expiresAt: Math.min(...ends),
      signalId: `link/${no}`,
      posted: new Set(),
    };
    links.set(link.signalId, link);
    this.#sent.set(request, link);
    return link;
  }

  #open(node: Node, link: LinkFacts): Promise<number | null> {
    return this.#ask(node, link, { method: "GET" });
  }

  /** Asks for the page of a link. The status, or `null` if there was no answer. */
  async #ask(node: Node, link: LinkFacts, request: Pick<WebRequest, "method" | "body">): Promise<number | null> {
    const { facts } = this.#deps;
    const { posted: _, ...token } = link;
    const path = `/link?t=${encodeURIComponent(JSON.stringify(token))}`;
    const { jumps } = facts;
    const sentAt = node.process.host.now();
    const response = await this.#web.send(node, { ...request, path, org: "nobody" });
    if (response === null) return null;
    const { status } = response;
    const [, heading = ""] = /<h1>(.*?)<\/h1>/.exec(await response.text()) ?? [];
    if (status === 503) return null;
    const isExpired = heading === "This link has expired";
    const tell = () => `${request.method} of ${JSON.stringify(link)} was answered ${status} "${heading}"`;
    if (facts.jumps === jumps) facts.expect(isExpired || sentAt < link.expiresAt, "A2", tell);
    facts.expect(this.#isTrue(status, heading, node, link), "A2", tell);
    return status;
  }

  /** Whether a page says what is so. */
  #isTrue(status: number, heading: string, node: Node, link: LinkFacts): boolean {
    const { facts, world } = this.#deps;
    const waits = [...facts.waits.values()].filter((wait) => isLinkedTo(facts, link, wait));
    const runs = retriesOf(facts, link.runId);
    const isClosed = waits.some(({ accepted, ending }) => accepted !== null || ending !== null) ||
      runs.some(({ hasEnded, isDeleted }) => hasEnded || isDeleted);
    switch (`${status} ${heading}`) {
      case `200 ${link.waitName}`: // the question
        return runs.length > 0;
      case "200 Thank you":
        facts.notice("a link that was used was opened again");
        return waits.some(({ accepted }) => accepted?.signalId === link.signalId);
      case "303 ":
        return isClosed;
      case "410 This question is closed":
        facts.notice("a link came to a question that was closed");
        return isClosed;
      case "410 This link has expired": {
        facts.notice("a link came after it had expired");
        const isOver = ({ deadlineAt }: WaitFacts) => deadlineAt !== null && Date.parse(deadlineAt) <= world.wallNow;
        return facts.jumps > 0 || node.process.host.now() >= link.expiresAt || waits.some(isOver);
      }
      default:
        return false;
    }
  }
}
