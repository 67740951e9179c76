import type { Meter } from "@opentelemetry/api";
import type { Listen } from "../events/hub.ts";
import type { Around } from "../model/around.ts";
import { SECONDS } from "../statistics/process_metrics.ts";

// How many jobs have numbers of their own.
const MAX_JOBS = 100;
// The job of all others.
const OTHER = "other";

/**
 * Counts what an engine does: the runs that end in this process, by a worker or a cancel, and what is done in the functions
 * that it returns. The names of the metrics are in `docs/guides/operate.md`.
 */
export function countedAround(meter: Meter, on: Listen): Around {
  const seconds = (name: string, description: string) =>
    meter.createHistogram(name, { description, unit: "s", advice: { explicitBucketBoundaries: [...SECONDS] } });
  const counter = (name: string, description: string, unit: string) => meter.createCounter(name, { description, unit });
  const triggers = counter("holdfast.triggers", "Runs that were asked for", "{run}");
  const ended = counter("holdfast.runs.ended", "Runs that ended", "{run}");
  const executions = counter("holdfast.executions", "Executions of runs", "{execution}");
  const steps = counter("holdfast.steps", "Attempts at steps", "{attempt}");
  const waits = counter("holdfast.waits.resolved", "Waits after whose end runs resumed", "{wait}");
  const lost = counter("holdfast.leases.lost", "Leases that were lost during an execution", "{lease}");
  const startDelay = seconds("holdfast.start.delay", "From when a run was due to its first start");
  const runDuration = seconds("holdfast.run.duration", "From the first start of a run to its end, pauses included");
  const stepDuration = seconds("holdfast.step.duration", "Attempts at steps");
  const jobs = new Set<string>();

  /** The name of a job; all after the first hundred share one, so that the number of series stays bounded. */
  const jobOf = (name: string): string => {
    if (!jobs.has(name) && jobs.size >= MAX_JOBS) return OTHER;
    jobs.add(name);
    return name;
  };

  on("run:complete", ({ jobName }) => ended.add(1, { job: jobOf(jobName), status: "completed" }));
  on("run:fail", ({ jobName }) => ended.add(1, { job: jobOf(jobName), status: "failed" }));
  on("run:cancel", ({ jobName }) => ended.add(1, { job: jobOf(jobName), status: "cancelled" }));
  return {
    trigger: async ({ jobName }, next) => {
      const outcome = await next();
      const runs = outcome.kind === "triggered" ? outcome.runs : [];
      for (const { disposition } of runs) triggers.add(1, { job: jobOf(jobName), disposition });
      return outcome;
    },
    execution: async (info, next) => {
      const since = performance.now();
      const job = jobOf(info.jobName);
      for (const { kind, outcome } of info.resumedFrom) if (kind === "wait") waits.add(1, { job, outcome });
      if (info.startDelayMs !== null) startDelay.record(info.startDelayMs / 1_000, { job });
      const outcome = await next();
      executions.add(1, { job, outcome: outcome.kind });
      if (outcome.kind === "lost") lost.add(1);
      if (outcome.kind === "completed" || outcome.kind === "failed") {
        runDuration.record((info.startedAgoMs + performance.now() - since) / 1_000, { job });
      }
      return outcome;
    },
    step: async ({ execution: { jobName } }, next) => {
      const since = performance.now();
      const outcome = await next();
      const job = jobOf(jobName);
      steps.add(1, { job, outcome: outcome.kind });
      if (outcome.kind !== "cancelled") stepDuration.record((performance.now() - since) / 1_000, { job });
      return outcome;
    },
  };
}
