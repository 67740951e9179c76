import assert from "node:assert/strict";
import { metrics } from "@opentelemetry/api";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { otel } from "../../src/otel/mod.ts";
import { forEachStore } from "../support/stores/for_each_store.ts";
import { aJob, echo, fail } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

/** Keeps the metrics of a test. */
function keepMetrics() {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 31 - 1 });
  const provider = new MeterProvider({ readers: [reader] });
  metrics.disable(); // that of the test before
  metrics.setGlobalMeterProvider(provider);
  return {
    /** All counters as `name{label=value,...}`, and how often each histogram was recorded to. */
    async read(): Promise<Record<string, unknown>> {
      const { resourceMetrics: { scopeMetrics } } = await reader.collect();
      const points = scopeMetrics.flatMap((scope) =>
        scope.metrics.flatMap(({ descriptor: { name, unit }, dataPoints }) =>
          dataPoints.map(({ attributes, value }) => {
            const labels = Object.entries(attributes).map(([label, text]) => `${label}=${text}`).join(",");
            const isHistogram = typeof value === "object";
            return [`${name}{${labels}}${isHistogram ? ` ${unit}` : ""}`, isHistogram ? value.count : value];
          })
        )
      );
      return Object.fromEntries(points);
    },
    [Symbol.asyncDispose]: () => provider.shutdown(),
  };
}

forEachStore("otel() counts triggers, executions, steps, waits and ends by job", async ({ store, host }) => {
  await using kept = keepMetrics();
  const job = aJob(async (step) => {
    await step.run("read", ({ attempt }) => {
      if (attempt === 1) throw new Error("again");
    }, { retry: { maxAttempts: 2, delay: 0 } });
    await step.wait("review");
  });
  const engine = createEngine({ store, host, jobs: { job, fail, echo } });
  engine.use(otel());

  const { id } = await engine.trigger(job, {}, { idempotencyKey: "once" });
  await engine.trigger(job, {}, { idempotencyKey: "once" });
  await engine.trigger(fail, {});
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await engine.signal(wait!.id, { signalId: "s", payload: null });
  await engine.runUntilIdle();
  await engine.cancel((await engine.trigger(echo, {}, { delay: 60_000 })).id);

  assert.deepEqual(await kept.read(), {
    "holdfast.triggers{job=job,disposition=created}": 1,
    "holdfast.triggers{job=job,disposition=idempotent}": 1,
    "holdfast.triggers{job=fail,disposition=created}": 1,
    "holdfast.triggers{job=echo,disposition=created}": 1,
    "holdfast.runs.ended{job=fail,status=failed}": 1,
    "holdfast.runs.ended{job=job,status=completed}": 1,
    "holdfast.runs.ended{job=echo,status=cancelled}": 1,
    "holdfast.executions{job=job,outcome=waiting}": 1,
    "holdfast.executions{job=fail,outcome=failed}": 1,
    "holdfast.executions{job=job,outcome=completed}": 1,
    "holdfast.steps{job=job,outcome=retried}": 1,
    "holdfast.steps{job=job,outcome=completed}": 1,
    "holdfast.waits.resolved{job=job,outcome=signal}": 1,
    "holdfast.start.delay{job=job} s": 1,
    "holdfast.start.delay{job=fail} s": 1,
    "holdfast.run.duration{job=fail} s": 1,
    "holdfast.run.duration{job=job} s": 1,
    "holdfast.step.duration{job=job} s": 2,
  });
  await engine.stop();
});

forEachStore("otel() adds up the jobs after the first hundred", async ({ store, host }) => {
  await using kept = keepMetrics();
  const jobs = Object.fromEntries(Array.from({ length: 102 }, (_, n) => [`j${n}`, aJob(() => {}, `j${n}`)]));
  const engine = createEngine({ store, host, jobs });
  engine.use(otel());

  for (const job of Object.values(jobs)) await engine.trigger(job, {});

  const read = await kept.read();
  assert.equal(read["holdfast.triggers{job=j99,disposition=created}"], 1);
  assert.equal(read["holdfast.triggers{job=other,disposition=created}"], 2);
  await engine.stop();
});
