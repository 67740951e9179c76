import assert from "node:assert/strict";
import type { BulkOptions, BulkSelection } from "../../../src/engine/bulk/bulk_selection.ts";
import type { BulkResult } from "../../../src/engine/bulk/perform_bulk.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { StoreError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { anEngine, typesOf } from "../../support/engines.ts";
import { anything, forEachStore, recordEvents } from "../../support/stores/for_each_store.ts";
import { aJob } from "../../support/jobs.ts";
import type { FakeHost } from "../../support/fake_host.ts";
import type { BulkOperation } from "../../../src/model/run.ts";
import type { Store } from "../../../src/store/store.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const UNKNOWN = "01234567-89ab-7cde-8f01-23456789abcd";

/** Triggers runs of a job, and returns their ids, oldest first. */
async function trigger(engine: Engine, jobName: string, count: number): Promise<string[]> {
  const ids = [];
  for (let n = 0; n < count; n++) ids.push((await engine.trigger(jobName, { n }, { labels: { batch: "b" } })).id);
  return ids;
}

/** Calls a bulk operation until it has met all selected runs. */
async function callAll(
  call: (options: { cursor?: string }) => Promise<BulkResult>,
): Promise<{ calls: number; matched: number; done: number }> {
  const sum = { calls: 0, matched: 0, done: 0 };
  let options: { cursor?: string } | null = {};
  while (options !== null) {
    const result: BulkResult = await call(options);
    sum.calls += 1;
    sum.matched += result.matched;
    sum.done += result.done;
    assert.ok(sum.calls < 50, "the calls do not end");
    options = result.next === null ? null : { cursor: result.next };
  }
  return sum;
}

forEachStore(
  "cancelRuns() cancels what matches a filter and has not ended, each run with its event",
  async (context) => {
    await using engine = anEngine(context);
    await trigger(engine, "echo", 2);
    await engine.runUntilIdle();
    const pending = await trigger(engine, "echo", 3);
    const [other] = await trigger(engine, "fail", 1);
    const events = recordEvents(engine);

    const first = await engine.cancelRuns({ filter: { jobName: "echo" } });
    const second = await engine.cancelRuns({ filter: { jobName: "echo" } });

    assert.deepEqual(first, { matched: 3, done: 3, skipped: [], next: null });
    assert.deepEqual(second, { matched: 0, done: 0, skipped: [], next: null });
    assert.deepEqual(typesOf(events), Array(3).fill("run:cancel"));
    const { runs } = await engine.getRuns({ status: "cancelled" });
    assert.deepEqual(runs.map(({ id }) => id), pending.toReversed());
    assert.equal((await engine.getRun(other!))!.status, "pending");
  },
);

forEachStore("deleteRuns() deletes what matches a filter and has ended, call by call", async (context) => {
  await using engine = anEngine(context);
  await trigger(engine, "echo", 7);
  await engine.runUntilIdle();
  const [pending] = await trigger(engine, "echo", 1);
  const events = recordEvents(engine);

  const sum = await callAll((options) =>
    engine.deleteRuns({ filter: { labels: { batch: "b" } } }, { limit: 3, ...options })
  );

  assert.deepEqual(sum, { calls: 3, matched: 7, done: 7 });
  assert.deepEqual(typesOf(events), Array(7).fill("run:delete"));
  assert.deepEqual((await engine.getRuns()).runs.map(({ id }) => id), [pending]);
});

forEachStore("retriggerRuns() makes one new run for each, also when it is called again", async (context) => {
  await using engine = anEngine(context);
  const old = await trigger(engine, "fail", 3);
  await engine.runUntilIdle();
  const events = recordEvents(engine);

  const first = await engine.retriggerRuns({ filter: { jobName: "fail", status: "failed" } }, { from: "failure" });
  const second = await engine.retriggerRuns({ filter: { jobName: "fail", status: "failed" } });

  assert.deepEqual([first.done, second], [3, { matched: 0, done: 0, skipped: [], next: null }]);
  assert.deepEqual(typesOf(events).toSorted(), [...Array(3).fill("run:retry"), ...Array(3).fill("run:trigger")]);
  const { runs } = await engine.getRuns({ status: "pending" });
  assert.deepEqual(runs.map(({ retriggerOf }) => retriggerOf).toSorted(), old.toSorted());
});

forEachStore("retriggerRuns() skips a run that an open retry continues, whenever it is called", async (context) => {
  await using engine = anEngine(context);
  const [old] = await trigger(engine, "fail", 1);
  await engine.runUntilIdle();
  const branches: string[] = [];
  for (const _ of [1, 2]) {
    branches.push((await engine.retrigger(old!, { from: "failure" })).id);
    await engine.runUntilIdle();
  }

  const results = [];
  for (const _ of [1, 2]) results.push(await engine.retriggerRuns({ runIds: branches }, { from: "failure" }));

  assert.deepEqual(results.map(({ done }) => done), [1, 0]);
  assert.deepEqual(results.map(({ skipped }) => skipped.map(({ code }) => code)), [
    ["conflict"],
    Array(2).fill("conflict"),
  ]);
  assert.equal((await engine.getRuns({ status: "pending" })).total, 1);
});

forEachStore("retriggerRuns() never meets the runs that it has made, though they fail meanwhile", async (context) => {
  await using engine = anEngine(context);
  await trigger(engine, "fail", 5);
  await engine.runUntilIdle();

  const sum = await callAll(async (options) => {
    const result = await engine.retriggerRuns({ filter: { jobName: "fail" } }, { limit: 2, ...options });
    await engine.runUntilIdle();
    return result;
  });

  assert.deepEqual(sum, { calls: 3, matched: 5, done: 5 });
  assert.equal((await engine.getRuns({ status: "failed" })).total, 10);
});

forEachStore("retriggerRuns() twice at once makes one new run for each, and publishes it once", async (context) => {
  await using engine = anEngine(context);
  await trigger(engine, "fail", 4);
  await engine.runUntilIdle();
  const events = recordEvents(engine);

  await Promise.all([1, 2].map(() => engine.retriggerRuns({ filter: { jobName: "fail" } })));

  assert.equal((await engine.getRuns()).total, 8);
  const counts = ["run:trigger", "run:retry"].map((type) => events.filter((event) => event.type === type).length);
  assert.deepEqual(counts, [4, 4]);
});

forEachStore("a dry run changes nothing, and counts what would match", async (context) => {
  await using engine = anEngine(context);
  const ended = await trigger(engine, "fail", 3);
  await engine.runUntilIdle();
  await engine.retrigger(ended[0]!);
  const before = await engine.getRuns();
  const events = recordEvents(engine);
  const filter = { jobName: "fail" };

  const cancelled = await engine.cancelRuns({ filter }, { dryRun: true });
  const retriggered = await engine.retriggerRuns({ filter }, { dryRun: true, limit: 1 });
  const deleted = await engine.deleteRuns({ filter }, { dryRun: true });
  const named = await engine.retriggerRuns({ runIds: [...ended, UNKNOWN] }, { dryRun: true });

  assert.deepEqual([cancelled.matched, retriggered.matched, deleted.matched], [1, 2, 3]);
  for (const { done, skipped, next } of [cancelled, retriggered, deleted]) {
    assert.deepEqual([done, skipped, next], [0, [], null]);
  }
  assert.deepEqual(named, {
    matched: 4,
    done: 0,
    skipped: [{ runId: ended[0]!, code: "conflict" }, { runId: UNKNOWN, code: "not_found" }],
    next: null,
  });
  assert.deepEqual(events, []);
  assert.deepEqual(await engine.getRuns(), before);
});

forEachStore("a bulk operation by ids skips what refuses it, and meets each run once", async (context) => {
  await using engine = anEngine(context);
  const [done] = await trigger(engine, "echo", 1);
  await engine.runUntilIdle();
  const [pending, other] = await trigger(engine, "echo", 2);

  const cancelled = await engine.cancelRuns({ runIds: [done!, pending!, UNKNOWN, pending!] });
  const retriggered = await engine.retriggerRuns({ runIds: [done!, pending!, other!] });
  const again = await engine.retriggerRuns({ runIds: [done!, pending!, other!] });
  const deleted = await engine.deleteRuns({ runIds: [done!, other!] });

  const refused = (runId: string | undefined, code: string) => ({ runId, code });
  assert.deepEqual(cancelled, {
    matched: 3,
    done: 1,
    skipped: [refused(done, "conflict"), refused(UNKNOWN, "not_found")],
    next: null,
  });
  assert.deepEqual([retriggered.done, retriggered.skipped], [2, [refused(other, "conflict")]]);
  assert.deepEqual([again.done, again.skipped.map(({ code }) => code)], [0, Array(3).fill("conflict")]);
  assert.deepEqual([deleted.done, deleted.skipped], [1, [refused(other, "conflict")]]);
});

forEachStore("a bulk operation by ids continues with its cursor", async (context) => {
  await using engine = anEngine(context);
  const runIds = await trigger(engine, "echo", 5);

  const sum = await callAll((options) => engine.cancelRuns({ runIds }, { limit: 2, ...options }));

  assert.deepEqual(sum, { calls: 3, matched: 5, done: 5 });
});

forEachStore("retriggerRuns() skips runs whose job is gone or refuses the input", async ({ store, host }) => {
  const loose = defineJob({ name: "strict", input: anything, run: () => 1 });
  await using before = createEngine({ store, host, jobs: { loose, gone: aJob(() => 1, "gone") } });
  const ids = [(await before.trigger("strict", { n: 1 })).id, (await before.trigger("gone", null)).id];
  await before.runUntilIdle();
  const refusing = { validate: () => ({ issues: [{ message: "no" }] }) };
  const input = { "~standard": { version: 1 as const, vendor: "test", ...refusing } };
  await using engine = createEngine({
    store,
    host,
    jobs: { strict: defineJob({ name: "strict", input, run: () => 1 }) },
  });

  const { done, skipped } = await engine.retriggerRuns({ filter: { status: "completed" } });

  assert.equal(done, 0);
  assert.deepEqual(skipped, [{ runId: ids[1], code: "not_found" }, { runId: ids[0], code: "invalid_input" }]);
});

forEachStore("a call ends when its time is over, and the next one continues", async ({ store, host }) => {
  const { cancel } = store;
  store.cancel = (...args) => {
    host.advance(30);
    return cancel.apply(store, args);
  };
  await using engine = anEngine({ store, host });
  await trigger(engine, "echo", 10);

  const first = await engine.cancelRuns({ filter: { jobName: "echo" } });
  const sum = await callAll((options) => engine.cancelRuns({ filter: { jobName: "echo" } }, options));

  assert.deepEqual([first.done, first.next === null], [4, false]);
  assert.deepEqual([sum.done, sum.calls], [6, 2]);
});

forEachStore("a call that the store fails can be repeated", async ({ store, host }) => {
  const remove = store.delete;
  let calls = 0;
  store.delete = (...args) => {
    if (++calls === 3) return Promise.reject(new StoreError("busy"));
    return remove.apply(store, args);
  };
  await using engine = anEngine({ store, host });
  await trigger(engine, "echo", 5);
  await engine.runUntilIdle();

  await assert.rejects(engine.deleteRuns({ filter: { jobName: "echo" } }), StoreError);
  const again = await engine.deleteRuns({ filter: { jobName: "echo" } });

  assert.equal((await engine.getRuns()).total, 0);
  assert.deepEqual([again.done, again.skipped, again.next], [1, [], null]);
});

forEachStore("a long bulk operation lets others have their turns", async ({ store, host }) => {
  await using engine = anEngine({ store, host });
  await engine.jobs.echo.batchTrigger(Array.from({ length: 1_200 }, (_, n) => ({ input: { n } })));
  const events = recordEvents(engine);
  let [turns, isOver] = [0, false];
  const takeTurn = () => {
    turns += 1;
    if (!isOver) host.defer(takeTurn);
  };
  host.defer(takeTurn);

  const sum = await callAll((options) => engine.cancelRuns({ filter: { jobName: "echo" } }, options));

  isOver = true;
  assert.deepEqual([sum.done, sum.calls, events.length], [1_200, 3, 1_200]);
  assert.ok(turns >= 1_200 / 50, `${turns} turns`);
});

const CALLS: Record<BulkOperation, (engine: Engine) => Engine["cancelRuns"]> = {
  cancel: (engine) => engine.cancelRuns.bind(engine),
  retrigger: (engine) => engine.retriggerRuns.bind(engine),
  resume: (engine) => engine.resumeRuns.bind(engine),
  delete: (engine) => engine.deleteRuns.bind(engine),
};

const REFUSED: [selection: unknown, options: unknown, error: RegExp][] = [
  [{ filter: {} }, {}, /must not be empty/],
  [{ filter: { labels: {} } }, {}, /must not be empty/],
  [{ filter: { jobName: undefined } }, {}, /must not be empty/],
  [{ filter: { limit: 1 } }, {}, /no option "limit"/],
  [{ filter: { job: "echo" } }, {}, /no option "job"/],
  [{ filter: { status: "done" } }, {}, /status must be one of/],
  [{}, {}, /either runIds or a filter/],
  [{ runIds: [], filter: { jobName: "echo" } }, {}, /either runIds or a filter/],
  [{ runIds: "id" }, {}, /runIds must be an array/],
  [{ runIds: [1] }, {}, /A run id/],
  [{ runIds: Array(1_001).fill("a") }, {}, /at most 1000 ids/],
  [{ runIds: [], ids: [] }, {}, /no option "ids"/],
  [null, {}, /takes an object/],
  [{ filter: { jobName: "echo" } }, { limit: 0 }, /limit must be/],
  [{ filter: { jobName: "echo" } }, { limit: 1_001 }, /limit must be/],
  [{ filter: { jobName: "echo" } }, { dryRun: "yes" }, /dryRun must be/],
  [{ filter: { jobName: "echo" } }, { dryrun: true }, /no option "dryrun"/],
  [{ filter: { jobName: "echo" } }, { cursor: "i5" }, /cursor must be/],
  [{ runIds: [] }, { cursor: "r5" }, /cursor must be/],
  [{ runIds: [] }, { cursor: 5 }, /cursor must be/],
];

for (const [name, callOf] of Object.entries(CALLS)) {
  forEachStore(`${name}Runs() refuses wrong selections and options, and changes nothing`, async (context) => {
    await using engine = anEngine(context);
    await trigger(engine, "echo", 2);
    await engine.runUntilIdle();
    await trigger(engine, "echo", 2);
    const before = await engine.getRuns();

    for (const [selection, options, error] of REFUSED) {
      const call = Promise.try(() => callOf(engine)(selection as BulkSelection, options as BulkOptions));
      await assert.rejects(call, error, JSON.stringify([selection, options]));
    }

    assert.deepEqual(await engine.getRuns(), before);
  });
}

forEachStore("retriggerRuns() refuses a wrong from, and the others refuse any", async (context) => {
  await using engine = anEngine(context);
  const selection = { runIds: [UNKNOWN] };

  const wrong = engine.retriggerRuns(selection, { from: "end" as "start" });
  await assert.rejects(wrong, /from must be/);
  await assert.rejects(engine.cancelRuns(selection, { from: "start" } as BulkOptions), /no option "from"/);
  await assert.rejects(engine.deleteRuns(selection, { from: "start" } as BulkOptions), /no option "from"/);
});

/** Executes runs that fail with these errors, and returns their ids. */
async function failWith(engine: Engine, errors: readonly string[]): Promise<string[]> {
  const ids = [];
  for (const message of errors) ids.push((await engine.trigger("failing", message)).id);
  await engine.runUntilIdle();
  return ids;
}

/** Lets time pass whenever runs are read. */
function slowDown(store: Store, host: FakeHost, ms: number): void {
  const { readRuns } = store;
  store.readRuns = (...args) => {
    host.advance(ms);
    return readRuns.apply(store, args);
  };
}

const failing = aJob((_step, message) => {
  throw new Error(String(message));
}, "failing");

forEachStore("retriggerRuns() retriggers the runs of one group of failures alone", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { failing } });
  const [first, , third] = await failWith(engine, ["no answer after 20 s", "no such file", "no answer after 30 s"]);
  const { groups: [group] } = await engine.getFailures();
  const filter = { jobName: "failing", error: group!.error };

  const dry = await engine.retriggerRuns({ filter }, { dryRun: true });
  const result = await engine.retriggerRuns({ filter });

  assert.deepEqual(dry, { matched: 2, done: 0, skipped: [], next: null });
  assert.deepEqual(result, { matched: 2, done: 2, skipped: [], next: null });
  const { runs } = await engine.getRuns({ status: "pending" });
  assert.deepEqual(runs.map(({ retriggerOf }) => retriggerOf), [first, third]);
});

forEachStore("a dry run by a filter counts for 100 ms, and goes on in the next call", async ({ store, host }) => {
  await using engine = anEngine({ store, host });
  await trigger(engine, "echo", 9);
  const findRuns = store.findRuns.bind(store);
  store.findRuns = (query) => {
    host.advance(60);
    return findRuns({ ...query, countUpTo: 2 });
  };
  const filter = { labels: { batch: "b" } };

  const { calls, matched } = await callAll((options) => engine.cancelRuns({ filter }, { dryRun: true, ...options }));

  assert.deepEqual([calls, matched], [3, 9]);
});

forEachStore("deleteRuns() by an error continues where a call has ended", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { failing } });
  await failWith(engine, Array.from({ length: 250 }, (_, n) => n % 100 === 7 ? "rare" : "frequent"));

  const filter = { error: "rare" };
  const one = await engine.deleteRuns({ filter }, { limit: 1 });
  const rest = await callAll((options) => engine.deleteRuns({ filter }, { cursor: one.next!, ...options, limit: 1 }));
  const others = await engine.getRuns({ limit: 0 });

  assert.deepEqual([one.matched, one.done], [1, 1]);
  assert.deepEqual([rest.matched, rest.done], [2, 2]);
  assert.equal(others.total, 247);
});

forEachStore("a search by an error leaves time to change the runs that it finds", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { failing } });
  await failWith(engine, Array.from({ length: 400 }, (_, n) => n % 2 === 0 ? "even" : "odd"));
  slowDown(store, host, 30);

  const first = await engine.deleteRuns({ filter: { error: "even" } });
  const sum = await callAll((options) => engine.deleteRuns({ filter: { error: "even" } }, options));

  assert.deepEqual([first.done, first.next === null], [100, false]);
  assert.deepEqual([sum.done, sum.calls], [100, 2]); // it reads the 100 that are odd again
});

forEachStore("a search by an error lets others have their turns", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { failing } });
  await failWith(engine, Array(400).fill("boom"));
  slowDown(store, host, 10);
  let [turns, isOver] = [0, false];
  const takeTurn = () => {
    turns += 1;
    if (!isOver) host.defer(takeTurn);
  };
  host.defer(takeTurn);

  const { matched } = await engine.deleteRuns({ filter: { error: "boom" } }, { dryRun: true });

  isOver = true;
  assert.equal(matched, 400);
  assert.ok(turns >= 3, `${turns} turns`); // one after each of the four reads but the last
});

forEachStore("a bulk operation that is not possible on failed runs meets none by an error", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { failing } });
  await failWith(engine, ["boom"]);
  await engine.trigger("failing", "boom");

  const cancelled = await engine.cancelRuns({ filter: { error: "boom" } });
  const completed = await engine.deleteRuns({ filter: { error: "boom", status: "completed" } });

  assert.deepEqual([cancelled.matched, completed.matched], [0, 0]);
});

forEachStore("a bulk operation refuses an error that is not valid", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { failing } });

  for (const error of ["", "x".repeat(8_193), 5, null]) {
    const call = engine.deleteRuns({ filter: { jobName: "failing", error: error as string } });
    await assert.rejects(call, /error must be a string of 1 to 8192 characters/);
  }
});
