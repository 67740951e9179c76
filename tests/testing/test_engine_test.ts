import assert, { AssertionError } from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../src/model/job/define_job.ts";
import { defineStream } from "../../src/model/stream.ts";
import { createTestEngine, fakeChance } from "../../src/testing/mod.ts";
import { replay } from "../../src/replay/mod.ts";

const checkout = defineJob({
  name: "checkout",
  input: z.object({ order: z.string() }),
  retry: { maxAttempts: 3, delay: 60_000 },
  async run(step, { order }) {
    const charge = await step.run("charge", () => ({ id: `real-${order}` }));
    const review = await step.wait<{ approved: boolean }>("review", { timeout: 7 * 86_400_000 });
    if (review.outcome === "timeout") throw new Error("nobody has reviewed it");
    await step.run("ship", () => charge.id);
    return { shipped: review.payload.approved, charge: charge.id };
  },
});
const DAY = 86_400_000;

Deno.test("a test engine runs a job with fakes, a signal, retries and time that only the test moves", async () => {
  await using t = createTestEngine({ jobs: { checkout }, now: "2030-01-01T09:00:00Z", seed: 7 });
  const charge = t.fake(checkout, "charge").returns({ id: "ch_1" });
  t.fake(checkout, "ship").throws(new Error("carrier away"), { times: 2 });

  const run = await t.trigger(checkout, { order: "o-1" });
  await t.expectRun(run).waitsFor("review", { until: "2030-01-08T09:00:00Z" });
  assert.deepEqual(t.next(), new Date("2030-01-08T09:00:00Z"));
  await t.signal(run, "review", { approved: true });
  await t.expectRun(run).retries("ship", { at: "2030-01-01T09:01:00Z" });
  await t.advance("2d");

  await t.expectRun(run).completed({ shipped: true, charge: "ch_1" });
  await t.expectRun(run).steps(["charge", "ship"]);
  await t.expectRun(run).executed("ship", 3);
  assert.equal(t.now.toISOString(), "2030-01-03T09:00:00.000Z");
  assert.equal(charge.calls.length, 1);
  const [call] = charge.calls;
  assert.deepEqual([call!.input, call!.attempt, call!.at, call!.result], [
    { order: "o-1" },
    1,
    "2030-01-01T09:00:00.000Z",
    { id: "ch_1" },
  ]);
});

Deno.test("expectRun() throws an AssertionError with both values, the state and the trace of the run", async () => {
  await using t = createTestEngine({ jobs: { checkout } });
  const run = await t.trigger(checkout, { order: "o-1" });

  const error = await t.expectRun(run).completed().then(() => null, (error) => error as AssertionError);

  assert.ok(error instanceof AssertionError);
  assert.deepEqual([error.actual, error.expected], ["waiting", "completed"]);
  assert.match(error.message, /^Run \S+ of "checkout" waits for "review" until \S+, expected it to be completed\n/);
  assert.match(error.message, /0\.0s {2}worker 1 {2}executes "charge"/);
  assert.match(error.message, /0\.0s {2}worker 1 {2}record "charge" \(completed\)/);
});

Deno.test("advance() lets a wait time out, and drain() names the waits that nobody answers", async () => {
  const forever = defineJob({
    name: "forever",
    input: z.null(),
    run: async (step) => void await step.wait("answer"),
  });
  await using t = createTestEngine({ jobs: { checkout, forever } });
  const run = await t.trigger(checkout, { order: "o-1" });
  await t.advance(7 * DAY - 1);
  await t.expectRun(run).waitsFor("review");

  await t.advance(1);

  await t.expectRun(run).failed(/nobody has reviewed it/);
  await t.trigger(forever, null);
  await assert.rejects(
    t.drain(),
    /^Error: drain\(\) cannot end all runs, nothing is ever due: run \S+ of "forever" waits for a signal "answer"$/,
  );
});

Deno.test("a fake that is never used fails the test at its end, with the names of the steps that were asked for", async () => {
  const t = createTestEngine({ jobs: { checkout } });
  t.fake(checkout, "chrage").returns(1);
  await t.trigger(checkout, { order: "o-1" });

  await assert.rejects(
    async () => await t[Symbol.asyncDispose](),
    { message: 'Step "chrage" of "checkout" has a fake and was never asked for; asked for were: charge' },
  );
});

Deno.test("a fake does, hangs, and stands for one occurrence; a timeout strikes a step that hangs", async () => {
  const rows = defineJob({
    name: "rows",
    input: z.null(),
    retry: { maxAttempts: 2, delay: 1_000 },
    async run(step) {
      const first = await step.run("insert", () => 1, { timeout: 5_000 });
      const second = await step.run("insert", () => 2);
      return [first, second];
    },
  });
  await using t = createTestEngine({ jobs: { rows } });
  t.fake(rows, "insert").hangs({ times: 1 });
  const second = t.fake(rows, "insert#2").does(({ attempt }) => `second ${attempt}`);

  const run = await t.trigger(rows, null);
  await t.advance("5s");
  await t.expectRun(run).executed("insert", 1);
  await t.advance("1s");

  await t.expectRun(run).completed([1, "second 1"]);
  assert.equal(second.calls.length, 1);
});

Deno.test("functions of steps are awaited in real time while the clock stands still; patience ends that", async () => {
  const slow = defineJob({
    name: "slow",
    input: z.number(),
    async run(step, ms) {
      return await step.run("work", ({ abortSignal }) =>
        new Promise<string>((resolve, reject) => {
          const timer = setTimeout(() => resolve("done"), ms);
          abortSignal.addEventListener("abort", () => (clearTimeout(timer), reject(abortSignal.reason)));
        }), { timeout: 60_000 });
    },
  });
  await using t = createTestEngine({ jobs: { slow }, patience: 120 });

  const quick = await t.trigger(slow, 60);
  await t.expectRun(quick).completed("done");
  assert.equal(t.now.toISOString(), "2030-01-01T00:00:00.000Z");
  const hung = await t.trigger(slow, 3_600_000);
  await t.advance("1m");

  await t.expectRun(hung).failed("took longer than 60000 ms", { step: "work" });

  await using patient = createTestEngine({ jobs: { slow }, patience: Infinity });
  const run = await patient.trigger(slow, 60);
  await patient.expectRun(run).completed("done");
});

Deno.test("crash() and crashAt() kill the worker, and the run goes on when its lease has expired", async () => {
  await using t = createTestEngine({ jobs: { checkout } });
  t.crashAt("charge", "before");
  const run = await t.trigger(checkout, { order: "o-1" });
  await t.expectRun(run).steps([]);
  await t.advance("30s");
  await t.expectRun(run).waitsFor("review");
  await t.expectRun(run).executed("charge", 2);

  t.crashAt("ship", "after");
  await t.signal(run, "review", { approved: true });
  await t.expectRun(run).steps(["charge", "ship"]);
  await t.crash();
  await t.advance("30s");

  await t.expectRun(run).completed();
  await t.expectRun(run).executed("ship", 1);
});

Deno.test("a crash that did not come fails the test at its end", async () => {
  const t = createTestEngine({ jobs: { checkout } });
  t.crashAt("chrage", "after");
  await t.trigger(checkout, { order: "o-1" });

  await assert.rejects(
    async () => await t[Symbol.asyncDispose](),
    { message: 'crashAt("chrage", "after"): no such record came' },
  );
});

Deno.test("deploy() goes on with other code, and a run that it does not fit is held", async () => {
  const v2 = defineJob({
    name: "checkout",
    input: z.object({ order: z.string() }),
    async run(step) {
      await step.run("reserve", () => 1);
      return await step.run("charge", () => 2);
    },
  });
  await using t = createTestEngine({ jobs: { checkout } });
  const run = await t.trigger(checkout, { order: "o-1" });

  await t.deploy({ checkout: v2 });
  await t.signal(run, "review", { approved: true });
  await t.advance("1s");

  await t.expectRun(run).held("diverged");
  const history = await t.exportHistory(run);
  (await replay(history, checkout)).assertGoesOn();
});

Deno.test("deploy() replaces a job by one of which its name is an alias", async () => {
  const order = defineJob({
    name: "order",
    aliases: ["checkout"],
    input: z.object({ order: z.string() }),
    async run(step) {
      await step.run("charge", () => {});
      return (await step.wait("review")).outcome;
    },
  });
  await using t = createTestEngine({ jobs: { checkout } });
  const run = await t.trigger(checkout, { order: "o-1" });

  await t.deploy({ order });
  await t.signal(run, "review", { approved: true });

  await t.expectRun(run).completed("signal");
});

Deno.test("expectRun() has both values in its message, which is all that the test runner of Deno shows", async () => {
  const quick = defineJob({ name: "quick", input: z.number(), run: (step, n) => step.run("work", () => ({ n })) });
  await using t = createTestEngine({ jobs: { quick } });
  const run = await t.trigger(quick, 1);
  const messageOf = (work: Promise<void>) => work.then(() => "", (error: Error) => error.message);

  const output = await messageOf(t.expectRun(run).completed({ n: 2 }));
  const steps = await messageOf(t.expectRun(run).steps(["work", "more"]));

  assert.match(
    output,
    /^Run \S+ of "quick" has another output\n\n {2}expected {2}\{ n: 2 \}\n {2}found {5}\{ n: 1 \}\n\n/,
  );
  assert.match(steps, /\n {2}expected {2}\[ 'work', 'more' \]\n {2}found {5}\[ 'work' \]\n/);
});

Deno.test("expectRun().retries() also accepts a retry for which the worker waits", async () => {
  const quick = defineJob({
    name: "quick",
    input: z.null(),
    retry: { maxAttempts: 2, delay: 500 },
    run: (step) => step.run("work", () => 1),
  });
  await using t = createTestEngine({ jobs: { quick }, now: "2030-01-01T00:00:00Z" });
  t.fake(quick, "work").throws(new Error("down"), { times: 1 });

  const run = await t.trigger(quick, null);

  await t.expectRun(run).retries("work", { at: "2030-01-01T00:00:00.500Z" });
  await assert.rejects(t.expectRun(run).retries("other"), /expected it to retry "other"/);
  await t.advance("1s");
  await t.expectRun(run).completed(1);
  await assert.rejects(t.expectRun(run).retries("work"), /expected it to retry "work"/);
});

Deno.test("addWorker() executes on two workers, child runs included", async () => {
  const child = defineJob({ name: "child", input: z.number(), run: (step, n) => step.run("double", () => 2 * n) });
  const parent = defineJob({
    name: "parent",
    input: z.null(),
    run: (step) => step.invokeAll("all", child, [1, 2, 3].map((input) => ({ input }))),
  });
  await using t = createTestEngine({ jobs: { parent, child } });
  await t.addWorker();

  const run = await t.trigger(parent, null);

  await t.expectRun(run).completed();
  await t.drain();
});

Deno.test("fakeDate() and fakeChance() replace globals until their block ends, and warn of uses outside of steps", async () => {
  const dated = defineJob({
    name: "dated",
    input: z.null(),
    async run(step) {
      const today = new Date().toISOString();
      const id = await step.run("id", () => Math.random());
      return { today, id, chance: Math.random() };
    },
  });
  await using t = createTestEngine({ jobs: { dated }, now: "2031-05-05T00:00:00Z" });
  const [RealDate, random] = [Date, Math.random];
  let run;
  {
    using _date = t.fakeDate();
    using _chance = t.fakeChance(7);
    run = await t.trigger(dated, null);
  }

  assert.deepEqual([Date, Math.random], [RealDate, random]);
  const { output } = (await t.engine.getRun(run.id))!;
  assert.equal((output as { today: string }).today, "2031-05-05T00:00:00.000Z");
  assert.deepEqual(t.warnings, [
    'Job "dated" calls new Date() outside of steps: a replay gets another value. Call it in a step',
    'Job "dated" calls Math.random() outside of steps: a replay gets another value. Call it in a step',
  ]);
  const draw = () => {
    using _chance = fakeChance(3);
    return [Math.random(), crypto.randomUUID()];
  };
  assert.deepEqual(draw(), draw());
});

Deno.test("fakeDate() and fakeChance() of tests that overlap are all undone, whichever ends last", async () => {
  await using one = createTestEngine({ jobs: {}, now: "2031-05-05T00:00:00Z" });
  await using other = createTestEngine({ jobs: {}, now: "2041-05-05T00:00:00Z" });
  const real = [Date, Math.random, crypto.randomUUID];
  const fakes = [one.fakeDate(), one.fakeChance(1), other.fakeDate(), other.fakeChance(2)];

  fakes[0]!.restore();
  fakes[1]!.restore();
  const year = new Date().getUTCFullYear();
  fakes[2]!.restore();
  fakes[3]!.restore();

  assert.equal(year, 2041);
  assert.deepEqual([Date, Math.random, crypto.randomUUID], real);
});

Deno.test("warnings name the calls that a job does not await, and no others", async () => {
  const careless = defineJob({
    name: "careless",
    input: z.null(),
    async run(step) {
      void step.run("charge", () => 1);
      await step.sleep("nap", 1_000);
      await step.run("charge", () => 1);
      void step.trigger("notify", careful, null);
      await step.run("ship", () => 1);
    },
  });
  const careful = defineJob({
    name: "careful",
    input: z.null(),
    run: (step) => {
      const late = step.run("late", () => 1);
      const caught = step.run("caught", () => 2).catch(() => 3);
      const both = Promise.all([step.run("a", () => 4), step.run("b", () => 5)]);
      const first = Promise.race([step.run("c", () => 6), step.sleep("limit", DAY)]);
      const returned = async () => {
        await null;
        return step.run("returned", () => 7);
      };
      step.progress(1);
      return step.run("last", () => 8).then(async (
        last,
      ) => [await late, await caught, await both, await first, await returned(), last]);
    },
  });
  const failing = defineJob({
    name: "failing",
    input: z.null(),
    async run(step) {
      const charge = step.run("charge", () => 1);
      await step.run("ship", () => Promise.reject(new Error("no")));
      return await charge;
    },
  });
  await using t = createTestEngine({ jobs: { careless, careful, failing } });

  const run = await t.trigger(careless, null);
  await t.trigger(failing, null);
  await t.drain();

  await t.expectRun(run).completed();
  const why = "the job can return before it has ended, and nobody sees that it failed";
  assert.deepEqual(t.warnings, [
    `Job "careless" does not await step.run("charge"): ${why}`,
    `Job "careless" does not await step.trigger("notify"): ${why}`,
  ]);
});

Deno.test("advance() goes from run to run of an hourly loop for a month", async () => {
  const hourly = defineJob({
    name: "hourly",
    input: z.object({ left: z.number() }),
    async run(step, { left }) {
      await step.run("work", () => left);
      if (left > 0) await step.trigger("next", hourly as never, { left: left - 1 } as never, { delay: 3_600_000 });
    },
  });
  await using t = createTestEngine({ jobs: { hourly } });
  await t.trigger(hourly, { left: 30 * 24 });

  await t.advance("30d");

  const { runs: [last], total } = await t.engine.getRuns({ status: "completed" });
  assert.deepEqual([total, last!.payload], [30 * 24 + 1, { left: 0 }]);
});

Deno.test("what a job awaits outside of its steps is awaited in real time, and timers of the test are not used", async () => {
  const { setTimeout, setImmediate } = globalThis;
  const waiting = defineJob({
    name: "waiting",
    input: z.null(),
    async run(step) {
      await new Promise((resolve) => setTimeout(resolve, 40));
      const first = await step.run("one", () => 1);
      await new Promise((resolve) => setTimeout(resolve, 40));
      return first;
    },
  });
  await using t = createTestEngine({ jobs: { waiting } });
  const refuse = () => {
    throw new Error("the kit uses timers of the test");
  };
  Object.assign(globalThis, { setTimeout: refuse, setImmediate: refuse });

  try {
    const run = await t.trigger(waiting, null);
    await t.expectRun(run).completed(1);
  } finally {
    Object.assign(globalThis, { setTimeout, setImmediate });
  }
  assert.equal(t.now.toISOString(), "2030-01-01T00:00:00.000Z");
});

Deno.test("createTestEngine() fires schedules when the clock comes to their slots", async () => {
  const nightly = defineJob({ name: "nightly", input: z.null(), run: (step) => step.run("work", () => step.slot) });
  await using t = createTestEngine({ jobs: { nightly }, now: "2030-01-01T12:00:00Z" });
  const timezone = "Europe/Berlin";
  await t.engine.schedules.set("every night", { job: "nightly", cron: "30 0 * * *", timezone, input: null });

  await t.advance("3d");

  const { runs } = await t.engine.getRuns({ jobName: "nightly" });
  assert.deepEqual(
    runs.map(({ output }) => output).toReversed(),
    [
      ["2030-01-02", "2030-01-01T23:30:00.000Z", "2029-12-31T23:30:00.000Z"],
      ["2030-01-03", "2030-01-02T23:30:00.000Z", "2030-01-01T23:30:00.000Z"],
      ["2030-01-04", "2030-01-03T23:30:00.000Z", "2030-01-02T23:30:00.000Z"],
    ].map(([localDate, at, previousAt]) => ({ at, timezone, localDate, previousAt })),
  );
});

Deno.test("advance() and advanceTo() refuse what is no duration and what has passed", async () => {
  await using t = createTestEngine({ jobs: {} });

  await assert.rejects(t.advance("2 fortnights" as never), {
    name: "TypeError",
    message:
      'The duration of advance() must be milliseconds, or a duration such as "30s", "5m", "2h" or "3 days", not "2 fortnights"',
  });
  await assert.rejects(t.advanceTo("2029-12-31T00:00:00Z"), /^RangeError: 2029-12-31T00:00:00.000Z has passed: it is /);
  await t.advance("1d12h");
  assert.equal(t.now.toISOString(), "2030-01-02T12:00:00.000Z");
});

Deno.test("readStream() gives the items of a stream that count", async () => {
  const words = defineStream<string>("words");
  const say = defineJob({
    name: "say",
    input: z.null(),
    retry: { maxAttempts: 2, delay: "1h" },
    run: (step) =>
      step.run("say", async ({ stream, attempt }) => {
        await stream(words).write(`${attempt}`);
        if (attempt === 1) throw new Error("broken");
      }),
  });
  await using t = createTestEngine({ jobs: { say } });
  const run = await t.trigger(say, null);

  const before = await t.readStream(run, words);
  await t.drain();
  const after = await t.readStream(run, words);

  assert.deepEqual([before, after], [[], ["2"]]);
});
