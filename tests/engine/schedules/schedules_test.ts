import assert from "node:assert/strict";
import { z } from "zod";
import { NotFoundError, ValidationError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { forEachStore, pass } from "../../support/stores/for_each_store.ts";
import { aJob, echo } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const MINUTE = 60_000;

forEachStore("schedules.set() adds a schedule, and get() and list() show it", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo } });

  const set = await engine.schedules.set("nightly", {
    job: echo,
    input: { at: new Date(0) },
    cron: "30 2 * * *",
    timezone: "Europe/Berlin",
    catchUp: "all",
    overlap: "allow",
    concurrencyKey: "night",
    labels: { org: "a" },
  });
  await engine.schedules.set("daily", { job: "echo", input: undefined, cron: "@daily" });

  assert.deepEqual(set, {
    name: "nightly",
    jobName: "echo",
    input: { at: "1970-01-01T00:00:00.000Z" },
    cron: "30 2 * * *",
    timezone: "Europe/Berlin",
    catchUp: "all",
    overlap: "allow",
    concurrencyKey: "night",
    labels: { org: "a" },
    declared: false,
    pausedAt: null,
    pausedBy: null,
    nextRuns: [1, 2, 3, 4, 5].map((day) => `2040-01-0${day}T01:30:00.000Z`),
    lastSlotAt: null,
    lastRunId: null,
    dueSince: null,
    skipped: 0,
    error: null,
  });
  assert.deepEqual(await engine.schedules.get("nightly"), set);
  assert.equal(await engine.schedules.get("other"), null);
  const list = await engine.schedules.list();
  assert.deepEqual(list.map(({ name, input }) => [name, input]), [["daily", null], ["nightly", set.input]]);
  assert.deepEqual(list[0]!.timezone, "UTC");
});

forEachStore("a schedule says since when a slot is due that no engine has fired", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo } });
  const { nextRuns: [slot] } = await engine.schedules.set("nightly", { job: echo, input: null, cron: "0 2 * * *" });
  host.advance(Date.parse(slot!) - host.now() - 1);
  const before = await engine.schedules.get("nightly");

  host.advance(2);
  const after = await engine.schedules.get("nightly");
  const paused = await engine.schedules.pause("nightly");

  assert.deepEqual([before!.dueSince, after!.dueSince, paused.dueSince], [null, slot, null]);
});

const strict = defineJob({ name: "strict", input: z.object({ n: z.number() }), run: (_step, { n }) => n });

const REFUSED: [options: Record<string, unknown>, error: { name: string; message: RegExp }][] = [
  [{ cron: "61 * * * *" }, { name: "ValidationError", message: /^Schedule "s": cron "61 \* \* \* \*" is not valid/ }],
  [{ timezone: "Nowhere" }, { name: "ValidationError", message: /^Schedule "s": timezone "Nowhere" is unknown/ }],
  [{ catchUp: "some" }, {
    name: "ValidationError",
    message: /^catchUp of schedule "s" must be one of last, none, all/,
  }],
  [{ overlap: null }, { name: "ValidationError", message: /^overlap of schedule "s" must be one of skip, allow/ }],
  [{ input: { n: "1" } }, {
    name: "ValidationError",
    message: /^Schedule "s": The input of job "strict" does not fit/,
  }],
  [{ input: { n: 1n } }, { name: "SerializationError", message: /^The input of schedule "s" cannot be stored/ }],
  [{ concurrencyKey: "" }, { name: "ValidationError", message: /^Schedule "s": concurrencyKey must be/ }],
  [{ coalesce: "skip" }, { name: "ValidationError", message: /^Schedule "s": coalesce needs a concurrencyKey/ }],
  [{ labels: { a: 1 } }, { name: "ValidationError", message: /^Schedule "s": The value of label "a"/ }],
  [{ cron: undefined }, { name: "ValidationError", message: /^Schedule "s": cron must be a string/ }],
  [{ cron: 5 }, { name: "ValidationError", message: /^Schedule "s": cron must be a string .*, not a number/ }],
  [{ timezone: 5 }, { name: "ValidationError", message: /^Schedule "s": timezone must be a string .*, not a number/ }],
  [{ cron: "0 0 30 2 *" }, { name: "ValidationError", message: /^Schedule "s": cron .* has no slot: no such date/ }],
  [{ cron: "0 0 0 1 1 * 2020" }, {
    name: "ValidationError",
    message: /^Schedule "s": cron "0 0 0 1 1 \* 2020" has no slot from now on$/,
  }],
  [{ job: undefined }, { name: "TypeError", message: /^Schedule "s" needs a job: what defineJob\(\) makes/ }],
  [{ job: "other" }, { name: "NotFoundError", message: /^There is no job "other" in this engine/ }],
  [{ idempotencyKey: "k" }, { name: "TypeError", message: /^Schedule "s" has no option "idempotencyKey"/ }],
  [{ timeZone: "UTC" }, { name: "TypeError", message: /^Schedule "s" has no option "timeZone"/ }],
];

for (const [options, error] of REFUSED) {
  const [[name, value]] = Object.entries(options) as [[string, unknown]];
  forEachStore(
    `schedules.set() refuses ${name} ${
      typeof value === "object" ? "that does not fit" : String(value)
    } (${error.name})`,
    async ({ store, host }) => {
      const engine = createEngine({ store, host, jobs: { strict } });
      const all = { job: strict, input: { n: 1 }, cron: "@daily", ...options };

      await assert.rejects(engine.schedules.set("s", all as never), error);

      assert.deepEqual(await engine.schedules.list(), []);
    },
  );
}

forEachStore("schedules.set() refuses a name that is empty or too long", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo } });
  const options = { job: echo, input: 1, cron: "@daily" };

  for (const name of ["", "x".repeat(201), "a\n"]) {
    await assert.rejects(engine.schedules.set(name, options), ValidationError);
  }

  assert.equal((await engine.schedules.set("x".repeat(200), options)).name.length, 200);
});

forEachStore("the functions of engine.schedules refuse the same names, and know no others", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo } });
  const { schedules } = engine;
  const calls = [schedules.pause, schedules.resume, schedules.delete, schedules.trigger].map((call) =>
    call.bind(schedules)
  );

  for (const name of ["", "x".repeat(201), "a\n", 5 as never]) {
    for (const call of [...calls, schedules.get.bind(schedules)]) {
      await assert.rejects(call(name), {
        name: "ValidationError",
        message: /^The name of a schedule must be a string of 1 to 200 characters/,
      });
    }
  }

  for (const call of calls) {
    await assert.rejects(call("x"), { name: "NotFoundError", message: 'There is no schedule "x"' });
  }
  assert.equal(await schedules.get("x"), null);
});

forEachStore("schedules.set() takes a pattern whose slots have passed only if it is the old one", async (context) => {
  const { store, host } = context;
  const engine = createEngine({ store, host, jobs: { echo } });
  const second = new Date(host.now() + 5_000).toISOString();
  const [year, month, day, hour, minute] = second.split(/\D/).map(Number);
  const once = {
    job: echo,
    input: 1,
    cron: `${Number(second.slice(17, 19))} ${minute} ${hour} ${day} ${month} * ${year}`,
  };
  await engine.schedules.set("once", once);
  host.advance(10_000);
  await engine.runUntilIdle();

  const set = await engine.schedules.set("once", { ...once, input: 2 });
  const other = engine.schedules.set("once", { ...once, timezone: "Etc/UTC" });

  await assert.rejects(other, { name: "ValidationError", message: /has no slot from now on$/ });
  assert.partialDeepStrictEqual(set, { input: 2, nextRuns: [], error: null });
  assert.equal((await engine.getRuns()).total, 1);
});

forEachStore("start() takes a declared schedule whose slots have passed", async ({ store, host }) => {
  const old = { job: echo, input: 1, cron: "0 0 0 1 1 * 2020" };
  await using engine = createEngine({ store, host, jobs: { echo }, schedules: { old } });

  await engine.start();

  assert.partialDeepStrictEqual(await engine.schedules.get("old"), { declared: true, nextRuns: [], error: null });
});

forEachStore(
  "schedules.set() keeps the pause and the counters; a slot that is due stays due with the same calendar",
  async ({ store, host }) => {
    const engine = createEngine({ store, host, jobs: { echo } });
    const options = { job: echo, input: 1, cron: "* * * * *", catchUp: "none" } as const;
    await engine.schedules.set("s", options);
    host.advance(10 * MINUTE);
    await engine.runUntilIdle(); // fires one, skips nine
    const { lastSlotAt, lastRunId } = (await engine.schedules.get("s"))!;
    host.advance(MINUTE);

    const same = await engine.schedules.set("s", { ...options, input: 2 });
    await engine.runUntilIdle();
    const fired = (await engine.schedules.get("s"))!;
    host.advance(MINUTE);
    await engine.schedules.set("s", { ...options, cron: "*/5 * * * *" });
    await engine.runUntilIdle();
    const other = (await engine.schedules.get("s"))!;

    assert.deepEqual([same.skipped, same.lastSlotAt, same.lastRunId], [9, lastSlotAt, lastRunId]);
    assert.equal((await engine.getRun(fired.lastRunId!))!.payload, 2);
    assert.equal(fired.lastSlotAt, "2040-01-01T00:11:00.000Z");
    assert.equal(other.lastSlotAt, fired.lastSlotAt);
    assert.equal(other.nextRuns[0], "2040-01-01T00:15:00.000Z");
  },
);

forEachStore("schedules.pause() stops a schedule, and resume() catches up nothing", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo } });
  await engine.schedules.set("s", { job: echo, input: 1, cron: "* * * * *", catchUp: "all" });
  await engine.start();
  await pass(host, 2 * MINUTE, 500);

  const paused = await engine.schedules.pause("s");
  const again = await engine.schedules.pause("s");
  await pass(host, 10 * MINUTE, 500);
  const whilePaused = (await engine.getRuns()).total;
  const resumed = await engine.schedules.resume("s");
  await engine.schedules.resume("s");
  await pass(host, MINUTE, 500);

  assert.equal(paused.pausedAt, "2040-01-01T00:02:00.000Z");
  assert.deepEqual([again.pausedAt, again.nextRuns], [paused.pausedAt, []]);
  assert.deepEqual([whilePaused, (await engine.getRuns()).total], [2, 3]);
  assert.deepEqual([resumed.pausedAt, resumed.skipped, resumed.nextRuns[0]], [null, 0, "2040-01-01T00:13:00.000Z"]);
});

forEachStore("schedules.delete() deletes a schedule, but not its runs", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo } });
  await engine.schedules.set("s", { job: echo, input: 1, cron: "* * * * *" });
  await engine.start();
  await pass(host, MINUTE, 500);

  await engine.schedules.delete("s");
  await pass(host, 5 * MINUTE, 500);

  assert.deepEqual([await engine.schedules.list(), (await engine.getRuns()).total], [[], 1]);
});

forEachStore("schedules.pause(), resume(), delete() and trigger() refuse an unknown name", async ({ store, host }) => {
  const { schedules } = createEngine({ store, host, jobs: { echo } });

  for (const call of ["pause", "resume", "delete", "trigger"] as const) {
    await assert.rejects(schedules[call]("s"), (error: Error) => {
      assert.ok(error instanceof NotFoundError, call);
      assert.equal(error.message, 'There is no schedule "s"');
      return true;
    });
    await assert.rejects(schedules[call](""), ValidationError);
  }
});

forEachStore(
  "schedules.trigger() makes a run without a slot, also while the schedule is paused",
  async ({ store, host }) => {
    const seen: unknown[] = [];
    const job = aJob((step, input) => void seen.push([step.slotAt, input]));
    await using engine = createEngine({ store, host, jobs: { job } });
    await engine.schedules.set("s", { job, input: 7, cron: "@daily", labels: { org: "a" } });
    await engine.schedules.pause("s");

    const first = await engine.schedules.trigger("s");
    const second = await engine.schedules.trigger("s");
    await engine.runUntilIdle();

    assert.notEqual(first.id, second.id);
    assert.deepEqual([first.disposition, first.scheduleName, first.slotAt, first.labels], ["created", "s", null, {
      org: "a",
    }]);
    assert.deepEqual(seen, [[null, 7], [null, 7]]);
    assert.equal((await engine.schedules.get("s"))!.lastRunId, null);
  },
);

forEachStore("step.slotAt is the slot of the run, in its retries too; null in other runs", async ({ store, host }) => {
  const seen: [string | null, unknown][] = [];
  const job = aJob((step, input) => {
    seen.push([step.slotAt, input]);
    throw new Error("broken");
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.schedules.set("s", { job, input: 1, cron: "* * * * *", timezone: "Asia/Kolkata" });
  host.advance(MINUTE);
  await engine.runUntilIdle();
  const [run] = (await engine.getRuns()).runs;

  const retry = await engine.retrigger(run!.id);
  await engine.trigger(job, 2);
  await engine.runUntilIdle();

  const slotAt = "2040-01-01T00:01:00.000Z";
  assert.deepEqual(seen, [[slotAt, 1], [slotAt, 1], [null, 2]]);
  assert.deepEqual([run!.scheduleName, run!.slotAt], ["s", slotAt]);
  assert.deepEqual([retry.scheduleName, retry.slotAt], ["s", slotAt]);
});

forEachStore(
  "schedules of the code are written by start(), and again only if their options change",
  async ({ store, host }) => {
    const options = { job: echo, input: 1, cron: "* * * * *" } as const;
    const engineWith = (schedules: Record<string, typeof options>) =>
      createEngine({ store, host, jobs: { echo }, schedules });
    const versionOf = async () => (await store.getSchedules()).schedules.map(({ version }) => version);
    await using first = engineWith({ s: options });
    assert.deepEqual(await first.schedules.list(), []);
    await first.start();
    const [declared] = await first.schedules.list();
    const version = await versionOf();

    await using second = engineWith({ s: { cron: "* * * * *", input: 1, job: echo } });
    await second.start();
    const unchanged = await versionOf();
    await second.schedules.set("s", { ...options, input: 2 });
    await second.stop();
    await second.start();
    const set = (await second.schedules.get("s"))!;
    await using third = engineWith({ s: { ...options, input: 3 as 1 } });
    await third.start();

    assert.deepEqual([declared!.declared, declared!.input], [true, 1]);
    assert.deepEqual(unchanged, version);
    assert.deepEqual([set.declared, set.input], [true, 2]);
    assert.deepEqual((await third.schedules.list()).map(({ input }) => input), [3]);
  },
);

forEachStore(
  "start() refuses a declared schedule whose input does not fit, and nothing is written",
  async ({ store, host }) => {
    const engine = createEngine({
      store,
      host,
      jobs: { echo, strict },
      schedules: {
        good: { job: echo, input: 1, cron: "@daily" },
        bad: { job: "strict", input: { n: "1" }, cron: "@daily" },
      },
    });

    await assert.rejects(engine.start(), (error: ValidationError) => {
      assert.equal(error.code, "invalid_input");
      assert.match(error.message, /^Schedule "bad": The input of job "strict" does not fit its schema: n: /);
      return true;
    });

    assert.deepEqual(await engine.schedules.list(), []);
  },
);

forEachStore("the engine's labels schema checks the labels of a schedule", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo }, labels: z.object({ org: z.string() }) });

  await assert.rejects(
    engine.schedules.set("s", { job: echo, input: 1, cron: "@daily", labels: {} as { org: string } }),
    /^ValidationError: Schedule "s": The labels do not fit their schema: labels.org/,
  );
  await engine.schedules.set("s", { job: echo, input: 1, cron: "* * * * *", labels: { org: "a" } });
  host.advance(MINUTE);
  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRuns()).runs.map(({ labels }) => labels), [{ org: "a" }]);
});

Deno.test("createEngine() refuses schedules that are wrong in themselves", () => {
  const engineWith = (schedules: unknown) => () =>
    createEngine({ store: {} as never, jobs: { echo }, schedules: schedules as never });
  const at = { job: echo, input: 1, cron: "@daily" };
  const store = { claim() {}, enqueue() {}, readRuns() {} };
  const check = (schedules: unknown) => () =>
    createEngine({ store: store as never, jobs: { echo }, schedules: schedules as never });

  assert.throws(engineWith({ s: at }), /^TypeError: The store must be/);
  assert.throws(check([at]), /^TypeError: schedules of createEngine\(\) must be an object of schedules, not an Array/);
  assert.throws(check({ s: { ...at, cron: "x" } }), /^RangeError: Schedule "s": cron must have 5 fields/);
  assert.throws(check({ s: { ...at, timezone: "" } }), /^RangeError: Schedule "s": timezone "" is unknown/);
  assert.throws(check({ s: { ...at, startAt: "" } }), /^TypeError: Schedule "s" has no option "startAt"/);
  assert.throws(
    check({ s: { ...at, job: "x" } }),
    /^TypeError: Schedule "s" is of job "x", which is not one of the jobs/,
  );
  assert.throws(check({ s: null }), /^TypeError: Schedule "s" takes an object with job, input, cron/);
  assert.throws(check({ "": at }), /^ValidationError: The name of a schedule must be/);
});

Deno.test("the input of a schedule has the type of its job's input", () => {
  const wrong = () => {
    const store = {} as never;
    // @ts-expect-error -- n must be a number
    createEngine({ store, jobs: { strict }, schedules: { s: { job: strict, input: { n: "1" }, cron: "@daily" } } });
    const { schedules } = createEngine({ store, jobs: { strict } });
    // @ts-expect-error -- n must be a number
    schedules.set("s", { job: strict, input: { n: "1" }, cron: "@daily" });
    createEngine({ store, jobs: { strict, echo }, schedules: { s: { job: strict, input: { n: 1 }, cron: "@daily" } } });
    schedules.set("s", { job: "strict", input: "anything", cron: "@daily" });
  };

  assert.equal(typeof wrong, "function");
});
