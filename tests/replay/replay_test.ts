import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob, type ExportedHistory, type Job, MemoryStore, type Schema, type StepContext } from "../../mod.ts";
import type { ChangeDefinition } from "../../src/job_changes.ts";
import { replay } from "../../src/replay/mod.ts";
import { createEngine } from "../support/quiet_engine.ts";

type Input = { order: string; currency?: string };
type Program = (step: StepContext, input: Input) => unknown;
type Options = ChangeDefinition & { name?: string; input?: Schema };

const anything = z.object({ order: z.string(), currency: z.string().optional() });

function aCheckout(program: Program, { name = "checkout", input = anything, ...options }: Options = {}): Job {
  return defineJob({ name, input, ...options, run: (step, given) => program(step, given as Input) });
}

/** Executes a program until it waits or ends, and exports its history. */
async function historyOf(program: Program, signals: Record<string, unknown> = {}): Promise<ExportedHistory> {
  const job = aCheckout(program);
  await using engine = createEngine({ store: new MemoryStore(), jobs: { job } });
  const { id } = await engine.trigger(job, { order: "o-1" });
  await engine.runUntilIdle();
  for (const [name, payload] of Object.entries(signals)) {
    const wait = (await engine.getWaits(id)).find((wait) => wait.name === name)!;
    await engine.signal(wait.id, { signalId: name, payload: payload as string });
    await engine.runUntilIdle();
  }
  return await engine.exportHistory(id);
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
const THROWS: Program = (_step, { currency }) => void currency!.toUpperCase();
const WITH_CURRENCY = z.object({ order: z.string(), currency: z.string() });
const WITH_DEFAULT = z.object({ order: z.string(), currency: z.string().default("EUR") });
const UPPER: Program = async (step, input) => {
  await THROWS(step, input);
  await replayed({})(step, input);
};

/** The rows of the first table of the design: a change, and what becomes of a run that has recorded the place. */
const CHANGES: Record<string, [job: Job, outcome: string]> = {
  "no change": [aCheckout(replayed({})), "goes on"],
  "a step added after what is recorded": [aCheckout(replayed({})), "goes on"],
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
