import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import manifest from "../bench/job_queues/adapter.json" with { type: "json" };
import { CELLS } from "../bench/job_queues/cells.ts";
import { Latencies } from "../bench/job_queues/latencies.ts";
import { type PhaseSample, toOutcome } from "../bench/job_queues/outcome.ts";
import { produceAtRate, produceByLines, type Producer, produceToDepth } from "../bench/job_queues/producer.ts";
import { PUBLISHED, PUBLISHED_SYSTEMS } from "../bench/job_queues/published.ts";
import type { JobInput } from "../bench/job_queues/queue.ts";
import results from "../bench/job_queues/results.json" with { type: "json" };
import { type Results, toMarkdown } from "../bench/job_queues/report.ts";
import { type Measured, toDescriptor, toSamples } from "../bench/job_queues/records.ts";
import { readSettings } from "../bench/job_queues/settings.ts";

const AT = new Date("2026-04-17T09:00:10.000Z");
const measured: Measured = {
  producer: { p50: 1, p95: 2, p99: 3 },
  pickup: { p50: 4, p95: 5, p99: 6 },
  endToEnd: { p50: 7, p95: 8, p99: 9 },
  enqueueRate: 600,
  completionRate: 599,
  queueDepth: 12,
  targetRate: 600,
};

Deno.test("toDescriptor() prints the line of the contract, with all tables of the manifest", () => {
  const about = { version: "holdfast@1.0.0", schemaVersion: "7", eventTables: manifest.event_tables };

  const line = toDescriptor(
    { system: "holdfast", instance: 1 },
    about,
    "postgres://a:b@localhost:1/holdfast_bench",
    AT,
  );

  assert.deepEqual(JSON.parse(JSON.stringify(line)), {
    kind: "descriptor",
    system: manifest.system,
    event_tables: manifest.event_tables,
    extensions: manifest.extensions,
    version: "holdfast@1.0.0",
    schema_version: "7",
    db_name: manifest.db_name,
    started_at: "2026-04-17T09:00:10.000Z",
    instance_id: 1,
  });
});

Deno.test("toSamples() prints each number of the contract once, with its window", () => {
  const lines = toSamples({ system: "holdfast", instance: 0 }, measured, AT, 5);

  assert.deepEqual(lines[0], {
    t: "2026-04-17T09:00:10.000Z",
    system: "holdfast",
    kind: "adapter",
    subject_kind: "adapter",
    subject: "",
    metric: "producer_p50_ms",
    value: 1,
    window_s: 30,
    instance_id: 0,
  });
  const byMetric = Object.fromEntries(lines.map(({ metric, value, window_s }) => [metric, [value, window_s]]));
  assert.equal(Object.keys(byMetric).length, lines.length);
  assert.deepEqual(byMetric, {
    producer_p50_ms: [1, 30],
    producer_p95_ms: [2, 30],
    producer_p99_ms: [3, 30],
    subscriber_p50_ms: [4, 30],
    subscriber_p95_ms: [5, 30],
    subscriber_p99_ms: [6, 30],
    claim_p50_ms: [4, 30],
    claim_p95_ms: [5, 30],
    claim_p99_ms: [6, 30],
    end_to_end_p50_ms: [7, 30],
    end_to_end_p95_ms: [8, 30],
    end_to_end_p99_ms: [9, 30],
    enqueue_rate: [600, 5],
    completion_rate: [599, 5],
    queue_depth: [12, 0],
    producer_target_rate: [600, 0],
  });
});

Deno.test("toSamples() leaves what is the same for all processes to the first one", () => {
  const first = toSamples({ system: "holdfast", instance: 0 }, measured, AT, 5).map(({ metric }) => metric);
  const second = toSamples({ system: "holdfast", instance: 1 }, measured, AT, 5).map(({ metric }) => metric);

  assert.deepEqual(first.filter((metric) => !second.includes(metric)), ["queue_depth", "producer_target_rate"]);
});

Deno.test("readSettings() has the defaults of the contract, and refuses what it does not know", () => {
  const { rate, producerMode, pacing, ...numbers } = readSettings(
    new Map([["DATABASE_URL", "postgres://localhost/a"]]),
  );

  assert.deepEqual({ rate, producerMode, pacing }, {
    rate: { perSecond: 800, file: null },
    producerMode: "fixed",
    pacing: "adapter",
  });
  assert.deepEqual(numbers, {
    databaseUrl: "postgres://localhost/a",
    batchMax: 128,
    batchMs: 10,
    targetDepth: 1_000,
    workers: 32,
    payloadBytes: 256,
    workMs: 1,
    sampleEveryS: 5,
    instance: 0,
  });
  for (const wrong of [["SCENARIO", "chaos"], ["PRODUCER_MODE", "fast"], ["WORKER_COUNT", "many"]] as const) {
    assert.throws(
      () => readSettings(new Map([["DATABASE_URL", "postgres://localhost/a"], wrong])),
      new RegExp(wrong[0]),
    );
  }
});

Deno.test("Latencies finds percentiles to three significant figures, and forgets what is older than its window", () => {
  const latencies = new Latencies(30);
  for (let ms = 1; ms <= 1_000; ms++) latencies.record(ms, 100_000);

  const { p50, p95, p99 } = latencies.percentiles(101_000);
  const later = latencies.percentiles(100_000 + 40_000);

  for (const [found, expected] of [[p50, 500], [p95, 950], [p99, 990]] as const) {
    assert.ok(Math.abs(found - expected) <= expected / 1_000, `${found} is not ${expected}`);
  }
  assert.deepEqual(later, { p50: 0, p95: 0, p99: 0 });
});

Deno.test("Latencies counts a duration as often as it is told, up to hours", () => {
  const latencies = new Latencies(30);
  latencies.record(0.25, 0, 98);
  latencies.record(3_600_000, 0, 2);

  const { p50, p99 } = latencies.percentiles(0);

  assert.equal(p50, 0.25);
  assert.ok(Math.abs(p99 - 3_600_000) <= 3_600);
});

/** A producer whose calls are noted; it stops after so many jobs. */
function aProducer({ until, fails = 0 }: { until: number; fails?: number }) {
  const calls: JobInput[][] = [];
  const stopping = new AbortController();
  let left = fails;
  const producer: Producer = {
    insert(jobs) {
      if (left-- > 0) return Promise.reject(new Error("There is no server"));
      calls.push([...jobs]);
      if (calls.flat().length >= until) stopping.abort();
      return Promise.resolve();
    },
    onRate: () => {},
    batchMax: 10,
    batchMs: 1,
    payloadBytes: 256,
    stopping: stopping.signal,
  };
  return { producer, calls };
}

Deno.test("produceAtRate() adds what is due by the clock, at most a batch at once", async () => {
  const { producer, calls } = aProducer({ until: 200 });
  const before = performance.now();

  await produceAtRate(producer, { perSecond: 2_000, file: null });

  const seconds = (performance.now() - before) / 1_000;
  assert.ok(calls.every((jobs) => jobs.length <= 10));
  assert.ok(calls.flat().length <= 2_000 * seconds, `${calls.flat().length} jobs in ${seconds} s`);
  assert.deepEqual(calls.flat().map(({ seq }) => seq), calls.flat().map((_, at) => at + 1));
});

Deno.test("produceAtRate() goes on when a call fails, and adds later what was due meanwhile", async () => {
  const { producer, calls } = aProducer({ until: 10, fails: 1 });

  await produceAtRate(producer, { perSecond: 1_000, file: null });

  assert.deepEqual(calls.map((jobs) => jobs.length), [10]);
});

Deno.test("produceToDepth() adds only what is missing", async () => {
  const { producer, calls } = aProducer({ until: 13 });
  const depths = [100, 95, 92];

  await produceToDepth(producer, 100, () => Promise.resolve(depths.shift() ?? 0));

  assert.deepEqual(calls.map((jobs) => jobs.length), [5, 8]);
});

Deno.test("produceByLines() adds as many jobs as each line says", async () => {
  const { producer, calls } = aProducer({ until: Infinity });

  await produceByLines(producer, ReadableStream.from(["ENQUEUE 25", "something else", "ENQUEUE 1"]));

  assert.deepEqual(calls.map((jobs) => jobs.length), [25, 1]);
  assert.ok(calls.flat().every((job) => Math.abs(JSON.stringify(job).length - 256) < 64));
});

function aSample(sample: Partial<PhaseSample>): PhaseSample {
  const byDefault = {
    metric: "completion_rate",
    value: 0,
    window_s: 5,
    instance_id: 0,
    phase: "baseline",
    elapsedS: 0,
  };
  return { t: "2026-04-17T09:00:10.000Z", ...byDefault, ...sample };
}

Deno.test("toOutcome() adds the rates of all processes, and compares their medians after a crash and before", () => {
  const rates: Record<string, number[]> = {
    warmup: [1],
    baseline: [100, 300, 200],
    kill: [50],
    restart: [80],
    recovery: [90],
  };
  const samples = Object.entries(rates).flatMap(([phase, values], at) =>
    values.flatMap((value, no) =>
      [0, 1].flatMap((instance_id) =>
        ["completion_rate", "enqueue_rate"].map((metric) =>
          aSample({ phase, value, metric, instance_id, t: `2026-04-17T09:0${at}:0${no}.000Z`, elapsedS: 60 * at + no })
        )
      )
    )
  );
  const about = { cell: "", system: "holdfast", version: "", seconds: 60, problem: null, stopMs: 1, load: 0 } as const;
  const tables = [["baseline", 5], ["kill", 70], ["kill", 60]] as const;

  const outcome = toOutcome(about, CELLS["chaos_crash_recovery"]!, {
    samples,
    tables: tables.map(([phase, deadRows]) => ({ phase, deadRows, bytes: 8_000_000, vacuums: 1 })),
    cpu: null,
  });

  assert.equal(outcome.ratio, 180 / 400);
  assert.deepEqual(outcome.phases.map(({ completionRate }) => completionRate), [400, 100, 160, 180]);
  assert.deepEqual(outcome.phases.map(({ deadRows }) => deadRows), [5, 70, null, null]);
  assert.equal(outcome.jobsLost, 0);
  assert.equal(outcome.recoveryTimeS, null); // 180 is less than 0.9 of 400
});

Deno.test("toOutcome() counts jobs that are still open, and finds when the rate is back", () => {
  const samples = [
    aSample({ value: 100 }),
    aSample({ phase: "restart", value: 0, elapsedS: 60 }),
    aSample({ phase: "restart", metric: "enqueue_rate", value: 10, elapsedS: 60 }),
    aSample({ phase: "recovery", value: 40, elapsedS: 65 }),
    aSample({ phase: "recovery", value: 90, elapsedS: 70, t: "2026-04-17T09:01:00.000Z" }),
    aSample({ phase: "recovery", metric: "enqueue_rate", value: 124, elapsedS: 65 }),
  ];
  const about = { cell: "", system: "holdfast", version: "", seconds: 60, problem: null, stopMs: 1, load: 0 } as const;

  const outcome = toOutcome(about, CELLS["chaos_postgres_restart"]!, {
    samples,
    tables: [],
    cpu: { processes: 6_500, server: 65_000 },
  });

  assert.equal(outcome.jobsLost, (134 - 130) * 5);
  assert.equal(outcome.recoveryTimeS, 10);
  assert.deepEqual(outcome.cpu, { processes: 10, server: 100 }); // of the 650 jobs of the last phase
});

Deno.test("there are five cells of chaos and four of bloat, each with what was published of eight queues", () => {
  const namesOf = (kind: string) => Object.keys(CELLS).filter((name) => CELLS[name]!.kind === kind);

  assert.equal(namesOf("chaos").length, 5);
  assert.equal(namesOf("bloat").length, 4);
  assert.deepEqual(Object.keys(PUBLISHED), [...namesOf("chaos"), ...namesOf("bloat")]);
  for (const figures of Object.values(PUBLISHED)) assert.equal(figures.length, PUBLISHED_SYSTEMS.length);
});

Deno.test("performance.md has the tables of results.json, with all cells of chaos and bloat", () => {
  const { outcomes } = results as Results;
  const page = readFileSync(new URL("../docs/concepts/performance.md", import.meta.url), "utf8");
  const rowsOf = (text: string) =>
    text.split("\n").filter((line) => line.startsWith("| ") && !/^[| :-]+$/.test(line)).map((line) =>
      line.replaceAll(/ +/g, " ")
    );

  const missing = rowsOf(toMarkdown(outcomes)).filter((row) => !rowsOf(page).includes(row));

  assert.deepEqual(missing, []);
  const measured = outcomes.filter(({ system }) => system === "holdfast").map(({ cell }) => cell);
  assert.deepEqual(Object.keys(PUBLISHED).filter((cell) => !measured.includes(cell)), []);
});
