import { OPEN } from "../model/run.ts";
import { AsyncLocalStorage } from "node:async_hooks";
import { clearTimeout, setImmediate, setTimeout } from "node:timers";
import type { EngineOptions } from "../engine/engine_options.ts";
import type { Jobs } from "../engine/job_handle.ts";
import type { EngineEvent } from "../model/event.ts";
import type { Surroundings } from "../execution/surroundings.ts";
import { systemHost } from "../model/host.ts";
import { MemoryStore } from "../stores/memory/memory_store.ts";
import { Fakes } from "./fakes.ts";
import { TestClock } from "./test_clock.ts";
import { LostAnswerError, type SharedWorld, TestProcess } from "./test_process.ts";
import { Trace } from "./trace.ts";
import type { Store } from "../store/store.ts";
import { getRuns, getWaits } from "../store/reads.ts";

// Taken when the kit is loaded: a test may replace the timers of its own code.
const macrotask = setImmediate;
const realTimer = setTimeout;
const cancelRealTimer = clearTimeout;

// What a job awaits beside its steps can take a turn that no count shows.
const QUIET_TURNS = 2;
// A longer timer would fire at once.
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Which code calls. */
export interface CodePlace {
  /** The process. */
  process: TestProcess;
  /** The run. */
  runId: string;
  /** The name of its job. */
  jobName: string;
  /** The step whose function it is; `null`: it is outside of steps. */
  stepName: string | null;
}

/** Options of a {@linkcode TestSystem}. */
export interface TestSystemOptions {
  jobs: Jobs;
  dataSources: NonNullable<EngineOptions<Jobs>["dataSources"]>;
  now: number;
  seed: number;
  /** For how much real time a function of a step may hang before time moves on, in milliseconds. */
  patience: number;
}

/** Processes with one store and one clock, which does not move unless a test moves it. */
export class TestSystem implements SharedWorld {
  readonly clock: TestClock;
  readonly store: MemoryStore;
  readonly trace: Trace;
  readonly fakes = new Fakes();
  /** All events, in the order in which they were published. */
  readonly events: EngineEvent[] = [];
  readonly warnings: string[] = [];
  /** What workers reported, but for answers that were lost on purpose. */
  readonly workerErrors: unknown[] = [];
  /** How often the function of each step was called, by run and step. */
  readonly executed = new Map<string, number>();
  /** Where the code is that calls now; `undefined`: it is no code of a job. */
  readonly place = new AsyncLocalStorage<CodePlace>();
  /** Decides what goes wrong. */
  faultAt: SharedWorld["faultAt"] = () => null;
  /** Called before the transaction of a step commits. It may kill the process. */
  onCommit: (stepName: string, process: TestProcess) => void = () => {};
  readonly options: TestSystemOptions;
  readonly #processes: TestProcess[] = [];
  readonly #inputs = new Map<string, unknown>();
  /** The functions of steps that are executed and that somebody still waits for. */
  readonly #functions = new Map<object, TestProcess>();
  /** Runs whose jobs hang outside of their steps. */
  readonly #hanging = new Set<string>();
  onActivity: () => void = () => {};
  #version = 0;

  constructor(options: TestSystemOptions) {
    this.options = options;
    this.clock = new TestClock(options.now);
    this.trace = new Trace(this.clock);
    this.store = new MemoryStore({ host: { ...systemHost, now: () => this.clock.now } });
  }

  /** The processes that were not killed. */
  get alive(): TestProcess[] {
    return this.#processes.filter(({ isAlive }) => isAlive);
  }

  /** Starts another process. */
  async addProcess(jobs: Jobs = this.options.jobs): Promise<TestProcess> {
    const process = new TestProcess(this.#processes.length + 1, jobs, this);
    this.#processes.push(process);
    await process.engine.start();
    return process;
  }

  /** Ends the test: all processes die. */
  close(): void {
    for (const process of this.alive) process.kill();
    this.#functions.clear();
    this.place.disable(); // Node 22 never frees one that was used, and each one slows down all promises
  }

  /** Lets everything happen that needs no time. */
  async settle(): Promise<void> {
    for (let quiet = 0; quiet < QUIET_TURNS;) {
      await new Promise<void>((resolve) => void macrotask(resolve));
      quiet += 1;
      if (this.#processes.some(({ openCount }) => openCount > 0)) quiet = 0;
      else if (this.#isAwaited()) {
        if (!await this.#untilActivity()) this.#giveUp();
        quiet = 0;
      } else if (quiet === QUIET_TURNS && await this.#wakeOthers()) quiet = 0;
    }
  }

  /** Moves the clock to the next due instant, but not past `end`; returns whether there was one. */
  async step(end = Infinity): Promise<boolean> {
    const { nextDueAt } = this.clock;
    if (nextDueAt === null || nextDueAt > end) return false;
    this.clock.moveTo(nextDueAt);
    await this.settle();
    return true;
  }

  /** Lets time pass up to an instant, from one due instant to the next. */
  async moveTo(instant: number): Promise<void> {
    await this.settle();
    while (await this.step(instant));
    this.clock.moveTo(instant);
    for (const process of this.alive) process.wake();
    await this.settle();
  }

  /** Adds a warning, once. */
  warn(text: string): void {
    if (!this.warnings.includes(text)) this.warnings.push(text);
  }

  /** How often the function of a step was called in a run. */
  timesExecuted(runId: string, stepName: string): number {
    return this.executed.get(keyOf(runId, stepName)) ?? 0;
  }

  onEvent(event: EngineEvent, process: TestProcess): void {
    this.events.push(event);
    if (event.type !== "worker:error" || event.error instanceof LostAnswerError) return;
    if (process.wasSuspended) return; // it reports that it was
    this.workerErrors.push(event.error);
  }

  surroundingsOf(process: TestProcess): Surroundings {
    return {
      polls: false,
      callJob: ({ run: { id: runId, jobName } }, input, step, body) => {
        this.#inputs.set(runId, input);
        return this.place.run({ process, runId, jobName, stepName: null }, () => body(step));
      },
      beforeCommit: (_claim, stepName) => {
        if (process.isAlive) this.onCommit(stepName, process);
        if (!process.isAlive) throw new Error("The process has died"); // nothing of it commits any more
      },
      callStep: (call) => {
        const { stepName, claim: { run: { id: runId, jobName } } } = call;
        if (!process.isAlive) return new Promise<never>(() => {});
        this.trace.add(process.name, `executes "${stepName}"`, runId);
        this.executed.set(keyOf(runId, stepName), this.timesExecuted(runId, stepName) + 1);
        this.#hanging.delete(runId);
        const { hangs, work } = this.fakes.answer(call, this.#inputs.get(runId), this.clock.now);
        return this.place.run(
          { process, runId, jobName, stepName },
          () => hangs ? work() : this.#awaitFunction(process, work),
        );
      },
    };
  }

  async #awaitFunction(process: TestProcess, work: () => unknown): Promise<unknown> {
    const token = {};
    this.#functions.set(token, process);
    this.onActivity();
    try {
      return await work();
    } finally {
      this.#functions.delete(token);
      this.onActivity();
    }
  }

  /** Whether code of a job goes on that nobody has lost patience with. */
  #isAwaited(): boolean {
    for (const process of this.#functions.values()) if (process.isAlive) return true;
    return this.#processes.some(({ runsInOwnCode }) => runsInOwnCode.some((runId) => !this.#hanging.has(runId)));
  }

  /** Waits in real time; returns whether something has happened before the end of the patience. */
  #untilActivity(): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (isActive: boolean) => {
        this.onActivity = () => {};
        cancelRealTimer(timer);
        resolve(isActive);
      };
      const timer = realTimer(() => end(false), Math.min(this.options.patience, MAX_TIMER_MS));
      this.onActivity = () => end(true);
    });
  }

  #giveUp(): void {
    this.#functions.clear();
    for (const { runsInOwnCode } of this.#processes) {
      for (const runId of runsInOwnCode) this.#hanging.add(runId);
    }
  }

  /** Wakes all processes if one of them has changed the store; returns whether it has. */
  async #wakeOthers(): Promise<boolean> {
    if (this.alive.length < 2) return false;
    const version = await this.store.getVersion();
    if (version === this.#version) return false;
    this.#version = version;
    for (const process of this.alive) process.wake();
    return true;
  }
}

function keyOf(runId: string, stepName: string): string {
  return `${runId} ${stepName}`;
}

const MAX_DESCRIBED = 5;

/** Which runs have not ended, and what they wait for; an empty string: all have ended. */
export async function describeOpenRuns(store: Store): Promise<string> {
  const { runs, total } = await getRuns(store, { status: OPEN, limit: MAX_DESCRIBED });
  const texts = await Promise.all(runs.map(async ({ id, jobName, status }) => {
    const open = (await getWaits(store, id)).filter((wait) => wait.status === "pending");
    const hold = await store.getHold(id);
    const waits = open.map(({ name }) => `"${name}"`).join(", ");
    if (hold !== null) return `run ${id} of "${jobName}" is held: ${hold.message}`;
    return `run ${id} of "${jobName}" ${waits === "" ? `is ${status}` : `waits for a signal ${waits}`}`;
  }));
  return texts.join("; ") + (total > runs.length ? `; and ${total - runs.length} more` : "");
}
