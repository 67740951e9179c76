import { withoutOccurrence } from "../values/name.ts";
import type { Engine } from "../engine/engine.ts";
import type { Jobs } from "../engine/job_handle.ts";
import type { RetriggerOptions } from "../engine/triggers/triggers.ts";
import type { ExportHistoryOptions } from "../engine/runs/export_history.ts";
import type { TriggerOptions, TriggerResult } from "../engine/triggers/new_run.ts";
import type { EngineEvent } from "../model/event.ts";
import type { ExportedHistory } from "../model/exported_history.ts";
import { isoTime } from "../values/iso_time.ts";
import type { Job } from "../model/job.ts";
import { kindOf } from "../values/unknown_values.ts";
import type { Stream } from "../model/stream.ts";
import type { Json, Jsonify } from "../values/json.ts";
import { type Duration, readDuration } from "../values/duration.ts";
import { checkOptionNames, namesOf } from "../values/option_names.ts";
import type { Run } from "../model/run.ts";
import type { MemoryStore } from "../stores/memory/memory_store.ts";
import type { SignalReceipt } from "../model/wait.ts";
import { ExpectedRun, type RunExpectations } from "./expect_run.ts";
import { replaceChance, type Replaced, replaceDate } from "./fake_globals.ts";
import type { FakeStep } from "./fakes.ts";
import { toInstant } from "./test_clock.ts";
import { describeOpenRuns, TestSystem } from "./test_system.ts";
import type { TestProcess } from "./test_process.ts";
import type { CrashMoment, RunRef, TestEngine, TestEngineOptions } from "./test_engine.ts";

const OPTIONS = namesOf<keyof TestEngineOptions<Jobs>>()("jobs dataSources now seed workers patience unusedFakes");
const SIGNAL_OPTIONS = { signalId: true, occurrence: true } as const;

const DEFAULT_START = "2030-01-01T00:00:00Z";
const LAST_INSTANT = Date.parse("9999-12-31T23:59:59.999Z");
// Far more than a test needs: something repeats itself without end.
const MAX_STEPS = 100_000;

/**
 * Creates an engine for a test: the real engine and worker, on a store in memory and a clock that only the test moves.
 * Use it with `await using`; the end of the block throws if a fake was never used, or a worker has reported an error.
 *
 * @throws {TypeError} An option is unknown, or not of its type.
 * @throws {RangeError} `now` is no instant, `patience` is negative, or there is no worker.
 */
export function createTestEngine<const J extends Jobs>(options: TestEngineOptions<J>): TestEngine<J> {
  return new KitEngine(options);
}

class KitEngine<J extends Jobs> implements TestEngine<J> {
  readonly store: MemoryStore;
  readonly events: readonly EngineEvent[];
  readonly warnings: readonly string[];
  readonly #system: TestSystem;
  readonly #options: TestEngineOptions<J>;
  readonly #started: Promise<unknown>;
  #jobs: Jobs;
  /** An expectation, or a start, that failed is what the test is to show, not what follows from it. */
  #hasFailed = false;
  #signals = 0;
  /** Where workers are still to die. */
  readonly #crashes: { stepName: string; moment: CrashMoment }[] = [];

  constructor(options: TestEngineOptions<J>) {
    checkOptionNames(options, OPTIONS, "createTestEngine()");
    const {
      jobs,
      dataSources = {},
      now = DEFAULT_START,
      seed = 1,
      workers = 1,
      patience = 200,
      unusedFakes = "throw",
    } = options;
    if (!Number.isInteger(workers) || workers < 1) throw new RangeError(`workers must be 1 or more, not ${workers}`);
    if (!Number.isFinite(seed)) throw new TypeError(`seed must be a number, not ${JSON.stringify(seed)}`);
    if (unusedFakes !== "throw" && unusedFakes !== "ignore") {
      throw new TypeError(`unusedFakes must be "throw" or "ignore", not ${JSON.stringify(unusedFakes)}`);
    }
    this.#options = options;
    this.#jobs = jobs;
    this.#system = new TestSystem({
      jobs,
      dataSources,
      now: toInstant(now),
      seed,
      patience: readDuration(patience, "patience"),
    });
    ({ store: this.store, events: this.events, warnings: this.warnings } = this.#system);
    this.#started = this.#startWorkers(workers);
    this.#started.catch(() => {}); // the first call throws it
  }

  get engine(): Engine<J> {
    const [process] = this.#system.alive;
    if (process === undefined) throw new Error("No worker is alive: the test engine was closed");
    return process.engine as unknown as Engine<J>; // an engine of these jobs
  }

  get now(): Date {
    return new Date(this.#system.clock.now);
  }

  get trace(): string {
    return this.#system.trace.show();
  }

  trigger<Input>(job: Job<Input>, input: NoInfer<Input>, options?: TriggerOptions): Promise<TriggerResult> {
    return this.#act(() => (this.engine as Engine).trigger(job, input, options));
  }

  signal(
    run: RunRef,
    waitName: string,
    payload: Json,
    options: { signalId?: string; occurrence?: number } = {},
  ): Promise<SignalReceipt> {
    return this.#act(async () => {
      checkOptionNames(options, SIGNAL_OPTIONS, "signal()");
      const { occurrence, signalId = `signal-${++this.#signals}` } = options;
      const name = occurrence === undefined || occurrence === 1 ? waitName : `${waitName}#${occurrence}`;
      const open = (await this.engine.getWaits(idOf(run))).filter(({ status }) => status === "pending");
      const wait = open.findLast((wait) =>
        wait.name === name || (occurrence === undefined && withoutOccurrence(wait.name) === name)
      );
      if (wait === undefined) {
        const others = open.length === 0 ? "none is open" : `open are: ${open.map(({ name }) => name).join(", ")}`;
        throw new TypeError(`Run ${idOf(run)} has no open wait "${name}"; ${others}`);
      }
      return await this.engine.signal(wait.id, { signalId, payload });
    });
  }

  cancel(run: RunRef): Promise<Run> {
    return this.#act(() => this.engine.cancel(idOf(run)));
  }

  retrigger(run: RunRef, options?: RetriggerOptions): Promise<TriggerResult> {
    return this.#act(() => this.engine.retrigger(idOf(run), options));
  }

  async advance(duration: Duration): Promise<void> {
    const ms = readDuration(duration, "The duration of advance()");
    await this.#moveTo(this.#system.clock.now + ms);
  }

  async advanceTo(date: Date | string): Promise<void> {
    const instant = toInstant(date);
    const { now } = this.#system.clock;
    if (instant < now) throw new RangeError(`${isoTime(instant)} has passed: it is ${isoTime(now)}`);
    await this.#moveTo(instant);
  }

  next(): Date | null {
    const { nextDueAt } = this.#system.clock;
    return nextDueAt === null ? null : new Date(nextDueAt);
  }

  async drain(): Promise<void> {
    await this.#ready();
    await this.#system.settle();
    for (let steps = 0;; steps++) {
      const open = await describeOpenRuns(this.store);
      if (open === "") return;
      if (steps < MAX_STEPS && await this.#system.step()) continue;
      const why = steps < MAX_STEPS ? "nothing is ever due" : `${MAX_STEPS} due instants have passed`;
      throw new Error(`drain() cannot end all runs, ${why}: ${open}`);
    }
  }

  expectRun(run: RunRef): RunExpectations {
    return new ExpectedRun(idOf(run), this.#system, () => this.#hasFailed = true);
  }

  fake<Input>(job: Job<Input>, stepName: string): FakeStep<Input> {
    return this.#system.fakes.of(job.name, stepName) as FakeStep<never> as FakeStep<Input>; // inputs of this job
  }

  async crash(options: { worker?: number } = {}): Promise<void> {
    checkOptionNames(options, { worker: true }, "crash()");
    const { worker } = options;
    await this.#ready();
    await this.#system.settle();
    const victims = this.#system.alive.filter(({ name }) => worker === undefined || name === `worker ${worker}`);
    if (victims.length === 0) throw new RangeError(`No worker ${worker} is alive`);
    for (const victim of victims) await this.#replace(victim);
    await this.#system.settle();
  }

  crashAt(stepName: string, moment: CrashMoment): void {
    this.#crashes.push({ stepName, moment });
    this.#system.faultAt = ({ name }, at, process) => {
      const next = this.#crashes.findIndex(({ stepName, moment }) => name === `record "${stepName}"` && at === moment);
      if (next === -1) return null;
      this.#crashes.splice(next, 1);
      // The process dies when this has returned.
      queueMicrotask(() => void this.#system.addProcess(process.jobs));
      return "dies";
    };
  }

  async deploy(jobs: Jobs): Promise<void> {
    await this.#ready();
    await this.#system.settle();
    const replaced = new Set(Object.values(jobs).flatMap(({ name, changes }) => [name, ...changes.aliases]));
    const kept = Object.entries(this.#jobs).filter(([, { name }]) => !replaced.has(name));
    this.#jobs = { ...Object.fromEntries(kept), ...jobs };
    const old = this.#system.alive;
    for (const process of old) {
      let hasStopped = false;
      const stopping = process.engine.stop().finally(() => hasStopped = true);
      do await this.#system.settle(); while (!hasStopped && await this.#system.step());
      await stopping;
      process.kill();
      this.#system.trace.add(process.name, "stops: other code is deployed");
    }
    await this.#startWorkers(old.length);
  }

  async addWorker(): Promise<void> {
    await this.#ready();
    await this.#startWorkers(1);
  }

  async readStream<T = Json>(run: RunRef, stream: Stream<T> | string): Promise<Jsonify<T>[]> {
    await this.#ready();
    const all: Jsonify<T>[] = [];
    const parts = this.engine.readStream(idOf(run), stream, { follow: false });
    for await (const { from, items } of parts) all.splice(from, Infinity, ...items);
    return all;
  }

  async exportHistory(run: RunRef, options?: ExportHistoryOptions): Promise<ExportedHistory> {
    await this.#ready();
    return await this.engine.exportHistory(idOf(run), options);
  }

  fakeDate(): Replaced {
    return replaceDate(() => this.#system.clock.now, (what) => this.#warnOutsideStep(what));
  }

  fakeChance(seed?: number): Replaced {
    return replaceChance(seed ?? this.#options.seed ?? 1, (what) => this.#warnOutsideStep(what));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#hasFailed) await this.#ready().then(() => this.#system.settle());
    const { workerErrors, fakes } = this.#system;
    this.#system.close();
    if (this.#hasFailed) return;
    if (workerErrors.length > 0) throw new AggregateError(workerErrors, `A worker has reported: ${workerErrors[0]}`);
    const [crash] = this.#crashes;
    if (crash !== undefined) throw new Error(`crashAt("${crash.stepName}", "${crash.moment}"): no such record came`);
    const [unused] = fakes.unused();
    if (unused !== undefined && this.#options.unusedFakes !== "ignore") throw new Error(unused);
  }

  async #moveTo(instant: number): Promise<void> {
    if (instant > LAST_INSTANT) throw new RangeError("The clock of a test does not go past the year 9999");
    await this.#ready();
    await this.#system.moveTo(instant);
  }

  /** Waits until the first workers have started. */
  async #ready(): Promise<void> {
    try {
      await this.#started;
    } catch (error) {
      this.#hasFailed = true;
      throw error;
    }
  }

  async #startWorkers(count: number): Promise<void> {
    for (let started = 0; started < count; started++) await this.#system.addProcess(this.#jobs);
    await this.#system.settle();
  }

  async #replace(victim: TestProcess): Promise<void> {
    victim.kill();
    this.#system.trace.add(victim.name, "DIES");
    await this.#system.addProcess(victim.jobs);
  }

  async #act<T>(act: () => Promise<T>): Promise<T> {
    await this.#ready();
    try {
      return await act();
    } finally {
      await this.#system.settle();
    }
  }

  #warnOutsideStep(what: string): void {
    const place = this.#system.place.getStore();
    if (place === undefined || place.stepName !== null) return;
    this.#system.warn(
      `Job "${place.jobName}" calls ${what} outside of steps: a replay gets another value. Call it in a step`,
    );
  }
}

function idOf(run: RunRef): string {
  const id = typeof run === "string" ? run : run?.id;
  if (typeof id === "string") return id;
  const isPromise = (run as unknown) instanceof Promise;
  const given = isPromise ? "a promise: await it" : kindOf(run);
  throw new TypeError(`A run is what trigger() has returned, or its id, not ${given}`);
}
