import type { ClientRun } from "../../src/model/client_run.ts";
import type { Step } from "../../src/model/step.ts";
import type { Wait } from "../../src/model/wait.ts";
import { deed } from "./actor_facts.ts";
import { addresseesOf, type RunFacts, type WaitFacts } from "./facts.ts";
import { isRetryOf } from "./message_facts.ts";
import type { Node } from "./node.ts";
import { ORGS, type Request } from "./plan.ts";
import { type FollowManner, StreamClients } from "./stream_clients.ts";
import { Web, type WebDeps, type WebRequest } from "./web.ts";

/** How a client asks over HTTP. */
export interface HttpManner extends FollowManner {
  /** Whether it is another tenant than the one whose run it asks for. */
  isStranger: boolean;
}

const POLL_MS = 200;
// How many runs are listed.
const PAGE = 5;

/** Clients that send requests to processes over HTTP. Each function returns the result, or `null` if there was no answer. */
export class HttpClients {
  readonly #deps: WebDeps;
  readonly #web: Web;
  readonly #streams: StreamClients;
  /** The receipts of accepted signals, as they were first given. */
  readonly #receipts = new Map<string, string>();

  /** Has asked for nothing yet. */
  constructor(deps: WebDeps, nodes: readonly Node[]) {
    this.#deps = deps;
    this.#web = new Web(deps);
    this.#streams = new StreamClients(deps, this.#web, nodes);
  }

  /** Triggers a run. */
  async trigger(node: Node, request: Request & { ask: "trigger" | "run" }, manner: HttpManner): Promise<string | null> {
    const { facts } = this.#deps;
    const { jobName, program, options } = request;
    const own = options.labels!.org!;
    const org = manner.isStranger ? otherThan(own) : own;
    const { fairnessKey: _, ...clientOptions } = options; // which the caller's tenant is over HTTP
    const body = { jobName, input: { program }, ...clientOptions };
    if (!manner.isStranger) facts.deeds.add(deed(`trigger ${JSON.stringify(body.input)}`, org));
    const answer = await this.#ask(node, { method: "POST", path: "/trigger", org, body });
    if (answer === null) return null;
    const { status, body: { runId, disposition, code } } = answer;
    if (manner.isStranger) return this.#turnedAway(status, status === 404 ? 404 : 403, "a trigger"); // of a job, if it is known
    facts.expect(code !== "key_in_use", "I8", () => `a key of ${org} leads to a run of somebody else`);
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
    manner: HttpManner,
  ): Promise<string | null> {
    const { facts } = this.#deps;
    const org = this.#orgFor(facts.run(wait.runId), manner);
    if (!manner.isStranger) {
      facts.run(wait.runId).permitted.add(`signal ${signalId}`).add(deed(`signal ${signalId}`, org));
    }
    const path = `/signal?runId=${wait.runId}&waitId=${wait.id}`;
    const answer = await this.#ask(node, { method: "POST", path, org, body: { signalId, payload } });
    if (answer === null) return null;
    const { status, body } = answer;
    if (manner.isStranger) return this.#turnedAway(status, 404, "a signal");
    const addressees = addresseesOf(facts, wait);
    if (status !== 200) {
      const runs = addressees.map(({ runId }) => facts.run(runId));
      const isOver = addressees.some(({ accepted, ending }) => accepted !== null || ending !== null) ||
        runs.some(({ hasEnded }) => hasEnded);
      const reasons = {
        404: runs.some(({ isDeleted }) => isDeleted),
        409: isOver,
        410: addressees.some(({ isExpired }) => isExpired),
      };
      return this.#refused(status, reasons, `a signal to ${wait.id}`);
    }
    const taker = addressees.find(({ id }) => id === body.wait.id);
    const accepted = taker?.accepted;
    facts.expect(
      accepted?.signalId === signalId && accepted.payload === JSON.stringify(payload),
      "I4",
      () => `${body.wait.id} took ${accepted?.signalId}, and ${signalId} was answered ${body.disposition}`,
    );
    if (taker !== wait) facts.notice("a signal to an old address went to a retry");
    const receipt = JSON.stringify(body.wait);
    const first = this.#receipts.get(body.wait.id) ?? receipt;
    this.#receipts.set(body.wait.id, first);
    facts.expect(first === receipt, "I4", () => `the receipt of ${signalId} was ${first}, and is now ${receipt}`);
    return `${body.disposition} ${wait.id}`;
  }

  /** Cancels, deletes or retriggers a run. */
  async change(
    node: Node,
    run: RunFacts,
    request: Request & { ask: "cancel" | "delete" | "retrigger" },
    manner: HttpManner,
  ): Promise<string | null> {
    const { facts } = this.#deps;
    const { id, payload } = run.request;
    if (request.ask === "retrigger" && !manner.isStranger) facts.noteAsked(payload);
    const org = this.#orgFor(run, manner);
    if (!manner.isStranger) {
      run.permitted.add(request.ask).add(deed(request.ask, org));
      facts.deeds.add(deed(`${request.ask} ${id}`, org));
    }
    const { method, path } = CHANGES[request.ask];
    const from = request.ask === "retrigger" ? `&from=${request.from}` : "";
    const answer = await this.#ask(node, { method, path: `${path}?runId=${id}${from}`, org });
    if (answer === null) return null;
    if (manner.isStranger) return this.#turnedAway(answer.status, 404, request.ask);
    if (answer.status !== 200) {
      const isRetrigger = request.ask === "retrigger";
      // A process that does not know a job cannot retrigger its runs.
      const isGone = run.isDeleted || isRetrigger;
      // The new run may be deleted before a lost answer was asked for again.
      const isLate = isRetrigger
        ? [...facts.runs.values()].some((other) => other.isDeleted && other.request.payload === payload)
        : request.ask === "cancel" && run.hasEnded;
      const isCleaned = facts.ends !== null && request.ask !== "cancel";
      return this.#refused(answer.status, { 404: isGone, 409: isLate || isCleaned }, `${request.ask} of ${id}`);
    }
    if (request.ask === "retrigger") {
      const { runId } = answer.body;
      facts.expect(
        isRetryOf(facts, runId, run),
        "I12",
        () => `a retrigger of ${id} was answered ${runId}, which is no retry of it`,
      );
      return runId;
    }
    const isDone = request.ask === "cancel" ? run.isCancelled : run.isDeleted;
    facts.expect(isDone, "I13", () => `${request.ask} of ${id} was answered, and is not done`);
    if (request.ask === "delete") await this.#expectGone(node, id, org);
    return id;
  }

  /** Reads a run and all that belongs to it. */
  async show(node: Node, run: RunFacts, manner: HttpManner): Promise<string | null> {
    const { id } = run.request;
    const org = this.#orgFor(run, manner);
    for (const what of ["run", "steps", "waits", "logs"] as const) {
      // What is recorded by now has to be shown.
      const recorded = { steps: [...run.steps.keys()], waits: [...run.waits.keys()], logs: [...run.logIds] };
      const answer = await this.#ask(node, { method: "GET", path: `/${what}?runId=${id}`, org });
      if (answer === null) return null;
      const { status, body } = answer;
      if (manner.isStranger) this.#turnedAway(status, 404, what);
      else if (status !== 200) this.#refused(status, { 404: run.isDeleted }, `${what} of ${id}`);
      else if (what === "run") this.#checkShownRun(run, body);
      else {
        this.#checkWhole(recorded[what], body, `${what} of ${id}`);
        if (what === "steps") this.#checkShownSteps(run, body);
        if (what === "waits") this.#checkShownWaits(run, body);
      }
    }
    return id;
  }

  #checkShownRun({ request }: RunFacts, shown: ClientRun): void {
    const isSame = shown.id === request.id && JSON.stringify(shown.input) === request.payload && !("failure" in shown);
    this.#deps.facts.expect(isSame, "I12", () => `${request.id} is shown as ${JSON.stringify(shown)}`);
  }

  #checkShownSteps(run: RunFacts, shown: Step[]): void {
    for (const step of shown) {
      const { name, status, output } = step;
      this.#deps.facts.expect(!("failure" in step), "I20", () => `a stack is shown: ${JSON.stringify(step)}`);
      if (status !== "completed") continue;
      const recorded = run.steps.get(name)?.result;
      this.#deps.facts.expect(
        recorded === JSON.stringify({ status, output: JSON.stringify(output) }),
        "I1",
        () => `step ${name} of ${run.request.id} is shown with ${output}, recorded is ${recorded}`,
      );
    }
  }

  #checkShownWaits({ request: { id } }: RunFacts, shown: Wait[]): void {
    const { facts } = this.#deps;
    for (const { id: waitId, deadlineAt } of shown) {
      const known = facts.waits.get(waitId);
      const isSame = known === undefined || (known.runId === id && known.deadlineAt === deadlineAt);
      facts.expect(isSame, "I5", () => `wait ${waitId} of ${id} is shown with the deadline ${deadlineAt}`);
    }
  }

  /** Nothing is left out of a list: neither names nor ids. */
  #checkWhole(recorded: readonly string[], shown: readonly { name?: string; id?: string }[], what: string): void {
    const known = new Set(shown.flatMap(({ name, id }) => [name, id]));
    const missing = recorded.filter((key) => !known.has(key));
    this.#deps.facts.expect(missing.length === 0, "I20", () => `${what} are shown without ${missing}`);
  }

  /** Waits until a run has ended. */
  async wait(node: Node, run: RunFacts, manner: HttpManner): Promise<string | null> {
    return await this.#untilEnded(node, run, this.#orgFor(run, manner));
  }

  /** Lists a tenant's runs. */
  async list(node: Node): Promise<string | null> {
    const { facts } = this.#deps;
    const org = ORGS[0];
    const isOwn = ({ request }: RunFacts) => request.labels.org === org;
    const before = facts.existing().filter(isOwn);
    const countDeleted = () => [...facts.runs.values()].filter((run) => isOwn(run) && run.isDeleted).length;
    const deletedBefore = countDeleted();
    const answer = await this.#ask(node, { method: "GET", path: `/runs?limit=${PAGE}`, org });
    if (answer === null) return null;
    if (answer.status !== 200) return this.#refused(answer.status, {}, "a list");
    const { runs, total } = answer.body as { runs: ClientRun[]; total: number };
    const least = before.filter(({ isDeleted }) => !isDeleted).length;
    const most = [...facts.runs.values()].filter(isOwn).length;
    // A run that is deleted after it was found is left out, and counted.
    const leftOut = Math.min(PAGE, total) - runs.length;
    const isTrue = runs.every(({ labels }) => labels.org === org) && total >= least && total <= most &&
      leftOut >= 0 && leftOut <= countDeleted() - deletedBefore;
    facts.expect(isTrue, "I8", () => `${org} has ${least} to ${most} runs and lists ${total}: ${JSON.stringify(runs)}`);
    return `${total} runs`;
  }

  /** Follows a run to its end. */
  async watch(node: Node, run: RunFacts, manner: HttpManner): Promise<string | null> {
    const { leave, facts } = this.#deps;
    const { id } = run.request;
    const org = this.#orgFor(run, manner);
    const wanted = { shows: { run }, path: `/subscribe?runId=${id}`, org, leave };
    const { status, of } = await this.#streams.follow(node, wanted, manner);
    if (status === null) return null;
    if (manner.isStranger) return this.#turnedAway(status, 404, "a stream");
    if (status === 200 || status === 204) {
      if (!of.isOver) return null;
      facts.notice("a run was followed over HTTP to its end");
      return `${id} ${of.heard} events`;
    }
    return this.#refused(status, { 404: run.isDeleted }, `a stream of ${id}`);
  }

  /** Follows all runs of a tenant for a while. */
  async feed(node: Node, ms: number, manner: HttpManner): Promise<string | null> {
    const { facts, world, faults } = this.#deps;
    const org = ORGS[manner.isStranger ? 1 : 0];
    const leave = new AbortController();
    world.after(ms, null, () => leave.abort());
    const wanted = {
      shows: { org },
      path: "/runs/subscribe",
      org,
      leave: AbortSignal.any([leave.signal, this.#deps.leave]),
    };
    const { status, of } = await this.#streams.follow(node, wanted, manner);
    if (of.heard > 0) facts.notice("all runs of a tenant were followed over HTTP");
    if (of.heard > 0 && faults.isOver) facts.notice("all runs of a tenant were followed until nothing went wrong");
    return status === null ? null : `${of.heard} events`;
  }

  async #untilEnded(node: Node, run: RunFacts, org: string): Promise<string | null> {
    const { facts } = this.#deps;
    const { id } = run.request;
    while (true) {
      const answer = await this.#ask(node, { method: "GET", path: `/run?runId=${id}`, org });
      if (answer === null) return null;
      if (org !== run.request.labels.org) return this.#turnedAway(answer.status, 404, "run");
      if (answer.status !== 200) return this.#refused(answer.status, { 404: run.isDeleted }, `run of ${id}`);
      if (answer.body.isTerminal) {
        facts.expect(run.hasEnded, "I9", () => `${id} is said to be ${answer.body.status}`);
        return id;
      }
      await this.#deps.world.pass(POLL_MS);
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
    facts.expect(response.headers.has("retry-after"), "I20", () => "a 503 does not say when to come back");
    return null;
  }

  #orgFor({ request }: RunFacts, { isStranger }: HttpManner): string {
    const own = request.labels.org!;
    return isStranger ? otherThan(own) : own;
  }

  /** A refusal has its reason. @param reasons Which statuses would be right. */
  #refused(status: number, reasons: Record<number, boolean>, what: string): string {
    this.#deps.facts.expect(reasons[status] === true, "I20", () => `${what} was refused with ${status}`);
    return `refused ${status}`;
  }

  #turnedAway(status: number, expected: number, what: string): string {
    const { facts } = this.#deps;
    facts.notice("a stranger was turned away");
    facts.expect(status === expected, "I8", () => `${what} of a stranger was answered ${status}`);
    return `turned away ${status}`;
  }
}

const CHANGES = {
  cancel: { method: "POST", path: "/cancel" },
  delete: { method: "DELETE", path: "/run" },
  retrigger: { method: "POST", path: "/retrigger" },
} as const;

function otherThan(own: string): string {
  return ORGS.find((org) => org !== own)!;
}
