import { AssertionError } from "node:assert";
import { inspect, isDeepStrictEqual } from "node:util";
import type { EngineEvent, EventType, RunEvent } from "../model/event.ts";
import type { HoldCode } from "../model/hold.ts";
import { isoTime } from "../values/iso_time.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { toInstant } from "./test_clock.ts";
import { isLeased, type Run, type RunStatus } from "../model/run.ts";
import type { TestSystem } from "./test_system.ts";
import { getRun, getSteps } from "../store/reads.ts";

/**
 * What a test expects of a run. Each throws an `AssertionError` with `actual` and `expected` and the trace of the run, if
 * it is not so.
 */
export interface RunExpectations {
  /** It has completed; with an argument: its output is deeply equal to this. */
  completed(output?: unknown): Promise<void>;
  /** It has failed; its error contains a string or matches an expression; `step`: that step has failed it. */
  failed(error?: RegExp | string, options?: { step?: string }): Promise<void>;
  /** It was cancelled. */
  cancelled(): Promise<void>;
  /** It is parked on a wait of this name; `until`: the deadline of it, `null` for none. */
  waitsFor(name: string, options?: { until?: Date | string | null }): Promise<void>;
  /** It is parked on a sleep of this name; `until`: when the sleep ends. */
  sleeps(name: string, options?: { until?: Date | string }): Promise<void>;
  /** Another attempt at a step follows, for which it is parked or its worker waits; `at`: when that is due. */
  retries(step: string, options?: { at?: Date | string }): Promise<void>;
  /** It is held, for this reason. */
  held(code?: HoldCode): Promise<void>;
  /** It has recorded these steps, in this order. */
  steps(names: readonly string[]): Promise<void>;
  /** The function of a step was called so often. */
  executed(step: string, times: number): Promise<void>;
  /** These events of it were published, in this order, but for renewals of its lease. */
  told(types: readonly EventType[]): Promise<void>;
}

type Pause = Extract<RunEvent, { type: "run:waiting" }>;

/** What {@linkcode RunExpectations} of one run look at. */
export class ExpectedRun implements RunExpectations {
  readonly #runId: string;
  readonly #system: TestSystem;
  readonly #onFailure: () => void;

  /** @param onFailure Called before something is thrown. */
  constructor(runId: string, system: TestSystem, onFailure: () => void) {
    this.#runId = runId;
    this.#system = system;
    this.#onFailure = onFailure;
  }

  async completed(...expected: [output?: unknown]): Promise<void> {
    const run = await this.#withStatus("completed", "to be completed");
    if (expected.length === 0) return;
    if (!isDeepStrictEqual(run.output, expected[0])) this.#differs("has another output", run.output, expected[0]);
  }

  async failed(error?: RegExp | string, options: { step?: string } = {}): Promise<void> {
    checkOptionNames(options, { step: true }, "failed()");
    if (error !== undefined && typeof error !== "string" && !(error instanceof RegExp)) {
      throw new TypeError("failed() takes a string or a regular expression");
    }
    const { step } = options;
    const run = await this.#withStatus("failed", "to have failed");
    const message = run.error ?? "";
    const fits = error === undefined ||
      (typeof error === "string" ? message.includes(error) : message.search(error) >= 0);
    if (!fits) this.#differs("has failed of something else", message, error);
    if (step !== undefined && run.failedStepName !== step) {
      this.#differs("has failed elsewhere", run.failedStepName, step);
    }
  }

  async cancelled(): Promise<void> {
    await this.#withStatus("cancelled", "to be cancelled");
  }

  async waitsFor(name: string, options: { until?: Date | string | null } = {}): Promise<void> {
    checkOptionNames(options, { until: true }, "waitsFor()");
    const { until } = options;
    const expected = `to wait for "${name}"`;
    const pause = await this.#parkedOn(expected, (pause) => pause.waitId !== null && pause.waitName === name);
    if (until !== undefined) this.#checkInstant(`waits for "${name}"`, pause.deadlineAt, until);
  }

  async sleeps(name: string, options: { until?: Date | string } = {}): Promise<void> {
    checkOptionNames(options, { until: true }, "sleeps()");
    const { until } = options;
    const isIt = (pause: Pause) => pause.waitId === null && pause.waitName === name && !this.#isRetry(pause);
    const pause = await this.#parkedOn(`to sleep in "${name}"`, isIt);
    if (until !== undefined) this.#checkInstant(`sleeps in "${name}"`, pause.deadlineAt, until);
  }

  async retries(step: string, options: { at?: Date | string } = {}): Promise<void> {
    checkOptionNames(options, { at: true }, "retries()");
    const { at } = options;
    const isIt = (pause: Pause) => pause.waitId === null && pause.waitName === step && this.#isRetry(pause);
    const dueAt = await this.#retryInWorker(step) ?? (await this.#parkedOn(`to retry "${step}"`, isIt)).deadlineAt;
    if (at !== undefined) this.#checkInstant(`retries "${step}"`, dueAt, at);
  }

  async held(code?: HoldCode): Promise<void> {
    const run = await this.#run();
    const hold = await this.#system.store.getHold(this.#runId);
    if (hold === null) return await this.#isElsewhere(run, "to be held");
    if (code !== undefined && hold.code !== code) this.#differs("is held for another reason", hold.code, code);
  }

  async steps(names: readonly string[]): Promise<void> {
    await this.#run();
    const steps = await getSteps(this.#system.store, this.#runId);
    const recorded = steps.map(({ name }) => name);
    if (!isDeepStrictEqual(recorded, [...names])) this.#differs("has recorded other steps", recorded, names);
  }

  async executed(step: string, times: number): Promise<void> {
    await this.#run();
    const count = this.#system.timesExecuted(this.#runId, step);
    if (count !== times) this.#differs(`has called the function of "${step}" ${count} times`, count, times);
  }

  async told(types: readonly EventType[]): Promise<void> {
    await this.#run();
    const told = this.#events().map(({ type }) => type).filter((type) => type !== "run:lease-renewed");
    if (!isDeepStrictEqual(told, [...types])) this.#differs("has published other events", told, types);
  }

  async #run(): Promise<Run> {
    const run = await getRun(this.#system.store, this.#runId);
    if (run === null) throw new TypeError(`There is no run "${this.#runId}"`);
    return run;
  }

  async #withStatus(status: RunStatus, expected: string): Promise<Run> {
    const run = await this.#run();
    return run.status === status ? run : await this.#isElsewhere(run, expected);
  }

  async #parkedOn(expected: string, isIt: (pause: Pause) => boolean): Promise<Pause> {
    const run = await this.#run();
    const pause = run.status === "waiting" ? this.#pauses().find(isIt) : undefined;
    return pause ?? await this.#isElsewhere(run, expected);
  }

  /** When another attempt is due that the worker waits for: nothing is parked for up to a second. */
  async #retryInWorker(step: string): Promise<string | null> {
    if (!isLeased((await this.#run()).status)) return null;
    const last = this.#events().findLast((event) => "stepIndex" in event && event.stepName === step);
    return last?.type === "step:fail" ? last.retryAt : null;
  }

  async #isElsewhere(run: Run, expected: string): Promise<never> {
    const hold = await this.#system.store.getHold(run.id);
    const state = hold === null ? this.#stateOf(run) : `is held (${hold.code}): ${hold.message}`;
    const actual = hold === null ? run.status : `held: ${hold.code}`;
    return this.#fail(`${state}, expected it ${expected}`, actual, expected.replace(/^to (be |have )?/, ""));
  }

  #stateOf(run: Run): string {
    if (run.status === "waiting") return this.#pauses().map((pause) => this.#describe(pause)).join(" and ");
    if (run.status === "failed") return `has failed: ${run.error}`;
    if (run.status === "completed") return `has completed with ${JSON.stringify(run.output)}`;
    return run.status === "cancelled" ? "was cancelled" : `is ${run.status}`;
  }

  #describe(pause: Pause): string {
    const { waitId, waitName, deadlineAt } = pause;
    const until = deadlineAt === null ? "" : ` until ${deadlineAt}`;
    if (waitId !== null) return `waits for "${waitName}"${until}`;
    return this.#isRetry(pause) ? `retries "${waitName}"${until}` : `sleeps in "${waitName}"${until}`;
  }

  #checkInstant(what: string, actual: string | null, expected: Date | string | null): void {
    const instant = expected === null ? null : isoTime(toInstant(expected));
    if (actual !== instant) this.#differs(`${what} until ${actual ?? "a signal comes"}`, actual, instant);
  }

  #events(): RunEvent[] {
    return this.#system.events.filter((event: EngineEvent): event is RunEvent =>
      "runId" in event && event.runId === this.#runId
    );
  }

  /** What the run is parked on. */
  #pauses(): Pause[] {
    const events = this.#events();
    const begun = events.findLastIndex(({ type }) => type === "run:start");
    return events.slice(begun + 1).filter((event): event is Pause => event.type === "run:waiting");
  }

  /** Whether a pause is the delay of a step. */
  #isRetry({ waitName, deadlineAt }: Pause): boolean {
    return this.#events().some((event) =>
      event.type === "step:fail" && event.stepName === waitName && event.retryAt !== null &&
      event.retryAt === deadlineAt
    );
  }

  /** Both values are in the message, too: the test runner of Deno shows nothing else. */
  #differs(what: string, actual: unknown, expected: unknown): never {
    const values = [["expected", expected], ["found   ", actual]].map(([name, value]) =>
      `  ${name}  ${inspect(value, { depth: null }).replaceAll("\n", "\n            ")}`
    );
    this.#fail([`${what}\n`, ...values].join("\n"), actual, expected);
  }

  #fail(what: string, actual: unknown, expected: unknown): never {
    this.#onFailure();
    const { jobName } = this.#events()[0] ?? { jobName: "?" };
    const message = `Run ${this.#runId} of "${jobName}" ${what}\n\n${this.#system.trace.show(this.#runId)}`;
    throw new AssertionError({ message, actual, expected, operator: "expectRun" });
  }
}
