import assert from "node:assert/strict";
import { ConflictError, LeaseLostError, NotFoundError, WaitExpiredError, WorkError } from "../../../model/error.ts";
import type { Lease } from "../../../model/lease.ts";
import type { DataSource } from "../../../model/data_source.ts";
import type { Store } from "../../../store/store.ts";
import type { StepPlace, StoreWrites } from "../../../store/transaction.ts";
import { FactReader } from "../fact_reader.ts";
import { A_JOB, aPause, aProgress, aRun, aStart, aStep } from "../fixtures.ts";
import { add, addCompleted, claimedIds, look, park, startRun } from "../arrange.ts";
import { type CaseContext, newCases } from "../case.ts";
import { getRun, getSteps } from "../../../store/reads.ts";
import { andThen } from "../../../values/at_once.ts";
import { aMessage, aReceive, inboxOf, receive } from "./messages/arrange_messages.ts";

const { cases, test, timed } = newCases();

/** What `Store.transact()` promises. A store without it, or without `dataSource()`, skips these. */
export const transactionCases = cases;

const NOTHING: StoreWrites = { step: null, runs: [], signals: [] };

type Joined<C> = Omit<C, "store"> & { store: Store & Required<Pick<Store, "transact">>; source: DataSource };

/** A body that does nothing if the store has no joined data source. */
function joined<C extends Pick<CaseContext, "store">>(body: (context: Joined<C>) => Promise<void>) {
  return async (context: C): Promise<void> => {
    const store = context.store as Joined<C>["store"] & { dataSource?: () => DataSource };
    if (store.transact === undefined || store.dataSource === undefined) return;
    await body({ ...context, store, source: store.dataSource() });
  };
}

function placeOf(lease: Lease, name = "read"): StepPlace {
  return { name, lease: () => lease };
}

/** The record of a step, with nothing else. */
function recordOf(overrides: Partial<StoreWrites> = {}): StoreWrites {
  return { ...NOTHING, step: { write: aStep(), reports: [] }, ...overrides };
}

/** What a transaction that is refused must not change. */
async function everythingOf(store: Store, runId: string) {
  const facts = new FactReader(store);
  const { jobs } = await store.getJobs([]);
  return { ...await look(store, runId), counts: jobs.map(({ byStatus }) => byStatus), facts: await facts.read() };
}

test(
  "transact() records the step, its reports, new runs and signals together",
  joined(async ({ store, source }) => {
    const waiting = await startRun(store);
    const review = aPause();
    await park(store, waiting.lease, review);
    const { lease } = await startRun(store);
    const run = aRun();
    const reader = new FactReader(store);
    await reader.skip();

    const answers = await store.transact(source, placeOf(lease), () => ({
      step: { write: aStep(), reports: [aStart()] },
      runs: [run],
      signals: [{ waitId: review.id, signal: { signalId: "s1", payload: 1 }, trace: null }],
    }));

    assert.deepEqual(answers.step, { recordedNo: 1, retry: null });
    assert.deepEqual(answers.runs.map(({ run: { id }, disposition }) => [id, disposition]), [[run.id, "created"]]);
    assert.deepEqual(answers.signals.map(({ disposition }) => disposition), ["accepted"]);
    assert.equal((await getSteps(store, lease.runId))[0]!.output, "rows");
    assert.equal((await store.getWait(review.id))!.payload, 1);
    const facts = (await reader.read()).map(([id, kind]) => [id, kind]);
    assert.deepEqual(facts, [[run.id, "triggered"], [lease.runId, "step_completed"]]);
  }),
);

test(
  "transact() gives its function what finds waits, with the jobs of their runs",
  joined(async ({ store, source }) => {
    const { lease } = await startRun(store);
    const review = aPause({ payloadSchema: "{}" });
    await park(store, lease, review);
    const [run] = await store.readRuns([lease.runId], Infinity);
    const found: unknown[] = [];

    await store.transact(source, null, (_, findWait) => {
      const first = andThen(findWait(review.id), (wait) => void found.push(wait));
      const both = andThen(first, () => andThen(findWait("unknown"), (wait) => void found.push(wait)));
      return andThen(both, () => NOTHING);
    });

    const wait = await store.getWait(review.id);
    assert.deepEqual(found, [{ wait, jobName: run!.jobName, version: run!.version }, null]);
  }),
);

test(
  "transact() without a step adds runs, which can be claimed",
  joined(async ({ store, source }) => {
    const run = aRun();

    const { step } = await store.transact(source, null, () => ({ ...NOTHING, runs: [run] }));

    assert.equal(step, null);
    assert.deepEqual(await claimedIds(store), [run.id]);
  }),
);

test(
  "transact() throws what the function has thrown as a WorkError, and changes nothing",
  joined(async ({ store, source }) => {
    const { lease } = await startRun(store);
    const before = await everythingOf(store, lease.runId);
    const cause = new Error("no");

    const call = store.transact(source, placeOf(lease), () => {
      throw cause;
    });

    await assert.rejects(call, (error) => error instanceof WorkError && error.cause === cause);
    assert.deepEqual(await everythingOf(store, lease.runId), before);
  }),
);

test(
  "transact() does not execute the function under a lease that is lost",
  joined(async ({ store, source }) => {
    const { lease } = await startRun(store);
    await store.cancel(lease.runId, "c1", null);
    let executions = 0;

    const call = store.transact(source, placeOf(lease), () => {
      executions += 1;
      return recordOf();
    });

    await assert.rejects(call, LeaseLostError);
    assert.equal(executions, 0);
  }),
);

test(
  "transact() checks the lease that its run has at the end: one that is lost meanwhile rolls everything back",
  joined(async ({ store, source }) => {
    const { lease } = await startRun(store);
    const run = aRun();
    let reads = 0;
    const stale = { ...lease, generation: lease.generation + 1 };

    const call = store.transact(
      source,
      { name: "read", lease: () => reads++ === 0 ? lease : stale },
      () => recordOf({ runs: [run] }),
    );

    await assert.rejects(call, LeaseLostError);
    assert.equal(await getRun(store, run.id), null);
    assert.deepEqual(await getSteps(store, lease.runId), []);
  }),
);

test(
  "transact() answers the record of a step that has completed, and does not execute the function",
  joined(async ({ store, source }) => {
    const { lease } = await startRun(store);
    await store.transact(source, placeOf(lease), () => recordOf());
    let executions = 0;

    const { step } = await store.transact(source, placeOf(lease), () => {
      executions += 1;
      return recordOf({ runs: [aRun()] });
    });

    assert.deepEqual(step, {
      recorded: {
        name: "read",
        index: 0,
        attempts: 1,
        result: { status: "completed", output: '"rows"' },
        recordedNo: 1,
      },
    });
    assert.equal(executions, 0);
  }),
);

test(
  "transact() records a step that is between two attempts",
  joined(async ({ store, source }) => {
    const { lease } = await startRun(store);
    const failure = { kind: "error", name: "Error", message: "no", stack: null, cause: null } as const;
    await store.saveStep(lease, aStep({ result: { status: "retrying", failure, delayMs: 0 } }), []);

    await store.transact(
      source,
      placeOf(lease),
      () => recordOf({ step: { write: aStep({ attempts: 2 }), reports: [] } }),
    );

    const [step] = await getSteps(store, lease.runId);
    assert.equal(step!.status, "completed");
    assert.equal(step!.attempts, 2);
  }),
);

test(
  "transact() that is refused after it has added runs leaves nothing, and nothing of the writes beside it is lost",
  joined(async ({ store, source }) => {
    const deleted = await addCompleted(store);
    await store.delete(deleted.id);
    const review = aPause();
    const waiting = await startRun(store);
    await park(store, waiting.lease, review);
    await store.signal(review.id, { signalId: "first", payload: 1 });
    const keyed = aRun({ idempotencyKey: "k", concurrencyKey: "c" });
    const [before, after] = [aRun(), aRun()];
    const counts = async () => (await store.getJobs([])).jobs.map(({ byStatus }) => byStatus.pending);
    const [pending] = await counts();
    const reader = new FactReader(store);
    await reader.skip();

    const results = await Promise.allSettled([
      store.enqueue([before]),
      store.transact(source, null, () => ({
        ...NOTHING,
        runs: [keyed],
        signals: [{ waitId: review.id, signal: { signalId: "second", payload: 2 }, trace: null }],
      })),
      store.transact(
        source,
        null,
        () => ({ ...NOTHING, runs: [aRun({ idempotencyKey: "k2" }), aRun({ id: deleted.id })] }),
      ),
      store.enqueue([after]),
    ]);

    assert.deepEqual(results.map(({ status }) => status), ["fulfilled", "rejected", "rejected", "fulfilled"]);
    for (const at of [1, 2]) assert.ok((results[at] as PromiseRejectedResult).reason instanceof ConflictError);
    assert.equal(await getRun(store, keyed.id), null);
    assert.deepEqual(await counts(), [pending! + 2]);
    assert.deepEqual((await reader.read()).map(([id]) => id), [before.id, after.id]);
    assert.equal((await add(store, { idempotencyKey: "k" })).disposition, "created");
  }),
);

test(
  "transact() sends messages: to a run that it adds, to one that it starts, and to one that receives",
  joined(async ({ store, source }) => {
    const { lease, run: receiving } = await startRun(store);
    await receive(store, lease, aReceive());
    const { run: other } = await add(store, { version: 3 });
    const [run, start] = [aRun(), aRun({ idempotencyKey: "k", idempotencyUntil: "ended" })];
    const [toNew, toReceiving] = [aMessage(run.id), aMessage(receiving.id)];
    const starting = { ...aMessage(""), to: { jobNames: [A_JOB], key: "k" }, start };
    const found: unknown[] = [];

    const answers = await store.transact(source, placeOf(lease), (_, _findWait, findRun) => {
      const first = andThen(findRun(other.id), (run) => void found.push(run?.jobName, run?.version));
      const both = andThen(first, () => andThen(findRun(run.id), (run) => void found.push(run)));
      return andThen(both, () => recordOf({ runs: [run], messages: [toNew, starting, toReceiving] }));
    });

    assert.deepEqual(found, [other.jobName, 3, null]);
    assert.deepEqual(
      answers.messages.map(({ run: { id }, disposition, started }) => [id, disposition, started?.run.id]),
      [
        [run.id, "accepted", undefined],
        [start.id, "accepted", start.id],
        [receiving.id, "accepted", undefined],
      ],
    );
    assert.deepEqual(await inboxOf(store, run.id), [[toNew.message.id, "unread"]]);
    assert.deepEqual(await inboxOf(store, start.id), [[starting.message.id, "unread"]]);
    assert.deepEqual(await inboxOf(store, receiving.id), [[toReceiving.message.id, "received"]]);
  }),
);

test(
  "transact() that is repeated sends its messages once, and wakes the run that waits for one",
  joined(async ({ store, source }) => {
    const { lease, run } = await startRun(store);
    await park(store, lease, aReceive());
    const message = aMessage(run.id);

    const dispositions: string[] = [];
    for (let no = 0; no < 2; no++) {
      const { messages } = await store.transact(source, null, () => ({ ...NOTHING, messages: [message] }));
      dispositions.push(...messages.map(({ disposition }) => disposition));
    }

    assert.deepEqual(dispositions, ["accepted", "duplicate"]);
    assert.deepEqual(await inboxOf(store, run.id), [[message.message.id, "received"]]);
    assert.deepEqual(await claimedIds(store), [run.id]);
  }),
);

test(
  "transact() with a message that is refused rolls everything back",
  joined(async ({ store, source }) => {
    const ended = await addCompleted(store);
    const { run: open } = await add(store);
    await store.send(aMessage(open.id, { id: "m1" }));
    const run = aRun();
    const refused = [
      aMessage("unknown"),
      { ...aMessage(""), to: { jobNames: [A_JOB], key: "no" } },
      aMessage(ended.id),
      aMessage(open.id, { id: "m1", payload: "2" }),
    ];

    const calls = await Promise.allSettled(
      refused.map((message) =>
        store.transact(source, null, () => ({ ...NOTHING, runs: [run], messages: [aMessage(run.id), message] }))
      ),
    );

    const reasons = calls.map((call) => (call as PromiseRejectedResult).reason as ConflictError);
    assert.deepEqual(reasons.map(({ code }) => code), ["not_found", "not_found", "run_ended", "conflict"]);
    assert.ok(reasons[0] instanceof NotFoundError);
    assert.match(reasons[3]!.message, /has another message with the id "m1"/);
    assert.equal(await getRun(store, run.id), null);
    assert.deepEqual(await inboxOf(store, open.id), [["m1", "unread"]]);
  }),
);

timed(
  "transact() with a signal to a wait that has expired is refused, and rolls everything back",
  joined(async ({ store, host, source }) => {
    const waiting = await startRun(store);
    const review = aPause({ deadline: { afterMs: 100 } });
    await park(store, waiting.lease, review);
    host.advance(100);
    const run = aRun();

    const call = store.transact(source, null, () => ({
      ...NOTHING,
      runs: [run],
      signals: [{ waitId: review.id, signal: { signalId: "s1", payload: 1 }, trace: null }],
    }));

    await assert.rejects(call, WaitExpiredError);
    assert.equal(await getRun(store, run.id), null);
    assert.equal((await store.getWait(review.id))!.status, "pending");
  }),
);

test(
  "transact() finds the run of an idempotency key",
  joined(async ({ store, source }) => {
    const { run } = await add(store, { idempotencyKey: "k" });

    const { runs } = await store.transact(source, null, () => ({ ...NOTHING, runs: [aRun({ idempotencyKey: "k" })] }));

    assert.deepEqual(runs.map(({ run: { id }, disposition }) => [id, disposition]), [[run.id, "idempotent"]]);
  }),
);

test(
  "transact() of several steps at once records each, in the order of the commits",
  joined(async ({ store, source }) => {
    const { lease } = await startRun(store);
    const names = ["a", "b", "c"];

    const answers = await Promise.all(names.map((name, index) =>
      store.transact(source, placeOf(lease, name), () => ({
        ...NOTHING,
        step: { write: aStep({ name, index }), reports: [aProgress({ current: index }, 1)] },
      }))
    ));

    const numbers = answers.map(({ step }) => "recordedNo" in step! ? step.recordedNo : null);
    assert.deepEqual(numbers.toSorted(), [1, 2, 3]);
    assert.deepEqual((await getSteps(store, lease.runId)).map(({ name }) => name), names);
  }),
);
