import { defineJob, type Job, type RetryPolicy, type StepContext } from "../../../../mod.ts";
import { anything } from "../../../processes/anything.ts";

/** The input of a run of the storm. */
export interface StormInput {
  /** Which trigger it was, from 0. */
  n: number;
  /** The maximum time that a step takes, in milliseconds. */
  stepMs: number;
}

/** How many steps runs of `keyed` and of `plain` have. */
export const STEPS = 5;
/** How many runs of `limited` are executed at once. */
export const LIMIT = 3;
/** How many runs of `rated` start in a period. */
export const RATE = { limit: 10, period: 1_000 };
/** How many children a run of `parent` has beside the first one. */
export const CHILDREN = 3;
/** The schedule fires each second. */
export const TICKS = { cron: "* * * * * *", catchUp: "all", overlap: "allow" } as const;

/** Writes down what a body does. */
export type Tell = (...words: (string | number)[]) => void;

/** The output of `asking`. */
export interface Answered {
  before: string;
  /** The payload of the signal. */
  answer: unknown;
  retried: string;
}

/** The output of `parent`. */
export interface Family {
  first: { runId: string; value: string };
  others: { runId: string; value: string }[];
}

const RETRY: RetryPolicy = { maxAttempts: 4, delay: 20 };
// Longer than a second: such a retry parks the run.
const PARKING_RETRY: RetryPolicy = { maxAttempts: 3, delay: 1_050, jitter: 0.04 };

type Body<Output> = (body: StormBody, input: StormInput, step: StepContext) => Promise<Output>;

/** The jobs of the storm, whose bodies write down what they do. */
export function stormJobs(version: number, tell: Tell) {
  const job = <Output>(name: string, run: Body<Output>, options: object = {}): Job<StormInput, Output> =>
    defineJob({
      name,
      input: anything<StormInput>(),
      ...options,
      run: (step, input) => run(new StormBody(step, input, tell), input, step),
    }) as Job<StormInput, Output>;

  const child = job("child", async (body, _, { runId }) => ({ runId, value: await body.step("work") }));
  return {
    /** One run of each key at a time, in their order. */
    keyed: job("keyed", (body) => body.steps()),
    /** Of one version, and with a sleep. */
    plain: job("plain", async (body, _, step) => {
      tell("version", step.runId, version);
      const values = await body.steps();
      await step.sleep("sleep", 100);
      return values;
    }, { version }),
    /** Waits for a signal, and has steps that fail at first. */
    asking: job("asking", async (body, { n }, step): Promise<Answered> => {
      const before = await body.step("before");
      const { outcome, ...signal } = await step.wait("answer");
      const retried = await body.step("retried", { failures: 1, retry: n % 2 === 0 ? RETRY : PARKING_RETRY });
      return { before, answer: outcome === "signal" ? (signal as { payload: unknown }).payload : outcome, retried };
    }),
    /** Limited, with priorities and fairness keys. */
    limited: job("limited", (body) => body.step("work"), { limits: { concurrency: LIMIT } }),
    /** Of which only so many start in a period. */
    rated: job("rated", (body) => body.step("work"), { limits: { rate: RATE } }),
    child,
    /** Has children. */
    parent: job("parent", async (_, { n, stepMs }, step): Promise<Family> => {
      const first = await step.invoke("first", child, { n, stepMs });
      const others = await step.invokeAll(
        "others",
        child,
        Array.from({ length: CHILDREN }, () => ({ input: { n, stepMs } })),
      );
      return {
        first,
        others: others.map((other) => {
          if (other.status !== "completed") throw new Error(`A child is ${other.status}: ${other.error}`);
          return other.output;
        }),
      };
    }),
    /** Triggered by a schedule. */
    tick: job("tick", (body) => body.step("tick")),
  };
}

/** The body of a run that writes down everything that it does. */
class StormBody {
  readonly #step: StepContext;
  readonly #input: StormInput;
  readonly #tell: Tell;

  constructor(step: StepContext, input: StormInput, tell: Tell) {
    this.#step = step;
    this.#input = input;
    this.#tell = tell;
    tell("begin", step.runId, step.execution);
  }

  /** Executes some steps. */
  async steps(): Promise<string[]> {
    const values: string[] = [];
    for (let n = 0; n < STEPS; n++) values.push(await this.step(`step-${n}`));
    return values;
  }

  /** Executes a step that returns another value each time. Its first attempts fail. */
  async step(name: string, { failures = 0, retry = {} as RetryPolicy } = {}): Promise<string> {
    const { runId, execution } = this.#step;
    const value = await this.#step.run(name, async ({ attempt }) => {
      this.#tell("start", runId, name, execution);
      const { stepMs } = this.#input;
      if (stepMs > 0) await new Promise((resolve) => setTimeout(resolve, Math.random() * stepMs));
      if (attempt <= failures) throw new Error("This attempt always fails");
      return crypto.randomUUID();
    }, { retry });
    this.#tell("ack", runId, name, execution, value);
    return value;
  }
}
