import assert from "node:assert/strict";
import { NotFoundError, ValidationError } from "../../src/model/error.ts";
import type { PauseJobOptions } from "../../src/engine/job_pauses.ts";
import type { JobInfo } from "../../src/engine/operate/job_info.ts";
import type { Rates } from "../../src/engine/operate/statistics/recent_statistics.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { noRuns } from "../../src/statistics/no_runs.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";
import { anything, recordEvents } from "../support/stores/for_each_store.ts";
import { echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { getPausedJobs } from "../../src/store/reads.ts";

const resize = defineJob({
  name: "resize",
  input: anything,
  run: () => null,
  limits: { concurrency: 20, rate: { limit: 5, period: 1_000 } },
});
const LIMITS = { concurrency: 20, inUse: 0, rate: { limit: 5, period: 1_000 }, opensAt: null };
const SINCE = new Date(FAKE_START).toISOString();

function anEngine() {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const engine = createEngine({ store, host, jobs: { resize } });
  return { host, store, engine, events: recordEvents(engine) };
}

/** The state of a job without runs. */
function anInfo(overrides: Partial<JobInfo>): JobInfo {
  const nothing: Rates = {
    triggered: 0,
    started: 0,
    completed: 0,
    failed: 0,
    cancelled: 0,
    perMinute: 0,
    failureRate: null,
    steps: 0,
    stepFailures: 0,
    startDelay: null,
    duration: null,
    stepDuration: null,
  };
  return {
    jobName: "resize",
    isKnownHere: true,
    liveWorkers: 0,
    paused: null,
    byStatus: noRuns(),
    oldestDue: null,
    held: null,
    unread: 0,
    waits: overrides.isKnownHere === false ? null : {},
    messages: overrides.isKnownHere === false ? null : {},
    limits: null,
    windows: { "5m": nothing, "1h": nothing },
    ...overrides,
  };
}

Deno.test("pauseJob() pauses a job, says so once, and keeps the first pause", async () => {
  const { host, engine, events } = anEngine();

  const first = await engine.pauseJob("resize", { by: "ada", note: "disk is full" });
  host.advance(5_000);
  const second = await engine.pauseJob("resize", { by: "bob" });

  const paused = { since: SINCE, by: "ada", note: "disk is full" };
  assert.deepEqual(first, anInfo({ paused, limits: LIMITS }));
  assert.deepEqual(second, first);
  assert.deepEqual(events, [
    { type: "job:pause", jobName: "resize", by: "ada", note: "disk is full", timestamp: SINCE, sequence: 1 },
  ]);
});

Deno.test("resumeJob() ends a pause, says so once, and may be called again", async () => {
  const { engine, events } = anEngine();
  await engine.pauseJob("resize");

  const first = await engine.resumeJob("resize");
  const second = await engine.resumeJob("resize");

  assert.deepEqual(first, anInfo({ limits: LIMITS }));
  assert.deepEqual(second, first);
  assert.deepEqual(events.slice(1), [{ type: "job:resume", jobName: "resize", timestamp: SINCE, sequence: 2 }]);
});

Deno.test("pauseJob() takes a job of another process that has a live worker or a run", async () => {
  const { host, store, engine } = anEngine();
  const other = createEngine({ store, host, jobs: { echo } });
  const nobody = engine.pauseJob("echo");
  await assert.rejects(nobody, NotFoundError);

  const { id } = await other.trigger(echo, null);
  const info = await engine.pauseJob("echo");

  const { oldestDue, ...others } = info;
  const paused = { since: SINCE, by: null, note: null };
  const expected = anInfo({ jobName: "echo", isKnownHere: false, paused, byStatus: { ...noRuns(), pending: 1 } });
  assert.deepEqual({ ...others, oldestDue: null }, expected);
  assert.deepEqual(oldestDue, { runId: id, dueSince: SINCE });
});

Deno.test("resumeJob() takes a paused job that nobody knows any more", async () => {
  const { host, store, engine } = anEngine();
  await engine.pauseJob("resize");
  const later = createEngine({ store, host, jobs: { echo } });

  const info = await later.resumeJob("resize");

  assert.deepEqual(info, anInfo({ isKnownHere: false }));
});

Deno.test("pauseJob() and resumeJob() refuse a name that nobody has", async () => {
  const { engine, events } = anEngine();
  const unknown = { name: "NotFoundError", message: 'There is no job "resise" in this engine: its jobs are "resize"' };

  await assert.rejects(engine.pauseJob("resise"), unknown);
  await assert.rejects(engine.resumeJob("resise"), unknown);

  assert.deepEqual(events, []);
});

Deno.test("pauseJob() refuses a wrong name, by or note", async () => {
  const { store, engine } = anEngine();
  const wild: [string, Record<string, unknown>][] = [
    ["", {}],
    ["resize", { by: "" }],
    ["resize", { by: 5 }],
    ["resize", { by: "a".repeat(256) }],
    ["resize", { note: 5 }],
    ["resize", { note: "a".repeat(1_001) }],
    ["resize", { note: "\ud800" }],
  ];

  for (const [name, options] of wild) {
    await assert.rejects(engine.pauseJob(name, options as PauseJobOptions), ValidationError);
  }
  await assert.rejects(engine.pauseJob("resize", { why: "x" } as PauseJobOptions), TypeError);

  assert.deepEqual(await getPausedJobs(store), []);
});
