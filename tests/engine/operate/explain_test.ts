import assert from "node:assert/strict";
import { NotFoundError } from "../../../src/model/error.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { type Explanation, toExplanation } from "../../../src/engine/operate/explanation.ts";
import { ALL_VISIBLE } from "../../../src/engine/operate/reason.ts";
import type { StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Blocker } from "../../../src/store/blockers.ts";
import { FAKE_START } from "../../support/fake_host.ts";
import {
  aClaimRequest,
  aFailure,
  aFlow,
  aHold,
  aKnownJob,
  aPause,
  aRun,
  aStep,
  someDetails,
} from "../../support/fixtures.ts";
import { anything, claimOne, forEachStore, LEASE_MS, type StoreTest } from "../../support/stores/for_each_store.ts";
import { aJob } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const AT_START = new Date(FAKE_START).toISOString();

function isoAfter(ms: number): string {
  return new Date(FAKE_START + ms).toISOString();
}

/** An engine over a store whose workers are claims of the test, or the engine's own. */
function anEngine({ store, host }: StoreTest, run: (step: StepContext) => unknown = () => null) {
  return createEngine({ store, host, jobs: { job: aJob(run, "import-csv"), child: aJob(() => null, "resize") } });
}

/** Lets a worker of the name claim nothing, so that it is live and knows these jobs. */
async function see({ store }: StoreTest, jobNames: readonly string[] = ["import-csv"], workerId = "web-1") {
  await store.claim(aClaimRequest({ workerId, jobNames, limit: 0, leaseMs: LEASE_MS }));
}

async function firstOf(engine: Engine, runId: string): Promise<Explanation["reasons"][number]> {
  const { message, reasons } = await engine.explain(runId);
  assert.equal(message, reasons[0]!.message);
  return reasons[0]!;
}

forEachStore("explain() says that nothing holds up a run", async (context) => {
  await using engine = anEngine(context);
  await see(context);
  const { id } = await engine.trigger("import-csv", null);
  context.host.advance(2_000);

  const explanation = await engine.explain(id);

  const message = "Due for 2 s; the next claim takes it";
  assert.deepEqual(explanation, {
    runId: id,
    status: "pending",
    at: isoAfter(2_000),
    message,
    reasons: [{ kind: "due", since: AT_START, message }],
  });
});

forEachStore("explain() names the run that holds the key, its worker and how many are ahead", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const keyed = () => engine.trigger("import-csv", null, { concurrencyKey: "import:acme" });
  const holder = await keyed();
  await claimOne(store, "import-csv", "web-1");
  host.advance(10_000);
  await see(context);
  for (let count = 0; count < 3; count++) await keyed();
  const last = await keyed();

  const reason = await firstOf(engine, last.id);

  assert.deepEqual(reason, {
    kind: "key",
    concurrencyKey: "import:acme",
    holder: { runId: holder.id, jobName: "import-csv", status: "running", since: AT_START },
    ahead: 3,
    message: `Behind run ${holder.id} (import-csv, running for 10 s on web-1) for the key import:acme; ` +
      "3 runs are ahead of it",
  });
});

forEachStore("explain() says that an older run comes first for a key that is free", async (context) => {
  await using engine = anEngine(context);
  await see(context);
  const keyed = () => engine.trigger("import-csv", null, { concurrencyKey: "acme" });
  const first = await keyed();
  const second = await keyed();

  const reasons = [await firstOf(engine, first.id), await firstOf(engine, second.id)];

  assert.deepEqual(reasons.map(({ message }) => message), [
    "Due for 0 ms; the next claim takes it",
    "Behind another run for the key acme, which is free; 1 run is ahead of it",
  ]);
  assert.deepEqual({ ...reasons[1], message: "" }, {
    kind: "key",
    concurrencyKey: "acme",
    holder: null,
    ahead: 1,
    message: "",
  });
});

forEachStore("explain() says that all runs for which their key has room are due", async (context) => {
  const { store, host } = context;
  const limits = { perKey: { concurrency: 2 } };
  const job = defineJob({ name: "import-csv", input: anything, run: () => null, limits });
  await using engine = createEngine({ store, host, jobs: { job } });
  await see(context);
  const runs = [];
  for (let count = 0; count < 3; count++) runs.push(await engine.trigger(job, null, { concurrencyKey: "acme" }));

  const kinds = await Promise.all(runs.map(async ({ id }) => (await firstOf(engine, id)).kind));
  const { claims } = await store.claim(aClaimRequest({ jobNames: ["import-csv"], limit: 3, leaseMs: LEASE_MS }));

  assert.deepEqual(kinds, ["due", "due", "key"]);
  assert.deepEqual(claims.map(({ run }) => run.id), runs.slice(0, 2).map(({ id }) => id));
});

forEachStore("explain() does not count twice a run that has kept its key for a retry", async (context) => {
  const { store, host } = context;
  const limits = { perKey: { concurrency: 2 } };
  const job = defineJob({ name: "import-csv", input: anything, run: () => null, limits });
  await using engine = createEngine({ store, host, jobs: { job } });
  const kept = await engine.trigger(job, null, { concurrencyKey: "acme" });
  const { lease } = await claimOne(store, "import-csv");
  await store.pause(lease, { pauses: [], retryAt: FAKE_START + 100, park: true, reports: [] });
  host.advance(100);
  await see(context);
  const runs = [kept, await engine.trigger(job, null, { concurrencyKey: "acme" })];
  runs.push(await engine.trigger(job, null, { concurrencyKey: "acme" }));

  const kinds = await Promise.all(runs.map(async ({ id }) => (await firstOf(engine, id)).kind));
  const { claims } = await store.claim(aClaimRequest({ jobNames: ["import-csv"], limit: 3, leaseMs: LEASE_MS }));

  assert.deepEqual(kinds, ["due", "due", "key"]);
  assert.deepEqual(claims.map(({ run }) => run.id), runs.slice(0, 2).map(({ id }) => id));
});

forEachStore(
  "explain() says that a run is due if the limit of another service holds back the run before it in the queue of its key",
  async (context) => {
    const { store, host } = context;
    const run = () => null;
    const mine = defineJob({ name: "import-csv", input: anything, run });
    const theirs = defineJob({ name: "resize", input: anything, run, limits: { concurrency: 1 } });
    await using service = createEngine({ store, host, jobs: { mine } });
    await using other = createEngine({ store, host, jobs: { theirs } });
    await other.trigger(theirs, null);
    const jobs = [aKnownJob({ name: "resize", concurrency: 1 })];
    const { claims: [running] } = await store.claim(aClaimRequest({ workerId: "web-2", jobs, leaseMs: LEASE_MS }));
    await see(context);
    const first = await other.trigger(theirs, null, { concurrencyKey: "acme" });
    const second = await service.trigger(mine, null, { concurrencyKey: "acme" });

    const held = [await firstOf(service, first.id), await firstOf(service, second.id)];
    await store.cancel(running!.run.id, "request-1", null);
    await store.release(running!.lease, []);
    const free = [await firstOf(service, first.id), await firstOf(service, second.id)];
    await other.trigger(theirs, null);
    await service.runUntilIdle();

    assert.deepEqual([...held, ...free].map(({ kind }) => kind), ["limit", "due", "due", "key"]);
    assert.equal((await service.getRun(second.id))!.status, "pending"); // "resize" may go, and comes first
    await other.runUntilIdle();
    await service.runUntilIdle();
    assert.equal((await service.getRun(second.id))!.status, "completed");
  },
);

forEachStore("explain() says that one run at a time is due for a key with a rate", async (context) => {
  const { store, host } = context;
  const limits = { perKey: { concurrency: 2, rate: { limit: 1, period: 60_000 } } };
  const job = defineJob({ name: "import-csv", input: anything, run: () => null, limits });
  await using engine = createEngine({ store, host, jobs: { job } });
  await see(context);
  const first = await engine.trigger(job, null, { concurrencyKey: "acme" });
  const second = await engine.trigger(job, null, { concurrencyKey: "acme" });

  const reasons = [await firstOf(engine, first.id), await firstOf(engine, second.id)];

  assert.deepEqual(reasons.map(({ kind }) => kind), ["due", "key"]);
});

forEachStore("explain() says that no worker is live", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  const never = await firstOf(engine, id);
  await see(context);
  await context.store.pauseJob("import-csv", { by: null, note: null });
  context.host.advance(60_000);

  const gone = await engine.explain(id);

  assert.deepEqual(never, {
    kind: "no_worker",
    lastSeenAt: null,
    message: "No worker is live, and none has claimed for long",
  });
  assert.deepEqual(gone.reasons.map(({ kind, message }) => [kind, message]), [
    ["job_paused", "Job import-csv has been paused for 1 min"],
    ["no_worker", "No worker is live; the last one claimed 1 min ago"],
  ]);
});

forEachStore("explain() names the last worker that had a job", async (context) => {
  const { host } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  await see(context, ["import-csv"], "web-1");
  host.advance(LEASE_MS + 1_560_000);
  await see(context, ["resize"], "web-2");
  await see(context, ["resize"], "web-3");

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "unknown_job",
    jobName: "import-csv",
    version: 1,
    lastKnownBy: { id: "web-1", name: null, hostname: "host-1", lastSeenAt: AT_START },
    message: "No live worker has the job import-csv; the last that had it was web-1, 26 min 30 s ago",
  });
});

forEachStore("explain() says which version no live worker has", async (context) => {
  await using engine = anEngine(context);
  await see(context);
  await context.store.enqueue([aRun({ id: "new-code", version: 2 })]);

  const { message } = await firstOf(engine, "new-code");

  assert.equal(message, "No live worker has the job import-csv version 2");
});

forEachStore("explain() says the version of a run when live workers have others", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  await context.store.claim(
    aClaimRequest({ jobs: [aKnownJob({ name: "import-csv", version: 2 })], leaseMs: LEASE_MS }),
  );

  const { message } = await firstOf(engine, id);

  assert.equal(message, "No live worker has the job import-csv version 1");
});

forEachStore("explain() says who has paused the job", async (context) => {
  await using engine = anEngine(context);
  await see(context);
  const { id } = await engine.trigger("import-csv", null);
  await engine.pauseJob("import-csv", { by: "ana", note: "the disk is full" });
  context.host.advance(5_000);

  const explanation = await engine.explain(id);

  const message = "Job import-csv has been paused by ana for 5 s: the disk is full";
  assert.deepEqual(explanation.reasons, [
    { kind: "job_paused", jobName: "import-csv", by: "ana", since: AT_START, note: "the disk is full", message },
  ]);
});

forEachStore("explain() says when a delayed run starts", async (context) => {
  await using engine = anEngine(context);
  await see(context);
  const { id } = await engine.trigger("import-csv", null, { delay: 90_000 });

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "delayed",
    until: isoAfter(90_000),
    message: `Starts at ${isoAfter(90_000)} (in 1 min 30 s)`,
  });
});

forEachStore("explain() says that a job executes as many runs as it may", async (context) => {
  const { store } = context;
  await using engine = anEngine(context);
  const jobs = [aKnownJob({ name: "import-csv", concurrency: 1 })];
  await engine.trigger("import-csv", null);
  const { id } = await engine.trigger("import-csv", null);
  await store.claim(aClaimRequest({ workerId: "web-1", jobs, leaseMs: LEASE_MS }));

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "limit",
    name: "concurrency of job import-csv",
    inUse: 1,
    max: 1,
    opensAt: null,
    message: "1 run of the job import-csv is executed, of 1 at most; no run is ahead of it",
  });
});

forEachStore("explain() says that all slots are taken, and how many runs are ahead", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const worker = someDetails({ name: "web", deployment: "2026.11.20", concurrency: 2 });
  for (let count = 0; count < 4; count++) await engine.trigger("import-csv", null);
  const { id } = await engine.trigger("import-csv", null);
  await store.claim(
    aClaimRequest({ workerId: "web-1", worker, jobNames: ["import-csv"], limit: 2, leaseMs: LEASE_MS }),
  );

  const full = await firstOf(engine, id);
  host.advance(2 * LEASE_MS);
  await see(context, ["resize"], "web-2");
  const { message } = await firstOf(engine, id);

  assert.deepEqual(full, {
    kind: "slots",
    busy: 2,
    total: 2,
    ahead: 2,
    message: "2 of 2 slots of the workers that have the job import-csv are busy; 2 runs are ahead of it",
  });
  assert.equal(
    message,
    "No live worker has the job import-csv; the last that had it was web (version 2026.11.20), 1 min ago",
  );
});

forEachStore("explain() says when the rate of a job allows the next start", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const jobs = [aKnownJob({ name: "import-csv", rate: { limit: 2, period: 60_000 } })];
  for (let count = 0; count < 2; count++) await engine.trigger("import-csv", null);
  const { id } = await engine.trigger("import-csv", null);
  await store.claim(aClaimRequest({ workerId: "web-1", jobs, leaseMs: LEASE_MS }));
  host.advance(20_000);

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "limit",
    name: "rate of job import-csv",
    inUse: 2,
    max: 2,
    opensAt: isoAfter(60_000),
    message:
      "2 runs of the job import-csv have started in 1 min, of 2 at most; no run is ahead of it; the rate opens " +
      `at ${isoAfter(60_000)} (in 40 s)`,
  });
});

forEachStore(
  "explain() says that a run is due though an older version before it waits for its own limits",
  async (context) => {
    const { store, host } = context;
    await using engine = anEngine(context);
    const name = "import-csv";
    const limits = [
      { rate: { limit: 1, period: 60_000 } },
      { rate: { limit: 1, period: 10_000 } },
      { concurrency: 1 },
      { concurrency: 4 },
      {},
    ];
    const jobs = limits.map((limit, at) => aKnownJob({ name, version: at + 1, ...limit }));
    const runs = jobs.map(({ version }) => aRun({ jobName: name, version }));
    const claim = () => store.claim(aClaimRequest({ workerId: "web-1", jobs, leaseMs: LEASE_MS }));
    await store.enqueue([aRun({ jobName: name, version: 1 }), aRun({ jobName: name, version: 3 })]);
    await claim(); // version 1 has used up its rate, and version 3 its limit
    host.advance(20_000);
    await store.enqueue(runs);

    const kinds = await Promise.all(runs.map(async ({ id }) => (await firstOf(engine, id)).kind));
    const { claims } = await claim();

    assert.deepEqual(kinds, ["limit", "due", "limit", "due", "due"]);
    assert.deepEqual(claims.map(({ run }) => run.id), [runs[1]!.id, runs[3]!.id, runs[4]!.id]);
  },
);

forEachStore(
  "explain() says that a run has room under a limit though those before it wait for a rate",
  async (context) => {
    const { store } = context;
    await using engine = anEngine(context);
    const jobs = [aKnownJob({ name: "import-csv", concurrency: 2, rate: { limit: 1, period: 60_000 } })];
    const claim = () => store.claim(aClaimRequest({ workerId: "web-1", jobs, leaseMs: LEASE_MS }));
    const { id } = await engine.trigger("import-csv", null);
    const { claims: [begun] } = await claim();
    await store.release(begun!.lease, []);
    for (let count = 0; count < 3; count++) await engine.trigger("import-csv", null, { priority: 1 });

    const { kind } = await firstOf(engine, id);
    const { claims } = await claim();

    assert.equal(kind, "due");
    assert.deepEqual(claims.map(({ run }) => run.id), [id]);
  },
);

forEachStore("explain() says when the rate of a key allows the next start", async (context) => {
  const { store, host } = context;
  const limited = defineJob({
    name: "import-csv",
    input: anything,
    run: () => null,
    limits: { perKey: { concurrency: 2, rate: { limit: 1, period: 60_000 } } },
  });
  await using engine = createEngine({ store, host, jobs: { limited } });
  await engine.trigger(limited, null, { concurrencyKey: "acme" });
  const { id } = await engine.trigger(limited, null, { concurrencyKey: "acme" });
  await claimOne(store, "import-csv", "web-1");

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "limit",
    name: "rate of key acme",
    inUse: 1,
    max: 1,
    opensAt: isoAfter(60_000),
    message: "1 run of the key acme has started in 1 min, of 1 at most; no run is ahead of it; the rate opens " +
      `at ${isoAfter(60_000)} (in 1 min)`,
  });
});

forEachStore("explain() counts a run before it that the rate of its key has just let pass", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const jobs = [aKnownJob({ name: "import-csv", concurrency: 1 })];
  const claim = () => store.claim(aClaimRequest({ workerId: "web-1", jobs, leaseMs: 10 * LEASE_MS }));
  const rated = () => {
    const flow = aFlow({ keyConcurrency: 2, keyRate: { limit: 1, period: 60_000 } });
    return aRun({ jobName: "import-csv", concurrencyKey: "acme", flow });
  };
  const before = rated();
  await store.enqueue([rated(), before]);
  const { claims: [first] } = await claim();
  await store.finish(first!.lease, { status: "completed", output: null, durationMs: 0 }, []);
  await claim();
  const { id } = await engine.trigger("import-csv", null);
  host.advance(60_000);

  const { kind } = await firstOf(engine, id);
  const { claims } = await claim();

  assert.equal(kind, "limit");
  assert.deepEqual(claims.map(({ run }) => run.id), [before.id]);
});

forEachStore("explain() counts a run that the rate of its key has just let pass against the slots", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const worker = someDetails({ concurrency: 1 });
  const claim = () =>
    store.claim(
      aClaimRequest({ workerId: "web-1", worker, jobNames: ["import-csv"], limit: 1, leaseMs: 10 * LEASE_MS }),
    );
  const flow = aFlow({ keyConcurrency: 2, keyRate: { limit: 1, period: 60_000 } });
  await store.enqueue([1, 2].map(() => aRun({ jobName: "import-csv", concurrencyKey: "acme", flow })));
  const { claims: [first] } = await claim();
  await store.finish(first!.lease, { status: "completed", output: null, durationMs: 0 }, []);
  await claim();
  const { id } = await engine.trigger("import-csv", null);
  host.advance(60_000);

  const reason = await firstOf(engine, id);

  assert.deepEqual([reason.kind, "ahead" in reason && reason.ahead], ["slots", 1]);
});

forEachStore("explain() leaves out a retry for which a run does not wait any more", async (context) => {
  const { store } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  const { lease } = await claimOne(store, "import-csv", "web-1");
  const retrying = { status: "retrying", failure: aFailure(), delayMs: 1_000 } as const;
  await store.saveStep(lease, aStep({ name: "charge", attempts: 1, result: retrying }), []);
  const nap = aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 5_000 } });
  await store.pause(lease, { pauses: [nap], retryAt: null, park: true, reports: [] });

  const { reasons } = await engine.explain(id);

  assert.deepEqual(reasons.map(({ kind }) => kind), ["sleep"]);
});

forEachStore("explain() says since when a run is due, though other pauses of it end later", async (context) => {
  const { store, host } = context;
  const resize = aJob(() => null, "resize");
  await using engine = anEngine(
    context,
    (step) => Promise.race([step.wait("one"), step.wait("two"), step.invoke("thumb", resize, null, { delay: 3_000 })]),
  );
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  await see(context);
  const waits = await engine.getWaits(id);

  const since = [];
  for (const wait of waits) {
    host.advance(1_000);
    await engine.signal(wait.id, { signalId: "now", payload: null });
    since.push(await firstOf(engine, id));
  }
  host.advance(1_000);
  const { lease } = await claimOne(store, "resize", "web-2");
  await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
  since.push(await firstOf(engine, id));

  assert.deepEqual(since.map((reason) => reason.kind === "due" && reason.since), Array(3).fill(isoAfter(1_000)));
});

forEachStore(
  "explain() says that a run is due since its sleep has ended, before a claim has seen that",
  async (context) => {
    const { host } = context;
    await using engine = anEngine(context, (step) => step.sleep("nap", 2_000));
    const { id } = await engine.trigger("import-csv", null);
    await engine.runUntilIdle();
    await see(context);
    host.advance(3_000);

    const reason = await firstOf(engine, id);

    assert.deepEqual([reason.kind, reason.message], ["due", "Due for 1 s; the next claim takes it"]);
  },
);

forEachStore("explain() names the child that a run waits for", async (context) => {
  await using engine = anEngine(
    context,
    (step) => step.invoke("thumb", aJob(() => null, "resize"), null, { delay: 60_000 }),
  );
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  const { runs: [child] } = await engine.getRuns({ parentRunId: id });

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "child",
    runId: child!.id,
    jobName: "resize",
    status: "pending",
    open: 1,
    message: `Waiting for child run ${child!.id} (resize, pending)`,
  });
});

forEachStore("explain() names the wait, and when it times out", async (context) => {
  await using engine = anEngine(context, (step) => step.wait("review", { timeout: 3_600_000 }));
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "signal",
    waitId: wait!.id,
    name: "review",
    deadlineAt: isoAfter(3_600_000),
    message: `Waiting for a signal to "review"; times out at ${isoAfter(3_600_000)} (in 1 h)`,
  });
});

forEachStore("explain() names all that a run waits for", async (context) => {
  await using engine = anEngine(
    context,
    (step) => Promise.all([step.wait("review"), step.sleep("cool down", 7_200_000)]),
  );
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();

  const { reasons } = await engine.explain(id);

  assert.deepEqual(reasons.slice(0, 2).map(({ message }) => message), [
    'Waiting for a signal to "review"; no deadline',
    `Sleeping in "cool down" until ${isoAfter(7_200_000)} (in 2 h)`,
  ]);
});

forEachStore("explain() says how long a run sleeps", async (context) => {
  await using engine = anEngine(context, (step) => step.sleep("cool down", 7_200_000));
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "sleep",
    name: "cool down",
    until: isoAfter(7_200_000),
    message: `Sleeping in "cool down" until ${isoAfter(7_200_000)} (in 2 h)`,
  });
});

forEachStore("explain() says which step is tried again, when, and why", async (context) => {
  const broken = () => Promise.reject(new Error("HTTP 503"));
  const retry = { maxAttempts: 3, delay: 60_000, jitter: false };
  await using engine = anEngine(context, (step) => step.run("validate", broken, { retry }));
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "retry",
    stepName: "validate",
    attempts: 1,
    error: "HTTP 503",
    at: isoAfter(60_000),
    message: `Step "validate" has failed once (HTTP 503); it is tried again at ${isoAfter(60_000)} (in 1 min)`,
  });
});

forEachStore("explain() names the worker that executes a run, and the one that was lost", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  await claimOne(store, "import-csv", "web-1");
  // Its lease lasts longer than that of the run: it is live after the other is lost, and has not claimed again.
  await store.claim(aClaimRequest({ workerId: "web-2", jobNames: ["import-csv"], limit: 0, leaseMs: 10 * LEASE_MS }));
  host.advance(4_000);
  const worker = { id: "web-1", name: null, hostname: "host-1", lastSeenAt: AT_START };
  const leaseExpiresAt = isoAfter(LEASE_MS);

  const executed = await engine.explain(id);
  host.advance(LEASE_MS);
  const lost = await engine.explain(id);
  await store.forgetWorker("web-2");
  const stranded = await engine.explain(id);

  const running = { kind: "executing", worker, since: AT_START, leaseExpiresAt, message: "Running for 4 s on web-1" };
  assert.deepEqual(executed.reasons, [running]);
  const message = "Worker web-1 was lost: its lease expired 4 s ago; the next claim of a worker that has the job " +
    "import-csv takes the run over";
  assert.deepEqual(lost.reasons, [{ kind: "worker_lost", worker, leaseExpiresAt, message }]);
  assert.deepEqual(stranded.reasons.map(({ kind }) => kind), ["no_worker", "worker_lost"]);
});

forEachStore("explain() says that a run has ended", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  context.host.advance(3_000);

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, { kind: "ended", status: "completed", endedAt: AT_START, message: "Completed 3 s ago" });
});

forEachStore("explain() of a run that has ended says which messages it never received", async ({ store, host }) => {
  const messages = Object.fromEntries("abcdefg".split("").map((name) => [name, anything]));
  const job = defineJob({
    name: "chat",
    input: anything,
    messages,
    run: (step) => step.receive("first", { names: ["b"] }),
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger("chat", null);
  const { id: single } = await engine.trigger("chat", null);
  for (const name of "bcbccadefg") await engine.send(id, name, null);
  for (const name of "ba") await engine.send(single, name, null);
  await engine.runUntilIdle();

  const { message, reasons: [, unread] } = await engine.explain(id);
  const { reasons } = await engine.explain(single);
  await engine.retrigger(single);
  const retried = await engine.explain(single);

  assert.match(message, /^Completed /);
  assert.deepEqual(unread, {
    kind: "unread",
    count: 9,
    names: ["c", "b", "a", "d", "e", "f", "g"],
    message: '9 messages were never received: "c" (3), "b", "a", "d", "e", and 2 of other names',
  });
  const once = { kind: "unread", count: 1, names: ["a"], message: '1 message was never received: "a"' };
  assert.deepEqual(reasons.slice(1), [once]);
  assert.deepEqual(retried.reasons.slice(1), [{ ...once, message: `${once.message}; its retry began with it` }]);
});

forEachStore("explain() says of a run that failed what it failed of", async (context) => {
  await using engine = anEngine(context, () => {
    throw new Error("HTTP 402 for order 17");
  });
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  context.host.advance(3_000);

  const reason = await firstOf(engine, id);

  const message = "Failed 3 s ago: HTTP 402 for order 17";
  assert.deepEqual(reason, { kind: "ended", status: "failed", endedAt: AT_START, message });
});

forEachStore("explain() says why a run is held", async (context) => {
  const { store } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger("import-csv", null);
  const { lease } = await claimOne(store, "import-csv", "web-1");
  await store.hold(lease, aHold(), []);

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "held",
    code: "diverged",
    since: AT_START,
    message: 'step "charge card" is new',
  });
});

forEachStore("explain() says that the next claim fails a run that is late", async (context) => {
  await using engine = anEngine(context);
  await see(context);
  const { id } = await engine.trigger("import-csv", null, { startWithin: 1_000 });
  context.host.advance(3_000);

  const reason = await firstOf(engine, id);

  assert.deepEqual(reason, {
    kind: "late",
    deadline: "startBy",
    at: isoAfter(1_000),
    message: "Too late by 2 s to start: the next claim fails it",
  });
});

forEachStore("explain() says that the next claim cancels a child whose parent has ended", async (context) => {
  await using engine = anEngine(
    context,
    (step) => step.invoke("thumb", aJob(() => null, "resize"), null, { delay: 60_000 }),
  );
  const { id } = await engine.trigger("import-csv", null);
  await engine.runUntilIdle();
  const { runs: [child] } = await engine.getRuns({ parentRunId: id });
  await engine.cancel(id);

  const reason = await firstOf(engine, child!.id);

  assert.deepEqual(reason, {
    kind: "parent_ended",
    runId: id,
    message: `Its parent, run ${id}, has ended: the next claim cancels it`,
  });
});

forEachStore(
  "explain() says that a run is due though the first of its fairness key waits behind another job",
  async (context) => {
    const { store } = context;
    await using engine = createEngine({
      store,
      host: context.host,
      jobs: { job: aJob(() => null, "import-csv"), child: aJob(() => null, "resize") },
    });
    // web-2 alone has the job resize, and has claimed none of its runs yet.
    await see(context, ["resize"], "web-2");
    await see(context, ["import-csv"], "web-1");
    await engine.trigger("resize", null, { concurrencyKey: "disk" });
    await engine.trigger("import-csv", null, { concurrencyKey: "disk", fairnessKey: "acme" });
    const { id } = await engine.trigger("import-csv", null, { fairnessKey: "acme" });

    const reason = await firstOf(engine, id);

    assert.equal(reason.kind, "due");
  },
);

forEachStore("explain() refuses an unknown run", async (context) => {
  await using engine = anEngine(context);

  await assert.rejects(engine.explain("nope"), NotFoundError);
});

forEachStore("an explanation without numbers says that others are ahead", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo: aJob(() => null, "echo") } });
  const { run } = (await store.getBlockers((await engine.trigger("echo", null)).id))!;
  const rate = { limit: 4, period: 60_000, opensAt: host.now() + 60_000 };
  const blockers: Blocker[] = [
    { kind: "limit", of: "job", inUse: 2, max: 3, ahead: 1, rate: null },
    { kind: "limit", of: "job", inUse: 2, max: 4, ahead: 2, rate },
    { kind: "slots", busy: 7, total: 10, ahead: 5 },
    { kind: "slots", busy: 10, total: 10, ahead: 0 },
  ];

  const { reasons } = toExplanation({ run, blockers, now: host.now() }, { ...ALL_VISIBLE, counts: "none" });

  const opensAt = new Date(rate.opensAt).toISOString();
  assert.deepEqual(reasons, [
    {
      message: "At most 3 runs of the job echo are executed at once; others are ahead of it",
      kind: "limit",
      name: "concurrency of job echo",
      inUse: null,
      max: 3,
      opensAt: null,
    },
    {
      message: "At most 4 runs of the job echo start in 1 min; others are ahead of it; the rate opens at " +
        `${opensAt} (in 1 min)`,
      kind: "limit",
      name: "rate of job echo",
      inUse: null,
      max: 4,
      opensAt,
    },
    {
      message: "All slots of the workers that have the job echo are taken; others are ahead of it",
      kind: "slots",
      busy: null,
      total: 10,
      ahead: null,
    },
    {
      message: "All slots of the workers that have the job echo are taken; no run is ahead of it",
      kind: "slots",
      busy: null,
      total: 10,
      ahead: 0,
    },
  ]);
});

forEachStore("explain() counts up to 1,000 runs ahead", async (context) => {
  const { store } = context;
  await using engine = anEngine(context);
  const runs = Array.from({ length: 1_200 }, () => aRun({ concurrencyKey: "acme" }));
  await store.enqueue(runs);
  await claimOne(store, "import-csv", "web-1");

  const { message } = await firstOf(engine, runs.at(-1)!.id);

  assert.match(message, /for the key acme; 1,000 or more runs are ahead of it$/);
});
