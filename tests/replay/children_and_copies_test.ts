import assert from "node:assert/strict";
import { z } from "zod";
import type { Job, StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { ChangeDefinition } from "../../src/model/job/job_changes.ts";
import { replay } from "../../src/replay/mod.ts";
import { anything, forEachStore, type StoreTest } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";

type Program = (step: StepContext) => unknown;

const child = defineJob({
  name: "child",
  input: anything,
  run: (_step, { fails }) => {
    if (fails) throw new RangeError("the child fails");
    return { ok: true };
  },
});

const picky = defineJob({ name: "picky", input: z.number(), run: neverCalled });

function aParent(run: Program, options: ChangeDefinition = {}): Job {
  return defineJob({ name: "parent", input: anything, ...options, run });
}

async function historyOf({ store, host }: StoreTest, program: Program): Promise<object> {
  const parent = aParent(program);
  await using engine = createEngine({ store, host, jobs: { parent, child, picky } });
  const { id } = await engine.trigger(parent, {});
  await untilIdle({ store, host }, engine);
  return await engine.exportHistory(id);
}

async function untilIdle({ host }: StoreTest, engine: { runUntilIdle(): Promise<unknown> }): Promise<void> {
  let isIdle = false;
  const idle = engine.runUntilIdle().then(() => isIdle = true);
  for (let turn = 0; !isIdle && turn < 100; turn++) {
    await host.settle();
    if (!isIdle) host.advance(50);
  }
  await idle;
}

function neverCalled(): never {
  throw new Error("The function of a step was called");
}

const family = (one: string): Program => async (step) => {
  const single = await step.invoke(one, child, {});
  const failed = await step.invoke("failing", child, { fails: true }).catch((error) =>
    `${error.name} ${error.message}`
  );
  const all = await step.invokeAll("all", child, [{ input: {} }, { input: { fails: true } }, { input: {} }]);
  const refused = await step.invoke("refused", picky, "no number" as never).catch(({ message }) => message);
  const { disposition } = await step.trigger("more", child, {});
  return { single, failed, all, refused, disposition };
};

forEachStore("replay() knows the results of child runs, and makes none", async (context) => {
  const history = await historyOf(context, family("one"));

  const same = await replay(history, aParent(family("one")), { patience: 20 });
  const renamed = await replay(history, aParent(family("first")), { patience: 20 });
  const declared = await replay(history, aParent(family("first"), { changes: { renamed: { one: "first" } } }));
  const longer = await replay(
    history,
    aParent(async (step) => {
      await family("one")(step);
      await step.invokeAll("another", child, [{ input: {} }]);
    }),
  );
  const fewer = await replay(history, aParent(async (step) => void await step.invokeAll("all", child, [])));

  assert.equal(same.outcome, "ends the same", same.message);
  assert.deepEqual([renamed.outcome, renamed.isNew], ["held", { kind: "children", name: "first" }]);
  assert.deepEqual(renamed.suggestion, { renamed: { one: "first" } });
  assert.deepEqual([declared.outcome, declared.neededChanges.renamed], ["ends the same", { one: "first" }]);
  assert.deepEqual([longer.outcome, longer.isNew], ["goes on", { kind: "children", name: "another" }]);
  assert.deepEqual([fewer.outcome, fewer.code], ["held", "ended_early"]);
});

forEachStore("replay() of a run that waits for its children goes on", async (context) => {
  const open: Program = async (step) => {
    await step.invoke("sleeper", defineJob({ name: "child", input: anything, run: neverCalled }), {}, {
      delay: 60_000,
    });
  };
  const history = await historyOf(context, open);

  const report = await replay(history, aParent(open));

  assert.deepEqual([report.status, report.outcome], ["waiting", "goes on"]);
});

forEachStore("replay() of a retry: what was copied from before the failure counts", async (context) => {
  const { store, host } = context;
  const program = (work: (name: string) => () => unknown, isDown: boolean, tail = "ship"): Program => async (step) => {
    await step.run("reserve", work("reserve"));
    await step.run("pack", work("pack"));
    const carrier = await step.run("find carrier", isDown ? neverCalled : work("none"));
    await step.run(`${tail} ${carrier}`, work("shipped"));
    await step.wait("received?");
  };
  const first = aParent(program((name) => () => name, true));
  await using engine = createEngine({ store, host, jobs: { first } });
  const { id } = await engine.trigger(first, {});
  await untilIdle(context, engine);
  const second = aParent(program((name) => () => name, false));
  await using repaired = createEngine({ store, host, jobs: { second } });
  const { id: retry } = await repaired.retrigger(id, { from: "failure" });
  const begun = await repaired.exportHistory(retry);
  await untilIdle(context, repaired);
  const history = await repaired.exportHistory(retry);
  const report = async (of: object, next: Program) => {
    const { outcome, unasked } = await replay(of, aParent(next), { patience: 20 });
    return [outcome, unasked.map(({ name }) => name)];
  };
  const work = () => neverCalled;

  assert.equal((history as { status: string }).status, "waiting");
  assert.deepEqual((history as { copied: object }).copied, {
    upTo: 3,
    unfinished: [{ kind: "step", name: "find carrier" }],
  });
  assert.deepEqual(await report(history, program(work, false)), ["goes on", []]);
  assert.deepEqual(await report(history, program(work, false, "send")), ["held", ["ship none", "received?"]]);
  // What came before the failed step does not depend on how that goes now.
  assert.deepEqual(await report(begun, (step) => step.run("find carrier", neverCalled)), ["held", ["reserve", "pack"]]);
  assert.deepEqual(await report(begun, (step) => step.run("find a carrier", neverCalled)), ["held", [
    "reserve",
    "pack",
  ]]);
});
