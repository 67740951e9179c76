import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob, type ExportedHistory, type Job, type Json, type Schema, type StepContext } from "../../mod.ts";
import type { ChangeDefinition } from "../../src/model/job/job_changes.ts";
import { replay } from "../../src/replay/mod.ts";
import { createTestEngine } from "../../src/testing/mod.ts";

type Input = { order: string; currency?: string };
type Program = (step: StepContext, input: Input) => unknown;
type Options = ChangeDefinition & { name?: string; input?: Schema };

const anything = z.object({ order: z.string(), currency: z.string().optional() });

function aCheckout(program: Program, { name = "checkout", input = anything, ...options }: Options = {}): Job {
  return defineJob({ name, input, ...options, run: (step, given) => program(step, given as Input) });
}

/** Executes a program until it waits or ends, and exports its history. */
async function historyOf(program: Program, signals: Record<string, Json> = {}): Promise<ExportedHistory> {
  const job = aCheckout(program);
  await using t = createTestEngine({ jobs: { job } });
  const run = await t.trigger(job, { order: "o-1" });
  await t.advance(0); // a sleep of no time is over
  for (const [name, payload] of Object.entries(signals)) await t.signal(run, name, payload);
  return await t.exportHistory(run);
}

/** A step whose function must not be called. */
function neverCalled(): never {
  throw new Error("The function of a step was called");
}

const charged: Program = async (step) => {
  await step.run("charge", () => "ch_1");
  await step.sleep("cool down", 0);
  const ok = await step.wait("ok?");
  await step.run("ship", () => "shipped");
  const last = await step.wait("received?");
  return { ok: ok.outcome, last: last.outcome };
};

const replayed = (names: { charge?: string; sleep?: string; wait?: string }, before: Program = () => {}): Program => {
  const { charge = "charge", sleep = "cool down", wait = "ok?" } = names;
  return async (step, input) => {
    await before(step, input);
    await step.run(charge, neverCalled);
    await step.sleep(sleep, 0);
    const ok = await step.wait(wait);
    await step.run("ship", neverCalled);
    const last = await step.wait("received?");
    await step.run("thank", neverCalled);
    return { ok: ok.outcome, last: last.outcome };
  };
};

const WITHOUT_WAIT: Program = async (step) => {
  await step.run("charge", neverCalled);
  await step.sleep("cool down", 0);
  await step.run("ship", neverCalled);
  await step.wait("received?");
};
const MOVED: Program = async (step) => {
  await step.sleep("cool down", 0);
  await step.run("charge", neverCalled);
  await step.wait("ok?");
  await step.run("ship", neverCalled);
  await step.wait("received?");
};
const MOVED_BEHIND: Program = async (step) => {
  await step.sleep("cool down", 0);
  await step.wait("ok?");
  await step.run("ship", neverCalled);
  await step.wait("received?");
  await step.run("charge", neverCalled);
};
const THROWS: Program = (_step, { currency }) => void currency!.toUpperCase();
const WITH_CURRENCY = z.object({ order: z.string(), currency: z.string() });
const WITH_DEFAULT = z.object({ order: z.string(), currency: z.string().default("EUR") });
const UPPER: Program = async (step, input) => {
  await THROWS(step, input);
  await replayed({})(step, input);
};

/** The rows of the first table of the design: a change, and what becomes of a run that has recorded the place. */
const CHANGES: Record<string, [job: Job, outcome: string]> = {
  "no change but in the functions of steps": [aCheckout(replayed({})), "goes on"],
  "steps added after what is recorded": [
    aCheckout(async (step, input) => {
      await replayed({})(step, input);
      await step.run("thank again", neverCalled);
    }),
    "goes on",
  ],
  "recorded steps moved": [aCheckout(MOVED), "goes on"],
  "a step added before something recorded": [aCheckout(replayed({}, (step) => step.run("check", neverCalled))), "held"],
  "the same, declared": [
    aCheckout(replayed({}, (step) => step.run("check", neverCalled)), { changes: { added: ["check"] } }),
    "goes on",
  ],
  "the same behind a patch": [
    aCheckout(replayed({}, async (step) => {
      if (await step.patch("check")) await step.run("check", neverCalled);
    })),
    "goes on",
  ],
  "a recorded step moved behind the open wait": [aCheckout(MOVED_BEHIND), "held"],
  "the same, declared as removed": [aCheckout(MOVED_BEHIND, { changes: { removed: ["charge"] } }), "goes on"],
  "a step renamed": [aCheckout(replayed({ charge: "charge card" })), "held"],
  "the same step, declared": [
    aCheckout(replayed({ charge: "charge card" }), { changes: { renamed: { charge: "charge card" } } }),
    "goes on",
  ],
  "a sleep renamed": [aCheckout(replayed({ sleep: "calm down" })), "held"],
  "the same sleep, declared": [
    aCheckout(replayed({ sleep: "calm down" }), { changes: { renamed: { "cool down": "calm down" } } }),
    "goes on",
  ],
  "a wait renamed": [aCheckout(replayed({ wait: "review" })), "held"],
  "the same wait, declared": [
    aCheckout(replayed({ wait: "review" }), { changes: { renamed: { "ok?": "review" } } }),
    "goes on",
  ],
  "a wait removed": [aCheckout(WITHOUT_WAIT), "held"],
  "the same wait removed, declared": [aCheckout(WITHOUT_WAIT, { changes: { removed: ["ok?"] } }), "goes on"],
  "a field that old inputs lack": [aCheckout(UPPER), "held"],
  "an input that the schema refuses": [aCheckout(UPPER, { input: WITH_CURRENCY }), "held"],
  "an input with a default": [aCheckout(UPPER, { input: WITH_DEFAULT }), "goes on"],
  "an upgraded input": [
    aCheckout(UPPER, { input: WITH_CURRENCY, upgradeInput: (old) => ({ currency: "EUR", ...old as object }) }),
    "goes on",
  ],
  "a job renamed": [aCheckout(replayed({}), { name: "check-out" }), "stranded"],
  "the same job with an alias": [aCheckout(replayed({}), { name: "check-out", aliases: ["checkout"] }), "goes on"],
  "a new version": [aCheckout(replayed({}), { version: 2 }), "stranded"],
  "a new version that continues the old one": [aCheckout(replayed({}), { version: 2, continues: [1] }), "goes on"],
  "divergence that goes on": [
    aCheckout(replayed({ charge: "charge card" }), { onDivergence: "continue" }),
    "goes on",
  ],
  "divergence that fails": [aCheckout(replayed({ charge: "charge card" }), { onDivergence: "fail" }), "fails"],
};

for (const [change, [job, outcome]] of Object.entries(CHANGES)) {
  Deno.test(`replay() of a waiting run: ${change}: ${outcome}`, async () => {
    const history = await historyOf(charged, { "ok?": true });

    const report = await replay(history, job, { patience: 20 });

    assert.equal(report.outcome, outcome, report.message);
    if (outcome === "goes on") report.assertGoesOn();
    else assert.throws(() => report.assertGoesOn(), { name: "AssertionError", message: report.message });
  });
}

Deno.test("replay() suggests what to declare, found by trying", async () => {
  const history = await historyOf(charged, { "ok?": true });
  const suggest = async (program: Program, options?: Options) =>
    (await replay(history, aCheckout(program, options), { patience: 20 })).suggestion;

  assert.deepEqual(await suggest(replayed({ charge: "charge card" })), { renamed: { charge: "charge card" } });
  assert.deepEqual(await suggest(replayed({ charge: "pay", sleep: "calm down", wait: "review" })), {
    renamed: { charge: "pay", "cool down": "calm down", "ok?": "review" },
  });
  assert.deepEqual(await suggest(replayed({}, (step) => step.run("check", neverCalled))), { added: ["check"] });
  assert.deepEqual(await suggest(WITHOUT_WAIT), { removed: ["ok?"] });
  assert.deepEqual(await suggest(async (step) => void await step.run("charge", neverCalled)), {
    removed: ["cool down", "ok?", "ship", "received?"],
  });
  assert.deepEqual(await suggest(UPPER), null);
});

/** Replays with little patience. */
function quickly(history: object, job: Job) {
  return replay(history, job, { patience: 20 });
}

Deno.test("replay() of a completed run tells whether it returns the same", async () => {
  const program: Program = async (step) => ({
    sum: await step.run("add", () => 3),
    at: await step.run("no", () => {}),
  });
  const history = await historyOf(program);
  const same: Program = async (step) => ({
    sum: await step.run("add", neverCalled),
    at: await step.run("no", neverCalled),
  });
  const other: Program = async (step) => {
    await same(step, { order: "" });
    return { sum: 4 };
  };
  const longer: Program = async (step) => {
    await same(step, { order: "" });
    await step.run("multiply", neverCalled);
  };
  const failing: Program = async (step) => {
    await same(step, { order: "" });
    throw new RangeError("too large");
  };

  const reports = await Promise.all([same, other, longer, failing].map((next) => quickly(history, aCheckout(next))));

  assert.deepEqual(reports.map(({ outcome }) => outcome), ["ends the same", "ends otherwise", "goes on", "fails"]);
  assert.deepEqual(reports[2]!.isNew, { kind: "step", name: "multiply" });
  assert.equal(reports[3]!.message, "The job throws RangeError: too large; the run has ended as completed");
  assert.throws(() => reports[3]!.assertGoesOn(), { name: "AssertionError", message: reports[3]!.message });
});

Deno.test("replay() of a failed run tells whether it fails the same", async () => {
  const program = (work: () => never, message = "the card"): Program => async (step) => {
    try {
      await step.run("charge", work);
    } catch (error) {
      throw new Error(message, { cause: error });
    }
  };
  const refuse = () => {
    throw new Error("refused");
  };
  const history = await historyOf(program(refuse));

  const same = await quickly(history, aCheckout(program(neverCalled)));
  const other = await quickly(history, aCheckout(program(neverCalled, "the bank")));
  const caught = await quickly(history, aCheckout((step) => step.run("charge", neverCalled).catch(() => "later")));

  assert.deepEqual([same, other, caught].map(({ outcome }) => outcome), [
    "ends the same",
    "ends otherwise",
    "ends otherwise",
  ]);
});

Deno.test("replay() of an open run that ends early: held while something recorded is left, else it ends otherwise", async () => {
  const history = await historyOf(charged, { "ok?": true });
  const left = await quickly(history, aCheckout((step) => step.run("charge", neverCalled)));
  const { outcome } = await quickly(
    history,
    aCheckout((step) => step.run("charge", neverCalled), {
      changes: { removed: ["cool down", "ok?", "ship", "received?"] },
    }),
  );

  assert.deepEqual([left.outcome, left.code], ["held", "ended_early"]);
  assert.deepEqual(left.unasked.map(({ kind, name }) => `${kind} ${name}`), [
    "sleep cool down",
    "wait ok?",
    "step ship",
    "wait received?",
  ]);
  assert.equal(outcome, "ends otherwise");
});

Deno.test("replay() delivers the results of parallel branches and of loops in their order", async () => {
  const program =
    (work: (value: string) => () => string, last: (step: StepContext) => unknown): Program => async (step) => {
      const seen: string[] = [];
      const branch = async (letter: string) => {
        for (let count = 0; count < 3; count++) {
          seen.push(await step.run(`work ${letter}`, work(`${letter}${count}`)));
          if (count === 1) await step.sleep(`rest ${letter}`, 0);
        }
      };
      const race = Promise.race([step.run("fast", work("fast")), step.wait("never")]);
      await Promise.all([branch("a"), branch("b"), branch("c"), race]);
      await last(step);
      return seen.join();
    };
  const history = await historyOf(program((value) => () => value, (step) => step.wait("ok?")), { "ok?": null });

  const same = await quickly(history, aCheckout(program(() => neverCalled, (step) => step.wait("ok?"))));
  const renamed = await quickly(history, aCheckout(program(() => neverCalled, (step) => step.wait("review"))));

  assert.equal(history.status, "completed");
  assert.deepEqual([same.outcome, renamed.outcome], ["ends the same", "held"]);
  assert.deepEqual(renamed.isNew, { kind: "wait", name: "review" });
  assert.deepEqual(renamed.suggestion, { renamed: { "ok?": "review" } });
});

Deno.test("replay() waits for what a job awaits outside of its steps", async () => {
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  const history = await historyOf(charged, { "ok?": true });
  const late: Program = async (step, input) => {
    const other = pause(30).then(() => step.run("charge", neverCalled));
    const isNew = step.run("check", neverCalled);
    await other;
    await import("node:os");
    await pause(30);
    await replayed({ charge: "charge again" })(step, input);
    await isNew;
  };

  const patient = await replay(history, aCheckout(late, { changes: { added: ["charge again"] } }), { patience: 200 });
  const impatient = await replay(history, aCheckout(late), { patience: 4 });
  await pause(100); // what the job awaits goes on after its replay

  assert.equal(patient.outcome, "goes on", patient.message);
  assert.equal(impatient.outcome, "held");
});

Deno.test("replay() of runs that would be held costs no second each", async () => {
  const history = await historyOf(charged);
  const startedAt = performance.now();

  for (let count = 0; count < 20; count++) {
    const { outcome } = await replay(history, aCheckout(() => {}), { patience: 4 });
    assert.equal(outcome, "held");
  }

  assert.ok(performance.now() - startedAt < 15_000);
});

Deno.test("replay() says that a job awaits something that does not settle", async () => {
  const history = await historyOf(charged);

  const report = await replay(history, aCheckout(() => new Promise(() => {})), { patience: 5, timeout: 60 });

  assert.equal(report.outcome, "fails");
  assert.equal(report.message, "The job awaits something outside of its steps that does not settle");
});

Deno.test("replay() knows prepared waits, signals and timeouts", async () => {
  const program = (work: (id: string) => () => string): Program => async (step) => {
    const prepared = await step.prepareWait("answer", { metadata: { to: "ada" }, timeout: 60_000 });
    const id = await step.run("mail", work(prepared.id));
    const late = await step.wait("late", { timeout: 0 });
    const answer = await step.waitFor({ id });
    return [prepared.metadata, late, answer];
  };
  const history = await historyOf(program((id) => () => id), { answer: { yes: true } });

  const report = await quickly(history, aCheckout(program(() => neverCalled)));

  assert.equal(report.outcome, "ends the same", report.message);
});

Deno.test("replay() goes on with a step between two attempts, and is held if it leaves something out before it", async () => {
  const program = (work: () => never, ...before: string[]): Program => async (step) => {
    for (const name of before) await step.run(name, work === neverCalled ? neverCalled : () => name);
    await step.run("fetch", work, { retry: { maxAttempts: 5, delay: 60_000 } });
  };
  const history = await historyOf(program(() => {
    throw new Error("down");
  }, "read"));

  const same = await quickly(history, aCheckout(program(neverCalled, "read")));
  const without = await quickly(history, aCheckout(program(neverCalled)));

  assert.deepEqual([same.outcome, same.isNew], ["goes on", { kind: "step", name: "fetch" }]);
  assert.deepEqual([without.outcome, without.suggestion], ["held", { removed: ["read"] }]);
  assert.equal(
    without.message,
    'Held at its next step, unless the job asks before for what this run has recorded: step "read". If it asks later ' +
      'or not at all, say changes: { removed: ["read"] }; else see what the job decides outside of its steps',
  );
});

Deno.test("replay() remembers the answers of patches", async () => {
  const program = (work: () => string): Program => async (step) => {
    const isNew = await step.patch("gift wrap");
    if (isNew) await step.run("wrap", work);
    await step.wait("ok?");
    return isNew;
  };
  const history = await historyOf(program(() => "wrapped"), { "ok?": null });

  const same = await quickly(history, aCheckout(program(neverCalled)));
  const without = await quickly(history, aCheckout(async (step) => void await step.wait("ok?")));

  assert.equal(same.outcome, "ends the same");
  assert.deepEqual([without.outcome, without.unasked], ["held", [{ kind: "step", name: "wrap" }]]);
});
