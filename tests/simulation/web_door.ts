import { isLastEvent, type RunEvent } from "../../src/event.ts";
import type { ClientRun } from "../../src/run.ts";
import { readEvents } from "../support/read_events.ts";
import type { RunFacts, WaitFacts } from "./facts.ts";
import type { Node } from "./node.ts";
import { ORGS, type Request } from "./plan.ts";
import { Story } from "./story.ts";
import { Web, type WebDeps, type WebRequest } from "./web.ts";

/** How a client asks over HTTP. */
export interface WebManner {
  /** Whether it is another tenant than the one whose run it asks for. */
  isStranger: boolean;
  /** How long it takes to read a piece of a stream, in milliseconds. */
  readMs: number;
}

const POLL_MS = 200;

/** Asks processes over HTTP. Each function answers what came of it, or `null` if there was no answer. */
export class WebDoor {
  readonly #deps: WebDeps;
  readonly #web: Web;
  /** The receipts of accepted signals, as they were first given. */
  readonly #receipts = new Map<string, string>();

  /** Has asked for nothing yet. */
  constructor(deps: WebDeps) {
    this.#deps = deps;
    this.#web = new Web(deps);
  }

  /** Triggers a run. */
  async trigger(node: Node, request: Request & { ask: "trigger" | "run" }, manner: WebManner): Promise<string | null> {
    const { facts } = this.#deps;
    const { jobName, program, options } = request;
    const own = options.labels!.org!;
    const org = manner.isStranger ? otherThan(own) : own;
    const body = { jobName, input: { program }, ...options };
    const answer = await this.#ask(node, { method: "POST", path: "/trigger", org, body });
    if (answer === null) return null;
    const { status, body: { runId, disposition } } = answer;
    if (manner.isStranger) return this.#turnedAway(status, status === 404 ? 404 : 403, "a trigger"); // of a job, if it is known
    if (status !== 200) return `refused ${status}`;
    const run = facts.runs.get(runId);
    facts.expect(run !== undefined, "I12", () => `a trigger was answered ${runId}, which does not exist`);
    facts.expect(
      run?.request.labels.org === org,
      "I8",
      () => `${org} was answered ${runId}, which is not its own`,
    );
    if (request.ask === "run") await this.#untilEnded(node, run!, org);
    return `${disposition} ${runId}`;
  }

  /** Signals a wait. */
  async signal(
    node: Node,
    wait: WaitFacts,
    { signalId, payload }: Request & { ask: "signal" },
    manner: WebManner,
  ): Promise<string | null> {
    const { facts } = this.#deps;
    const org = this.#orgFor(facts.run(wait.runId), manner);
    const path = `/signal?runId=${wait.runId}&waitId=${wait.id}`;
    const answer = await this.#ask(node, { method: "POST", path, org, body: { signalId, payload } });
    if (answer === null) return null;
    const { status, body } = answer;
    if (manner.isStranger) return this.#turnedAway(status, 404, "a signal");
    if (status !== 200) return `refused ${status}`;
    const { accepted } = wait;
    facts.expect(
      accepted?.signalId === signalId && accepted.payload === JSON.stringify(payload),
      "I4",
      () => `${wait.id} took ${accepted?.signalId}, and ${signalId} was answered ${body.disposition}`,
    );
    const receipt = JSON.stringify(body.wait);
    const first = this.#receipts.get(wait.id) ?? receipt;
    this.#receipts.set(wait.id, first);
    facts.expect(first === receipt, "I4", () => `the receipt of ${signalId} was ${first}, and is now ${receipt}`);
    return `${body.disposition} ${wait.id}`;
  }

  /** Cancels, deletes or retriggers a run. */
  async change(
    node: Node,
    run: RunFacts,
    request: Request & { ask: "cancel" | "delete" | "retrigger" },
    manner: WebManner,
  ): Promise<string | null> {
    const { facts } = this.#deps;
    const { id, payload } = run.request;
    if (request.ask === "retrigger") facts.noteAsked(payload);
    const org = this.#orgFor(run, manner);
    const { method, path } = CHANGES[request.ask];
    const from = request.ask === "retrigger" ? `&from=${request.from}` : "";
    const answer = await this.#ask(node, { method, path: `${path}?runId=${id}${from}`, org });
    if (answer === null) return null;
    if (manner.isStranger) return this.#turnedAway(answer.status, 404, request.ask);
    if (answer.status !== 200) return `refused ${answer.status}`;
    if (request.ask === "retrigger") {
      const { runId } = answer.body;
      facts.expect(facts.runs.has(runId), "I12", () => `a retrigger was answered ${runId}, which does not exist`);
      return runId;
    }
    const isDone = request.ask === "cancel" ? run.isCancelled : run.isDeleted;
    facts.expect(isDone, "I13", () => `${request.ask} of ${id} was answered, and is not done`);
    if (request.ask === "delete") await this.#expectGone(node, id, org);
    return id;
  }

  /** Reads a run and all that belongs to it. */
  async show(node: Node, run: RunFacts, manner: WebManner): Promise<string | null> {
    const { facts } = this.#deps;
    const { id, payload } = run.request;
    const org = this.#orgFor(run, manner);
    for (const what of ["run", "steps", "waits", "logs"] as const) {
      const answer = await this.#ask(node, { method: "GET", path: `/${what}?runId=${id}`, org });
      if (answer === null) return null;
      const { status, body } = answer;
      if (manner.isStranger) this.#turnedAway(status, 404, what);
      if (status !== 200) continue;
      if (what === "run") {
        const isSame = body.id === id && JSON.stringify(body.input) === payload;
        facts.expect(isSame, "I12", () => `${id} is shown as ${JSON.stringify(body)}`);
      } else if (what === "steps") {
        for (const { name, status, output } of body) {
          if (status !== "completed") continue;
          const recorded = run.steps.get(name)?.result;
          const isSame = recorded === JSON.stringify({ status, output: JSON.stringify(output) });
          facts.expect(isSame, "I1", () => `step ${name} of ${id} is shown with ${output}, recorded is ${recorded}`);
        }
      } else if (what === "waits") {
        for (const { id: waitId, deadlineAt } of body) {
          const known = facts.waits.get(waitId);
          const isSame = known === undefined || (known.runId === id && known.deadlineAt === deadlineAt);
          facts.expect(isSame, "I5", () => `wait ${waitId} of ${id} is shown with the deadline ${deadlineAt}`);
        }
      }
    }
    return id;
  }

  /** Waits until a run has ended. */
  async wait(node: Node, run: RunFacts, manner: WebManner): Promise<string | null> {
    return await this.#untilEnded(node, run, this.#orgFor(run, manner));
  }

  /** Lists a tenant's runs. */
  async list(node: Node): Promise<string | null> {
    const { facts } = this.#deps;
    const org = ORGS[0];
    const answer = await this.#ask(node, { method: "GET", path: "/runs?limit=5", org });
    if (answer === null || answer.status !== 200) return answer && `refused ${answer.status}`;
    const { runs, total } = answer.body as { runs: ClientRun[]; total: number };
    const own = [...facts.runs.values()].filter(({ request }) => request.labels.org === org);
    const isOwn = runs.every(({ labels }) => labels.org === org) && total <= own.length;
    facts.expect(isOwn, "I8", () => `${org} lists ${total} runs: ${JSON.stringify(runs)}`);
    return `${total} runs`;
  }

  /** Follows a run to its end. */
  async watch(node: Node, run: RunFacts, manner: WebManner): Promise<string | null> {
    const { facts, misfortune } = this.#deps;
    const { id } = run.request;
    const { label } = node.process;
    const org = this.#orgFor(run, manner);
    const isCalm = misfortune.isOver;
    const response = await this.#web.send(node, { method: "GET", path: `/subscribe?runId=${id}`, org });
    if (response === null || response.status === 503) return null;
    if (manner.isStranger) return this.#turnedAway(response.status, 404, "a stream");
    if (response.status !== 200) return `refused ${response.status}`;
    const story = new Story(facts, run, label);
    for await (const event of this.#read(response, manner)) story.hear(event);
    if (node.process.label !== label || node.isStopping) return "stopped";
    const isWhole = story.last !== null && isLastEvent(story.last);
    if (!isWhole && !isCalm) return null; // the run could not be read: the client comes back
    const { status } = run.state!.run;
    facts.expect(
      run.isDeleted || story.last?.type === LAST_EVENTS[status],
      "I9",
      () => `the stream of ${id}, which is ${status}, ended with ${story.last?.type}`,
    );
    story.end();
    facts.notice("a run was followed over HTTP to its end");
    return `${id} ${story.last?.type}`;
  }

  /** Follows all runs of a tenant for a while. */
  async feed(node: Node, ms: number, manner: WebManner): Promise<string | null> {
    const { facts, world } = this.#deps;
    const org = ORGS[manner.isStranger ? 1 : 0];
    const { label } = node.process;
    const response = await this.#web.send(node, { method: "GET", path: "/runs/subscribe", org });
    if (response === null || response.status === 503) return null;
    const stories = new Map<string, Story>();
    const leave = new AbortController();
    world.after(ms, null, () => leave.abort());
    let heard = 0;
    for await (const event of this.#read(response, manner, leave.signal)) {
      const run = facts.run(event.runId);
      const isOwn = run.request.labels.org === org;
      facts.expect(isOwn, "I8", () => `${org} hears ${event.type} of ${event.runId}, which is not its own`);
      facts.expect(!("input" in event), "I8", () => `a stream of all runs tells ${JSON.stringify(event)}`);
      if (ABOUT_WHAT_ENDED.has(event.type)) continue;
      let story = stories.get(event.runId);
      if (story === undefined) stories.set(event.runId, story = new Story(facts, run, label));
      story.hear(event);
      heard += 1;
    }
    if (heard > 0) facts.notice("all runs of a tenant were followed over HTTP");
    return `${heard} events`;
  }

  async *#read(response: Response, { readMs }: WebManner, leave?: AbortSignal): AsyncGenerator<RunEvent> {
    for await (const event of readEvents(response, leave)) {
      this.#deps.journal.note(`a client hears ${JSON.stringify(event)}`);
      yield event;
      if (readMs > 0) await this.#pass(readMs);
    }
  }

  async #untilEnded(node: Node, run: RunFacts, org: string): Promise<string | null> {
    const { facts } = this.#deps;
    const { id } = run.request;
    while (true) {
      const answer = await this.#ask(node, { method: "GET", path: `/run?runId=${id}`, org });
      if (answer === null) return null;
      if (answer.status !== 200) return `refused ${answer.status}`;
      if (answer.body.isTerminal) {
        facts.expect(run.hasEnded, "I9", () => `${id} is said to be ${answer.body.status}`);
        return id;
      }
      await this.#pass(POLL_MS);
    }
  }

  async #expectGone(node: Node, id: string, org: string): Promise<void> {
    const answer = await this.#ask(node, { method: "GET", path: `/run?runId=${id}`, org });
    const isGone = answer === null || answer.status === 404;
    this.#deps.facts.expect(isGone, "I15", () => `${id} was deleted, and is shown ${answer!.status}`);
  }

  /** An answer with its body; `null` for none, or one that says to ask again. */
  // deno-lint-ignore no-explicit-any -- whatever JSON is answered
  async #ask(node: Node, request: WebRequest): Promise<{ status: number; body: any } | null> {
    const response = await this.#web.send(node, request);
    if (response === null) return null;
    const body = await response.json();
    if (response.status !== 503) return { status: response.status, body };
    const { facts } = this.#deps;
    facts.notice("a client was told to come back");
    facts.expect(response.headers.has("retry-after"), "promise 10", () => "a 503 does not say when to come back");
    return null;
  }

  #orgFor({ request }: RunFacts, { isStranger }: WebManner): string {
    const own = request.labels.org!;
    return isStranger ? otherThan(own) : own;
  }

  #turnedAway(status: number, expected: number, what: string): string {
    const { facts } = this.#deps;
    facts.notice("a stranger was turned away");
    facts.expect(status === expected, "I8", () => `${what} of a stranger was answered ${status}`);
    return `turned away ${status}`;
  }

  #pass(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#deps.world.after(ms, null, resolve));
  }
}

const CHANGES = {
  cancel: { method: "POST", path: "/cancel" },
  delete: { method: "DELETE", path: "/run" },
  retrigger: { method: "POST", path: "/retrigger" },
} as const;

const LAST_EVENTS: Record<string, RunEvent["type"]> = {
  completed: "run:complete",
  failed: "run:fail",
  cancelled: "run:cancel",
};

// What is told of a run may go on after its end, for whoever follows all runs.
const ABOUT_WHAT_ENDED = new Set<RunEvent["type"]>(["run:delete", "run:retry", "run:coalesced"]);

function otherThan(own: string): string {
  return ORGS.find((org) => org !== own)!;
}
