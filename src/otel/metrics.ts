import type { Counter, Histogram, Meter } from "@opentelemetry/api";
import type { Around, AroundFunction, ExecutionInfo, ExecutionOutcome } from "../model/around.ts";
import type { Listen } from "../events/hub.ts";

// The bounds of the histograms, in seconds.
const BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600, 86_400];
// How many jobs have numbers of their own.
const MAX_JOBS = 100;
// The job of all others.
const OTHER = "other";

/** Counts what an engine does. The names of the metrics are in `docs/guides/operate.md`. */
export class Metrics {
  readonly #triggers: Counter;
  readonly #ended: Counter;
  readonly #executions: Counter;
  readonly #steps: Counter;
  readonly #waits: Counter;
  readonly #lost: Counter;
  readonly #startDelay: Histogram;
  readonly #runDuration: Histogram;
  readonly #stepDuration: Histogram;
  readonly #jobs = new Set<string>();

  constructor(meter: Meter) {
    const seconds = (name: string, description: string) =>
      meter.createHistogram(name, { description, unit: "s", advice: { explicitBucketBoundaries: BOUNDS } });
    const counter = (name: string, description: string, unit: string) =>
      meter.createCounter(name, { description, unit });
    this.#triggers = counter("holdfast.triggers", "Runs that were asked for", "{run}");
    this.#ended = counter("holdfast.runs.ended", "Runs that ended", "{run}");
    this.#executions = counter("holdfast.executions", "Executions of runs", "{execution}");
    this.#steps = counter("holdfast.steps", "Attempts at steps", "{attempt}");
    this.#waits = counter("holdfast.waits.resolved", "Waits after whose end runs resumed", "{wait}");
    this.#lost = counter("holdfast.leases.lost", "Leases that were lost during an execution", "{lease}");
    this.#startDelay = seconds("holdfast.start.delay", "From when a run was due to its first start");
    this.#runDuration = seconds("holdfast.run.duration", "From the first start of a run to its end, pauses included");
    this.#stepDuration = seconds("holdfast.step.duration", "Attempts at steps");
  }

  /** Counts the runs that end in this process, by a worker or a cancel. */
  listen(on: Listen): void {
    on("run:complete", ({ jobName }) => this.#ended.add(1, { job: this.#job(jobName), status: "completed" }));
    on("run:fail", ({ jobName }) => this.#ended.add(1, { job: this.#job(jobName), status: "failed" }));
    on("run:cancel", ({ jobName }) => this.#ended.add(1, { job: this.#job(jobName), status: "cancelled" }));
  }

  /** What is counted around the work of the engine. */
  get around(): Around {
    return {
      trigger: async ({ jobName }, next) => {
        const outcome = await next();
        const runs = outcome.kind === "triggered" ? outcome.runs : [];
        for (const { disposition } of runs) this.#triggers.add(1, { job: this.#job(jobName), disposition });
        return outcome;
      },
      execution: this.#execution,
      step: async ({ execution: { jobName } }, next) => {
        const since = performance.now();
        const outcome = await next();
        const job = this.#job(jobName);
        this.#steps.add(1, { job, outcome: outcome.kind });
        if (outcome.kind !== "cancelled") this.#stepDuration.record((performance.now() - since) / 1_000, { job });
        return outcome;
      },
    };
  }

  readonly #execution: AroundFunction<ExecutionInfo, ExecutionOutcome> = async (info, next) => {
    const since = performance.now();
    const job = this.#job(info.jobName);
    for (const { kind, outcome } of info.resumedFrom) if (kind === "wait") this.#waits.add(1, { job, outcome });
    if (info.startDelayMs !== null) this.#startDelay.record(info.startDelayMs / 1_000, { job });
    const outcome = await next();
    this.#executions.add(1, { job, outcome: outcome.kind });
    if (outcome.kind === "lost") this.#lost.add(1);
    if (outcome.kind === "completed" || outcome.kind === "failed") {
      this.#runDuration.record((info.startedAgoMs + performance.now() - since) / 1_000, { job });
    }
    return outcome;
  };

  /** The name of a job; all after the first hundred share one, so that the number of series stays bounded. */
  #job(name: string): string {
    if (!this.#jobs.has(name) && this.#jobs.size >= MAX_JOBS) return OTHER;
    this.#jobs.add(name);
    return name;
  }
}
