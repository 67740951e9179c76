import assert from "node:assert/strict";
import { NotFoundError } from "../../src/model/error.ts";
import { persistLogs } from "../../src/engine/plugin.ts";
import { forEachStore, pass, type StoreTest } from "../support/stores/for_each_store.ts";
import { aService } from "../support/http/http.ts";
import { aJob, echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

const approval = aJob((step) => step.wait("review"), "approval");
const lossy = aJob(() => ({ seen: new Map() }), "lossy");

function anEngine({ store, host }: StoreTest) {
  return createEngine({ store, host, jobs: { echo, approval, lossy } });
}

forEachStore("trigger() of an unknown job lists the jobs of this engine", async (context) => {
  await using engine = anEngine(context);

  const unknown = engine.trigger("ecko", 1);

  await assert.rejects(unknown, {
    name: "NotFoundError",
    code: "not_found",
    message: 'There is no job "ecko" in this engine: its jobs are "echo", "approval", "lossy"',
  });
});

forEachStore("trigger() of an unknown job says so of an engine without jobs, and lists 20 at most", async (context) => {
  const { store, host } = context;
  const many = Array.from({ length: 25 }, (_, n) => aJob(() => n, `job-${n}`));
  await using none = createEngine({ store, host, jobs: {} });
  await using full = createEngine({ store, host, jobs: Object.fromEntries(many.map((job) => [job.name, job])) });

  await assert.rejects(none.trigger("echo", 1), { message: 'There is no job "echo" in this engine: it has no jobs' });
  await assert.rejects(full.trigger("echo", 1), { message: /"job-18", "job-19" and 5 more$/ });
});

forEachStore("an unknown job over HTTP is 404, and the answer does not list the others", async (context) => {
  await using service = aService({}, context);
  const { host } = service;
  await using other = createEngine({ store: context.store, host, jobs: { lossy } });
  const { id } = await other.trigger("lossy", {});
  await other.cancel(id);

  const triggered = await service.ask("POST", "/trigger", { body: { jobName: "ecko", input: {} } });
  const retriggered = await service.ask("POST", `/retrigger?runId=${id}`);

  assert.deepEqual([triggered.status, triggered.body], [404, { error: 'There is no job "ecko"', code: "not_found" }]);
  assert.deepEqual(
    [retriggered.status, retriggered.body],
    [404, { error: 'There is no job "lossy"', code: "not_found" }],
  );
});

forEachStore("waitForRun() that times out says how the run is doing, and that no worker lives", async (context) => {
  const { store, host } = context;
  await using triggering = anEngine(context);
  await using other = createEngine({ store, host, jobs: { echo } });
  await other.start();
  const waiting = async () => {
    const { id } = await triggering.trigger("approval", 1);
    const timedOut = triggering.waitForRun(id, { timeout: 1_000 }).catch((error) => error);
    await pass(host, 1_000);
    const { code, message } = await timedOut;
    return [code, message.replace(id, "ID")];
  };

  const withoutWorker = await waiting();
  await triggering.start();
  const withWorker = await waiting();

  assert.deepEqual(withoutWorker, [
    "timeout",
    'Run "ID" has not completed within 1000 ms: it is pending, and no live worker has job "approval"; ' +
    "call start() on an engine that has this job",
  ]);
  assert.deepEqual(withWorker, ["timeout", 'Run "ID" has not completed within 1000 ms: it is waiting']);
});

forEachStore("signal() of a run's id says that it is none of a wait", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("approval", 1);

  const toRun = engine.signal(id, { signalId: "s", payload: 1 });

  await assert.rejects(toRun, (error: Error) => {
    assert.ok(error instanceof NotFoundError);
    assert.equal(
      error.message,
      `"${id}" is the id of a run: signal one of its waits, which engine.getWaits() lists`,
    );
    return true;
  });
  const toNothing = engine.signal("nothing", { signalId: "s", payload: 1 });
  await assert.rejects(toNothing, { code: "not_found", message: /"nothing"/ });
});

forEachStore("what is asked of a run by the id of a wait says whose wait it is", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("approval", 1);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  const refusal = {
    code: "not_found",
    message: `"${wait!.id}" is the id of a wait, not of a run: it belongs to run "${id}"`,
  };

  await assert.rejects(engine.waitForRun(wait!.id), refusal);
  await assert.rejects(engine.cancel(wait!.id), refusal);
  await assert.rejects(engine.getSteps(wait!.id), refusal);
});

forEachStore("an output that cannot be stored as JSON names its job", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("lossy", 1);

  await engine.runUntilIdle();

  const { error } = (await engine.getRun(id))!;
  assert.equal(error, 'The output of job "lossy" cannot be stored as JSON: a Map at $.seen');
});

forEachStore("a trigger of what is no job, or of what is no list, says what it needs", async (context) => {
  await using engine = anEngine(context);

  for (const odd of [null, undefined, {}, { name: "echo" }]) {
    await assert.rejects(async () => await engine.trigger(odd as never, 1), {
      name: "TypeError",
      message: /^A trigger needs a job: what defineJob\(\) makes, or its name, not /,
    });
  }
  await assert.rejects(engine.jobs.echo.batchTrigger({} as never), {
    name: "TypeError",
    message: "batchTrigger() takes an array of items, not an object",
  });
  await assert.rejects(engine.jobs.echo.batchTrigger([{ input: 1 }, null as never]), {
    name: "TypeError",
    message: /^An item of batchTrigger\(\) takes an object with input, .* not null$/,
  });
});

forEachStore("signal() of an unknown wait says the same on each store", async (context) => {
  await using engine = anEngine(context);

  await assert.rejects(engine.signal("nonsense", { signalId: "1", payload: null }), {
    name: "NotFoundError",
    message: 'There is no wait "nonsense"',
  });
});

forEachStore("options that are no object are refused by name", async (context) => {
  await using engine = anEngine(context);
  const selection = { runIds: [] };

  for (const operation of ["cancelRuns", "retriggerRuns", "deleteRuns"] as const) {
    await assert.rejects(engine[operation](selection, null as never), {
      name: "TypeError",
      message: new RegExp(`^${operation}\\(\\) takes an object with dryRun, limit, cursor.* not null$`),
    });
  }
  await assert.rejects(engine.jobs.echo.triggerAndWait(1, null as never), {
    name: "TypeError",
    message: /^triggerAndWait\(\) takes an object with .*timeout, not null$/,
  });
});

forEachStore("a value that is nested too deep is refused in every place", async ({ store, host }) => {
  const deep = JSON.parse("[".repeat(40_000) + "]".repeat(40_000));
  const message = /cannot be stored as JSON: it is nested more than 1000 levels deep$/;
  const lines: unknown[] = [];
  const job = aJob(async (step) => {
    step.log.info("deep", deep);
    await assert.rejects(step.run("result", () => deep), message);
    await assert.rejects(step.prepareWait("metadata", { metadata: deep }), message);
    await step.wait("review");
    return deep;
  }, "deep");
  await using engine = createEngine({ store, host, jobs: { job, echo } });
  engine.on("log:write", ({ data }) => lines.push(data));
  const { id } = await engine.trigger("deep", 1);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);

  await assert.rejects(engine.trigger("echo", deep), message);
  await assert.rejects(engine.signal(wait!.id, { signalId: "a", payload: deep }), message);
  await assert.rejects(engine.trigger("echo", 1, { labels: deep }), { message: /labels must be/ });
  await engine.signal(wait!.id, { signalId: "a", payload: 1 });
  await engine.runUntilIdle();

  assert.match((await engine.getRun(id))!.error!, message);
  assert.match((lines as { error: string }[])[0]!.error, message);
});

forEachStore("a value of 1,000 levels is stored in every place", async ({ store, host }) => {
  const deep = JSON.parse("[".repeat(1_000) + "]".repeat(1_000));
  const job = aJob(async (step, input) => {
    step.log.info("deep", deep);
    await step.run("result", () => input);
    const answer = await step.wait("review", { metadata: deep });
    return answer.outcome === "signal" ? answer.payload : null;
  }, "deep");
  await using engine = createEngine({ store, host, jobs: { job } });
  engine.use(persistLogs());
  const { id } = await engine.trigger("deep", deep);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await engine.signal(wait!.id, { signalId: "a", payload: deep });
  await engine.signal(wait!.id, { signalId: "a", payload: deep });
  await engine.runUntilIdle();

  const text = JSON.stringify(deep);
  assert.equal(JSON.stringify((await engine.getRun(id))!.output), text);
  assert.equal(JSON.stringify((await engine.getSteps(id))[0]!.output), text);
  assert.equal(JSON.stringify((await engine.getWaits(id))[0]!.metadata), text);
  assert.equal(JSON.stringify((await engine.getLogs(id))[0]!.data), text);
});
