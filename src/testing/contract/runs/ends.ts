import assert from "node:assert/strict";
import { endRunId, type NewEnd, undoName } from "../../../model/end.ts";
import { parseRun, type Run, type TerminalStatus } from "../../../model/run.ts";
import { getRun, getRuns, getSteps } from "../../../store/reads.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { Store } from "../../../store/store.ts";
import { add, claimOne, complete, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { fromFailure, onChildren } from "../records/children/arrange_children.ts";
import { A_JOB, aClaimRequest, aFailure, aFlow, aPause, aRun, aStep, unlimited } from "../fixtures.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs that clean up after others (`NewRun.onEnd`). */
export const endCases = cases;

const END_JOB = `${A_JOB}:end`;
const ALL: readonly TerminalStatus[] = ["completed", "failed", "cancelled"];
/** How an end run that has completed goes away. */
const REMOVALS: readonly [how: string, remove: (store: Store, id: string) => Promise<unknown>][] = [
  ["deleted", (store, id) => store.delete(id, null)],
  ["purged", (store) => store.purge({ completed: 0 }, 10)],
];

function ending(statuses: readonly TerminalStatus[] = ALL, overrides: Partial<NewEnd> = {}): Pick<NewRun, "onEnd"> {
  return { onEnd: { jobName: END_JOB, statuses, finishWithin: null, ...overrides } };
}

async function endRunOf(store: Store, runId: string): Promise<Run | null> {
  return await getRun(store, endRunId(runId));
}

async function fail(store: Store, lease: Parameters<Store["finish"]>[0]): Promise<void> {
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
}

/** A failed run, its steps, and the claim of its end run. */
async function addCleanedUp(store: Store, ...steps: string[]) {
  const { lease } = await startRun(store, ending());
  for (const [index, name] of steps.entries()) {
    await store.saveStep(lease, aStep({ name, index, result: { status: "completed", output: `"${name}"` } }), []);
  }
  await fail(store, lease);
  return { runId: lease.runId, end: await claimOne(store, { jobNames: [END_JOB] }) };
}

/** Completes the steps of an end run, and the end run. */
async function undo(store: Store, { lease }: Awaited<ReturnType<typeof claimOne>>, ...names: string[]): Promise<void> {
  for (const [index, name] of names.entries()) await store.saveStep(lease, aStep({ name: `undo ${name}`, index }), []);
  await complete(store, lease);
}

for (const status of ALL) {
  test(`a run that ends as ${status} adds its end run, if that is for this end`, async ({ store }) => {
    for (const statuses of [ALL, [status], ALL.filter((one) => one !== status), []]) {
      const { run } = await add(store, { ...ending(statuses), labels: { org: "acme" } });
      const before = await endRunOf(store, run.id);
      const { lease } = await claimOne(store);
      if (status === "completed") await complete(store, lease);
      else if (status === "failed") await fail(store, lease);
      else await store.cancel(run.id, "request-1", null);
      const end = await endRunOf(store, run.id);

      assert.equal(before, null);
      const ended = (await getRun(store, run.id))!;
      assert.equal(ended.status, status);
      if (!statuses.includes(status)) {
        assert.deepEqual([end, ended.endRunId], [null, null]);
        continue;
      }
      assert.equal(ended.endRunId, end!.id);
      assert.deepEqual(
        [end!.jobName, end!.status, end!.endOf, end!.labels, end!.input, end!.idempotencyKey, end!.parentRunId],
        [END_JOB, "pending", run.id, { org: "acme" }, { runId: run.id }, null, null],
      );
    }
  });
}

timed("each kind of end adds an end run: expired, late while waiting, orphaned, abandoned", async ({ store, host }) => {
  const { run: expired } = await add(store, { ...ending(), flow: aFlow({ startWithin: 10 }) });
  host.advance(10);
  await store.claim(aClaimRequest({ limit: 0 }));
  const late = await startRun(store, { ...ending(), flow: aFlow({ finishWithin: 10 }) });
  await park(store, late.lease, aPause());
  host.advance(10);
  await store.claim(aClaimRequest({ limit: 0 }));
  const parent = await startRun(store);
  const child = aRun({ ...ending(), jobName: "child" });
  await park(store, parent.lease, aPause({ kind: "children", children: { total: 1, from: 0, runs: [child] } }));
  await store.cancel(parent.run.id, "request-1", null);
  await store.claim(aClaimRequest({ limit: 0 }));
  const abandoned = await startRun(store, ending());
  host.advance(1_000);
  await store.claim(aClaimRequest({ limit: 0, maxAbandonments: 1 }));

  for (const id of [expired.id, late.run.id, child.id, abandoned.run.id]) {
    const run = await getRun(store, id);
    assert.equal((await endRunOf(store, id))?.endOf, id);
    assert.equal(run?.endRunId, endRunId(id));
  }
});

test("runs of one call that end each have an end run of their own", async ({ store }) => {
  const runs = Array.from({ length: 200 }, () => aRun(ending()));
  await store.enqueue(runs);
  for (const { id } of runs) await store.cancel(id, `request-${id}`, null);

  const { total } = await getRuns(store, { jobName: END_JOB, limit: 1 });

  assert.equal(total, 200);
});

timed("an end run has the version, labels, flow and key of its run, and its own finishWithin", async ({ store }) => {
  const { run } = await add(store, {
    ...ending(ALL, { finishWithin: 5_000 }),
    version: 3,
    concurrencyKey: "line",
    flow: aFlow({ priority: 7, fairnessKey: "acme", finishWithin: 9_000, startWithin: 8_000, keyConcurrency: 2 }),
  });
  await store.cancel(run.id, "request-1", null);
  const job = { ...unlimited([END_JOB])[0]!, version: 3 };

  const claim = await claimOne(store, { jobs: [job] });

  const end = (await endRunOf(store, run.id))!;
  assert.deepEqual(
    [end.version, end.priority, end.fairnessKey, end.concurrencyKey, end.startBy],
    [3, 7, "acme", "line", null],
  );
  assert.deepEqual([claim.run.id, claim.finishInMs], [end.id, 5_000]);
});

test("a hold, a release and a deletion add no end run", async ({ store }) => {
  const { lease } = await startRun(store, ending());
  await store.release(lease, []);

  assert.equal((await getRuns(store, {})).total, 1);
});

test("a repeated end adds no second end run, and is no error", async ({ store }) => {
  const { lease } = await startRun(store, ending());
  await complete(store, lease);
  await complete(store, lease);
  const { run } = await add(store, ending());
  await store.cancel(run.id, "request-1", null);
  await store.cancel(run.id, "request-1", null);

  assert.equal((await getRuns(store, { jobName: END_JOB })).total, 2);
});

test("an end run goes before all that wait for its key, urgent runs of other jobs too, also after an interruption", async ({ store }) => {
  const jobNames = [A_JOB, END_JOB, "urgent"];
  const holder = await startRun(store, { ...ending(), concurrencyKey: "line" });
  const [second, urgent] = await store.enqueue([
    aRun({ concurrencyKey: "line" }),
    aRun({ concurrencyKey: "line", jobName: "urgent", flow: aFlow({ priority: 1_000 }) }),
  ]);
  await fail(store, holder.lease);
  const order: string[] = [];
  for (let i = 0; i < 4; i++) {
    const claim = await claimOne(store, { jobNames });
    order.push(claim.run.id);
    if (i === 0) await store.release(claim.lease, []);
    else await complete(store, claim.lease);
  }

  const end = endRunId(holder.run.id);
  assert.deepEqual(order, [end, end, urgent!.run.id, second!.run.id]);
});

test("an end run waits for the key that another run holds", async ({ store }) => {
  const jobNames = [A_JOB, END_JOB];
  const holder = await startRun(store, { concurrencyKey: "line" });
  const { run } = await add(store, { ...ending(), concurrencyKey: "line" });
  await store.cancel(run.id, "request-1", null);

  const { claims } = await store.claim(aClaimRequest({ jobNames }));
  await complete(store, holder.lease);

  assert.deepEqual(claims, []);
  assert.equal((await claimOne(store, { jobNames })).run.id, endRunId(run.id));
});

timed("a late run keeps its key, and counts as a lease, while its functions may still run", async ({ store, host }) => {
  const late = await startRun(store, { ...ending(), concurrencyKey: "line" });
  await add(store, { concurrencyKey: "line" });
  const failure = aFailure({ kind: "timeout" });
  await store.finish(late.lease, { status: "failed", failure, failedStepName: null, stillExecuting: true }, []);
  const jobNames = [A_JOB, END_JOB];

  const leases = await store.getLeases();
  const before = await store.claim(aClaimRequest({ jobNames }));
  await store.release(late.lease, []);
  const after = await claimOne(store, { jobNames });

  assert.deepEqual(leases.map(({ runId }) => runId), [late.run.id]);
  assert.deepEqual(before.claims, []);
  assert.equal(after.run.id, endRunId(late.run.id));
  assert.deepEqual((await store.getLeases()).map(({ runId }) => runId), [after.run.id]);
  host.advance(0);
});

test("a run is neither retried nor deleted while it is being cleaned up", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store);
  const message = `Run "${runId}" is being cleaned up: run "${end.run.id}" (running)`;

  for (const from of ["start", "failure"] as const) {
    await assert.rejects(store.enqueue([aRun({ retriggerOf: { runId, from } })]), { name: "ConflictError", message });
  }
  assert.equal(await store.delete(runId), null);
  assert.deepEqual(await store.purge({ failed: 0 }, 10), []);
  await store.cancel(end.run.id, "request-1", null);

  assert.equal((await add(store, { retriggerOf: { runId, from: "start" } })).disposition, "created");
  assert.deepEqual((await store.purge({ failed: 0 }, 10)).map(({ id }) => id), [runId]);
});

test("a run is not retried from its failure while a child that would be retried is cleaned up", async ({ store }) => {
  const { lease } = await startRun(store, { jobName: "parent" });
  const child = aRun(ending());
  await park(store, lease, onChildren([aRun(), child]));
  await complete(store, (await claimOne(store)).lease);
  await fail(store, (await claimOne(store)).lease);
  const end = await claimOne(store, { jobNames: [END_JOB] });
  await fail(store, (await claimOne(store, { jobNames: ["parent"] })).lease);
  const message = `Run "${child.id}" is being cleaned up: run "${end.run.id}" (running)`;

  await assert.rejects(store.enqueue([aRun({ jobName: "parent", ...fromFailure(lease) })]), {
    name: "ConflictError",
    message,
  });
  await complete(store, end.lease);

  // A retry that has not called its children yet takes them over from the run before it.
  const { run: second } = await add(store, { jobName: "parent", ...fromFailure(lease) });
  await fail(store, (await claimOne(store, { jobNames: ["parent"] })).lease);
  await add(store, { jobName: "parent", ...fromFailure({ runId: second.id }) });
  const third = await claimOne(store, { jobNames: ["parent"] });
  const { created } = await park(store, third.lease, onChildren([aRun(), aRun(ending())]));
  assert.deepEqual(created.map(({ retryOf }) => retryOf?.id), [child.id]);
  await store.cancel(third.run.id, "request-1", null);

  const orphan = created[0]!.run.id;
  const open = `Child run "${orphan}" is about to be cancelled and cleaned up: its parent has ended`;
  await assert.rejects(store.enqueue([aRun({ jobName: "parent", ...fromFailure(third.lease) })]), { message: open });
  await store.claim(aClaimRequest({ limit: 0 }));
  const cleaning = new RegExp(`^ConflictError: Run "${orphan}" is being cleaned up`);
  await assert.rejects(store.enqueue([aRun({ jobName: "parent", ...fromFailure(third.lease) })]), cleaning);
  assert.equal(
    (await add(store, { jobName: "parent", retriggerOf: { runId: third.run.id, from: "start" } })).disposition,
    "created",
  );
});

test("an end run is not retried once its run has been, and its retry cleans up after the same run", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store);
  await fail(store, end.lease);
  const retry = aRun({ jobName: END_JOB, retriggerOf: { runId: end.run.id, from: "failure" } });
  const [added] = await store.enqueue([retry]);
  const refused = store.enqueue([aRun({ retriggerOf: { runId, from: "start" } })]);

  assert.equal(parseRun(added!.run).endOf, runId);
  await assert.rejects(refused, /is being cleaned up/);
  await store.cancel(retry.id, "request-1", null);
  await add(store, { retriggerOf: { runId, from: "start" } });
  const late = store.enqueue([aRun({ jobName: END_JOB, retriggerOf: { runId: retry.id, from: "start" } })]);
  await assert.rejects(late, /Cannot retrigger run ".*": run ".*", after which it cleaned up, was retried or deleted/);
});

test("a retry from the failure has no copy of a step that was undone, and knows by which run", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store, "reserve", "charge", "charge#2");
  await undo(store, end, "charge (2)", "reserve");

  const { run } = await add(store, { ...ending(), retriggerOf: { runId, from: "failure" } });
  const claim = await claimOne(store);

  assert.deepEqual((await getSteps(store, run.id)).map(({ name }) => name), ["charge"]);
  const undone = { "charge#2": end.run.id, reserve: end.run.id };
  assert.deepEqual(claim.copied!.undone, undone);
  assert.deepEqual(
    claim.copied!.unfinished.map(({ name }) => name).sort(),
    ["charge#2", "reserve"],
  );
  assert.deepEqual((await store.getHistory(run.id))!.copied!.undone, undone);

  // In a further retry, too, after the step was executed and undone again.
  await store.saveStep(claim.lease, aStep({ name: "reserve", index: 3 }), []);
  await fail(store, claim.lease);
  const second = await claimOne(store, { jobNames: [END_JOB] });
  await undo(store, second, "reserve");
  await add(store, { retriggerOf: { runId: run.id, from: "failure" } });
  const third = await claimOne(store);
  assert.deepEqual(third.copied!.undone, { "charge#2": end.run.id, reserve: second.run.id });
  assert.deepEqual(third.steps.map(({ name }) => name), ["charge"]);
});

test("a retry of an older run knows what was undone after its other retry, and waits for that", async ({ store }) => {
  const jobNames = [END_JOB];
  const { runId, end } = await addCleanedUp(store, "reserve", "charge");
  await undo(store, end, "charge");
  const { run: retry } = await add(store, { ...ending(), retriggerOf: { runId, from: "failure" } });
  const { lease } = await claimOne(store);
  for (const [index, name] of [[1, "charge"], [2, "ship"]] as const) {
    await store.saveStep(lease, aStep({ name, index }), []);
  }
  await fail(store, lease);
  const second = await claimOne(store, { jobNames });
  const message = `Run "${retry.id}" is being cleaned up: run "${second.run.id}" (running)`;
  await assert.rejects(add(store, { retriggerOf: { runId, from: "failure" } }), { name: "ConflictError", message });
  await store.saveStep(second.lease, aStep({ name: "undo reserve" }), []);
  await store.saveStep(second.lease, aStep({ name: "undo ship", index: 1 }), []);
  await fail(store, second.lease);

  await add(store, { retriggerOf: { runId, from: "failure" } });

  const { steps, copied } = await claimOne(store);
  assert.deepEqual(steps, []);
  assert.deepEqual(copied!.undone, { charge: end.run.id, reserve: second.run.id, ship: second.run.id });
  const late = add(store, { jobName: END_JOB, retriggerOf: { runId: second.run.id, from: "failure" } });
  await assert.rejects(late, /after which it cleaned up, was retried or deleted/);
});

test("a retried child knows what was undone after its other retry, and waits for that", async ({ store }) => {
  const { lease } = await startRun(store, { jobName: "parent" });
  const child = aRun(ending());
  await park(store, lease, onChildren([child]));
  const first = await claimOne(store);
  await store.saveStep(first.lease, aStep({ name: "reserve" }), []);
  await fail(store, first.lease);
  await complete(store, (await claimOne(store, { jobNames: [END_JOB] })).lease);
  await fail(store, (await claimOne(store, { jobNames: ["parent"] })).lease);
  const { run: retry } = await add(store, { ...ending(), retriggerOf: { runId: child.id, from: "failure" } });
  await store.cancel(retry.id, "request-1", null);
  const end = await claimOne(store, { jobNames: [END_JOB] });
  const message = `Run "${retry.id}" is being cleaned up: run "${end.run.id}" (running)`;
  await assert.rejects(add(store, { jobName: "parent", ...fromFailure(lease) }), { name: "ConflictError", message });
  await undo(store, end, "reserve");

  await add(store, { jobName: "parent", ...fromFailure(lease) });
  await park(store, (await claimOne(store, { jobNames: ["parent"] })).lease, onChildren([aRun(ending())]));

  const { steps, copied } = await claimOne(store);
  assert.deepEqual([steps, copied!.undone], [[], { reserve: end.run.id }]);
});

test("a retry knows what was undone although its run has no record of it", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store, "reserve");
  await undo(store, end, "charge", "ship (2)", "reserve");

  await add(store, { ...ending(), retriggerOf: { runId, from: "failure" } });

  const { steps, copied } = await claimOne(store);
  const { id } = end.run;
  assert.deepEqual(steps, []);
  assert.deepEqual(copied!.undone, { charge: id, "ship (2)": id, "ship#2": id, reserve: id });
  assert.deepEqual(copied!.unfinished, [{ kind: "step", name: "reserve" }]);
});

test("steps with the longest names are undone", async ({ store }) => {
  const names = ["é".repeat(255), `${"𝒳".repeat(120)}y`, `${"𝒳".repeat(120)}y#2`, "x".repeat(250), "x".repeat(251)];
  const { runId, end } = await addCleanedUp(store, ...names);
  const undoing = names.slice(0, -1).map(undoName);
  for (const [index, name] of undoing.entries()) await store.saveStep(end.lease, aStep({ name, index }), []);
  await complete(store, end.lease);

  const { run } = await add(store, { ...ending(), retriggerOf: { runId, from: "failure" } });

  assert.equal(new Set(undoing).size, undoing.length);
  for (const name of undoing) assert.ok(name.length <= 255, name);
  assert.deepEqual((await getSteps(store, run.id)).map(({ name }) => name), names.slice(-1));
  // Those that have no room are known by what the steps that undid them are named after, too.
  const undone = new Set([...names.slice(0, -1), ...undoing.map((name) => name.slice("undo ".length))]);
  undone.delete(`${"𝒳".repeat(120)}y (2)`);
  assert.deepEqual(Object.keys((await claimOne(store)).copied!.undone!).sort(), [...undone].sort());
});

test("a step counts as undone if a retry of the end run has undone it", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store, "charge");
  await fail(store, end.lease);
  const { run: retry } = await add(store, { jobName: END_JOB, retriggerOf: { runId: end.run.id, from: "failure" } });
  await undo(store, await claimOne(store, { jobNames: [END_JOB] }), "charge");

  await add(store, { retriggerOf: { runId, from: "failure" } });

  assert.deepEqual((await claimOne(store)).copied!.undone, { charge: retry.id });
});

for (const [how, remove] of REMOVALS) {
  test(`a retry does again what an end run has undone that was ${how} since`, async ({ store }) => {
    const { runId, end } = await addCleanedUp(store, "charge", "ship");
    await undo(store, end, "charge");
    await remove(store, end.run.id);

    await add(store, { ...ending(), retriggerOf: { runId, from: "failure" } });

    const { steps, copied } = await claimOne(store);
    assert.deepEqual(steps.map(({ name }) => name), ["ship"]);
    assert.deepEqual(copied!.undone, { charge: end.run.id });
    assert.equal(await getRun(store, end.run.id), null);
  });
}

test("a retry of a run without undone steps has no such list", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store, "charge");
  await complete(store, end.lease);

  await add(store, { retriggerOf: { runId, from: "failure" } });

  const { steps, copied } = await claimOne(store);
  assert.deepEqual([steps.length, copied], [1, { upTo: 1, unfinished: [] }]);
});

test("findRuns() finds the end runs of a run, all of them, or the other runs", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store);
  await addCleanedUp(store);

  const ids = async (query: Parameters<Store["findRuns"]>[0]) => (await store.findRuns(query)).ids;

  assert.deepEqual(await ids({ endOf: runId }), [end.run.id]);
  assert.equal((await ids({ endRun: true })).length, 2);
  assert.equal((await ids({ endRun: false })).includes(end.run.id), false);
  assert.equal((await ids({ endRun: false })).length, 2);
});

test("getHistory() says how a run is cleaned up after", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store, "charge");
  await undo(store, end, "charge");
  await store.delete(end.run.id, null);
  const { run } = await add(store);

  const [own, none] = await Promise.all([runId, run.id].map((id) => store.getHistory(id)));

  assert.deepEqual([own!.onEnd, none!.onEnd], [ending().onEnd, null]);
});

test("getHistory() says to which chain of retries a run belongs", async ({ store }) => {
  const { runId, end } = await addCleanedUp(store);
  await complete(store, end.lease);
  const { run } = await add(store, { retriggerOf: { runId, from: "failure" } });

  assert.deepEqual(
    [(await store.getHistory(runId))!.originId, (await store.getHistory(run.id))!.originId],
    [runId, runId],
  );
});
