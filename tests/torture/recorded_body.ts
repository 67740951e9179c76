import type { RetryPolicy, StepContext } from "../../mod.ts";
import { Chance } from "../support/chance.ts";
import { type Fact, outcomeOf, valueOf } from "./fact.ts";

/** What a run is triggered with. */
export interface TortureInput {
  /** Tells the trigger apart from all others; a retriggered run has that of the old one. */
  token: string;
  /** What decides how long its steps take, which of them fail, and the like. */
  seed: number;
  /** The concurrency key of the run. */
  key: string | null;
}

/** What a body is given: see `knownStore()`. */
export interface GivenInput extends TortureInput {
  /** Of the lease under which the body was called. */
  generation: number;
}

/** Something that a body saw: the end of a step or of a wait, as in the ledger. */
export type Seen = ["step" | "wait", name: string, value: string];

/** What a run answers: all that its body saw. */
export interface TortureOutput {
  /** As in the input. */
  token: string;
  /** In the order in which it was seen. */
  seen: Seen[];
}

/** How a step of a torture job behaves. */
export interface RecordedStepOptions {
  /** How many of its first attempts fail. */
  failures?: number;
  /** Given to the engine. */
  retry?: RetryPolicy;
}

/** What the workers share with the bodies that they execute. */
export interface RecordedBodyDeps {
  /** Writes to the ledger. */
  write: (fact: Fact) => void;
  /** Blocks the event loop for so many milliseconds. */
  block: (ms: number) => void;
  /** How long a lease lasts, in milliseconds. */
  leaseMs: number;
}

const LONGEST_STEP_MS = 60;
const BLOCKS = 0.02;

/** The body of a run that records in the ledger everything that it does and sees. */
export class RecordedBody {
  readonly seen: Seen[] = [];
  readonly chance: Chance;
  readonly #step: StepContext;
  readonly #input: GivenInput;
  readonly #deps: RecordedBodyDeps;
  readonly #uses = new Map<string, number>();

  /** Begins. */
  constructor(step: StepContext, input: GivenInput, deps: RecordedBodyDeps) {
    this.#step = step;
    this.#input = input;
    this.#deps = deps;
    this.chance = new Chance(input.seed);
    deps.write({ is: "begin", ...this.#who, key: input.key });
  }

  get #who(): { pid: number; run: string; generation: number } {
    return { pid: Deno.pid, run: this.#step.runId, generation: this.#input.generation };
  }

  /**
   * Executes a step that answers something else each time.
   *
   * @throws {StepError} All its attempts have failed, which was seen, too.
   */
  async step(givenName: string, { failures = 0, retry }: RecordedStepOptions = {}): Promise<void> {
    const use = (this.#uses.get(givenName) ?? 0) + 1;
    this.#uses.set(givenName, use);
    const name = use === 1 ? givenName : `${givenName}#${use}`;
    let isCalled = false;
    let value: string;
    try {
      const output = await this.#step.run(givenName, ({ attempt, abortSignal }) => {
        isCalled = true;
        return this.#work(name, attempt, attempt <= failures, abortSignal);
      }, retry === undefined ? {} : { retry });
      value = valueOf({ output });
    } catch (error) {
      value = valueOf({ error: (error as Error).message });
      this.#see("step", name, value);
      if (!isCalled) this.#deps.write({ is: "replay", ...this.#who, step: name, value });
      throw error;
    }
    this.#see("step", name, value);
    if (!isCalled) this.#deps.write({ is: "replay", ...this.#who, step: name, value });
  }

  async #work(step: string, attempt: number, fails: boolean, abortSignal: AbortSignal): Promise<unknown> {
    const { write, block, leaseMs } = this.#deps;
    const { seed, generation } = this.#input;
    // Not the same in the next execution: a step that always blocked longer than the lease would never be recorded.
    const chance = new Chance(seed, step, attempt, generation);
    write({ is: "start", ...this.#who, step, attempt });
    if (chance.happens(BLOCKS)) block(leaseMs * chance.between(1.1, 1.8));
    else await pause(chance.int(LONGEST_STEP_MS), chance.happens(0.5) ? abortSignal : undefined);
    const mark = crypto.randomUUID();
    if (fails) {
      write({ is: "done", ...this.#who, step, attempt, value: valueOf({ error: mark }) });
      throw new Error(mark);
    }
    const output = chance.happens(0.5) ? mark : { mark, list: [chance.int(9), null, "ü"] };
    write({ is: "done", ...this.#who, step, attempt, value: valueOf({ output }) });
    return output;
  }

  /** Waits for a signal, or for a deadline. */
  async wait(name: string, timeout?: number): Promise<void> {
    const options = timeout === undefined ? {} : { timeout };
    this.#seeOutcome(name, await this.#step.wait(name, options));
  }

  /** Waits for a signal that can come before the run pauses. */
  async preparedWait(name: string, between: () => Promise<void>): Promise<void> {
    const wait = await this.#step.prepareWait(name, { metadata: { token: this.#input.token } });
    await between();
    this.#seeOutcome(name, await this.#step.waitFor(wait));
  }

  #seeOutcome(wait: string, result: Parameters<typeof outcomeOf>[0]): void {
    const value = outcomeOf(result);
    this.#see("wait", wait, value);
    this.#deps.write({ is: "outcome", ...this.#who, wait, value });
  }

  #see(...seen: Seen): void {
    this.seen.push(seen);
  }

  /**
   * Notes that the body is about to return or to throw, and makes the output of the run. Takes its time before, like a
   * body that calculates something outside of any step: so its lease can be lost after its last step, too.
   */
  async end(): Promise<TortureOutput> {
    const { block, leaseMs } = this.#deps;
    const chance = new Chance(this.#input.seed, "end", this.#input.generation);
    if (chance.happens(BLOCKS)) block(leaseMs * chance.between(1.1, 1.8));
    else if (chance.happens(0.5)) await pause(chance.int(LONGEST_STEP_MS));
    this.#deps.write({ is: "end", ...this.#who });
    return { token: this.#input.token, seen: this.seen };
  }
}

async function pause(ms: number, abortSignal?: AbortSignal): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
  abortSignal?.throwIfAborted();
}
