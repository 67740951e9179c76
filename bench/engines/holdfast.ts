import { createEngine, defineJob, type Engine, SqliteStore, type StepContext } from "@holdfast/jobs";
import { z } from "zod";
import { Counter } from "../counter.ts";
import type { BenchEngine, BenchInput, BenchJob, OpenOptions } from "../engine.ts";

/** Opens ours, with default settings apart from the concurrency. */
export async function openHoldfast({ path, jobs, concurrency }: OpenOptions): Promise<HoldfastBench> {
  const store = await SqliteStore.open(path);
  const engine = createEngine({
    store,
    jobs: Object.fromEntries(Object.entries(jobs).map(([name, job]) => [name, toJob(name, job)])),
    ...(concurrency === undefined ? {} : { worker: { concurrency } }),
  });
  await engine.migrate();
  return new HoldfastBench(engine, store);
}

/** The input of all jobs. */
export const benchInput: z.ZodType<BenchInput> = z.object({ n: z.number() });

function toJob(name: string, job: BenchJob) {
  return defineJob({
    name,
    input: benchInput,
    run: (step, input) => job(toTools(step), input),
  });
}

function toTools(step: StepContext) {
  return {
    step: <T>(name: string, work: () => T) => step.run(name, work),
    sleep: (name: string, ms: number) => step.sleep(name, ms),
    // A run that sleeps is parked, and claimed again with its history.
    replay: () => step.sleep("replay", 1),
  };
}

/** Ours, behind the calls that all engines have. */
export class HoldfastBench implements BenchEngine {
  /** The engine itself, for what only ours can do. */
  readonly engine: Engine;
  readonly #store: SqliteStore;
  readonly #completed = new Counter();
  #claimedAt: number | null = null;

  /** Takes over both, and ends them when it is disposed of. */
  constructor(engine: Engine, store: SqliteStore) {
    this.engine = engine;
    this.#store = store;
    engine.on("run:complete", () => this.#completed.add());
    const claim = store.claim.bind(store);
    store.claim = async (request) => {
      const startedAt = performance.now();
      const result = await claim(request);
      if (result.claims.length > 0) this.#claimedAt = startedAt;
      return result;
    };
  }

  trigger(job: string, input: BenchInput): Promise<unknown> {
    return this.#handle(job).trigger(input);
  }

  batchTrigger(job: string, inputs: readonly BenchInput[]): Promise<unknown> {
    return this.#handle(job).batchTrigger(inputs.map((input) => ({ input })));
  }

  triggerAndWait(job: string, input: BenchInput): Promise<unknown> {
    return this.#handle(job).triggerAndWait(input);
  }

  start(): Promise<void> {
    return this.engine.start();
  }

  completed(count: number): Promise<void> {
    return this.#completed.reached(count);
  }

  get claimedAt(): number | null {
    return this.#claimedAt;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.engine.stop({ timeout: 0 });
    await this.#store.close();
  }

  #handle(job: string) {
    return this.engine.jobs[job]!;
  }
}

/** What a worker of a measurement says of itself. */
export const BENCH_WORKER = {
  name: null,
  hostname: null,
  pid: null,
  runtime: "deno",
  version: "0",
  deployment: null,
  concurrency: 1,
};
