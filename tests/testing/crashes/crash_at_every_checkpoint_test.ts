import assert, { AssertionError } from "node:assert/strict";
import { z } from "zod";
import type { StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Json } from "../../../src/values/json.ts";
import { crashAtEveryCheckpoint, type CrashFinding, type CrashOptions } from "../../../src/testing/mod.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { Bank } from "./bank.ts";

const DAY = 86_400_000;

type Body = (step: StepContext, bank: Bank) => unknown;

function aJob(body: Body, bank: Bank, retry = {}) {
  return defineJob({ name: "transfer", input: z.null(), retry, run: (step) => body(step, bank) });
}

const CHILD = defineJob({ name: "child", input: z.number(), run: (step, n) => step.run("double", () => 2 * n) });

type Options = CrashOptions & { retry?: object; fakes?: Record<string, unknown> };

/** Crashes a job that works with a bank. */
function crash(body: Body, signals: Record<string, Json> = {}, options: Options = {}) {
  const { retry, fakes = {}, ...others } = options;
  return crashAtEveryCheckpoint((kit) => {
    const bank = kit.world(new Bank());
    const job = aJob(body, bank, retry);
    return { job, jobs: { CHILD }, input: null, signals, fakes, observe: () => bank.bookings };
  }, others);
}

const BROKEN: Record<string, {
  body: () => Body;
  kind: CrashFinding["kind"];
  place: string;
  signals?: Record<string, Json>;
}> = {
  "a charge without a key": {
    body: () => async (step, bank) => {
      await step.run("charge", () => bank.book("shop", 10));
    },
    kind: "effects",
    place: 'record "charge" dies before',
  },
  "a later charge without a key, after a pause": {
    body: () => async (step, bank) => {
      await step.run("reserve", ({ idempotencyKey }) => bank.book("stock", 1, idempotencyKey));
      await step.sleep("nap", DAY);
      await step.run("charge", () => bank.bookLater("shop", 10));
    },
    kind: "effects",
    place: 'record "charge" overtaken before',
  },
  "two effects of one step, of which one has no key": {
    body: () => async (step, bank) => {
      await step.run("move", async ({ idempotencyKey }) => {
        await bank.bookLater("from", -10, idempotencyKey);
        await bank.bookLater("to", 10);
      });
    },
    kind: "effects",
    place: 'call of bookLater() in "move" (the 2. time) dies after',
  },
  "a key that is drawn in the step": {
    body: () => async (step, bank) => {
      await step.run("charge", () => bank.book("shop", 10, crypto.randomUUID()));
    },
    kind: "effects",
    place: 'call of book() in "charge" dies after',
  },
  "an effect outside of steps": {
    body: () => async (step, bank) => {
      bank.book("log", 1);
      await step.run("work", () => 1);
    },
    kind: "effects",
    place: 'record "work" dies after',
  },
  "an effect outside of steps after a wait": {
    body: () => async (step, bank) => {
      await step.wait("review");
      bank.book("log", 1);
      await step.run("work", () => 1);
    },
    kind: "effects",
    place: 'record "work" dies before',
    signals: { review: true },
  },
  "a variable that a step changes": {
    body: () => async (step) => {
      let count = 0;
      await step.run("one", () => void count++);
      await step.run("two", () => void count++);
      return count;
    },
    kind: "outcome",
    place: 'record "one" dies after',
  },
  "an id that is drawn outside of steps": {
    body: () => {
      let ids = 0;
      return async (step) => {
        const id = ++ids;
        return await step.run("use", () => id);
      };
    },
    kind: "outcome",
    place: "claim dies after",
  },
  "a branch that depends on the execution": {
    body: () => async (step) => {
      if (step.execution === 1) await step.run("first", () => 1);
      else await step.run("other", () => 2);
      await step.run("last", () => 3);
    },
    kind: "held",
    place: 'record "first" dies after',
  },
  "another wait after a crash, which nobody answers": {
    body: () => async (step) => {
      await step.run("work", () => 1);
      if (step.execution > 1) await step.wait("rescue");
    },
    kind: "stuck",
    place: 'record "work" dies after',
  },
  "a failure of every execution but the first": {
    body: () => async (step) => {
      await step.run("work", () => 1);
      if (step.execution > 1) throw new Error("not again");
    },
    kind: "ended",
    place: "the ending dies before",
  },
  "a step that only a second execution has": {
    body: () => async (step) => {
      if (step.execution > 1) await step.run("clean up", () => 0);
      await step.run("work", () => 1);
    },
    kind: "steps",
    place: 'record "work" dies before',
  },
};

for (const [title, { body, kind, place, signals }] of Object.entries(BROKEN)) {
  Deno.test(`crashAtEveryCheckpoint() finds ${title}, and its place`, async () => {
    const make = body();

    const report = await crash(make, signals);

    const found = report.findings.find((finding) => finding.kind === kind && finding.places.includes(place));
    assert.ok(found !== undefined, `${report}`);
    assert.throws(() => report.assertSame(), AssertionError);
    assert.match(found.trace, /worker 2/);
  });
}

const CORRECT: Record<string, { body: Body; signals?: Record<string, Json>; options?: Options }> = {
  "steps with keys": {
    body: async (step, bank) => {
      await step.run("debit", ({ idempotencyKey }) => bank.book("from", -10, idempotencyKey));
      await step.run("credit", ({ idempotencyKey }) => bank.bookLater("to", 10, idempotencyKey));
      return "done";
    },
  },
  "a sleep": {
    body: async (step, bank) => {
      await step.sleep("nap", DAY);
      return await step.run("book", ({ idempotencyKey }) => bank.book("a", 1, idempotencyKey));
    },
  },
  "a sleep until an instant": {
    body: async (step) => {
      await step.sleepUntil("date", "2030-02-01T00:00:00Z");
      return await step.run("work", () => 1);
    },
  },
  "a wait that is signalled": {
    body: (step) => step.wait("review", { timeout: DAY }).then(({ outcome }) => outcome),
    signals: { review: { approved: true } },
  },
  "a wait that times out": {
    body: (step) => step.wait("review", { timeout: DAY }).then(({ outcome }) => outcome),
  },
  "a prepared wait": {
    body: async (step) => {
      const wait = await step.prepareWait("answer");
      await step.run("ask", () => 1);
      const { outcome } = await step.waitFor(wait);
      return outcome;
    },
    signals: { answer: 1 },
  },
  "parallel steps": {
    body: (step, bank) =>
      Promise.all(
        ["a", "b", "c"].map((name) => step.run(name, ({ idempotencyKey }) => bank.bookLater(name, 1, idempotencyKey))),
      ),
  },
  "a race of a step and a sleep": {
    body: async (step) => {
      const winner = await Promise.race([
        step.run("work", () => "work"),
        step.sleep("limit", DAY).then(() => "limit"),
      ]);
      return await step.run("use", () => winner);
    },
  },
  "a retry with a delay": {
    body: (step) =>
      step.run("flaky", ({ attempt }) => {
        if (attempt < 3) throw new Error("not yet");
        return attempt;
      }),
    options: { retry: { maxAttempts: 3, delay: 60_000 } },
  },
  "a loop of steps of one name": {
    body: async (step, bank) => {
      for (let i = 0; i < 4; i++) await step.run("insert", ({ idempotencyKey }) => bank.book("t", i, idempotencyKey));
    },
  },
  "children": {
    body: (step) => step.invokeAll("all", CHILD, [1, 2].map((input) => ({ input }))),
  },
  "runs that parallel steps trigger, whichever comes first after a crash": {
    body: (step) =>
      Promise.all([
        step.run("one", () => 1),
        step.trigger("mail", CHILD, 1),
        step.run("two", () => 2),
        step.trigger("report", CHILD, 2),
      ]),
  },
  "the ids of children of parallel calls, whichever is made first after a crash": {
    body: async (step) => {
      const [first, second] = await Promise.all([
        step.run("one", () => 1).then(() => step.invokeAll("first", CHILD, [{ input: 1 }, { input: 2 }])),
        step.run("two", () => 2).then(() => step.invokeAll("second", CHILD, [{ input: 3 }])),
      ]);
      return [...first, ...second].map(({ runId }) => runId);
    },
  },
  "the id of a wait that is handed out": {
    body: async (step, bank) => {
      const { id } = await step.prepareWait("answer", { timeout: DAY });
      await step.run("ask", ({ idempotencyKey }) => bank.book(`mail with ${id}`, 1, idempotencyKey));
      return { id };
    },
  },
  "a fake, in place of a step that charges twice": {
    body: (step, bank) => step.run("charge", () => bank.book("shop", 10)),
    options: { fakes: { charge: "charged" } },
  },
  "a patch": {
    body: async (step, bank) => {
      if (await step.patch("new")) await step.run("fee", ({ idempotencyKey }) => bank.book("fee", 1, idempotencyKey));
      return await step.run("work", () => 1);
    },
  },
  "a failure that is expected": {
    body: async (step) => {
      await step.run("work", () => 1);
      throw new Error("no");
    },
    options: { expected: "failed" },
  },
};

for (const [title, { body, signals, options }] of Object.entries(CORRECT)) {
  Deno.test(`crashAtEveryCheckpoint() finds nothing in ${title}`, async () => {
    const report = await crash(body, signals, options);

    report.assertSame();
    assert.deepEqual(report.unreached, []);
    assert.ok(report.executions > 5, `${report}`);
  });
}

Deno.test("crashAtEveryCheckpoint() takes fakes, children and a world that lives elsewhere", async () => {
  const bank = { booked: [] as string[] };
  const child = defineJob({ name: "child", input: z.number(), run: (step, n) => step.run("twice", () => 2 * n) });
  const parent = defineJob({
    name: "parent",
    input: z.number(),
    async run(step, n) {
      await step.run("charge", () => void bank.booked.push("real"));
      return await step.invoke("child", child, n);
    },
  });

  const report = await crashAtEveryCheckpoint(parent, 4, {
    jobs: { child },
    fakes: { charge: () => void bank.booked.push("fake") },
    effects: { reset: () => bank.booked.splice(0), read: () => [...bank.booked] },
  });

  assert.deepEqual(report.findings.map(({ kind }) => kind), ["effects"]);
  assert.deepEqual([report.findings[0]!.expected, report.findings[0]!.actual], [["fake"], ["fake", "fake"]]);
  assert.match(
    `${report}`,
    /^crashes change 1 thing\(s\): \d+ checkpoints, \d+ executions\n\neffects: expected 1, found 2\nat record "charge" dies before/,
  );
});

Deno.test("crashAtEveryCheckpoint() refuses a job that does not end as expected without crashes", async () => {
  const failing = crash(() => {
    throw new Error("no bank");
  });
  await assert.rejects(failing, /^Error: The crash-free execution failed: no bank; say expected: "failed" if that is/);

  const waiting = crash((step) => step.wait("review"));
  await assert.rejects(waiting, /^Error: Nothing is ever due: run \S+ of "transfer" waits for a signal "review"/);
});

Deno.test("crashAtEveryCheckpoint() with few executions takes each kind of checkpoint first, and names what it leaves out", async () => {
  const report = await crash(
    async (step, bank) => {
      for (let i = 0; i < 30; i++) await step.run(`insert ${i}`, () => void bank.book("t", i));
    },
    {},
    { most: 15 },
  );

  assert.equal(report.executions, 15);
  assert.ok(report.leftOut.length > 100);
  assert.ok(report.findings.length > 0);
  assert.match(`${report}`, /crashes were left out \(most\): /);
});

Deno.test("crashAtEveryCheckpoint() crashes a job of 20 steps 108 times", async () => {
  const report = await crash(async (step, bank) => {
    for (let i = 0; i < 20; i++) await step.run(`step ${i}`, () => i);
    return bank.bookings.length;
  });

  report.assertSame();
  assert.deepEqual([report.checkpoints, report.executions, report.unreached], [22, 109, []]);
});

/** A job whose second step books with a key that the first one has drawn: right, if the first one is durable by then. */
function crashWithDrawnKey() {
  return crashAtEveryCheckpoint((kit) => {
    const bank = kit.world(new Bank());
    let draws = 0;
    const body: Body = async (step) => {
      const key = await step.run("draw", () => `key ${++draws}`);
      await step.run("charge", () => void bank.book("shop", 10, key));
    };
    return { job: aJob(body, bank), input: null, observe: () => bank.bookings };
  });
}

Deno.test("crashAtEveryCheckpoint() finds an engine that acknowledges a record before it is stored", async () => {
  const { saveStep } = MemoryStore.prototype;
  (await crashWithDrawnKey()).findings.forEach(({ kind }) => assert.equal(kind, "steps")); // the key is another one
  const late = new Map<string, () => Promise<unknown>>();
  MemoryStore.prototype.saveStep = async function (lease, step, reports) {
    const store = () => saveStep.call(this, lease, step, reports);
    const key = `${lease.runId} ${lease.generation}`;
    if (step.name === "draw") {
      late.set(key, store);
      return { recordedNo: 1, retry: null };
    }
    await late.get(key)?.(); // stored with the next record, or never
    return await store();
  };

  try {
    const { findings } = await crashWithDrawnKey();

    const found = findings.find(({ kind }) => kind === "effects");
    assert.ok(found?.places.includes('call of book() in "charge" dies after'), JSON.stringify(findings));
  } finally {
    MemoryStore.prototype.saveStep = saveStep;
  }
});

Deno.test("crashAtEveryCheckpoint() refuses options under which it would find nothing", async () => {
  const body: Body = (step, bank) => step.run("charge", ({ idempotencyKey }) => bank.book("shop", 10, idempotencyKey));

  await assert.rejects(
    crash(body, {}, { modes: ["dies" as "dies before"] }),
    /^TypeError: There is no mode "dies"; there are: dies before, dies after, answer lost, overtaken before, overtaken after$/,
  );
  await assert.rejects(crash(body, {}, { modes: [] }), /^TypeError: modes must name at least one mode$/);
  for (const most of [0, 1, 1.5, NaN]) {
    await assert.rejects(crash(body, {}, { most }), /^RangeError: most must be a whole number of 2 or more, not /);
  }
});

Deno.test("crashAtEveryCheckpoint() refuses fakes and signals that the execution without crashes does not use", async () => {
  const body: Body = async (step) => {
    await step.run("charge", () => 1);
    await step.wait("review", { timeout: DAY });
  };

  await assert.rejects(
    crash(body, {}, { fakes: { chrage: 1 } }),
    /^Error: Step "chrage" of "transfer" has a fake and was never asked for; asked for were: charge\n/,
  );
  await assert.rejects(
    crash(body, { reviw: true }),
    /^Error: Nothing has waited for the signal "reviw" in the execution without crashes\n/,
  );
});

Deno.test("crashAtEveryCheckpoint() crosses the commits that take a message, and that add an end run", async () => {
  const report = await crashAtEveryCheckpoint((kit) => {
    const bank = kit.world(new Bank());
    const order = defineJob({
      name: "order",
      input: z.null(),
      messages: { paid: z.object({ cents: z.number() }), cancel: z.null() },
      onEnd: {
        statuses: ["failed"],
        async run(_step, end) {
          await end.undo("reserve", (_, { stepKey }) => bank.book("stock", -1, `undo ${stepKey}`), { always: true });
        },
      },
      async run(step) {
        await step.run("reserve", ({ idempotencyKey }) => bank.book("stock", 1, idempotencyKey));
        const paid = await step.receive("paid", { timeout: "1d" });
        await step.run("book", ({ idempotencyKey }) => bank.book("shop", paid!.payload.cents, idempotencyKey));
        await step.receive("cancel", { timeout: "1d" });
        throw new Error("The customer has cancelled");
      },
    });
    const messages = [{ name: "paid", payload: { cents: 10 }, early: true }, { name: "cancel", payload: null }];
    return { job: order, input: null, messages, observe: () => bank.bookings };
  }, { expected: "failed" });

  report.assertSame();
  assert.deepEqual([report.unreached, report.leftOut], [[], []]);
  // Claims of the run (2) and of the clean-up, calls of the bank (3), records of steps (4), pauses (2), endings (2).
  assert.equal(report.checkpoints, 14);
});

Deno.test("crashAtEveryCheckpoint() finds a clean-up that undoes twice, and a message that nobody waits for", async () => {
  const order = (bank: Bank) =>
    defineJob({
      name: "order",
      input: z.null(),
      messages: { paid: z.null() },
      onEnd: { run: (_step, end) => end.undo("reserve", () => bank.book("stock", -1)) },
      run: (step) => step.run("reserve", ({ idempotencyKey }) => bank.book("stock", 1, idempotencyKey)),
    });
  const report = await crashAtEveryCheckpoint((kit) => {
    const bank = kit.world(new Bank());
    return { job: order(bank), input: null, observe: () => bank.bookings };
  });

  assert.ok(report.findings.some(({ places }) => places.includes('record "undo reserve" dies before')));
  await assert.rejects(
    crashAtEveryCheckpoint(order(new Bank()), null, { messages: [{ name: "paid", payload: null }] }),
    /Nothing has waited for the message "paid"/,
  );
});
