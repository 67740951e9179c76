import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { createEngine } from "../../src/engine/create_engine.ts";
import type { EngineOptions } from "../../src/engine/engine_options.ts";
import type { Jobs } from "../../src/engine/job_handle.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { StepOptions } from "../../src/model/job/step_calls.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { anything } from "../support/stores/for_each_store.ts";

const job = defineJob({ name: "job", input: anything, run: () => 1 });

/** Makes an engine as JavaScript can: with options that the types forbid. */
function create(options: Record<string, unknown>) {
  return createEngine({ store: new MemoryStore(), jobs: { job }, ...options } as unknown as EngineOptions<Jobs>);
}

Deno.test("an option that does not exist is refused by name, wherever options are taken", async () => {
  const store = new MemoryStore();
  const run = (step: StepContext, input: unknown) => step.run("read", () => 1, (input ?? undefined) as StepOptions);
  const job = defineJob({ name: "job", input: anything, run });
  await using engine = createEngine({ store, jobs: { job }, logger: null });
  const given = (options: object) => options as never; // as JavaScript would
  const { id } = await engine.trigger(job, { retrys: {} });
  await engine.runUntilIdle();

  const refusals: [call: () => unknown, message: RegExp][] = [
    [() => engine.trigger("job", null, given({ idempotencykey: "a" })), /^trigger\(\) has no option "idempotencykey"/],
    [() => engine.jobs.job.triggerAndWait(null, given({ timeOut: 1 })), /^triggerAndWait\(\) has no option "timeOut"/],
    [() => engine.retrigger(id, given({ form: "failure" })), /^retrigger\(\) has no option "form"; it has from, by$/],
    [() => engine.runUntilIdle(given({ maxruns: 1 })), /^runUntilIdle\(\) has no option "maxruns"/],
    [() => engine.waitForRun(id, given({ timeuot: 5 })), /^waitForRun\(\) has no option "timeuot"; it has timeout$/],
    [() => engine.getRuns(given({ jobname: "job" })), /^getRuns\(\) has no option "jobname"; it has jobName, status/],
    [() => engine.jobs.job.getRuns(given({ label: {} })), /^getRuns\(\) has no option "label"; it has jobName, status/],
    [() => new MemoryStore(given({ hosts: 1 })), /^MemoryStore\(\) has no option "hosts"; it has host, journalLength$/],
    [() => createEngine({ store, jobs: given([job]) }), /^createEngine\(\) needs jobs: an object .* not an Array$/],
    [() => engine.stop(given(500 as never)), /^stop\(\) takes an object with timeout, not a number$/],
    [
      () => defineJob({ name: "j", input: anything, run, retry: given({ attempts: 3 }) }),
      /^retry has no option "attempts"/,
    ],
    [() => defineJob({ name: "j", input: anything, run, retry: given(3 as never) }), /^retry takes an object with max/],
    [
      () => SqliteStore.open(":memory:", given({ secureDelet: true })),
      /^SqliteStore\.open\(\) has no option "secureDelet"/,
    ],
    [() => SqliteStore.open(":memory:", given({ synchronous: "off" })), /must be "full" or "normal", not "off"$/],
  ];

  for (const [call, message] of refusals) {
    await assert.rejects(
      async () => await call(),
      (error) => error instanceof TypeError && message.test(error.message),
    );
  }
  assert.match((await engine.getRun(id))!.error!, /^step\.run\(\) has no option "retrys"/);
});

const PAUSES: [name: string, call: (step: StepContext, options: never) => Promise<unknown>, known: string][] = [
  ["step.wait", (step, options) => step.wait("w", options), "timeout, deadline, metadata, schema"],
  ["step.prepareWait", (step, options) => step.prepareWait("w", options), "timeout, deadline, metadata, schema"],
  ["step.waitFor", async (step, options) => step.waitFor(await step.prepareWait("w"), options), "schema"],
];

for (const [name, call, known] of PAUSES) {
  Deno.test(`${name}() refuses an option that does not exist`, async () => {
    const job = defineJob({ name: "job", input: anything, run: (step) => call(step, { timeuot: 5 } as never) });
    await using engine = createEngine({ store: new MemoryStore(), jobs: { job }, logger: null });
    const { id } = await engine.jobs.job.trigger(null);

    await engine.runUntilIdle();

    assert.equal((await engine.getRun(id))!.error, `${name}() has no option "timeuot"; it has ${known}`);
  });
}

const REFUSALS: [description: string, options: Record<string, unknown>, message: RegExp][] = [
  [
    "an unknown option",
    { retentions: {} },
    /^createEngine\(\) has no option "retentions"; it has store, jobs, dataSources, worker, retention/,
  ],
  [
    "an unknown option of the worker",
    { worker: { pollInterval: 5 } },
    /^worker has no option "pollInterval"; it has poll/,
  ],
  [
    "an unknown status to keep",
    { retention: { complete: 5 } },
    /^retention has no option "complete"; it has completed/,
  ],
  ["no store", { store: undefined }, /^createEngine\(\) needs a store: new MemoryStore\(\) or await SqliteStore\.open/],
  ["a store that is a path", { store: "jobs.db" }, /^The store must be one such as .*, not a string$/],
  ["a store that is some object", { store: { claim: 1 } }, /^The store must be one such as .*, not an object$/],
  [
    "no jobs",
    { jobs: undefined },
    /^createEngine\(\) needs jobs: an object of what defineJob\(\) makes, not undefined$/,
  ],
  [
    "a job that is a function",
    { jobs: { mail: () => 1 } },
    /^jobs\.mail must be what defineJob\(\) makes, not a function$/,
  ],
  ["a job that is null", { jobs: { mail: null } }, /^jobs\.mail must be what defineJob\(\) makes, not null$/],
  [
    "a job without a schema",
    { jobs: { a: { name: "a", run() {} } } },
    /^jobs\.a must be what defineJob\(\) makes, not an obj/,
  ],
  [
    "a definition that was not given to defineJob()",
    { jobs: { a: { name: "a", input: job.input, run() {} } } },
    /^jobs\.a must be what defineJob\(\) makes, not an obj/,
  ],
  [
    "two jobs of one name",
    { jobs: { one: job, two: { ...job } } },
    /^Two jobs have the name "job": jobs\.one and jobs\.two$/,
  ],
];

for (const [description, options, message] of REFUSALS) {
  Deno.test(`createEngine() refuses ${description}, and says what to do`, () => {
    assert.throws(() => create(options), { name: "TypeError", message });
  });
}

Deno.test("createEngine() refuses a store that was not awaited, and says so", async () => {
  const opening = SqliteStore.open(":memory:");

  const act = () => create({ store: opening });

  assert.throws(act, { name: "TypeError", message: /^The store is a Promise: write `await` before SqliteStore\.open/ });
  await (await opening).close();
});

Deno.test("createEngine() refuses a database in place of a store, and says what makes one of it", () => {
  const database = new DatabaseSync(":memory:");

  const act = () => create({ store: database });

  assert.throws(act, { name: "TypeError", message: /^The store is a database: .*await SqliteStore\.from\(database\)/ });
  database.close();
});
