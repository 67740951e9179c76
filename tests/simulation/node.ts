import type { Engine } from "../../src/engine/engine.ts";
import { persistLogs } from "../../src/engine/plugin.ts";
import { type EndContext, undoName, type UndoTools } from "../../src/model/end.ts";
import { StoreError } from "../../src/model/error.ts";
import type { Host } from "../../src/model/host.ts";
import "../../src/http/links/answer_link.ts"; // as what follows
import "../../src/http/requests/body_schemas.ts"; // before the first request: else it would be loaded in time of its own
import { createHandler } from "../../src/http/handler.ts";
import type { Respond } from "../../src/http/route.ts";
import type { Job, StepContext } from "../../src/model/job.ts";
import { defineJob, type EndDefinition } from "../../src/model/job/define_job.ts";
import type { Json } from "../../src/values/json.ts";
import { AUTH } from "./auth.ts";
import { Chance, hashText } from "../support/chance.ts";
import { anything } from "../support/stores/for_each_store.ts";
import { makeCleanUp, type PlannedEnd } from "./ends_plan.ts";
import type { Facts } from "./facts.ts";
import type { Trace } from "./trace.ts";
import type { Body } from "./body.ts";
import { Incarnation } from "./incarnation.ts";
import { LINKS } from "./link_clients.ts";
import type { Mutant } from "./mutants/mutant.ts";
import { MESSAGE_NAMES } from "./messages_plan.ts";
import { JOB_NAMES, type Plan } from "./plan.ts";
import { CHILD_JOB, namesOf } from "./renames_plan.ts";
import { type Code, definitionOf, executingCode } from "./changes_plan.ts";
import { changeProgram } from "./changed_program.ts";
import { type BodyWitness, jobNamesOf, perform, type Program } from "./program.ts";
import { remoteStore, type Way } from "./remote_store.ts";
import type { PlannedSchedule } from "./schedules_plan.ts";
import type { SimProcess } from "./sim_process.ts";
import type { SharedStore } from "./stores.ts";
import { createEngine } from "../support/quiet_engine.ts";

/** What nodes share. */
export interface NodeDeps {
  seed: number;
  plan: Plan;
  facts: Facts;
  trace: Trace;
  store: SharedStore;
  mutant: Mutant | undefined;
  way: Omit<Way, "die">;
}

/** A process with its engine: it is started, killed, stopped and started again. */
export class Node {
  readonly process: SimProcess;
  readonly #deps: NodeDeps;
  #engine: Engine | null = null;
  #fetch: Respond | null = null;
  #incarnation: Incarnation | null = null;
  #isServerless: boolean;
  #isStopping = false;
  readonly #downListeners = new Set<() => void>();
  /** The job that its next start does not know. */
  without: string | null = null;
  /** Which code its next start has. */
  version: Code = 1;
  /** The job that its newest incarnation does not know. */
  #isWithout: string | null = null;

  /** @param isServerless Whether it only works off what is due, now and then. */
  constructor(process: SimProcess, isServerless: boolean, deps: NodeDeps) {
    this.process = process;
    this.#isServerless = isServerless;
    this.#deps = deps;
  }

  /** Its engine, while it lives. */
  get engine(): Engine | null {
    return this.#engine;
  }

  /** What serves its engine over HTTP, while it lives. */
  get fetch(): Respond | null {
    return this.#fetch;
  }

  /** What its newest incarnation has seen. */
  get incarnation(): Incarnation | null {
    return this.#incarnation;
  }

  /** Whether it lives and nobody has told it to stop. */
  get isUp(): boolean {
    return this.#engine !== null && !this.#isStopping;
  }

  /** Whether it was told to stop. */
  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Starts it, unless it lives. */
  start(): void {
    const { process } = this;
    if (process.isAlive) return;
    process.start();
    this.#engine = null;
    this.#fetch = null;
    this.#isStopping = false;
    this.#incarnation = new Incarnation(process, this.#deps.facts, this.version);
    this.#isWithout = this.without;
    const without = this.without === null ? "" : ` without ${this.without}`;
    this.#deps.trace.note(`${process.label} starts with version ${this.version}${without}`);
    this.#serve(this.#incarnation);
  }

  /** Kills it. It comes back after `downMs` milliseconds. */
  kill(downMs: number): void {
    const { process } = this;
    if (!process.isAlive) return;
    this.#deps.trace.note(`${process.label} is killed`);
    this.#deps.facts.notice("a process was killed");
    this.#goDown(downMs);
  }

  /** Stops it in good order, and starts it again after `downMs` milliseconds. */
  async replace(timeout: number, downMs: number): Promise<void> {
    const { facts } = this.#deps;
    if (!this.isUp) return;
    if (facts.open().some(({ state }) => state?.run.status === "running")) {
      facts.notice("a process was stopped while it executed runs");
    }
    const { label } = this.process;
    await this.stop(timeout);
    if (this.process.label !== label) return; // it was killed meanwhile
    this.#incarnation!.checkStopped();
    if (this.without !== null) facts.notice("a deploy no longer knew a job");
    this.#goDown(downMs);
  }

  /** Stops its engine. */
  async stop(timeout: number): Promise<void> {
    this.#deps.trace.note(`${this.process.label} stops within ${timeout} ms`);
    this.#isStopping = true;
    this.#incarnation!.noteStopping(timeout);
    await this.#engine!.stop({ timeout: this.#deps.mutant?.stopTimeout?.(timeout) ?? timeout });
  }

  /** From now on it looks for work by itself. */
  workByItself(): void {
    this.#isServerless = false;
  }

  /** Calls back when it has died, until the returned function is called. */
  onDown(listener: () => void): () => void {
    this.#downListeners.add(listener);
    return () => void this.#downListeners.delete(listener);
  }

  #goDown(downMs: number): void {
    this.process.kill();
    for (const listener of [...this.#downListeners]) listener();
    this.#engine = null;
    this.#fetch = null;
    this.process.world.after(downMs, null, () => this.start());
  }

  async #serve(incarnation: Incarnation): Promise<void> {
    const { seed, plan, mutant } = this.#deps;
    const host = mutant?.host?.(this.process.host) ?? this.process.host;
    const reached = await this.#reach(host, incarnation);
    const names = [...JOB_NAMES.filter((name) => name !== this.#isWithout), ...(plan.hasRenames ? [CHILD_JOB] : [])];
    const all = names.map((name) => this.#job(name, incarnation));
    const jobs = Object.fromEntries(all.map((job) => [job.name, job]));
    const engine: Engine = createEngine({
      store: reached,
      jobs,
      worker: plan.worker,
      schedules: this.#schedules(),
      retention: plan.retention,
      host,
      ...(plan.changes === null ? {} : { build: `code ${incarnation.version}` }),
      ...(plan.flow?.fairnessLabel === undefined ? {} : { fairnessLabel: plan.flow.fairnessLabel }),
    });
    if (new Chance(seed, incarnation.label, "logs").happens(0.2)) engine.use(persistLogs());
    engine.on("*", (event) => {
      if (this.#incarnation === incarnation) incarnation.hear(event);
    });
    this.#engine = engine;
    const auth = { ...AUTH, ...mutant?.auth };
    const options = {
      basePath: "/jobs",
      host,
      links: mutant?.links?.(LINKS) ?? LINKS,
      limits: plan.maxStreamMs === Infinity ? {} : { maxStreamMs: plan.maxStreamMs },
      onError: this.#hearError.bind(this),
    };
    const { fetch } = createHandler(engine, { ...options, auth });
    // Without names of tenants events have the numbers of their facts.
    const { tenant: _tenant, ...nameless } = auth;
    const streams = plan.countsEvents ? fetch : createHandler(engine, { ...options, auth: nameless }).fetch;
    const respond: Respond = (request) =>
      new URL(request.url).pathname.endsWith("/subscribe") ? streams(request) : fetch(request);
    this.#fetch = mutant?.fetch?.(respond) ?? respond;
    if (this.#isServerless) await this.#workNowAndThen(engine, incarnation);
    incarnation.polls = true;
    await this.#startEngine(engine);
  }

  async #reach(host: Host, incarnation: Incarnation) {
    const { store, mutant, way, seed } = this.#deps;
    const chance = new Chance(seed, incarnation.label, "down");
    const remote = remoteStore(await store.open(host), incarnation, {
      ...way,
      die: () => this.kill(chance.between(20, 500)),
    });
    return mutant?.client?.(remote, host) ?? remote;
  }

  /** A run kills its process, soon after it has begun, unless it has done so often enough, or all trouble is over. */
  async #crash(runId: string, times: number, incarnation: Incarnation): Promise<void> {
    const { facts, seed, way: { faults } } = this.#deps;
    const run = facts.run(runId);
    const name = `crash ${run.crashes} of ${runId}`;
    if (run.crashes >= times || !faults.happens(name)) return;
    run.crashes += 1;
    const chance = new Chance(seed, name);
    await this.process.sleep(chance.between(0, 20));
    if (this.process.label === incarnation.label) {
      facts.notice("a run killed its process");
      this.kill(chance.between(1, 50));
    }
    await new Promise(() => {});
  }

  async #startEngine(engine: Engine): Promise<void> {
    while (!this.#isStopping) {
      try {
        return await engine.start();
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        await this.process.sleep(50);
      }
    }
  }

  async #workNowAndThen(engine: Engine, incarnation: Incarnation): Promise<void> {
    const chance = new Chance(this.#deps.seed, incarnation.label, "serverless");
    while (this.#isServerless && !this.#isStopping) {
      await engine.runUntilIdle().catch((error) => {
        if (!(error instanceof StoreError)) throw error;
      });
      await this.process.sleep(chance.between(50, 400));
    }
  }

  /** What clients are not told. */
  #hearError(error: unknown): void {
    const { facts } = this.#deps;
    facts.expect(error instanceof StoreError, "I20", () => `a 500 hides ${(error as Error)?.stack}`);
  }

  /** The schedules that the code of this process declares: those of the jobs that it knows. */
  #schedules(): { [name: string]: PlannedSchedule } {
    const declared = this.#deps.plan.schedules?.declared[Math.min(this.version, 2) - 1] ?? {};
    return Object.fromEntries(Object.entries(declared).filter(([, { job }]) => job !== this.#isWithout));
  }

  /** Whether the code of this process knows the jobs of all runs that a program starts. */
  #knowsAll(program: Program): boolean {
    return this.#isWithout === null || !jobNamesOf(program).includes(this.#isWithout);
  }

  /** How a job cleans up: it undoes some steps, and sleeps, perhaps, and fails now and then. */
  #end(planned: PlannedEnd | undefined, incarnation: Incarnation, code: Code): { onEnd?: EndDefinition<Json> } {
    if (planned === undefined) return {};
    const { statuses, finishWithin } = planned;
    const { trace, seed } = this.#deps;
    const cleanUp = async (step: StepContext, end: EndContext, body: Body) => {
      body.cleansUp(end);
      const { undos, sleepMs, throws } = makeCleanUp(seed, step.runId, end);
      for (const undo of undos) {
        const { stepName, always, action: { attempts, delay } } = undo;
        if (!always && !end.completed.includes(stepName)) continue;
        const name = undoName(stepName);
        body.asks("step", name);
        const work = (result: Json | undefined, tools: UndoTools) => {
          trace.note(`${incarnation.label} executes ${tools.idempotencyKey} (${tools.attempt})`);
          return body.undoes(undo, result, tools);
        };
        const undoing = end.undo(stepName, work, { always, retry: { maxAttempts: attempts, delay } });
        const answer = await undoing.then(
          (value) => ({ value: value! }),
          (error: Error) => ({ failure: error.message }),
        );
        body.stepped(name, answer);
        body.saw(`${name} ${JSON.stringify(answer)}`);
        if ("failure" in answer) await undoing;
        if (sleepMs === null) continue;
        body.sleeps("rest", sleepMs);
        await step.sleep("rest", sleepMs);
        body.slept("rest");
      }
      if (throws) throw new Error("the program fails");
    };
    return {
      onEnd: {
        statuses,
        ...(finishWithin === null ? {} : { finishWithin }),
        run: async (step, end) => {
          const body = incarnation.enter(step.runId, step.execution, code);
          try {
            await cleanUp(step, end, body);
          } catch (error) {
            body.threw(error as Error);
            throw error;
          }
          const output = { cleanedUp: end.runId };
          body.returned(output);
          return output;
        },
      },
    };
  }

  #job(name: string, incarnation: Incarnation, code: Code = incarnation.version): Job {
    const { trace, plan } = this.#deps;
    const { changes } = plan;
    const hasPrevious = code > 1 && changes !== null && executingCode(changes, name, 1, code) === 1;
    return defineJob({
      ...namesOf(name, code),
      ...plan.flow?.jobs[name as typeof JOB_NAMES[number]]?.[Math.min(code, 2) - 1],
      ...(changes === null ? {} : definitionOf(changes, name, code)),
      ...(hasPrevious ? { previous: [this.#job(name, incarnation, 1)] } : {}),
      input: anything,
      ...(plan.hasMessages ? { messages: Object.fromEntries(MESSAGE_NAMES.map((name) => [name, anything])) } : {}),
      ...this.#end(plan.ends?.[name], incarnation, code),
      run: async (step, { program }: { program: Program }) => {
        const body = incarnation.enter(step.runId, step.execution, code);
        let seen = hashText("");
        const witness: BodyWitness = {
          attempts: (action, tools) => {
            trace.note(`${incarnation.label} executes ${tools.idempotencyKey} (${tools.attempt})`);
            return body.attempts(action, tools);
          },
          stepped: (name, answer) => body.stepped(name, answer),
          remark: () => body.remark(),
          sleeps: (name, ms) => body.sleeps(name, ms),
          waits: (name, timeout) => body.waits(name, timeout),
          idles: (turns) => body.idles(turns),
          branches: () => body.branches(),
          crashes: (times) => this.#crash(step.runId, times, incarnation),
          asks: (kind, name) => body.asks(kind, name),
          patched: (name, isNew) => body.patched(name, isNew),
          receives: (name, timeout) => body.receives(name, timeout),
          received: (name, messages) => body.received(name, messages),
          slept: (name) => body.slept(name),
          waited: (wait, result) => body.waited(wait, result),
          jobOf: (jobName) => this.#job(jobName, incarnation),
          calls: (action) => body.calls(action),
          called: (action, result) => body.called(action, result),
          saw: (what) => {
            trace.note(`${incarnation.label} ${step.runId} saw ${what}`);
            seen = hashText(what, seen);
            body.saw(what);
          },
        };
        try {
          // Code that does not know all jobs waits for the deploy of code that does.
          if (!this.#knowsAll(program)) await new Promise(() => {});
          const own = changes === null ? program : changeProgram(program, changes, code);
          await perform(own, body.asking(step), witness);
        } catch (error) {
          body.threw(error as Error);
          throw error;
        }
        body.returned({ seen });
        return { seen };
      },
    }) as Job;
  }
}
