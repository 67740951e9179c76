import assert from "node:assert/strict";
import { NotFoundError, ValidationError } from "../../../src/model/error.ts";
import type { Timeline } from "../../../src/engine/operate/timeline.ts";
import type { StepContext } from "../../../src/model/job.ts";
import { FAKE_START } from "../../support/fake_host.ts";
import { aStep } from "../../support/fixtures.ts";
import { claimOne, forEachStore, LEASE_MS, type StoreTest } from "../../support/stores/for_each_store.ts";
import { aJob } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";

function at(ms: number): string {
  return new Date(FAKE_START + ms).toISOString();
}

function anEngine({ store, host }: StoreTest, run: (step: StepContext) => unknown = () => null) {
  return createEngine({ store, host, jobs: { job: aJob(run, "import-csv") } });
}

forEachStore("getTimeline() shows the time in the queue, steps, pauses and how they ended", async (context) => {
  const { host } = context;
  await using engine = anEngine(context, async (step) => {
    await step.run("download", () => host.advance(300));
    await step.wait("review", { timeout: 5_000 });
    await step.run("write", () => host.advance(200));
  });
  const { id } = await engine.trigger("import-csv", null);
  host.advance(1_000);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  host.advance(2_000);
  await engine.signal(wait!.id, { signalId: "s", payload: true });
  host.advance(500);
  await engine.runUntilIdle();

  const timeline = await engine.getTimeline(id);

  assert.deepEqual(timeline, {
    runId: id,
    from: at(0),
    to: at(4_000),
    total: 4,
    next: null,
    rows: [
      {
        kind: "queued",
        name: "queued",
        status: "completed",
        startedAt: at(0),
        endedAt: at(1_000),
        activeMs: 0,
        spans: [{ kind: "queued", status: "completed", from: at(0), to: at(1_000) }],
      },
      {
        kind: "step",
        name: "download",
        status: "completed",
        startedAt: at(1_000),
        endedAt: at(1_300),
        activeMs: 300,
        spans: [{ kind: "active", status: "completed", from: at(1_000), to: at(1_300), attempt: 1 }],
      },
      {
        kind: "wait",
        name: "review",
        status: "signal",
        startedAt: at(1_300),
        endedAt: at(3_300),
        activeMs: 0,
        waitId: wait!.id,
        deadlineAt: at(6_300),
        spans: [
          { kind: "paused", status: "signal", from: at(1_300), to: at(3_300) },
          { kind: "queued", status: "completed", from: at(3_300), to: at(3_800) },
        ],
      },
      {
        kind: "step",
        name: "write",
        status: "completed",
        startedAt: at(3_800),
        endedAt: at(4_000),
        activeMs: 200,
        spans: [{ kind: "active", status: "completed", from: at(3_800), to: at(4_000), attempt: 1 }],
      },
    ],
  });
});

forEachStore("getTimeline() shows failed attempts and the delays between them", async (context) => {
  const { host } = context;
  let attempts = 0;
  const broken = () => {
    host.advance(100);
    if (++attempts < 3) throw new Error(`HTTP 50${attempts}`);
  };
  const retry = { maxAttempts: 3, delay: 10_000, backoff: "fixed", jitter: false } as const;
  await using engine = anEngine(context, (step) => step.run("validate", broken, { retry }));
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  const [, between] = (await engine.getTimeline(id)).rows;
  for (let count = 0; count < 2; count++) {
    host.advance(12_000);
    await engine.runUntilIdle();
  }

  const [, row] = (await engine.getTimeline(id)).rows;

  assert.deepEqual(between, {
    kind: "step",
    name: "validate",
    status: "retrying",
    startedAt: at(0),
    endedAt: null,
    activeMs: 100,
    spans: [
      { kind: "active", status: "failed", from: at(0), to: at(100), attempt: 1, error: "HTTP 501" },
      { kind: "retry-delay", status: "pending", from: at(100), to: null, attempt: 1 },
    ],
  });
  assert.deepEqual(row, {
    kind: "step",
    name: "validate",
    status: "completed",
    startedAt: at(0),
    endedAt: at(24_300),
    activeMs: 300,
    spans: [
      { kind: "active", status: "failed", from: at(0), to: at(100), attempt: 1, error: "HTTP 501" },
      { kind: "retry-delay", status: "completed", from: at(100), to: at(10_100), attempt: 1 },
      { kind: "active", status: "failed", from: at(12_100), to: at(12_200), attempt: 2, error: "HTTP 502" },
      { kind: "retry-delay", status: "completed", from: at(12_200), to: at(22_200), attempt: 2 },
      { kind: "active", status: "completed", from: at(24_200), to: at(24_300), attempt: 3 },
    ],
  });
});

forEachStore("getTimeline() shows executions that lost their lease", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  await claimOne(store, "import-csv", "web-1");
  host.advance(LEASE_MS + 1_000);
  const { lease } = await claimOne(store, "import-csv", "web-2");
  host.advance(1_000);
  await store.release(lease, []);

  const { rows, total } = await engine.getTimeline(id);

  const [lost, released] = [at(LEASE_MS + 1_000), at(LEASE_MS + 2_000)];
  assert.equal(total, 3);
  assert.deepEqual(rows.slice(1), [
    {
      kind: "recovery",
      name: "lost",
      status: "lost",
      startedAt: at(0),
      endedAt: lost,
      activeMs: 0,
      workerId: "web-1",
      spans: [{ kind: "interrupted", status: "lost", from: at(0), to: lost }],
    },
    {
      kind: "recovery",
      name: "released",
      status: "released",
      startedAt: lost,
      endedAt: released,
      activeMs: 0,
      workerId: "web-2",
      spans: [{ kind: "interrupted", status: "released", from: lost, to: released }],
    },
  ]);
});

forEachStore("getTimeline() names the first child of a call", async (context) => {
  const child = aJob(() => null, "resize");
  const { store, host } = context;
  const parent = aJob((step) => step.invoke("thumb", child, null), "import-csv");
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  const { runs: [run] } = await engine.getRuns({ parentRunId: id });

  const { rows: [, row] } = await engine.getTimeline(id);

  assert.deepEqual([row!.kind, row!.name, row!.status, row!.childRunId], ["child", "thumb", "completed", run!.id]);
});

forEachStore("getTimeline() is read in parts that repeat and miss nothing", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  const { lease } = await claimOne(store, "import-csv", "web-1");
  for (let index = 0; index < 25; index++) {
    host.advance(10);
    await store.saveStep(lease, aStep({ name: `step ${index}`, index }), []);
  }

  const whole = await engine.getTimeline(id);
  for (const [limit, lengths] of [[7, [7, 7, 7, 5]], [1, Array(26).fill(1)]] as const) {
    const parts: Timeline[] = [await engine.getTimeline(id, { limit })];
    for (let from = parts[0]!.next; from !== null && parts.length <= 26; from = parts.at(-1)!.next) {
      parts.push(await engine.getTimeline(id, { limit, from }));
    }

    assert.deepEqual(parts.map(({ rows }) => rows.length), lengths);
    assert.deepEqual(parts.flatMap(({ rows }) => rows), whole.rows);
    assert(parts.every(({ total }) => total === 26));
  }
});

forEachStore("getTimeline() refuses an unknown run, and a part that there cannot be", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);

  await assert.rejects(engine.getTimeline("nope"), NotFoundError);
  for (
    const options of [{ limit: 0 }, { limit: 1_001 }, { limit: 1.5 }, { from: "" }, { from: "1.2" }, { from: "a.b.c" }]
  ) {
    await assert.rejects(engine.getTimeline(id, options), ValidationError, JSON.stringify(options));
  }
});
