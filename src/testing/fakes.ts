import { isoTime } from "../values/iso_time.ts";
import { withoutOccurrence } from "../values/name.ts";
import type { StepCall } from "../execution/surroundings.ts";
import { checkOptionNames } from "../values/option_names.ts";

/** A call of a faked step of a job with this input. */
export interface FakeCall<Input = unknown> {
  /** The run. */
  runId: string;
  /** The name of the step, with its occurrence. */
  stepName: string;
  /** The input of the job, as it was triggered. */
  input: Input;
  /** The key that the step's function receives. */
  idempotencyKey: string;
  /** The number of the attempt, from 1. */
  attempt: number;
  /** When it was called: ISO 8601 in UTC, by the clock of the test. */
  at: string;
  /** What it returned, if it has returned. */
  result?: unknown;
}

/**
 * A step whose function is replaced. Behaviours follow one another: one with `times` is used so often, then the next
 * one; after the last, the real function is called. `times` is a whole number of 1 or more. Default: without an end.
 */
export interface FakeStep<Input = unknown> {
  /** The calls so far, in order. */
  readonly calls: readonly FakeCall<Input>[];
  /** Returns a value, as a function would: it takes the same way through JSON. */
  returns(value: unknown, options?: { times?: number }): this;
  /** Calls another function. */
  does(work: (call: FakeCall<Input>) => unknown, options?: { times?: number }): this;
  /** Throws. */
  throws(error: unknown, options?: { times?: number }): this;
  /** Never settles. */
  hangs(options?: { times?: number }): this;
  /** Calls the real function. */
  real(options?: { times?: number }): this;
}

type Behaviour = { left: number } & ({ kind: "work"; work: (call: FakeCall) => unknown } | { kind: "hang" | "real" });

/** How a call of a step goes on. */
export type FakedCall = { hangs: boolean; work: () => unknown };

class Fake implements FakeStep {
  readonly calls: FakeCall[] = [];
  readonly #behaviours: Behaviour[] = [];

  returns(value: unknown, options?: Times): this {
    return this.#add({ kind: "work", work: () => value, left: timesOf(options, "returns()") });
  }

  does(work: (call: FakeCall) => unknown, options?: Times): this {
    return this.#add({ kind: "work", work, left: timesOf(options, "does()") });
  }

  throws(error: unknown, options?: Times): this {
    const work = () => {
      throw error;
    };
    return this.#add({ kind: "work", work, left: timesOf(options, "throws()") });
  }

  hangs(options?: Times): this {
    return this.#add({ kind: "hang", left: timesOf(options, "hangs()") });
  }

  real(options?: Times): this {
    return this.#add({ kind: "real", left: timesOf(options, "real()") });
  }

  #add(behaviour: Behaviour): this {
    // One without an end would never be followed: the newer one replaces it.
    if (this.#behaviours.at(-1)?.left === Infinity) this.#behaviours.pop();
    this.#behaviours.push(behaviour);
    return this;
  }

  /** Takes note of a call, and says how it goes on. */
  answer({ claim, stepName, tools, work }: StepCall, input: unknown, now: number): FakedCall {
    const { idempotencyKey, attempt } = tools;
    const call: FakeCall = { runId: claim.run.id, stepName, input, idempotencyKey, attempt, at: isoTime(now) };
    this.calls.push(call);
    const behaviour = this.#next();
    if (behaviour?.kind === "hang") return { hangs: true, work: () => new Promise<never>(() => {}) };
    const perform = behaviour?.kind === "work" ? () => behaviour.work(call) : work;
    return {
      hangs: false,
      work: async () => call.result = await perform(),
    };
  }

  #next(): Behaviour | undefined {
    while (this.#behaviours.length > 0) {
      const [behaviour] = this.#behaviours;
      if (behaviour!.left-- > 0) return behaviour;
      this.#behaviours.shift();
    }
    return undefined;
  }
}

interface Times {
  times?: number;
}

function timesOf(options: Times = {}, subject: string): number {
  checkOptionNames(options, { times: true }, subject);
  const { times = Infinity } = options;
  if ((Number.isInteger(times) && times >= 1) || times === Infinity) return times;
  throw new RangeError(`times must be a whole number of 1 or more, not ${times}`);
}

/** All fakes of a test. */
export class Fakes {
  readonly #fakes = new Map<string, { jobName: string; stepName: string; fake: Fake }>();
  readonly #asked = new Map<string, Set<string>>();

  /** The fake of a step: of all its occurrences, or of one (`insert#2`). */
  of(jobName: string, stepName: string): FakeStep {
    const key = JSON.stringify([jobName, stepName]);
    const known = this.#fakes.get(key) ?? { jobName, stepName, fake: new Fake() };
    this.#fakes.set(key, known);
    return known.fake;
  }

  /** How the call of a step's function goes on. */
  answer(call: StepCall, input: unknown, now: number): FakedCall {
    const { stepName, work, claim: { run: { jobName } } } = call;
    const asked = this.#asked.get(jobName) ?? new Set();
    this.#asked.set(jobName, asked.add(withoutOccurrence(stepName)));
    const found = this.#fakes.get(JSON.stringify([jobName, stepName])) ??
      this.#fakes.get(JSON.stringify([jobName, withoutOccurrence(stepName)]));
    return found === undefined ? { hangs: false, work } : found.fake.answer(call, input, now);
  }

  /** What is to be said of fakes that no step has used. */
  unused(): string[] {
    return [...this.#fakes.values()].filter(({ fake }) => fake.calls.length === 0).map(({ jobName, stepName }) => {
      const asked = [...this.#asked.get(jobName) ?? []].toSorted();
      const others = asked.length === 0 ? "no step was" : `asked for were: ${asked.join(", ")}`;
      return `Step "${stepName}" of "${jobName}" has a fake and was never asked for; ${others}`;
    });
  }
}
