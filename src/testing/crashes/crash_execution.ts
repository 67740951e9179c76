import { withoutOccurrence } from "../../values/name.ts";
import type { Engine } from "../../engine/engine.ts";
import { isTerminal, type Run } from "../../model/run.ts";
import type { Step } from "../../model/step.ts";
import type { Job } from "../../model/job.ts";
import type { Checkpoint, Moment } from "../checkpoint.ts";
import { describeOpenRuns, TestSystem } from "../test_system.ts";
import type { Fault, TestProcess } from "../test_process.ts";
import type { CheckpointKey, CrashKit, CrashPlan, PlannedCrash } from "./crash_plan.ts";
import { withStableIds } from "./stable_ids.ts";
import { andThen } from "../../values/at_once.ts";
import { getRun, getSteps, getWaits } from "../../store/reads.ts";

/** What an execution with at most one crash led to. */
export interface CrashResult {
  /** How the run ended; `stuck`: nothing is ever due, `held`: it is held. */
  ended: Run["status"] | "stuck" | "held";
  /** Why it did not end. */
  reason: string | null;
  /** The output of the run, or its error. */
  outcome: unknown;
  /** What `observe()` returned. */
  effects: unknown;
  /** The recorded steps with their results. */
  steps: { name: string; status: string; result: unknown }[];
  /** What workers have reported. */
  errors: string[];
  /** What is to be said of fakes and signals that were not used. */
  unused: string[];
  /** The checkpoints, in their order. */
  checkpoints: CheckpointKey[];
  /** Whether the crash has happened. */
  hasCrashed: boolean;
  /** What has happened, as text. */
  trace: string;
}

const START = Date.UTC(2030, 0, 1);
const MAX_STEPS = 100_000;

/** Executes a plan once, from the trigger to the end, with one crash or without any. */
export async function executeWith(
  setUp: (kit: CrashKit) => CrashPlan,
  crash: PlannedCrash | null,
  patience: number,
): Promise<CrashResult> {
  const execution = new CrashExecution(setUp, crash, patience);
  try {
    return await execution.run();
  } finally {
    execution.close();
  }
}

class CrashExecution {
  readonly #system: TestSystem;
  readonly #plan: CrashPlan;
  readonly #crash: PlannedCrash | null;
  readonly #checkpoints: CheckpointKey[] = [];
  readonly #counts = new Map<string, number>();
  /** The numbers of the checkpoints, from 1 for each name. */
  readonly #numbers = new WeakMap<Checkpoint, number>();
  /** The names of the signals of the plan that were sent. */
  readonly #sent = new Set<string>();
  /** How many of the messages of the plan were sent. */
  #messagesSent = 0;
  #hasCrashed = false;
  #suspended: TestProcess | null = null;
  /** Whether another worker has claimed the run of the suspended one. */
  #isOvertaken = false;
  /** Processes that take the places of dead ones, or overtake one, and have to be started. */
  #missing = 0;

  constructor(setUp: (kit: CrashKit) => CrashPlan, crash: PlannedCrash | null, patience: number) {
    this.#crash = crash;
    this.#plan = setUp({
      world: (world) =>
        new Proxy(world, {
          get: (target, name) => {
            const value = Reflect.get(target, name, target);
            if (typeof value !== "function" || typeof name === "symbol") return value;
            return (...parameters: unknown[]) => this.#call(name, () => Reflect.apply(value, target, parameters));
          },
        }),
    });
    const { job, jobs = {}, dataSources = {} } = this.#plan;
    this.#system = new TestSystem({ jobs: { ...jobs, [job.name]: job }, dataSources, now: START, seed: 1, patience });
    this.#system.onCommit = (stepName, process) => this.#beforeCommit(stepName, process);
    this.#system.faultAt = (checkpoint, moment, process) => this.#faultAt(checkpoint, moment, process);
    for (const [stepName, fake] of Object.entries(this.#plan.fakes ?? {})) {
      this.#system.fakes.of(job.name, stepName).does(typeof fake === "function" ? (call) => fake(call) : () => fake);
    }
  }

  close(): void {
    this.#system.close();
  }

  async run(): Promise<CrashResult> {
    const { job, input } = this.#plan;
    const { engine } = await this.#system.addProcess();
    const { id } = await engine.trigger(job as Job, input); // of its own input type
    while (this.#plan.messages?.[this.#messagesSent]?.early) await this.#send(engine, id);
    const ended = await this.#untilEnd(id);
    const { run } = ended;
    const { endRunId } = run;
    const cleanUp = ended.problem !== null || endRunId === null ? null : await this.#untilEnd(endRunId);
    const problem = ended.problem ?? cleanUp?.problem ?? null;
    const steps = [...await getSteps(this.#system.store, id), ...await this.#readCleanUp(cleanUp?.run)];
    const seen = await withStableIds(this.#system.store, {
      outcome: run.status === "completed" ? run.output : run.error,
      effects: await this.#plan.observe?.(),
      steps: steps.map(({ name, status, output, error }) => ({ name, status, result: error ?? output })),
    });
    return {
      ended: problem?.kind ?? run.status,
      reason: problem?.reason ?? null,
      ...seen,
      errors: this.#system.workerErrors.map(String),
      unused: [...this.#system.fakes.unused(), ...this.#unusedSignals(), ...this.#unusedMessages()],
      checkpoints: this.#checkpoints,
      hasCrashed: this.#hasCrashed,
      trace: this.#system.trace.show(),
    };
  }

  /** The steps of the run that cleans up, and how it has ended. */
  async #readCleanUp(run: Run | undefined): Promise<Pick<Step, "name" | "status" | "output" | "error">[]> {
    if (run === undefined) return [];
    const { jobName, status, output, error } = run;
    return [
      ...await getSteps(this.#system.store, run.id),
      { name: `the end of ${jobName}`, status: status as Step["status"], output, error }, // it has ended
    ];
  }

  /** Lets time pass to whatever is due, answers waits, and starts processes, until the run has ended. */
  async #untilEnd(runId: string): Promise<{ run: Run; problem: { kind: "stuck" | "held"; reason: string } | null }> {
    const { store } = this.#system;
    for (let steps = 0;; steps++) {
      await this.#system.settle();
      if (this.#missing > 0) {
        this.#missing -= 1;
        await this.#system.addProcess();
        continue;
      }
      const run = (await getRun(store, runId))!;
      const isOver = isTerminal(run.status);
      if (this.#suspended !== null && (isOver || (this.#isOvertaken && run.status === "waiting"))) {
        this.#suspended.resume();
        this.#system.trace.add(this.#suspended.name, "goes on");
        this.#suspended = null;
        continue;
      }
      if (isOver) return { run, problem: null };
      const hold = await store.getHold(runId);
      if (hold !== null) return { run, problem: { kind: "held", reason: hold.message } };
      if (await this.#signal(runId) || await this.#sendNext(run) || (steps < MAX_STEPS && await this.#system.step())) {
        continue;
      }
      return { run, problem: { kind: "stuck", reason: await describeOpenRuns(store) } };
    }
  }

  /** Answers an open wait, if the plan has an answer; returns whether it has. */
  async #signal(runId: string): Promise<boolean> {
    const { signals = {} } = this.#plan;
    const { store } = this.#system;
    if ((await getRun(store, runId))!.status !== "waiting") return false;
    const client = this.#system.alive.find(({ isSuspended }) => !isSuspended);
    for (const { id, name, status } of await getWaits(store, runId)) {
      const key = Object.hasOwn(signals, name) ? name : withoutOccurrence(name);
      if (client === undefined || status !== "pending" || !Object.hasOwn(signals, key)) continue;
      this.#sent.add(key);
      await client.engine.signal(id, { signalId: `signal for ${name}`, payload: signals[key]! });
      this.#system.trace.add("somebody", `signals "${name}"`, runId);
      return true;
    }
    return false;
  }

  /** Sends the next message, if the run waits for one; returns whether it does. */
  async #sendNext({ id, status }: Run): Promise<boolean> {
    const { messages = [] } = this.#plan;
    const client = this.#system.alive.find(({ isSuspended }) => !isSuspended);
    if (status !== "waiting" || this.#messagesSent >= messages.length || client === undefined) return false;
    const { pauses } = (await this.#system.store.getHistory(id))!; // the run exists
    if (!pauses.some(({ kind, resolution }) => kind === "receive" && resolution === null)) return false;
    await this.#send(client.engine, id);
    return true;
  }

  async #send(engine: Pick<Engine, "send">, runId: string): Promise<void> {
    const { name, payload } = this.#plan.messages![this.#messagesSent]!; // the caller knows that there is one
    this.#messagesSent += 1;
    await engine.send(runId, name, payload, { id: `message ${this.#messagesSent}` });
    this.#system.trace.add("somebody", `sends "${name}"`, runId);
  }

  #unusedMessages(): string[] {
    return (this.#plan.messages ?? []).slice(this.#messagesSent)
      .map(({ name }) => `Nothing has waited for the message "${name}" in the execution without crashes`);
  }

  #unusedSignals(): string[] {
    return Object.keys(this.#plan.signals ?? {}).filter((name) => !this.#sent.has(name))
      .map((name) => `Nothing has waited for the signal "${name}" in the execution without crashes`);
  }

  #faultAt(checkpoint: Checkpoint, moment: Moment, process: TestProcess): Fault | null {
    const { name, runId } = checkpoint;
    const kind = name === "claim" ? "claim" : "record";
    if (kind === "claim" && this.#suspended !== null && process !== this.#suspended) this.#isOvertaken = true;
    if (moment === "before" || kind === "claim") {
      const no = this.#pass({ name, kind, stepName: /^record "(.*)"$/s.exec(name)?.[1] ?? null });
      this.#numbers.set(checkpoint, no);
    }
    const crash = this.#crashAt(name, this.#numbers.get(checkpoint)!); // it has passed
    if (crash === null || runId === null) return null;
    if (crash === "answer lost") return moment === "after" ? this.#strike(crash) : null;
    if (!crash.endsWith(moment)) return null;
    this.#missing += 1;
    if (crash.startsWith("overtaken")) {
      this.#suspended = process;
      return this.#strike("overtaken");
    }
    return this.#strike("dies");
  }

  /** Calls a method of a world: a checkpoint, if a job does it. */
  #call(method: string, perform: () => unknown): unknown {
    const place = this.#system.place.getStore();
    if (place === undefined) return perform(); // the test itself looks
    const { process, stepName } = place;
    if (!process.isAlive) throw new ProcessDiedError();
    const dies = this.#beginCall(method, stepName, process);
    if (dies("before")) throw new ProcessDiedError();
    return andThen(perform(), (value) => {
      if (!process.isAlive || dies("after")) throw new ProcessDiedError();
      return value;
    });
  }

  /** Begins such a call. The returned function says whether the process dies right before or after it. */
  #beginCall(method: string, stepName: string | null, process: TestProcess): (moment: Moment) => boolean {
    const name = stepName === null ? `call of ${method}() outside of steps` : `call of ${method}() in "${stepName}"`;
    const no = this.#pass({ name, kind: "call", stepName });
    return (moment) => {
      if (this.#crashAt(name, no) !== `dies ${moment}`) return false;
      this.#missing += 1;
      this.#strike("dies");
      this.#system.trace.add(process.name, `${name}: DIES ${moment} it`);
      process.kill();
      return true;
    };
  }

  #beforeCommit(stepName: string, process: TestProcess): void {
    const name = `commit of "${stepName}"`;
    const no = this.#pass({ name, kind: "commit", stepName });
    if (this.#crashAt(name, no) !== "dies before") return;
    this.#missing += 1;
    this.#strike("dies");
    this.#system.trace.add(process.name, `${name}: DIES before it`);
    process.kill();
  }

  /** Counts a checkpoint, and returns its number. Others of its name can come before it is over. */
  #pass(checkpoint: Omit<CheckpointKey, "no">): number {
    const no = (this.#counts.get(checkpoint.name) ?? 0) + 1;
    this.#counts.set(checkpoint.name, no);
    this.#checkpoints.push({ ...checkpoint, no });
    return no;
  }

  /** What goes wrong at a checkpoint; `null`: nothing. */
  #crashAt(name: string, no: number): PlannedCrash["mode"] | null {
    const crash = this.#crash;
    if (crash === null || this.#hasCrashed || crash.name !== name || crash.no !== no) return null;
    return crash.mode;
  }

  #strike<F extends Fault>(fault: F): F {
    this.#hasCrashed = true;
    return fault;
  }
}

/** The end of a process inside a call of its world. The job may catch it; nothing that it does then counts. */
class ProcessDiedError extends Error {
  override readonly name = "ProcessDiedError";

  constructor() {
    super("The process has died");
  }
}
