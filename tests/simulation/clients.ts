import type { Engine } from "../../src/engine/engine.ts";
import { ConflictError, HoldfastError, NotFoundError, StoreError } from "../../src/model/error.ts";
import { Chance } from "../support/chance.ts";
import { changeMany } from "./bulk_clients.ts";
import type { AskedRun } from "./check_options.ts";
import { endingOf } from "./child_facts.ts";
import { LATE_WAIT } from "./changes_plan.ts";
import { deed } from "./actor_facts.ts";
import { addresseesOf, type RunFacts, type WaitFacts } from "./facts.ts";
import { Following } from "./following.ts";
import { inboxOf, isRetryOf } from "./message_facts.ts";
import type { Node } from "./node.ts";
import type { Relation, Request } from "./plan.ts";
import type { WebDeps } from "./web.ts";
import { LinkClients } from "./link_clients.ts";
import { HttpClients, type HttpManner } from "./http_clients.ts";

const PATIENCE_MS = 1_500;
const LONG_PATIENCE_MS = 15_000;
const ATTEMPTS = 5;
const FRESH_MS = 100;
const LOOK_MS = 100;

/** Asks processes for something: impatiently, and again somewhere else when there is no answer. */
export class Clients {
  readonly #nodes: readonly Node[];
  readonly #deps: WebDeps;
  readonly #http: HttpClients;
  readonly #links: LinkClients;
  readonly #followings = new Set<Following>();
  readonly #leaving = new AbortController();
  #waiting = 0;

  /** Asks for nothing yet. */
  constructor(nodes: readonly Node[], deps: Omit<WebDeps, "followings" | "leave">) {
    this.#nodes = nodes;
    this.#deps = { ...deps, followings: this.#followings, leave: this.#leaving.signal };
    this.#http = new HttpClients(this.#deps, nodes);
    this.#links = new LinkClients(this.#deps);
  }

  /** How many requests wait for their answer. */
  get waiting(): number {
    return this.#waiting;
  }

  /**
   * Sends what was planned, first to one of the processes.
   *
   * @param manner How, over HTTP; `null`: the process asks its own engine.
   */
  send(name: string, first: number, request: Request, manner: HttpManner | null): void {
    const { faults, seed, world } = this.#deps;
    if (!faults.happens(name)) return;
    const chance = new Chance(seed, name);
    this.#ask(first, request, manner);
    // An impatient client asks again before it has its answer.
    const repeats = "repeats" in request ? request.repeats : 0;
    for (let repeat = 1; repeat <= repeats; repeat++) {
      world.after(chance.next() * 500, null, () => void this.#ask(first + repeat, request, manner));
    }
  }

  /** When nothing goes wrong: whoever follows has received what was committed. */
  checkFollowings(): void {
    for (const following of this.#followings) following.checkLate();
  }

  /** Nobody follows any more. */
  leave(): void {
    this.#leaving.abort();
  }

  /** Ends everything that still waits for a signal. */
  signalAll(): void {
    const engine = this.#nodes.find(({ isUp }) => isUp)?.engine;
    if (!engine) return;
    for (const { waits, permitted, inbox, request, pauses } of this.#deps.facts.open()) {
      for (const { id, kind, name } of pauses.values()) {
        if (kind !== "receive" || inbox === null || inbox.over.has(id)) continue;
        const [message] = inbox.receives.get(name)!.names as [string];
        this.#deps.facts.deeds.add(deed(`send ${message} 9`, null));
        // Another receive may have taken the message that was sent for this one: then it gets another.
        engine.send(request.id, message, 9, { id: `janitor ${id} ${inbox.over.size}` }).catch(unlessRefused);
      }
      for (const { id, ending } of waits.values()) {
        if (ending !== null) continue;
        permitted.add("signal janitor").add(deed("signal janitor", null));
        engine.signal(id, { signalId: "janitor", payload: 9 }).catch(unlessRefused);
      }
    }
  }

  /** Pauses all schedules, so that there is an end. */
  pauseSchedules(): void {
    const engine = this.#nodes.find(({ isUp }) => isUp)?.engine;
    if (!engine) return;
    for (const { name, pausedAt } of this.#deps.facts.schedules.records) {
      if (pausedAt === null) engine.schedules.pause(name).catch(unlessRefused);
    }
  }

  /** Resumes one of the held runs. */
  resume(request: Request & { ask: "resume" }): void {
    this.#ask(0, request, null);
  }

  /** Resumes the held runs that have gone on with what was new: no code fits all that they have recorded. */
  resumeContinued(): void {
    const engine = this.#nodes.find(({ isUp }) => isUp)?.engine;
    if (!engine) return;
    for (const run of this.#deps.facts.open()) {
      const { heldUnder, hasContinued, hasTwoNames } = run.changed;
      if (heldUnder !== null && (hasContinued || hasTwoNames)) this.#resume(engine, run, true).catch(unlessRefused);
    }
  }

  /** Resumes all jobs that are still paused. */
  resumeAll(): void {
    const engine = this.#nodes.find(({ isUp }) => isUp)?.engine;
    if (!engine) return;
    for (const jobName of this.#deps.facts.flow.paused) engine.resumeJob(jobName).catch(unlessRefused);
  }

  async #ask(first: number, request: Request, manner: HttpManner | null): Promise<void> {
    this.#waiting += 1;
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const node = this.#nodes[(first + attempt) % this.#nodes.length]!;
      if (await this.#askOnce(node, request, manner) === "answered") break;
      await this.#deps.world.pass(50);
    }
    this.#waiting -= 1;
  }

  /** Asks one process, and gives up after a while: it may have died. */
  #askOnce(node: Node, request: Request, manner: HttpManner | null): Promise<"answered" | "unanswered"> {
    const { trace, facts, world } = this.#deps;
    const { engine, process: { label } } = node;
    if (engine === null) return Promise.resolve("unanswered");
    // A stranger is refused; but a batch cannot be asked for over HTTP.
    const isStranger = manner !== null && manner.isStranger && request.ask !== "batch";
    for (const asked of isStranger ? [] : askedRuns(request, manner !== null)) facts.noteAskedRun(asked);
    const performed = manner === null
      ? this.#perform(node, engine, request)
      : this.#performOverWeb(node, engine, request, manner);
    const asked = performed.then(
      (answer) => {
        if (answer === null) return "unanswered" as const;
        trace.note(`${label} answers ${request.ask} with ${answer}`);
        return "answered" as const;
      },
      (error) => {
        if (!(error instanceof HoldfastError)) facts.violate("error", error.stack);
        trace.note(`${label} refuses ${request.ask}: ${error.message}`);
        return error instanceof StoreError ? "unanswered" as const : "answered" as const;
      },
    );
    const patienceMs = ["wait", "watch", "run", "feed", "bulk", "link"].includes(request.ask)
      ? LONG_PATIENCE_MS
      : PATIENCE_MS;
    return Promise.race([asked, world.pass(patienceMs).then(() => "unanswered" as const)]);
  }

  /** The same over HTTP; `null` if there was no answer. */
  async #performOverWeb(node: Node, engine: Engine, request: Request, manner: HttpManner): Promise<string | null> {
    const http = this.#http;
    const { ask } = request;
    // These are not to be had over HTTP.
    if (
      ask === "batch" || ask === "resume" || ask === "pauseJob" || ask === "resumeJob" || ask === "schedule" ||
      ask === "bulk" || ask === "link" || ask === "send"
    ) {
      return await this.#perform(node, engine, request);
    }
    if (ask === "trigger" || ask === "run") return await http.trigger(node, request, manner);
    if (ask === "list") return await http.list(node);
    if (ask === "feed") return await http.feed(node, request.ms, manner);
    if (ask === "signal") {
      const wait = await this.#waitFor(request);
      return wait === undefined ? "nothing to signal" : await http.signal(node, wait, request, manner);
    }
    const run = this.#runFor(request);
    if (run === undefined) return `nothing to ${ask}`;
    if (ask === "cancel" || ask === "delete" || ask === "retrigger") {
      return await http.change(node, run, request, manner);
    }
    return await http[ask](node, run, manner);
  }

  async #perform(node: Node, engine: Engine, request: Request): Promise<string> {
    const { facts } = this.#deps;
    const by = `a client of ${node.process.label}`; // who asks again in another process is somebody else
    switch (request.ask) {
      case "trigger": {
        const { program, options } = request;
        facts.deeds.add(deed(`trigger ${JSON.stringify({ program })}`, by));
        const run = await engine.trigger(request.jobName, { program }, { ...options, by });
        facts.expect(facts.runs.has(run.id), "I12", () => `a trigger was answered ${run.id}, which does not exist`);
        return `${run.disposition} ${run.id}`;
      }
      case "run": {
        const { jobName, program, options } = request;
        facts.deeds.add(deed(`trigger ${JSON.stringify({ program })}`, by));
        const { id, status } = await handleOf(engine, jobName).triggerAndWait({ program }, { ...options, by });
        facts.expect(facts.run(id).hasEnded, "I9", () => `${id} is said to be ${status}`);
        return id;
      }
      case "batch": {
        const items = request.items.map(({ program, options }) => ({ input: { program }, ...options, by }));
        for (const { input } of items) facts.deeds.add(deed(`trigger ${JSON.stringify(input)}`, by));
        const runs = await handleOf(engine, request.jobName).batchTrigger(items);
        const isWhole = runs.length === items.length && runs.every(({ id }) => facts.runs.has(id));
        facts.expect(isWhole, "I12", () => `a batch of ${items.length} was answered ${runs.map(({ id }) => id)}`);
        facts.notice("several runs were triggered at once");
        return runs.map(({ id }) => id).join(", ");
      }
      case "pauseJob": {
        const { jobName, paused } = await engine.pauseJob(request.jobName, { by: "a client" });
        facts.expect(paused !== null, "I20", () => `${jobName} was paused, and is shown as if it were not`);
        return jobName;
      }
      case "resumeJob": {
        const { jobName, paused } = await engine.resumeJob(request.jobName);
        facts.expect(paused === null, "I20", () => `${jobName} was resumed, and is shown as paused`);
        return jobName;
      }
      case "bulk":
        return await changeMany(engine, request, facts);
      case "link":
        return await this.#answerByLink(node, request);
      case "schedule":
        return await this.#changeSchedule(engine, request);
      case "signal":
        return await this.#signal(engine, request, by);
      case "send":
        return await this.#send(engine, request, by);
      case "cancel": {
        const run = this.#runFor(request);
        if (run === undefined) return "nothing to cancel";
        run.permitted.add("cancel").add(deed("cancel", by));
        const { id, status } = await engine.cancel(run.request.id, { by }).catch((error) =>
          this.#judgeRefusal(run, error)
        );
        facts.expect(run.isCancelled && status === "cancelled", "I13", () => `${id} is said to be cancelled`);
        return id;
      }
      case "delete": {
        const run = this.#runFor(request);
        if (run === undefined) return "nothing to delete";
        run.permitted.add("delete").add(deed("delete", by));
        await engine.deleteRun(run.request.id, { by }).catch((error) => this.#judgeRefusal(run, error));
        return run.request.id;
      }
      case "retrigger": {
        const run = this.#runFor(request);
        if (run === undefined) return "nothing to retrigger";
        facts.noteAsked(run.request.payload);
        facts.deeds.add(deed(`retrigger ${run.request.id}`, by));
        const { id } = await engine.retrigger(run.request.id, { from: request.from, by });
        facts.expect(isRetryOf(facts, id, run), "I12", () => `${id} is answered as a retry of ${run.request.id}`);
        return id;
      }
      case "resume": {
        const held = facts.open().filter(({ changed }) => changed.heldUnder !== null);
        const run = pickAt(held, request.which);
        if (run === undefined) return "nothing to resume";
        return await this.#resume(engine, run, request.continues);
      }
      case "watch":
        return await this.#watch(node, engine, this.#runFor(request));
      case "wait": {
        const run = this.#runFor(request);
        if (run === undefined) return "nothing to wait for";
        const { id, status } = await engine.waitForRun(run.request.id);
        facts.expect(run.hasEnded, "I9", () => `${id} is said to be ${status}`);
        return id;
      }
      case "list":
      case "feed":
        return `${(await engine.getRuns({ limit: 5 })).total} runs`;
      case "show": {
        const run = this.#runFor(request);
        if (run === undefined) return "nothing to show";
        const { id } = run.request;
        const shown = await Promise.all([
          engine.getRun(id),
          engine.getSteps(id),
          engine.getWaits(id),
          engine.getLogs(id),
        ]);
        return JSON.stringify(shown);
      }
    }
  }

  async #changeSchedule({ schedules }: Engine, request: Request & { ask: "schedule" }): Promise<string> {
    const { facts } = this.#deps;
    const { name } = request;
    switch (request.change) {
      case "set": {
        const { cron } = await schedules.set(name, request.options);
        facts.expect(cron === request.options.cron, "I20", () => `${name} was set, and is shown with ${cron}`);
        return name;
      }
      case "pause":
      case "resume": {
        const { pausedAt } = await schedules[request.change](name);
        const isPaused = request.change === "pause";
        facts.expect((pausedAt !== null) === isPaused, "I20", () => `${name} is shown as paused since ${pausedAt}`);
        return name;
      }
      case "delete":
        await schedules.delete(name);
        return name;
      case "trigger": {
        const { id, scheduleName, slotAt } = await schedules.trigger(name);
        const isRight = scheduleName === name && slotAt === null;
        facts.expect(isRight, "F6", () => `${id} is triggered for ${slotAt} of ${scheduleName}, not of ${name}`);
        facts.notice("a schedule was triggered without a slot");
        return id;
      }
    }
  }

  /** A change of a run is refused because it has ended, or is gone. */
  #judgeRefusal(run: RunFacts, error: unknown): never {
    const isTrue = (!(error instanceof ConflictError) || run.hasEnded) &&
      (!(error instanceof NotFoundError) || run.isDeleted);
    this.#deps.facts.expect(isTrue, "I20", () => `${run.request.id} is ${run.state?.run.status}, and: ${error}`);
    throw error;
  }

  /** Somebody answers a question by a link that was sent while it was open. */
  async #answerByLink(node: Node, request: Request & { ask: "link" }): Promise<string> {
    const { facts, world } = this.#deps;
    const pending = () =>
      [...facts.waits.values()].filter(({ accepted, ending }) => accepted === null && ending === null);
    while (pending().length === 0 && !request.isOld && !this.#leaving.signal.aborted) await world.pass(LOOK_MS);
    return await this.#links.answer(node, request, pickAt(pending(), request.which)) ?? "no answer";
  }

  async #signal(engine: Engine, request: Request & { ask: "signal" }, by: string): Promise<string> {
    const { facts } = this.#deps;
    const wait = await this.#waitFor(request);
    if (wait === undefined) return "nothing to signal";
    const { signalId, payload } = request;
    facts.run(wait.runId).permitted.add(`signal ${signalId}`).add(deed(`signal ${signalId}`, by));
    const { disposition, wait: { id } } = await engine.signal(wait.id, { signalId, payload }, { by });
    const taker = addresseesOf(facts, wait).find((one) => one.id === id);
    facts.expect(
      taker?.accepted?.signalId === signalId,
      "I4",
      () => `${id} took ${taker?.accepted?.signalId}, and ${signalId} to ${wait.id} was answered ${disposition}`,
    );
    if (id !== wait.id) facts.notice("a signal to an old address went to a retry");
    return `${disposition} ${wait.id}`;
  }

  async #send(engine: Engine, request: Request & { ask: "send" }, by: string): Promise<string> {
    const { facts, world, latency } = this.#deps;
    const { to, name, payload, messageId } = request;
    let run: RunFacts | undefined;
    if (to === null) {
      // Mostly one that waits for something.
      const waiting = facts.open().filter(({ inbox }) => inbox !== null && inbox.receives.size > 0);
      const all = waiting.length > 0 && request.which < 0.8 ? waiting : facts.existing();
      run = pickAt(all, request.which < 0.8 ? request.which / 0.8 : request.which);
      if (run === undefined) return "nothing to send to";
      const deadlines = [...run.pauses.values()].filter(({ kind, resolution }) =>
        kind === "receive" && resolution === null
      )
        .flatMap(({ deadlineAt }) => deadlineAt ?? []);
      const leftMs = Math.min(...deadlines) - world.wallNow - latency;
      if (request.atDeadline && leftMs > 0 && leftMs < 1_000) await world.pass(leftMs);
    }
    facts.deeds.add(deed(`send ${name} ${JSON.stringify(payload)}`, by));
    if (to !== null && to.start !== null) {
      facts.deeds.add(deed(`trigger ${JSON.stringify({ program: to.start.program })}`, by));
    }
    const id = messageId === null ? {} : { id: messageId };
    const start = to === null || to.start === null
      ? {}
      : { start: { input: { program: to.start.program }, ...to.start.options } };
    const target = to === null ? run!.request.id : { job: to.jobName, key: to.key };
    const sent = await engine.send(target, name, payload, { ...id, ...start, by });
    const known = inboxOf(facts, facts.run(sent.runId)).accepted.get(sent.messageId);
    facts.expect(
      known?.name === name && known.payload === JSON.stringify(payload),
      "M1",
      () => `${sent.runId} is said to have ${sent.messageId} (${name} ${payload}), and has ${JSON.stringify(known)}`,
    );
    return `${sent.disposition} ${sent.runId}`;
  }

  async #resume(engine: Engine, run: RunFacts, continues: boolean): Promise<string> {
    const { id, held } = await engine.resume(run.request.id, continues ? { onDivergence: "continue" } : {});
    this.#deps.facts.expect(held === null, "I-D7", () => `${id} was resumed, and is said to be held`);
    return id;
  }

  async #watch(node: Node, engine: Engine, run: RunFacts | undefined): Promise<string> {
    const { facts } = this.#deps;
    if (run === undefined) return "nothing to watch";
    const { id } = run.request;
    const { history, followings } = this.#deps;
    const options = { shows: { run }, over: "process", isCounted: false, hasIds: false } as const;
    const following = new Following(facts, history, options);
    following.connect(node.incarnation!);
    followings.add(following);
    try {
      for await (const event of engine.subscribe(id)) following.hear(event);
    } finally {
      followings.delete(following);
    }
    if (node.engine !== engine || node.isStopping) return "stopped";
    facts.expect(following.isOver, "I9", () => `the events of ${id}, which is ${run.state?.run.status}, ended`);
    if (run.state!.run.startedAt !== null) facts.notice("a run was followed from another process to its end");
    return `${id} ${following.heard} events`;
  }

  /** The run that a request is about. */
  #runFor(request: Request): RunFacts | undefined {
    const { facts } = this.#deps;
    if (!("which" in request)) return undefined;
    const { ask, which } = request;
    const of = "of" in request ? request.of : undefined;
    if (of !== undefined) {
      const hasEnded = ask !== "cancel";
      return pickAt(facts.existing().filter((run) => run.hasEnded === hasEnded && isOne(run, of, ask)), which);
    }
    if (ask === "cancel") return pickAt(facts.open(), which);
    // Several clients follow the same run.
    if (ask === "watch" && which < 0.5) return pickAt(facts.open().slice(-2), 2 * which);
    if (ask !== "delete" && ask !== "retrigger") return pickAt(facts.existing(), which);
    const ended = facts.existing().filter(({ hasEnded }) => hasEnded);
    // Whoever follows a run that has just ended does not know that yet.
    const isFresh = ({ entries }: RunFacts) => (entries.at(-1)?.committedAt ?? 0) > this.#deps.world.now - FRESH_MS;
    return (ask === "delete" ? pickAt(ended.filter(isFresh), which) : undefined) ?? pickAt(ended, which);
  }

  /** The wait that a signal is for: right before its deadline, if it is to be. */
  async #waitFor({ which, atDeadline }: Request & { ask: "signal" }): Promise<WaitFacts | undefined> {
    const { world, latency } = this.#deps;
    const wait = this.#pickWait(which, atDeadline);
    if (!atDeadline || !wait?.deadlineAt) return wait;
    const leftMs = Date.parse(wait.deadlineAt) - world.wallNow - latency;
    if (leftMs > 0 && leftMs < 1_000) await world.pass(leftMs);
    return wait;
  }

  #pickWait(which: number, atDeadline: boolean): WaitFacts | undefined {
    // Some waits are left until nothing goes wrong any more: their runs are held meanwhile.
    const all = [...this.#deps.facts.waits.values()].filter(({ name }) => name !== LATE_WAIT);
    const pending = all.filter(({ ending, deadlineAt }) => ending === null && (!atDeadline || deadlineAt !== null));
    return which < 0.8 && pending.length > 0 ? pickAt(pending, which / 0.8) : pickAt(all, which);
  }
}

/** The runs that are triggered by a request. */
function askedRuns(request: Request, isOverWeb: boolean): AskedRun[] {
  if (request.ask === "send") {
    const { start = null, jobName = "" } = request.to ?? {};
    if (start === null) return [];
    const payload = JSON.stringify({ program: start.program });
    return [{ jobName, payload, options: start.options, hasOtherFairness: isOverWeb }];
  }
  if (request.ask !== "trigger" && request.ask !== "run" && request.ask !== "batch") return [];
  const { jobName } = request;
  const items = request.ask === "batch" ? request.items : [request];
  return items.map(({ program, options }) => {
    return { jobName, payload: JSON.stringify({ program }), options, hasOtherFairness: isOverWeb };
  });
}

/** The handle of a job, which an engine has if it knows the job. */
function handleOf(engine: Engine, jobName: string): NonNullable<Engine["jobs"][string]> {
  const handle = engine.jobs[jobName];
  if (handle === undefined) throw new NotFoundError(`There is no job "${jobName}"`);
  return handle;
}

/** Whether a run has started others, or was started by one; what is retriggered has not completed. */
function isOne(run: RunFacts, of: Relation, ask: Request["ask"]): boolean {
  const isRelated = of === "parents" ? run.childPauses.size > 0 : run.parent !== null;
  return isRelated && (ask !== "retrigger" || endingOf(run).status !== "completed");
}

function unlessRefused(error: unknown): void {
  if (!(error instanceof HoldfastError)) throw error;
}

function pickAt<T>(items: readonly T[], which: number): T | undefined {
  return items[Math.floor(which * items.length)];
}
