import assert from "node:assert/strict";
import { createEngine } from "../../../src/engine/create_engine.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import {
  ConflictError,
  NotFoundError,
  SerializationError,
  ValidationError,
  WaitExpiredError,
} from "../../../src/model/error.ts";
import type { Json } from "../../../src/values/json.ts";
import type { Store } from "../../../src/store/store.ts";
import { isoTime } from "../../../src/values/iso_time.ts";
import type { Signal, Wait, WaitResult } from "../../../src/model/wait.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest } from "../../support/fixtures.ts";
import {
  forEachStore,
  forever,
  LEASE_MS,
  pass,
  recordEvents,
  type StoreTest,
} from "../../support/stores/for_each_store.ts";
import { aJob } from "../../support/jobs.ts";

const TIMEOUT_MS = 60_000;

const approval = aJob((step) => step.wait("review", { timeout: TIMEOUT_MS }), "approval");
const patient = aJob((step) => step.wait("review"), "patient");

/** An engine with a run that waits, and the id of its wait. */
async function aWaitingRun({ store, host }: StoreTest, job = approval) {
  const engine = createEngine({ store, host, jobs: { job } });
  const { id: runId } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(runId);
  return { engine, runId, waitId: wait!.id };
}

const YES: Signal = { signalId: "s1", payload: { approved: true } };

forEachStore("signal() accepts the first signal, and its receipt shows the wait", async (context) => {
  const { engine, runId, waitId } = await aWaitingRun(context);
  context.host.advance(1_000);

  const { wait, disposition } = await engine.signal(waitId, YES);

  assert.equal(disposition, "accepted");
  assert.deepEqual(wait, {
    id: waitId,
    runId,
    name: "review",
    metadata: null,
    status: "resolved",
    outcome: "signal",
    payload: { approved: true },
    signalId: "s1",
    signalledBy: null,
    createdAt: isoTime(FAKE_START),
    deadlineAt: isoTime(FAKE_START + TIMEOUT_MS),
    suspendedAt: isoTime(FAKE_START),
    resolvedAt: isoTime(FAKE_START + 1_000),
    firstResumedAt: null,
  });
  assert.deepEqual(await engine.getWait(waitId), wait);
  await engine.stop();
});

forEachStore("signal() answers a duplicate with the first receipt, whenever it comes", async (context) => {
  const { host } = context;
  const { engine, runId, waitId } = await aWaitingRun(context);
  host.advance(1_000);
  const first = await engine.signal(waitId, YES);

  const atOnce = await engine.signal(waitId, YES);
  host.advance(1_000);
  await engine.runUntilIdle();
  const afterCompletion = await engine.signal(waitId, YES);
  host.advance(10 * TIMEOUT_MS);
  await engine.runUntilIdle();
  const afterDeadline = await engine.signal(waitId, YES);

  assert.equal((await engine.getRun(runId))!.status, "completed");
  const duplicate = { wait: first.wait, disposition: "duplicate" };
  assert.deepEqual([atOnce, afterCompletion, afterDeadline], [duplicate, duplicate, duplicate]);
  await engine.stop();
});

forEachStore("signal() answers a duplicate after the deadline though no worker has looked yet", async (context) => {
  const { engine, waitId } = await aWaitingRun(context);
  const first = await engine.signal(waitId, YES);
  context.host.advance(10 * TIMEOUT_MS);

  const second = await engine.signal(waitId, YES);
  await engine.runUntilIdle();

  assert.deepEqual(second, { wait: first.wait, disposition: "duplicate" });
  assert.equal((await engine.getWait(waitId))!.outcome, "signal");
  await engine.stop();
});

const EQUAL: [string, Json, Json][] = [
  ["keys in another order", { a: 1, b: { c: [1, 2], d: null } }, { b: { d: null, c: [1, 2] }, a: 1 }],
  ["a number written otherwise", 1.0, 1],
  ["minus zero", [0], [-0]],
];

for (const [what, first, second] of EQUAL) {
  forEachStore(`signal() takes the same payload for a duplicate: ${what}`, async (context) => {
    const { engine, waitId } = await aWaitingRun(context);
    const accepted = await engine.signal(waitId, { signalId: "s1", payload: first });

    const again = await engine.signal(waitId, { signalId: "s1", payload: second });

    assert.equal(again.disposition, "duplicate");
    assert.deepEqual(again.wait, accepted.wait);
    await engine.stop();
  });
}

const DIFFERENT: [string, Json, Json][] = [
  ["another value", { approved: true }, { approved: false }],
  ["items in another order", [1, 2], [2, 1]],
  ["one member more", {}, { a: null }],
  ["text for a number", 1, "1"],
  ["null for false", null, false],
  ["an empty object for an empty array", [], {}],
];

for (const [what, first, second] of DIFFERENT) {
  forEachStore(`signal() takes the same id with another payload for a conflict: ${what}`, async (context) => {
    const { engine, waitId } = await aWaitingRun(context);
    await engine.signal(waitId, { signalId: "s1", payload: first });

    const conflicting = engine.signal(waitId, { signalId: "s1", payload: second });

    await assert.rejects(conflicting, ConflictError);
    assert.deepEqual((await engine.getWait(waitId))!.payload, first);
    await engine.stop();
  });
}

forEachStore(
  "signal() refuses another signal as a conflict, also after the deadline and the run's end",
  async (context) => {
    const { host } = context;
    const { engine, waitId } = await aWaitingRun(context);
    const { wait } = await engine.signal(waitId, YES);
    const other: Signal = { signalId: "s2", payload: YES.payload };

    await assert.rejects(engine.signal(waitId, other), { name: "ConflictError", code: "conflict" });
    host.advance(10 * TIMEOUT_MS);
    await assert.rejects(engine.signal(waitId, other), ConflictError);
    await engine.runUntilIdle();
    await assert.rejects(engine.signal(waitId, other), ConflictError);

    const { firstResumedAt: _, ...kept } = (await engine.getWait(waitId))!;
    const { firstResumedAt: __, ...expected } = wait;
    assert.deepEqual(kept, expected);
    await engine.stop();
  },
);

forEachStore("signal() counts strictly before the deadline", async (context) => {
  const { host } = context;
  const inTime = await aWaitingRun(context);
  const tooLate = await aWaitingRun(context);

  host.advance(TIMEOUT_MS - 1);
  const accepted = await inTime.engine.signal(inTime.waitId, YES);
  host.advance(1);
  const late = tooLate.engine.signal(tooLate.waitId, YES);

  assert.equal(accepted.disposition, "accepted");
  await assert.rejects(late, { name: "WaitExpiredError", code: "wait_expired" });
  const { outcome, resolvedAt } = (await tooLate.engine.getWait(tooLate.waitId))!;
  assert.deepEqual([outcome, resolvedAt], ["timeout", isoTime(FAKE_START + TIMEOUT_MS)]);
  await inTime.engine.stop();
  await tooLate.engine.stop();
});

forEachStore("signal() finds a wait expired permanently, whatever happens then", async (context) => {
  const { host } = context;
  const { engine, runId, waitId } = await aWaitingRun(context);
  host.advance(TIMEOUT_MS);

  await assert.rejects(engine.signal(waitId, YES), WaitExpiredError);
  await assert.rejects(engine.signal(waitId, YES), WaitExpiredError);
  host.jump(-10 * TIMEOUT_MS);
  await assert.rejects(engine.signal(waitId, YES), WaitExpiredError);
  await engine.runUntilIdle();
  await assert.rejects(engine.signal(waitId, YES), WaitExpiredError);

  assert.deepEqual((await engine.getRun(runId))!.output, { outcome: "timeout" });
  await engine.stop();
});

forEachStore("signal() that finds the deadline passed makes the run due", async (context) => {
  const { host } = context;
  const { engine, runId, waitId } = await aWaitingRun(context);
  host.advance(TIMEOUT_MS);

  await assert.rejects(engine.signal(waitId, YES), WaitExpiredError);
  host.jump(-TIMEOUT_MS);
  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(runId))!.output, { outcome: "timeout" });
  await engine.stop();
});

forEachStore("signal() does not find what there is not", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.sleep("nap", TIMEOUT_MS);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  for (const waitId of ["nonsense", "", id, "0194a3c2-0000-7000-8000-000000000000"]) {
    await assert.rejects(engine.signal(waitId, YES), NotFoundError, waitId);
  }
});

forEachStore("signal() does not find the wait of a run that was deleted", async (context) => {
  const { engine, runId, waitId } = await aWaitingRun(context);
  await engine.signal(waitId, YES);
  await engine.runUntilIdle();
  await engine.deleteRun(runId);

  await assert.rejects(engine.signal(waitId, YES), NotFoundError);

  assert.equal(await engine.getWait(waitId), null);
  await engine.stop();
});

const PAYLOADS: Json[] = [
  null,
  false,
  0,
  "",
  [],
  {},
  "Ünïcode \ud83d\ude00 \u0000",
  [[1, { deep: [null] }]],
  JSON.parse('{ "__proto__": { "x": 1 }, "constructor": 2 }'),
  "x".repeat(100_000),
];

forEachStore("signal() carries any JSON to the job, null as well", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const results: WaitResult[] = [];
    for (const _ of PAYLOADS) results.push(await step.wait("item"));
    return results;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  for (const payload of PAYLOADS) {
    await engine.runUntilIdle();
    const open = (await engine.getWaits(id)).find(({ status }) => status === "pending")!;
    const { wait } = await engine.signal(open.id, { signalId: "s", payload });
    assert.deepEqual(wait.payload, payload);
    assert.equal((await engine.signal(open.id, { signalId: "s", payload })).disposition, "duplicate");
  }
  await engine.runUntilIdle();

  const expected = PAYLOADS.map((payload) => ({ outcome: "signal", payload, signalId: "s" }));
  assert.deepEqual((await engine.getRun(id))!.output, expected);
});

forEachStore("signal() keeps a payload that nobody can change later", async (context) => {
  const { engine, waitId } = await aWaitingRun(context);
  const payload = { list: [1] };

  const signalling = engine.signal(waitId, { signalId: "s1", payload });
  payload.list.push(2);
  const { wait } = await signalling;
  (wait.payload as { list: number[] }).list.push(3);

  assert.deepEqual((await engine.getWait(waitId))!.payload, { list: [1] });
  await engine.stop();
});

forEachStore("signal() refuses what has no payload, or one that JSON would lose", async (context) => {
  const { engine, waitId } = await aWaitingRun(context);
  const refused: [unknown, new (...args: never[]) => Error][] = [
    [{ signalId: "s1" }, ValidationError],
    [{ signalId: "s1", payload: undefined }, ValidationError],
    [{ signalId: "s1", payload: 1n }, SerializationError],
    [{ signalId: "s1", payload: { list: [NaN] } }, SerializationError],
    [{ signalId: "s1", payload: new Map() }, SerializationError],
    [{ signalId: "s1", payload: () => 1 }, SerializationError],
  ];

  for (const [signal, type] of refused) await assert.rejects(engine.signal(waitId, signal as Signal), type);

  assert.equal((await engine.getWait(waitId))!.status, "pending");
  await engine.stop();
});

forEachStore("signal() refuses a signalId that is no text with something in it", async (context) => {
  const { engine, waitId } = await aWaitingRun(context);
  const refused = ["", " ", "\t", "\n", "\u00a0\u2003", "x".repeat(256), "a\u0000b", "\ud800", undefined, null, 7, {}];

  for (const signalId of refused) {
    const signalling = engine.signal(waitId, { signalId: signalId as string, payload: null });
    await assert.rejects(signalling, ValidationError, JSON.stringify(signalId));
  }

  assert.equal((await engine.getWait(waitId))!.status, "pending");
  await engine.stop();
});

forEachStore("signal() accepts any other signalId, and tells those apart that differ", async (context) => {
  for (const signalId of ["x".repeat(255), " padded ", "Ünïcode", "'; DROP TABLE", "__proto__"]) {
    const { engine, waitId } = await aWaitingRun(context);

    const { wait } = await engine.signal(waitId, { signalId, payload: null });

    assert.equal(wait.signalId, signalId);
    await assert.rejects(engine.signal(waitId, { signalId: `${signalId.slice(1)}.`, payload: null }), ConflictError);
    await engine.stop();
  }
});

forEachStore("signal() refuses a payload that is larger than maxValueBytes", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { patient }, maxValueBytes: 100 });
  const { id } = await engine.trigger(patient, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);

  const large = engine.signal(wait!.id, { signalId: "s1", payload: "x".repeat(100) });

  await assert.rejects(large, { name: "SerializationError", message: /payload.*100 bytes/ });
  assert.equal((await engine.getWait(wait!.id))!.status, "pending");
});

forEachStore(
  "signal() conflicts with a wait that is cancelled, but not a duplicate of what came before",
  async (context) => {
    const open = await aWaitingRun(context);
    const signalled = await aWaitingRun(context);
    const first = await signalled.engine.signal(signalled.waitId, YES);
    await open.engine.cancel(open.runId);
    await signalled.engine.cancel(signalled.runId);

    await assert.rejects(open.engine.signal(open.waitId, YES), { name: "ConflictError", message: /cancelled/ });
    const duplicate = await signalled.engine.signal(signalled.waitId, YES);

    assert.deepEqual(duplicate, { wait: first.wait, disposition: "duplicate" });
    await assert.rejects(signalled.engine.signal(signalled.waitId, { ...YES, signalId: "s2" }), ConflictError);
    await open.engine.stop();
    await signalled.engine.stop();
  },
);

forEachStore("signal() conflicts with a wait that was closed when its run ended", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.prepareWait("unused", { timeout: TIMEOUT_MS });
    await step.prepareWait("used", { timeout: TIMEOUT_MS });
    await step.sleep("nap", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const [unused, used] = await engine.getWaits(id);
  await engine.signal(used!.id, YES);
  host.advance(1_000);
  await engine.runUntilIdle();

  await assert.rejects(engine.signal(unused!.id, YES), { name: "ConflictError", message: /closed/ });
  const duplicate = await engine.signal(used!.id, YES);
  host.advance(TIMEOUT_MS);
  await assert.rejects(engine.signal(unused!.id, YES), ConflictError);

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.equal(duplicate.disposition, "duplicate");
});

forEachStore("signal() of a wait in the running step's job is accepted, and kept", async ({ store, host }) => {
  let seen: unknown;
  const gate = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<string>();
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("review");
    await step.run("send", () => {
      reached.resolve(wait.id);
      return gate.promise;
    });
    seen = await step.waitFor(wait);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);
  const idle = engine.runUntilIdle();

  const receipt = await engine.signal(await reached.promise, YES);
  gate.resolve();
  await idle;

  assert.equal(receipt.disposition, "accepted");
  assert.equal(receipt.wait.suspendedAt, null);
  assert.deepEqual(seen, { outcome: "signal", ...YES });
});

forEachStore("signal() by a step of the same run reaches it", async ({ store, host }) => {
  const job = aJob(async (step): Promise<unknown> => {
    const wait = await step.prepareWait("review");
    await step.run("answer myself", async () => void await engine.signal(wait.id, YES));
    return await step.waitFor(wait);
  });
  await using engine: Engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(id))!.output, { outcome: "signal", ...YES });
});

forEachStore("signal() accepts one of a hundred different signals at once", async (context) => {
  const { engine, runId, waitId } = await aWaitingRun(context);
  const signals = Array.from({ length: 100 }, (_, index) => ({ signalId: `s${index}`, payload: index }));

  const answers = await Promise.allSettled(signals.map((signal) => engine.signal(waitId, signal)));
  await engine.runUntilIdle();

  const accepted = answers.filter((answer) => answer.status === "fulfilled").map(({ value }) => value);
  const refused = answers.filter((answer) => answer.status === "rejected").map(({ reason }) => reason);
  assert.equal(accepted.length, 1);
  assert.equal(accepted[0]!.disposition, "accepted");
  assert.ok(refused.every((reason) => reason instanceof ConflictError));
  const { payload, signalId } = accepted[0]!.wait;
  assert.deepEqual((await engine.getRun(runId))!.output, { outcome: "signal", payload, signalId });
  await engine.stop();
});

forEachStore("signal() accepts the same signal once, and a hundred times at once", async (context) => {
  const { store, host } = context;
  const { engine, waitId } = await aWaitingRun(context);
  const others = Array.from({ length: 10 }, () => createEngine({ store, host, jobs: { approval } }));

  const answers = await Promise.all(
    others.flatMap((other) => Array.from({ length: 10 }, () => other.signal(waitId, YES))),
  );

  const dispositions = answers.map(({ disposition }) => disposition);
  assert.equal(dispositions.filter((disposition) => disposition === "accepted").length, 1);
  assert.equal(dispositions.filter((disposition) => disposition === "duplicate").length, 99);
  for (const { wait } of answers) assert.deepEqual(wait, answers[0]!.wait);
  for (const other of [engine, ...others]) await other.stop();
});

forEachStore("signal() that is refused leaves no trace: no change, no event, no resumption", async (context) => {
  const { engine, runId, waitId } = await aWaitingRun(context);
  const events = recordEvents(engine);
  const before = await engine.getRun(runId);
  context.host.advance(1_000);

  await assert.rejects(engine.signal("nonsense", YES));
  await assert.rejects(engine.signal(waitId, { signalId: "", payload: null }));
  const { executed } = await engine.runUntilIdle();

  assert.equal(executed, 0);
  assert.deepEqual(events, []);
  assert.deepEqual(await engine.getRun(runId), before);
  await engine.stop();
});

forEachStore("signals of a thousand waits resume a thousand runs", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { patient } });
  const runs = await engine.jobs.patient.batchTrigger(Array.from({ length: 1_000 }, () => ({ input: null })));
  await engine.runUntilIdle();
  const waits = await Promise.all(runs.map(async ({ id }) => (await engine.getWaits(id))[0]!));

  await Promise.all(waits.map(({ id }, index) => engine.signal(id, { signalId: "s", payload: index })));
  await engine.runUntilIdle();

  const outputs = await Promise.all(runs.map(async ({ id }) => (await engine.getRun(id))!.output));
  assert.deepEqual(outputs, runs.map((_, index) => ({ outcome: "signal", payload: index, signalId: "s" })));
});

/** What can happen to a wait: each pair of them is tried in both orders. */
type Happening = "signal" | "deadline" | "cancel" | "crash";
/** What can end it. */
type Winner = Exclude<Happening, "crash">;

/** A run whose wait outlasts a crash. */
interface Contested {
  store: Store;
  host: FakeHost;
  engine: Engine;
  runId: string;
  waitId: string;
}

const CONTESTED_MS = 10 * LEASE_MS;

/** Makes one thing happen. Answers the name of the error if it was refused. */
async function happen(happening: Happening, contested: Contested): Promise<string | null> {
  const { store, host, engine, runId, waitId } = contested;
  const nameOf = (error: Error) => error.name;
  switch (happening) {
    case "signal":
      return await engine.signal(waitId, YES).then(() => null, nameOf);
    case "cancel":
      return await engine.cancel(runId).then(() => null, nameOf);
    case "deadline":
      host.advance(CONTESTED_MS);
      return null;
    case "crash":
      // Whoever takes the run up (if it is due) or executes it (if it is not parked) dies without a word.
      await store.claim(aClaimRequest({ workerId: "dead", jobNames: ["contested"], leaseMs: LEASE_MS }));
      host.advance(LEASE_MS);
      return null;
  }
}

/** Which of two happenings ends the wait, and how the second is refused. */
function expectedOf(
  first: Happening,
  second: Happening,
): { winner: Winner; runStatus: string; refusal: string | null } {
  const runStatus = first === "cancel" || second === "cancel" ? "cancelled" : "completed";
  const winner = [first, second].find((happening): happening is Winner => happening !== "crash")!;
  if (second !== "signal") return { winner, runStatus, refusal: null };
  if (first === "deadline") return { winner, runStatus, refusal: "WaitExpiredError" };
  if (first === "cancel") return { winner, runStatus, refusal: "ConflictError" };
  return { winner, runStatus, refusal: null };
}

const STATES = {
  deadline: ["resolved", "timeout", null],
  signal: ["resolved", "signal", "s1"],
  cancel: ["cancelled", null, null],
};

const HAPPENINGS: Happening[] = ["signal", "deadline", "cancel", "crash"];

/** A job that pauses on a wait and is replayed thrice after it; each of its executions notes what it saw. */
function aContestedJob(seen: WaitResult[], whileRunning: { reached: () => void } | null) {
  return aJob(async (step) => {
    const wait = await step.prepareWait("review", { timeout: CONTESTED_MS });
    if (whileRunning !== null) {
      await step.run("busy", () => {
        if (step.execution > 1) return;
        whileRunning.reached();
        return forever();
      });
    }
    const result = await step.waitFor(wait);
    seen.push(result);
    await step.sleep("first replay", 1_000);
    await step.run("crash", () => step.execution);
    await step.sleep("second replay", 1_000);
    return result;
  }, "contested");
}

async function assertWinner(contested: Contested, seen: WaitResult[], first: Happening, second: Happening) {
  const { host, engine, runId, waitId } = contested;
  const { winner, runStatus } = expectedOf(first, second);
  const decided = (await engine.getWait(waitId))!;
  host.advance(2 * CONTESTED_MS);
  for (let round = 0; round < 4; round++) {
    await engine.runUntilIdle();
    host.advance(10_000); // a run that has lost two leases waits before it is claimed alone
  }
  const { status, outcome, signalId, payload } = (await engine.getWait(waitId))!;
  const run = (await engine.getRun(runId))!;

  assert.deepEqual([status, outcome, signalId], STATES[winner]);
  assert.deepEqual(payload, winner === "signal" ? YES.payload : null);
  // Only a deadline may be decided later than it passed: nobody has looked yet.
  if (decided.status !== "pending") assert.deepEqual([decided.status, decided.outcome], [status, outcome]);
  else assert.equal(winner, "deadline");
  assert.equal(run.status, runStatus);
  const result = winner === "signal" ? { outcome: "signal", ...YES } : { outcome: "timeout" };
  for (const one of seen) assert.deepEqual(one, result);
  if (runStatus === "completed") {
    assert.deepEqual(run.output, result);
    assert.equal(seen.length, 3);
  }
  const late = await engine.signal(waitId, { signalId: "late", payload: null }).catch(({ name }) => name);
  assert.equal(late, winner === "deadline" ? "WaitExpiredError" : "ConflictError");
}

for (const first of HAPPENINGS) {
  for (const second of HAPPENINGS) {
    if (first === second) continue;
    const { winner, refusal } = expectedOf(first, second);

    forEachStore(`${first}, then ${second} while the run waits: ${winner} wins`, async ({ store, host }) => {
      const seen: WaitResult[] = [];
      const job = aContestedJob(seen, null);
      await using engine = createEngine({ store, host, jobs: { job } });
      const { id: runId } = await engine.trigger(job, null);
      await engine.runUntilIdle();
      const [wait] = await engine.getWaits(runId);
      const contested: Contested = { store, host, engine, runId, waitId: wait!.id };

      await happen(first, contested);
      const refused = await happen(second, contested);

      assert.equal(refused, refusal);
      await assertWinner(contested, seen, first, second);
    });

    forEachStore(`${first}, then ${second} while the run is executed: ${winner} wins`, async ({ store, host }) => {
      const seen: WaitResult[] = [];
      const { promise: reached, resolve } = Promise.withResolvers<void>();
      const job = aContestedJob(seen, { reached: resolve });
      const process = createEngine({ store, host: new FakeHost(), jobs: { job } });
      const { id: runId } = await process.trigger(job, null);
      process.runUntilIdle().catch(() => {});
      await reached;
      await using engine = createEngine({ store, host, jobs: { job } });
      const [wait] = await engine.getWaits(runId);
      const contested: Contested = { store, host, engine, runId, waitId: wait!.id };

      await happen(first, contested);
      const refused = await happen(second, contested);

      assert.equal(refused, refusal);
      await assertWinner(contested, seen, first, second);
    });
  }
}

for (const order of [["signal", "cancel"], ["cancel", "signal"]] as const) {
  forEachStore(`${order.join(" and ")} at the same instant have one winner`, async ({ store, host }) => {
    const seen: WaitResult[] = [];
    const job = aContestedJob(seen, null);
    await using engine = createEngine({ store, host, jobs: { job } });
    await using other = createEngine({ store, host, jobs: { job } });
    const { id: runId } = await engine.trigger(job, null);
    await engine.runUntilIdle();
    const [wait] = await engine.getWaits(runId);
    const contested: Contested = { store, host, engine, runId, waitId: wait!.id };
    const calls = order.map((happening, index) => happen(happening, { ...contested, engine: [engine, other][index]! }));

    const refusals = await Promise.all(calls);

    const { outcome, status } = (await engine.getWait(wait!.id))!;
    const signalled = refusals[order.indexOf("signal")] === null;
    assert.deepEqual([status, outcome], signalled ? ["resolved", "signal"] : ["cancelled", null]);
    assert.equal((await engine.getRun(runId))!.status, "cancelled");
    host.advance(CONTESTED_MS);
    assert.equal((await engine.runUntilIdle()).executed, 0);
    assert.deepEqual(seen, []);
  });
}

forEachStore("a signal and the claim of its deadline at the same instant have one winner", async ({ store, host }) => {
  const jobs = { approval };
  await using engine = createEngine({ store, host, jobs });
  const runs = await engine.jobs.approval.batchTrigger(Array.from({ length: 20 }, () => ({ input: null })));
  await engine.runUntilIdle();
  const waits = await Promise.all(runs.map(async ({ id }) => (await engine.getWaits(id))[0]!));
  await engine.start();
  await pass(host, TIMEOUT_MS - 1, 10_000);

  const nameOf = ({ name }: Error) => name;
  const signal = ({ id }: Wait) => engine.signal(id, YES).then(() => "signal", nameOf);
  const early = waits.slice(0, 10).map(signal);
  await host.settle();
  host.advance(1);
  const late = waits.slice(10).map(signal);
  const answers = await Promise.all([...early, ...late]);
  await pass(host, 2_000);

  for (const [index, { id }] of runs.entries()) {
    const { output } = (await engine.getRun(id))!;
    const { outcome } = (await engine.getWait(waits[index]!.id))!;
    assert.equal(answers[index], outcome === "timeout" ? "WaitExpiredError" : "signal");
    assert.equal((output as WaitResult).outcome, outcome);
  }
  assert.deepEqual([...new Set(answers)].toSorted(), ["WaitExpiredError", "signal"]);
});

/** A job that asks by mail, and breaks beside the open question; it does not break in its third execution. */
function anAsker() {
  const mails: string[] = [];
  const state = { breaks: true };
  const job = aJob(async (step) => {
    const wait = await step.prepareWait("approve");
    await step.run("mail", () => void mails.push(wait.id));
    await step.run("check", () => {
      if (state.breaks) throw new Error("broken");
    });
    const result = await step.waitFor<Json>(wait);
    return result.outcome === "signal" ? result.payload : null;
  });
  return { job, mails, state };
}

forEachStore(
  "signal() to a wait that was open when its run failed goes to the newest retry from the failure",
  async ({ store, host }) => {
    const { job, mails, state } = anAsker();
    await using engine = createEngine({ store, host, jobs: { job }, logger: null });
    const first = await engine.trigger(job, null);
    await engine.runUntilIdle();
    const second = await engine.retrigger(first.id, { from: "failure" });
    await engine.runUntilIdle();
    state.breaks = false;
    const third = await engine.retrigger(second.id, { from: "failure" });
    const early = engine.signal(mails[0]!, { signalId: "click", payload: true });
    await assert.rejects(early, ConflictError); // the retry has not prepared it yet
    await engine.runUntilIdle();

    const accepted = await engine.signal(mails[0]!, { signalId: "click", payload: true });
    const again = await engine.signal(mails[0]!, { signalId: "click", payload: true });
    await engine.runUntilIdle();

    assert.equal(mails.length, 1);
    assert.deepEqual([accepted.wait.runId, accepted.disposition, again.disposition], [
      third.id,
      "accepted",
      "duplicate",
    ]);
    assert.partialDeepStrictEqual(await engine.getRun(third.id), { status: "completed", output: true });
    assert.equal((await engine.getWait(mails[0]!))!.status, "closed");
    await assert.rejects(engine.signal(mails[0]!, { signalId: "other", payload: false }), ConflictError);
  },
);

forEachStore(
  "signal() to a wait of a run that was retried from the start stays refused: it has asked anew",
  async ({ store, host }) => {
    const { job, mails, state } = anAsker();
    await using engine = createEngine({ store, host, jobs: { job }, logger: null });
    const first = await engine.trigger(job, null);
    await engine.runUntilIdle();
    state.breaks = false;
    await engine.retrigger(first.id);
    await engine.runUntilIdle();

    await assert.rejects(engine.signal(mails[0]!, { signalId: "click", payload: true }), ConflictError);

    assert.equal(mails.length, 2);
  },
);
