import assert from "node:assert/strict";
import { z } from "zod";
import { ValidationError } from "../../../src/model/error.ts";
import { systemHost } from "../../../src/model/host.ts";
import type { StepContext } from "../../../src/model/job.ts";
import type { WaitForSignalOptions } from "../../../src/model/job/step_calls.ts";
import { isoTime } from "../../../src/values/iso_time.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { forEachStore, pass, recordEvents } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aGate, aJob, allOf } from "../../support/jobs.ts";
import { outputOf, signal, waitings, waitNamed } from "../../support/pauses.ts";

type Body = (step: StepContext, input: unknown) => unknown;

const DAY_MS = 86_400_000;

forEachStore("sleep() parks the run, and lets it go on at its time and not before", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.sleep("nap", 60_000);
    return host.now() - FAKE_START;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const parked = (await engine.getRun(id))!;
  host.advance(59_999);
  const early = await engine.runUntilIdle();
  host.advance(1);
  const due = await engine.runUntilIdle();

  assert.equal(parked.status, "waiting");
  assert.deepEqual([parked.leaseOwner, parked.leaseExpiresAt], [null, null]);
  assert.deepEqual([early.executed, due.executed], [0, 1]);
  assert.equal(await outputOf(engine, id), 60_000);
  const types = events.map(({ type }) => type);
  assert.deepEqual(types, [
    "run:trigger",
    "run:leased",
    "run:start",
    "run:waiting",
    "run:leased",
    "run:start",
    "run:complete",
  ]);
  assert.partialDeepStrictEqual(waitings(events), [{
    waitId: null,
    waitName: "nap",
    deadlineAt: isoTime(FAKE_START + 60_000),
  }]);
});

forEachStore("sleep() is no wait", async ({ store, host }) => {
  const job = aJob((step) => step.sleep("nap", 60_000));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual(await engine.getWaits(id), []);
  const pauses = (await store.getRunState(id))!.pauses;
  assert.deepEqual(pauses, [{ waitId: null, name: "nap", deadlineAt: isoTime(FAKE_START + 60_000) }]);
});

forEachStore("sleepUntil() pauses until an instant, given as a date or as text", async ({ store, host }) => {
  const seen: number[] = [];
  const job = aJob(async (step) => {
    await step.sleepUntil("date", new Date(FAKE_START + 5_000));
    seen.push(host.now() - FAKE_START);
    await step.sleepUntil("text", "2040-01-01T00:00:09.000Z");
    seen.push(host.now() - FAKE_START);
    await step.sleepUntil("offset", "2040-01-01T01:00:12+01:00");
    seen.push(host.now() - FAKE_START);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 4_999, 1, 4_000, 3_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(seen.filter((ms, index) => seen.indexOf(ms) === index), [5_000, 9_000, 12_000]);
});

forEachStore("sleep() and sleepUntil() are over at once when their end lies in the past", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.sleep("zero", 0);
    await step.sleep("negative", -60_000);
    await step.sleepUntil("past", new Date(0));
    await step.sleepUntil("now", new Date(FAKE_START));
    return step.execution;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const { executed } = await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), 1);
  assert.equal(executed, 1);
  assert.deepEqual(waitings(events), []);
});

forEachStore("sleep() of part of a millisecond is never early", async ({ store, host }) => {
  const job = aJob((step) => step.sleep("nap", 1_000.25));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(1_000);
  const early = await engine.runUntilIdle();
  host.advance(1);
  await engine.runUntilIdle();

  assert.equal(early.executed, 0);
  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("sleep() and wait() refuse an end that is no date", async ({ store, host }) => {
  const job = aJob(async (step) => {
    for (const ms of [NaN, Infinity, -Infinity, 1e300]) {
      await assert.rejects(step.sleep("nap", ms), RangeError, `sleep of ${ms}`);
      await assert.rejects(step.wait("review", { timeout: ms }), RangeError, `timeout of ${ms}`);
      await assert.rejects(step.prepareWait("review", { timeout: ms }), RangeError, `timeout of ${ms}`);
    }
    for (const date of [new Date(NaN), "tomorrow", ""]) {
      await assert.rejects(step.sleepUntil("nap", date), RangeError, `until ${date}`);
      await assert.rejects(step.wait("review", { deadline: date }), RangeError, `until ${date}`);
      await assert.rejects(step.prepareWait("review", { deadline: date }), RangeError, `until ${date}`);
    }
    // A refused use of a name is none.
    return (await step.prepareWait("review")).name;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "review");
});

forEachStore("wait() refuses a timeout beside a deadline", async ({ store, host }) => {
  const both: WaitForSignalOptions = { timeout: 1_000, deadline: new Date(FAKE_START + 1_000) };
  const job = aJob(async (step) => {
    await assert.rejects(step.wait("review", both), { name: "TypeError", message: /"review".*timeout.*deadline/ });
    await assert.rejects(step.prepareWait("review", both), TypeError);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(await engine.getWaits(id), []);
});

forEachStore("wait() parks the run, and goes on with the signal that ends it", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { timeout: 60_000 }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const parked = (await engine.getRun(id))!;
  const { id: waitId } = await waitNamed(engine, id, "review");
  await engine.signal(waitId, { signalId: "s1", payload: { ok: true } });
  const signalled = (await engine.getRun(id))!;
  await engine.runUntilIdle();

  assert.equal(parked.status, "waiting");
  assert.equal(signalled.status, "waiting");
  assert.deepEqual([parked.leaseOwner, parked.leaseExpiresAt], [null, null]);
  assert.deepEqual(await outputOf(engine, id), { outcome: "signal", payload: { ok: true }, signalId: "s1" });
  assert.partialDeepStrictEqual(waitings(events), [{
    waitId,
    waitName: "review",
    deadlineAt: isoTime(FAKE_START + 60_000),
  }]);
});

forEachStore("wait() ends by its deadline when no signal comes", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { timeout: 60_000 }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  host.advance(59_999);
  const early = await engine.runUntilIdle();
  host.advance(1);
  await engine.runUntilIdle();

  assert.equal(early.executed, 0);
  assert.deepEqual(await outputOf(engine, id), { outcome: "timeout" });
});

forEachStore("wait() without a deadline waits as long as it takes", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review"));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  host.advance(100 * 365 * DAY_MS);
  const { executed } = await engine.runUntilIdle();
  const { deadlineAt } = await waitNamed(engine, id, "review");
  await signal(engine, id, "review", "at last");
  await engine.runUntilIdle();

  assert.equal(executed, 0);
  assert.equal(deadlineAt, null);
  assert.partialDeepStrictEqual(await outputOf(engine, id), { outcome: "signal", payload: "at last" });
});

forEachStore("resuming from a pause is no interruption", async ({ store, host }) => {
  const executions: number[] = [];
  const job = aJob(async (step) => {
    executions.push(step.execution);
    await step.sleep("nap", 1_000);
    await step.wait("review", { timeout: 1_000 });
    await step.run("flaky", ({ attempt }) => {
      if (attempt === 1) throw new Error("not now");
    }, { retry: { maxAttempts: 2, delay: 5_000 } });
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 1_000, 1_000, 5_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.deepEqual(executions, [1, 1, 1, 1]);
  const told = events.filter((event) => event.type === "run:start").map(({ execution }) => execution);
  assert.deepEqual(told, [1, 1, 1, 1]);
});

for (const pause of ["sleep", "wait"] as const) {
  forEachStore(`${pause}() holds no slot: another run goes on`, async ({ store, host }) => {
    const pausing = aJob<unknown>(
      (step) => pause === "sleep" ? step.sleep("nap", 1_000) : step.wait("review"),
      "pausing",
    );
    const other = aJob(() => "done", "other");
    await using engine = createEngine({ store, host, jobs: { pausing, other }, worker: { concurrency: 1 } });
    const first = await engine.trigger(pausing, null);
    const second = await engine.trigger(other, null);

    const { executed } = await engine.runUntilIdle();

    assert.equal(executed, 2);
    assert.equal((await engine.getRun(first.id))!.status, "waiting");
    assert.equal(await outputOf(engine, second.id), "done");
  });
}

forEachStore("a pause keeps nothing in memory: no lease, no timer", async ({ store }) => {
  const host = new FakeHost();
  let timers = 0;
  const schedule = host.schedule.bind(host);
  host.schedule = (ms, callback) => {
    timers += 1;
    const cancel = schedule(ms, () => {
      timers -= 1;
      callback();
    });
    let isCancelled = false;
    return () => {
      if (!isCancelled) timers -= 1;
      isCancelled = true;
      cancel();
    };
  };
  const job = aJob((step) => allOf([step.wait("review", { timeout: 60_000 }), step.sleep("nap", 1_000)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(timers, 0);
  assert.deepEqual(await store.getLeases(), []);
});

forEachStore("a pause cannot begin inside the function of a step", async ({ store, host }) => {
  const job = aJob((step) =>
    step.run("outer", async () => {
      const wait = { id: "w" };
      await assert.rejects(step.sleep("nap", 1), { name: "TypeError", message: /"outer"/ });
      await assert.rejects(step.sleepUntil("nap", new Date()), TypeError);
      await assert.rejects(step.wait("review"), TypeError);
      await assert.rejects(step.prepareWait("review"), TypeError);
      await assert.rejects(step.waitFor(wait), TypeError);
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  await outputOf(engine, id);
});

forEachStore("names of steps, waits and sleeps are counted separately", async ({ store, host }) => {
  const seen: string[] = [];
  const job = aJob(async (step) => {
    for (let round = 0; round < 3; round++) {
      await step.run("same", () => round);
      await step.sleep("same", 1_000);
      const { name } = await step.prepareWait("same", { timeout: 1_000 });
      seen.push(name);
    }
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  for (const ms of [0, 1_000, 1_000, 1_000]) {
    host.advance(ms);
    await engine.runUntilIdle();
  }

  await outputOf(engine, id);
  assert.deepEqual((await engine.getSteps(id)).map(({ name }) => name), ["same", "same#2", "same#3"]);
  assert.deepEqual((await engine.getWaits(id)).map(({ name }) => name), ["same", "same#2", "same#3"]);
  assert.deepEqual(waitings(events).map(({ waitName }) => waitName), ["same", "same#2", "same#3"]);
  assert.deepEqual(seen.slice(-3), ["same", "same#2", "same#3"]);
});

forEachStore("wait() in a loop is another wait each time", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const payloads = [];
    for (let round = 0; round < 3; round++) {
      const result = await step.wait("item");
      payloads.push(result.outcome === "signal" ? result.payload : null);
    }
    return payloads;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  for (const name of ["item", "item#2", "item#3"]) {
    await signal(engine, id, name, name);
    await engine.runUntilIdle();
  }

  assert.deepEqual(await outputOf(engine, id), ["item", "item#2", "item#3"]);
});

forEachStore("the name of a wait that has not settled is refused", async ({ store, host }) => {
  const refusals: string[] = [];
  const job = aJob(async (step) => {
    const open = [step.wait("same"), step.sleep("same", 1_000)];
    await step.wait("same").catch(({ name, message }) => refusals.push(`${name}: ${message}`));
    await step.prepareWait("same").catch(({ name, message }) => refusals.push(`${name}: ${message}`));
    await Promise.all(open);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal(refusals.length, 2);
  for (const refusal of refusals) {
    assert.match(
      refusal,
      /^TypeError: Wait "same" of an earlier call has not settled: race the promise .* or give .* a timeout/,
    );
  }
  assert.deepEqual((await engine.getWaits(id)).map(({ name }) => name), ["same"]);
  assert.equal((await engine.getRun(id))!.status, "waiting");
});

forEachStore(
  "a sleep whose name is in use is another occurrence, and each ends on its own",
  async ({ store, host }) => {
    const ends: string[] = [];
    const job = aJob(async (step) => {
      const beat = (ms: number, name: string) => step.sleep("beat", ms).then(() => void ends.push(name));
      await Promise.all([beat(2_000, "slow"), beat(1_000, "fast")]);
      const [winner] = await Promise.race([["answer"], ["beat"]].map(async ([name]) => {
        await (name === "beat" ? step.sleep("beat", 500) : step.wait("answer", { timeout: 1_000 }));
        return [name];
      }));
      return winner;
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, null);

    for (const ms of [0, 1_000, 1_000, 500]) {
      host.advance(ms);
      await engine.runUntilIdle();
    }

    assert.equal(await outputOf(engine, id), "beat");
    assert.deepEqual(ends.slice(-2), ["fast", "slow"]);
    const { records } = (await engine.exportHistory(id))!;
    const sleeps = records.filter(({ kind }) => kind === "sleep").map((record) =>
      "occurrence" in record && record.occurrence
    );
    assert.deepEqual(sleeps, [2, 1, 3]);
  },
);

forEachStore("what cannot be a name is refused for a pause", async ({ store, host }) => {
  const job = aJob(async (step) => {
    for (const name of ["x#2", "", "\n", "\ud800", "x".repeat(256), 7 as unknown as string]) {
      await assert.rejects(step.sleep(name, 1), TypeError, JSON.stringify(name));
      await assert.rejects(step.wait(name), TypeError, JSON.stringify(name));
      await assert.rejects(step.prepareWait(name), TypeError, JSON.stringify(name));
    }
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(await engine.getWaits(id), []);
});

forEachStore("metadata of a wait is kept as it was given first", async ({ store, host }) => {
  let tries = 0;
  const job = aJob((step) =>
    Promise.all([
      step.wait("object", { metadata: { title: "Ünïcode", list: [1, null], try: tries++ } }),
      step.wait("text", { metadata: "text" }),
      step.wait("null", { metadata: null }),
      step.wait("none"),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  await signal(engine, id, "text");
  await engine.runUntilIdle();

  assert.deepEqual((await engine.getWaits(id)).map(({ metadata }) => metadata), [
    { title: "Ünïcode", list: [1, null], try: 0 },
    "text",
    null,
    null,
  ]);
});

forEachStore("metadata that JSON would lose is refused by name", async ({ store, host }) => {
  const job = aJob((step) =>
    step.wait("review", { metadata: { when: [1n] } }).catch(({ name, message }) => [name, message])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  const [name, message] = await outputOf(engine, id) as string[];
  assert.equal(name, "SerializationError");
  assert.match(message!, /"review".*a bigint at \$\.when\[0\]/);
});

forEachStore("a schema gives the job what it makes of the payload", async ({ store, host }) => {
  const schema = z.object({ approved: z.boolean(), by: z.string().default("nobody") });
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("second");
    return [await step.wait("first", { schema }), await step.waitFor(wait, { schema })];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  for (const wait of await engine.getWaits(id)) {
    await engine.signal(wait.id, { signalId: "s", payload: { approved: true, more: 1 } });
  }

  await engine.runUntilIdle();

  const result = { outcome: "signal", signalId: "s", payload: { approved: true, by: "nobody" } };
  assert.deepEqual(await outputOf(engine, id), [result, result]);
  assert.deepEqual((await waitNamed(engine, id, "first")).payload, { approved: true, more: 1 });
});

forEachStore("a schema that refuses the payload throws, the first time as on a replay", async ({ store, host }) => {
  const seen: unknown[] = [];
  const job = aJob(async (step) => {
    try {
      // What a refinement refuses, no JSON Schema says.
      await step.wait("review", { schema: z.unknown().refine((payload) => typeof payload === "object") });
    } catch (error) {
      assert.ok(error instanceof ValidationError);
      assert.match(error.message, /"review"/);
      seen.push([error.code, error.issues.map(({ path }) => path)]);
    }
    await step.sleep("nap", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  await signal(engine, id, "review", "not an object");
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  await outputOf(engine, id);
  assert.deepEqual(seen, [["invalid_input", [[]]], ["invalid_input", [[]]]]);
});

forEachStore("what is no schema is refused when the job asks, not when a signal has come", async ({ store, host }) => {
  const messages: string[] = [];
  const job = aJob(async (step) => {
    const note = (error: TypeError) => void messages.push(`${error.name}: ${error.message}`);
    await step.wait("review", { schema: {} as never }).catch(note);
    const prepared = await step.prepareWait("approval");
    await step.waitFor(prepared, { schema: null as never }).catch(note);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(messages, [
    'TypeError: The schema of wait "review" must be a Standard Schema (zod 4, valibot, arktype, ...), not an object',
    'TypeError: The schema of wait "approval" must be a Standard Schema (zod 4, valibot, arktype, ...), not null',
  ]);
});

forEachStore("a schema is not asked about a timeout", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { schema: z.never(), timeout: 1_000 }));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), { outcome: "timeout" });
});

const LONG: [string, number][] = [["30 days", 30 * DAY_MS], ["ten years", 3_653 * DAY_MS]];

for (const [length, ms] of LONG) {
  forEachStore(`a pause of ${length} is neither early nor late`, async ({ store, host }) => {
    const job = aJob((step) => allOf([step.sleep("nap", ms), step.wait("review", { timeout: ms })]));
    await using engine = createEngine({ store, host, jobs: { job } });
    const { id } = await engine.trigger(job, null);
    await engine.start();
    await host.settle();

    const { deadlineAt } = await waitNamed(engine, id, "review");
    await pass(host, ms - 1);
    const before = (await engine.getRun(id))!.status;
    await pass(host, 2_000, 500);

    assert.equal(deadlineAt, isoTime(FAKE_START + ms));
    assert.equal(before, "waiting");
    assert.equal((await engine.getRun(id))!.status, "completed");
  });

  forEachStore(`a pause of ${length} ends on time beside a step that is executed`, async ({ store, host }) => {
    const gate = aGate();
    const ended: string[] = [];
    const job = aJob((step) =>
      allOf([step.run("slow", gate.work), step.sleep("nap", ms).then(() => ended.push("nap"))])
    );
    // Leases that last until the clock is looked at again: it moves by days here.
    const worker = { heartbeatInterval: 2 ** 28, staleThreshold: 2 ** 30 };
    await using engine = createEngine({ store, host, jobs: { job }, worker });
    const { id } = await engine.trigger(job, null);
    const idle = engine.runUntilIdle();
    await gate.reached;
    await host.settle();

    await pass(host, ms - 2_000, 3 * DAY_MS);
    const before = [...ended];
    await pass(host, 4_000, 500);
    const after = [...ended];
    gate.open();
    await idle;

    await outputOf(engine, id);
    assert.deepEqual([before, after], [[], ["nap"]]);
  });
}

Deno.test("schedule() makes long timers of slices that do not overflow", () => {
  const asked: number[] = [];
  let callbacks: (() => void)[] = [];
  const { setTimeout, clearTimeout } = globalThis;
  globalThis.setTimeout = ((callback: () => void, ms: number) => {
    asked.push(ms);
    callbacks.push(callback);
    return asked.length;
  }) as unknown as typeof setTimeout;
  globalThis.clearTimeout = () => void (callbacks = []);
  let fired = 0;

  try {
    systemHost.schedule(3_653 * DAY_MS, () => fired += 1);
    while (callbacks.length > 0) callbacks.shift()!();
    const cancel = systemHost.schedule(30 * DAY_MS, () => fired += 100);
    callbacks.shift()!();
    cancel();
  } finally {
    Object.assign(globalThis, { setTimeout, clearTimeout });
  }

  assert.equal(fired, 1);
  assert.ok(asked.every((ms) => ms < 2 ** 31), String(asked));
  assert.equal(asked.slice(0, -2).reduce((sum, ms) => sum + ms, 0), 3_653 * DAY_MS);
  assert.deepEqual(callbacks, []);
});

forEachStore("wait() takes a deadline as a date or as text", async ({ store, host }) => {
  const job = aJob((step) =>
    Promise.all([
      step.wait("date", { deadline: new Date(FAKE_START + 1_000) }),
      step.wait("text", { deadline: "2040-01-01T00:00:01.000Z" }),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const deadlines = (await engine.getWaits(id)).map(({ deadlineAt }) => deadlineAt);
  host.advance(1_000);
  await engine.runUntilIdle();

  assert.deepEqual(deadlines, [isoTime(FAKE_START + 1_000), isoTime(FAKE_START + 1_000)]);
  assert.deepEqual(await outputOf(engine, id), [{ outcome: "timeout" }, { outcome: "timeout" }]);
});

forEachStore("wait() with a deadline in the past is over at once", async ({ store, host }) => {
  const job = aJob(async (step) => [
    await step.wait("past", { deadline: new Date(0) }),
    await step.wait("now", { timeout: 0 }),
    await step.wait("negative", { timeout: -5 }),
    await step.waitFor(await step.prepareWait("prepared", { deadline: "1999-12-31T00:00:00Z" })),
  ]);
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  const { executed } = await engine.runUntilIdle();

  assert.equal(executed, 1);
  assert.deepEqual(await outputOf(engine, id), Array(4).fill({ outcome: "timeout" }));
  assert.deepEqual(waitings(events), []);
  const past = await waitNamed(engine, id, "past");
  assert.deepEqual([past.deadlineAt, past.resolvedAt], [isoTime(0), isoTime(0)]);
});

forEachStore("a deadline does not move, whatever later executions ask for", async ({ store, host }) => {
  let timeout = 60_000;
  const job = aJob(async (step) => {
    const asked = timeout;
    timeout += 60_000;
    await Promise.all([step.wait("review", { timeout: asked }), step.sleep("nap", asked), step.wait("other")]);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  host.advance(10_000);
  await signal(engine, id, "other");
  await engine.runUntilIdle();
  const { deadlineAt } = await waitNamed(engine, id, "review");
  host.advance(50_000);
  await engine.runUntilIdle();

  assert.equal(deadlineAt, isoTime(FAKE_START + 60_000));
  await outputOf(engine, id);
});

forEachStore("a deadline fires though no process was alive when it passed", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review", { timeout: 60_000 }));
  const first = createEngine({ store, host, jobs: { job } });
  const { id } = await first.trigger(job, null);
  await first.start();
  await host.settle();
  await first.stop();
  host.advance(10 * DAY_MS);

  await using second = createEngine({ store, host, jobs: { job } });
  await second.start();
  await second.waitForRun(id);

  assert.deepEqual(await outputOf(second, id), { outcome: "timeout" });
  const { resolvedAt, firstResumedAt } = await waitNamed(second, id, "review");
  assert.equal(resolvedAt, isoTime(FAKE_START + 60_000));
  assert.equal(firstResumedAt, isoTime(FAKE_START + 10 * DAY_MS));
});

forEachStore("a started engine continues at a deadline and at a signal", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const first = await step.wait("first", { timeout: 5_000 });
    const second = await step.wait("second", { timeout: 5_000 });
    return [first.outcome, second.outcome, host.now() - FAKE_START];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.start();
  await host.settle();

  await pass(host, 5_000, 100);
  await pass(host, 200, 100);
  await signal(engine, id, "second");
  await engine.waitForRun(id);

  assert.deepEqual(await outputOf(engine, id), ["timeout", "signal", 5_200]);
});

forEachStore("a run resumes in any process, whichever took the signal", async ({ store, host }) => {
  const job = aJob((step) => step.wait("review"));
  await using worker = createEngine({ store, host, jobs: { job } });
  await using server = createEngine({ store, host, jobs: { job } });
  const { id } = await server.trigger(job, null);
  await worker.start();
  await pass(host, 2_000);

  await signal(server, id, "review", "from elsewhere");
  const done = worker.waitForRun(id);
  await pass(host, 2_000);
  await done;

  assert.partialDeepStrictEqual(await outputOf(worker, id), { payload: "from elsewhere" });
});

forEachStore("progress before a pause is kept by it", async ({ store, host }) => {
  const job = aJob(async (step) => {
    step.progress(1, 2, "asked");
    await step.wait("review");
    step.progress(2, 2, "answered");
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  const parked = (await engine.getRun(id))!.progress;
  await signal(engine, id, "review");
  await engine.runUntilIdle();

  assert.deepEqual(parked, { current: 1, total: 2, message: "asked" });
  const told = events.filter((event) => event.type === "run:progress").map(({ progress }) => progress.current);
  assert.deepEqual(told, [1, 2]);
});
