import assert from "node:assert/strict";
import { AroundHooks } from "../../../src/model/around.ts";
import { Calendar } from "../../../src/engine/schedules/calendar.ts";
import type { ScheduleOptions } from "../../../src/engine/schedules/schedule_options.ts";
import { Scheduler } from "../../../src/engine/schedules/scheduler.ts";
import { ChangeWatch } from "../../../src/events/change_watch.ts";
import { Hub } from "../../../src/events/hub.ts";
import type { EventOf } from "../../../src/model/event.ts";
import { StoreError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Run } from "../../../src/model/run.ts";
import type { Schema } from "../../../src/model/schema.ts";
import type { Store } from "../../../src/store/store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { failing, first } from "../../support/stores/failing_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aRun } from "../../support/fixtures.ts";
import { anything, forEachStore, pass, recordEvents, type StoreTest } from "../../support/stores/for_each_store.ts";
import { aJob, echo } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { withFile } from "../../support/stores/sqlite.ts";
import { getRuns } from "../../../src/store/reads.ts";

const SECOND = 1_000;
const MINUTE = 60_000;
const DAY = 86_400_000;
const MINUTELY = { job: echo, input: 1, cron: "* * * * *" } as const;

/** An engine of `echo` with one schedule, `s`. */
function anEngine({ store, host }: StoreTest, schedule: Partial<ScheduleOptions> = {}) {
  return createEngine({ store, host, jobs: { echo }, schedules: { s: { ...MINUTELY, ...schedule } as never } });
}

/** The slots of all runs, oldest first. */
async function slots(store: Store): Promise<(string | null)[]> {
  const runs: Run[] = (await getRuns(store, { limit: 1_000 })).runs;
  return runs.map(({ slotAt }) => slotAt && slotAt.slice(11, 19)).reverse();
}

/** The skips among events. */
function skips(
  events: readonly { type: string }[],
): Omit<EventOf<"schedule:skip">, "type" | "timestamp" | "sequence">[] {
  return (events.filter(({ type }) => type === "schedule:skip") as EventOf<"schedule:skip">[])
    .map(({ scheduleName, slotAt, reason, skipped }) => ({ scheduleName, slotAt, reason, skipped }));
}

/** The store, with the calls that it gets. */
function noting(store: Store): { store: Store; calls: string[] } {
  const calls: string[] = [];
  const noted = new Proxy(store, {
    get: (target, name) => {
      const member = target[name as keyof Store] as unknown;
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => {
        calls.push(String(name));
        return member.apply(target, given);
      };
    },
  });
  return { store: noted, calls };
}

forEachStore("a schedule fires each slot when it is due, and wakes the worker", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const events = recordEvents(engine);
  await engine.start();

  await pass(host, 3 * MINUTE, 250);

  const { runs } = await engine.getRuns();
  assert.deepEqual(await slots(store), ["00:01:00", "00:02:00", "00:03:00"]);
  for (const { createdAt, slotAt, status, scheduleName } of runs) {
    assert.deepEqual([createdAt, status, scheduleName], [slotAt, "completed", "s"]);
  }
  assert.deepEqual(
    events.flatMap((event) => event.type === "run:trigger" ? [[event.runId, event.scheduleName, event.slotAt]] : []),
    runs.map(({ id, slotAt }) => [id, "s", slotAt]).reverse(),
  );
  const schedule = (await engine.schedules.get("s"))!;
  assert.deepEqual([schedule.lastSlotAt, schedule.lastRunId, schedule.skipped], [runs[0]!.slotAt, runs[0]!.id, 0]);
});

forEachStore("a schedule of seconds fires every second", async (context) => {
  await using engine = anEngine(context, { cron: "* * * * * *" });
  await engine.start();

  await pass(context.host, 5 * SECOND, 100);

  assert.deepEqual(await slots(context.store), [1, 2, 3, 4, 5].map((second) => `00:00:0${second}`));
});

forEachStore(
  "a slot is skipped while a run of the schedule has not ended, and schedule:skip says so",
  async ({ store, host }) => {
    let end = Promise.withResolvers<void>();
    const slow = aJob(() => end.promise, "slow");
    await using engine = createEngine({ store, host, jobs: { slow }, schedules: { s: { ...MINUTELY, job: slow } } });
    const events = recordEvents(engine);
    await engine.start();
    await pass(host, 3 * MINUTE, 500);

    end.resolve();
    end = Promise.withResolvers();
    end.resolve();
    await pass(host, MINUTE, 500);

    assert.deepEqual(await slots(store), ["00:01:00", "00:04:00"]);
    assert.deepEqual(
      skips(events),
      ["00:02:00", "00:03:00"].map((time) => ({
        scheduleName: "s",
        slotAt: `2040-01-01T${time}.000Z`,
        reason: "overlap",
        skipped: 1,
      })),
    );
    assert.equal((await engine.schedules.get("s"))!.skipped, 2);
  },
);

forEachStore("with overlap `allow` a slot adds a run beside one that has not ended", async ({ store, host }) => {
  const end = Promise.withResolvers<void>();
  const slow = aJob(() => end.promise, "slow");
  const schedule = { ...MINUTELY, job: slow, overlap: "allow" } as const;
  await using engine = createEngine({ store, host, jobs: { slow }, schedules: { s: schedule } });
  await engine.start();

  await pass(host, 3 * MINUTE, 500);
  end.resolve();

  assert.deepEqual(await slots(store), ["00:01:00", "00:02:00", "00:03:00"]);
});

const CAUGHT_UP: [catchUp: "last" | "none" | "all", awayMs: number, fired: string[], skipped: number][] = [
  ["last", 3 * MINUTE + 30 * SECOND, ["00:03:00"], 2],
  ["last", 400 * DAY, ["00:00:00"], 400 * 1_440 - 1],
  ["none", 3 * MINUTE + 30 * SECOND, ["00:03:00"], 2],
  ["all", 3 * MINUTE + 30 * SECOND, ["00:01:00", "00:02:00", "00:03:00"], 0],
];

for (const [catchUp, awayMs, fired, skipped] of CAUGHT_UP) {
  forEachStore(
    `catchUp ${catchUp} fires ${fired.length} of the slots of ${awayMs / MINUTE} minutes`,
    async (context) => {
      const { store, host } = context;
      const engine = anEngine(context, { catchUp, overlap: "allow" });
      await engine.start();
      await engine.stop();
      host.advance(awayMs);
      const events = recordEvents(engine);

      await engine.start();
      await pass(host, 10, 10);
      await host.settle();

      assert.deepEqual(await slots(store), fired);
      assert.equal((await engine.schedules.get("s"))!.skipped, skipped);
      const late = { scheduleName: "s", slotAt: "2040-01-01T00:01:00.000Z", reason: "late", skipped };
      assert.deepEqual(skips(events), skipped === 0 ? [] : [late]);
      await engine.stop();
    },
  );
}

forEachStore(
  "catchUp none fires a slot that is found within 60 seconds, and none that is found later",
  async (context) => {
    const { store, host } = context;
    const engine = anEngine(context, { catchUp: "none", cron: "*/10 * * * *" });
    const events = recordEvents(engine);
    await engine.runUntilIdle();

    host.advance(11 * MINUTE); // a minute late
    await engine.runUntilIdle();
    host.advance(10 * MINUTE + 1); // a millisecond more
    await engine.runUntilIdle();

    assert.deepEqual(await slots(store), ["00:10:00"]);
    assert.deepEqual(skips(events), [
      { scheduleName: "s", slotAt: "2040-01-01T00:20:00.000Z", reason: "late", skipped: 1 },
    ]);
    const { skipped, lastSlotAt, nextRuns } = (await engine.schedules.get("s"))!;
    assert.deepEqual([skipped, lastSlotAt, nextRuns[0]], [1, "2040-01-01T00:20:00.000Z", "2040-01-01T00:30:00.000Z"]);
  },
);

forEachStore("catchUp all fires the newest hundred of a year of seconds, in their order", async (context) => {
  const { host } = context;
  const engine = anEngine(context, { cron: "* * * * * *", catchUp: "all", overlap: "allow" });
  await engine.schedules.list();
  await engine.start();
  await engine.stop();
  host.advance(365 * DAY);

  await engine.runUntilIdle();

  const expected = Array.from({ length: 100 }, (_, no) => new Date(host.now() - (99 - no) * SECOND).toISOString());
  const { runs, total } = await engine.getRuns({ limit: 1_000 });
  assert.deepEqual([total, runs.map(({ slotAt }) => slotAt).reverse()], [100, expected]);
  assert.equal((await engine.schedules.get("s"))!.skipped, 365 * 86_400 - 100);
});

forEachStore("runUntilIdle() fires what is due, and executes it", async (context) => {
  const engine = anEngine(context);

  const before = await engine.runUntilIdle();
  context.host.advance(MINUTE);
  const after = await engine.runUntilIdle();

  assert.partialDeepStrictEqual([before, after], [{ executed: 0 }, { executed: 1 }]);
});

forEachStore(
  "a declared schedule fires only through engines that declare it; one that was set, through any with its job",
  async ({ store, host }) => {
    await using declaring = createEngine({ store, host, jobs: { echo }, schedules: { declared: MINUTELY } });
    await declaring.start();
    await declaring.schedules.set("set", { ...MINUTELY, overlap: "allow" });
    await declaring.stop();
    await using other = createEngine({ store, host, jobs: { echo } });
    await other.start();
    await pass(host, 2 * MINUTE, 500);
    await other.stop();
    await using foreign = createEngine({ store, host, jobs: { other: aJob(() => {}, "other") } });
    await foreign.start();
    await pass(host, 2 * MINUTE, 500);

    const { runs } = await getRuns(store, {});
    assert.deepEqual(runs.map(({ scheduleName }) => scheduleName), ["set", "set"]);

    await foreign.stop();
    await declaring.start();
    await pass(host, 10, 10);
    const { total } = await getRuns(store, {});
    assert.equal(total, 4, "both have caught up");
  },
);

forEachStore(
  "an engine whose schedules are not due only reads: neither foreign nor paused ones make it spin",
  async (context) => {
    const { store, host } = context;
    const declaring = createEngine({ ...context, jobs: { echo }, schedules: { foreign: MINUTELY } });
    await declaring.start();
    await declaring.schedules.set("paused", MINUTELY);
    await declaring.schedules.pause("paused");
    await declaring.schedules.set("unknown", { ...MINUTELY });
    await declaring.schedules.set("later", { ...MINUTELY, cron: "@yearly" });
    await declaring.stop();
    host.advance(10 * MINUTE);
    const { store: noted, calls } = noting(store);
    await using engine = createEngine({
      store: noted,
      host,
      jobs: { other: aJob(() => {}, "other") },
      worker: { pollingInterval: 60_000 },
    });
    await engine.start();
    await pass(host, SECOND, 100);
    calls.length = 0;

    await pass(host, 10 * SECOND, 100);

    assert.deepEqual(calls.filter((name) => /Schedule$/.test(name)), []);
    const reads = calls.filter((name) => name === "getSchedules").length;
    assert.ok(reads >= 9 && reads <= 11, `${reads} reads`);
  },
);

forEachStore("a schedule that another engine has set fires through this one", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo } });
  await engine.start();
  await pass(host, 10 * SECOND, 500);
  const other = createEngine({ store, host, jobs: { echo } });

  await other.schedules.set("s", { ...MINUTELY, cron: "*/5 * * * * *" });
  await pass(host, 10 * SECOND, 500);

  assert.deepEqual(await slots(store), ["00:00:15", "00:00:20"]);
});

forEachStore("several engines fire each slot once, also over restarts", async (context) => {
  const { store, host } = context;
  const engines = [1, 2, 3].map(() => anEngine(context, { cron: "*/10 * * * * *", catchUp: "all" }));
  const triggers: string[] = [];
  for (const engine of engines) engine.on("run:trigger", ({ runId }) => void triggers.push(runId));
  for (const engine of engines) await engine.start();

  for (const engine of engines) {
    await pass(host, 20 * SECOND, 250);
    await engine.stop();
    await pass(host, 15 * SECOND, 250);
    await engine.start();
  }
  await pass(host, 10 * SECOND, 250);

  const fired = await slots(store);
  assert.deepEqual(fired, [...new Set(fired)]);
  assert.equal(fired.length, 11);
  assert.equal(new Set(triggers).size, triggers.length);
  assert.equal(triggers.length, 11);
  for (const engine of engines) await engine.stop();
});

forEachStore("the options of a schedule are those of its triggers", async ({ store, host }) => {
  const options = { priority: 7, fairnessKey: "acme", startWithin: 5 * SECOND, finishWithin: MINUTE };
  const engine = anEngine({ store, host }, options);
  await engine.runUntilIdle();
  host.advance(MINUTE);

  await engine.runUntilIdle();

  const [run] = (await engine.getRuns()).runs;
  const { priority, fairnessKey, startBy, finishBy } = run!;
  assert.deepEqual(
    { priority, fairnessKey, startBy, finishBy },
    { priority: 7, fairnessKey: "acme", startBy: "2040-01-01T00:01:05.000Z", finishBy: "2040-01-01T00:02:00.000Z" },
  );
  assert.equal((await engine.schedules.get("s"))!.priority, 7);
});

Deno.test("two engines with one SQLite file fire each slot once", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    const stores = await Promise.all([SqliteStore.open(path, { host }), SqliteStore.open(path, { host })]);
    const engines = stores.map((store) => anEngine({ store, host }, { cron: "* * * * * *", overlap: "allow" }));
    for (const engine of engines) await engine.start();

    for (let second = 0; second < 20; second++) {
      await pass(host, SECOND, 100);
      await host.settle(100);
    }

    for (const engine of engines) await engine.stop();
    const { runs, total } = await getRuns(stores[0]!, { limit: 100 });
    const { skipped } = (await engines[0]!.schedules.get("s"))!;
    assert.equal(new Set(runs.map(({ slotAt }) => slotAt)).size, total);
    assert.equal(total + skipped, 20);
    for (const store of stores) await store.close();
  }));

forEachStore("the next slot is fired in time after the clock was a year ahead, and none twice", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  await engine.start();
  await pass(host, 2 * MINUTE, 500);

  host.jump(365 * DAY);
  await pass(host, 2 * MINUTE, 500);
  host.jump(-365 * DAY);
  await pass(host, 2 * MINUTE, 500);

  const all = (await getRuns(store, { limit: 100 })).runs.map(({ slotAt }) => slotAt!);
  assert.equal(new Set(all).size, all.length);
  const ofThisYear = all.filter((slot) => slot.startsWith("2040-01-01T")).map((slot) => slot.slice(11, 16)).sort();
  // After the jump forward four slots are fired: one that was missed, those of two minutes, and none again.
  assert.deepEqual(ofThisYear, ["00:01", "00:02", "00:05", "00:06"]);
});

forEachStore("a clock that is set back by an hour fires no slot twice, and none late", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  await engine.start();
  await pass(host, 10 * MINUTE, 500);

  host.jump(-5 * MINUTE);
  await pass(host, 7 * MINUTE, 500);

  const all = await slots(store);
  assert.deepEqual(all, Array.from({ length: 12 }, (_, no) => `00:${String(no + 1).padStart(2, "0")}:00`));
});

forEachStore("a schedule that was added while the clock was ahead fires once it is right", async (context) => {
  const { store, host } = context;
  host.jump(365 * DAY);
  await using engine = anEngine(context);
  await engine.start();
  host.jump(-365 * DAY);

  await pass(host, 2 * MINUTE, 500);

  assert.deepEqual(await slots(store), ["00:01:00", "00:02:00"]);
});

forEachStore(
  "a schedule whose input no longer fits shows an error, is looked at every minute, and catches up",
  async ({ store, host }) => {
    let isStrict = false;
    let checks = 0;
    const input: Schema<unknown, unknown> = {
      "~standard": {
        version: 1,
        vendor: "test",
        validate: (value) => {
          checks += 1;
          return isStrict ? { issues: [{ message: "too old" }] } : { value };
        },
      },
    };
    const job = defineJob({ name: "changing", input, run: () => {} });
    await using engine = createEngine({ store, host, jobs: { job }, schedules: { s: { ...MINUTELY, job } } });
    await engine.start();
    isStrict = true;
    checks = 0;

    await pass(host, 3 * MINUTE + SECOND, 500);
    const broken = (await engine.schedules.get("s"))!;
    const checked = checks;
    isStrict = false;
    await pass(host, MINUTE, 500);
    const mended = (await engine.schedules.get("s"))!;

    assert.equal(broken.error, 'The input of job "changing" does not fit its schema: too old');
    assert.equal(broken.lastRunId, null);
    assert.equal(checked, 3);
    assert.equal(mended.error, null);
    assert.deepEqual(await slots(store), ["00:04:00"]);
    assert.equal(mended.skipped, 3);
  },
);

Deno.test("a calendar that goes back makes the schedule show an error, and is asked again after a minute", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const hub = new Hub(host);
  let isWrong = false;
  let asked = 0;
  const scheduler = new Scheduler({
    store,
    hub,
    host,
    watch: new ChangeWatch(store, { host, hub }),
    findJob: () => aJob(() => {}),
    declared: new Map(),
    requestRun: (_job, _input, { idempotencyKey = null }) =>
      Promise.resolve(aRun({ id: host.newId(), jobName: "job", idempotencyKey })),
    publishTrigger: () => {},
    around: new AroundHooks(() => {}),
    newCalendar: (cron, timezone) => {
      const right = new Calendar(cron, timezone);
      const wrong = new Calendar(cron, timezone, {
        nextRun: (after) => {
          asked += 1;
          return after as Date;
        },
        previousRuns: () => [],
      });
      return {
        next: (after) => (isWrong ? wrong : right).next(after),
        missed: (from, until, limit) => (isWrong ? wrong : right).missed(from, until, limit),
      };
    },
  });
  const engine = createEngine({ store, host, jobs: { job: aJob(() => {}) } });
  await engine.schedules.set("s", { job: "job", input: 1, cron: "* * * * *", overlap: "allow" });
  const stop = new AbortController();
  const running = scheduler.run(stop.signal);
  await pass(host, MINUTE, 500);
  const before = await slots(store);

  isWrong = true;
  await pass(host, 3 * MINUTE + SECOND, 500);
  const broken = (await engine.schedules.get("s"))!;
  const askedWhileBroken = asked;
  isWrong = false;
  await pass(host, MINUTE, 500);
  stop.abort();
  await running;

  assert.equal(before.length, 1);
  assert.match(broken.error!, /^The slot after 2040-01-01T.* cannot be worked out: .* is not later$/);
  assert.ok(askedWhileBroken <= 4, `asked ${askedWhileBroken} times`);
  assert.equal((await engine.schedules.get("s"))!.error, null);
  assert.equal((await getRuns(store, {})).total, 2);
});

forEachStore("a slot is fired once though the store fails, or its answers are lost", async ({ store, host }) => {
  for (const when of ["before", "after"] as const) {
    const fails = failing(store, first(3, "fireSchedule", when));
    const engine = anEngine({ store: fails, host }, { cron: "* * * * *" });
    const events = recordEvents(engine);
    await engine.start();

    await pass(host, 70 * SECOND, 250);
    await engine.stop();

    const triggers = events.filter(({ type }) => type === "run:trigger");
    assert.equal(triggers.length, 1, when);
    assert.equal(events.filter(({ type }) => type === "worker:error").length, 3, when);
  }

  assert.deepEqual(await slots(store), ["00:01:00", "00:02:00"]);
});

forEachStore(
  "an engine whose answer was lost fires no more slots of a schedule that others have changed",
  async (context) => {
    const { store, host } = context;
    const options = { catchUp: "all", overlap: "allow" } as const;
    await using other = anEngine(context, options);
    await other.runUntilIdle(); // writes the schedule
    let calls = 0;
    const changed = new Proxy(store, {
      get: (target, key: keyof Store & string) => {
        const method = target[key] as unknown as (...given: unknown[]) => Promise<unknown>;
        if (key !== "fireSchedule") return typeof method === "function" ? method.bind(target) : method;
        return async (...given: unknown[]) => {
          const fired = await method.apply(target, given);
          if (calls++ > 0) return fired;
          await other.schedules.pause("s");
          throw new StoreError("answer lost", { outcomeUnknown: true });
        };
      },
    });
    await using engine = anEngine({ store: changed, host }, options);
    await engine.start();

    host.advance(3 * MINUTE);
    await pass(host, 5 * SECOND, 250);

    assert.ok(calls > 1);
    assert.deepEqual(await slots(store), ["00:01:00"]);
  },
);

forEachStore("the scheduler continues after the store could not be read", async ({ store, host }) => {
  let isBroken = false;
  await using engine = anEngine({
    store: failing(store, (method) => isBroken && method === "getSchedules" ? "before" : null),
    host,
  });
  const events = recordEvents(engine);
  await engine.start();
  isBroken = true;
  await pass(host, 5 * SECOND, 250);
  isBroken = false;

  await pass(host, MINUTE, 250);

  const errors = events.filter(({ type }) => type === "worker:error").length;
  assert.ok(errors >= 4 && errors <= 6, `${errors} errors`);
  assert.deepEqual(await slots(store), ["00:01:00"]);
});

forEachStore("stop() ends the firing of slots", async (context) => {
  const engine = anEngine(context);
  await engine.start();
  await pass(context.host, MINUTE, 500);
  await engine.stop();

  await pass(context.host, 5 * MINUTE, 500);

  assert.deepEqual(await slots(context.store), ["00:01:00"]);
});

forEachStore(
  "a schedule with a concurrency key and `coalesce` joins the run that is pending",
  async ({ store, host }) => {
    const job = defineJob({ name: "job", input: anything, run: () => {} });
    const engine = createEngine({ store, host, jobs: { job } });
    await engine.schedules.set("s", { ...MINUTELY, job, concurrencyKey: "k", coalesce: "skip", overlap: "allow" });
    const { id } = await engine.trigger(job, 1, { concurrencyKey: "k" });
    const events = recordEvents(engine);
    host.advance(MINUTE);

    await engine.runUntilIdle();

    assert.equal((await engine.schedules.get("s"))!.lastRunId, id);
    assert.equal(events.filter(({ type }) => type === "run:coalesced").length, 1);
  },
);
