import assert from "node:assert/strict";
import { type AnyRun, NOTHING_KNOWN, reduce, type RunState } from "../../examples/react/run_state.ts";
import { followRun } from "../../examples/react/use_run.ts";
import type { ClientEvent, ClientWait } from "../../src/client/mod.ts";
import { aService } from "./a_service.ts";

const RUN: AnyRun = {
  id: "r",
  jobName: "import",
  status: "running",
  input: {},
  output: null,
  labels: {},
  createdAt: "2030-01-01T00:00:00.000Z",
  isTerminal: false,
  isActive: true,
  isWaiting: false,
};
const WAIT = { id: "w", name: "review", status: "pending" } as ClientWait;
const SHOWN: RunState<AnyRun> = { run: RUN, waits: [WAIT], error: null };

/** The state after an event. */
function after(event: object, state = SHOWN): RunState<AnyRun> {
  const base = { runId: "r", jobName: "import", labels: {}, timestamp: "2030-01-01T00:00:09.000Z", sequence: 1 };
  return reduce(state, { ...base, ...event } as ClientEvent);
}

Deno.test("reduce() takes the run and its waits from a snapshot, also after an error", () => {
  const failed = reduce(NOTHING_KNOWN as RunState<AnyRun>, { type: "error", error: new Error("no") });

  const state = reduce(failed, { type: "snapshot", run: RUN, waits: [WAIT] });

  assert.deepEqual(state, SHOWN);
  assert.equal(failed.error?.message, "no");
});

const FLAGS = { isTerminal: false, isActive: false, isWaiting: false };
const ENDED = { ...FLAGS, isTerminal: true, completedAt: "2030-01-01T00:00:09.000Z" };
const CHANGES: [event: object, change: Partial<AnyRun>][] = [
  [{ type: "run:leased" }, { ...FLAGS, status: "leased", isActive: true }],
  [{ type: "run:start" }, { ...FLAGS, status: "running", isActive: true }],
  [{ type: "run:waiting" }, { ...FLAGS, status: "waiting", isWaiting: true }],
  [{ type: "run:progress", progress: { current: 1 } }, { progress: { current: 1 } }],
  [{ type: "run:complete", output: [1] }, { ...ENDED, status: "completed", output: [1] }],
  [{ type: "run:fail", error: "no", failedStepName: null }, { ...ENDED, status: "failed", error: "no" }],
  [
    { type: "run:fail", error: "no", failedStepName: "read" },
    { ...ENDED, status: "failed", error: "no", failedStepName: "read" },
  ],
  [{ type: "run:cancel" }, { ...ENDED, status: "cancelled" }],
  [{ type: "step:complete", stepName: "read" }, {}],
];

for (const [event, change] of CHANGES) {
  Deno.test(`reduce() applies ${JSON.stringify(event)}, and changes nothing in place`, () => {
    const before = structuredClone(SHOWN);

    const state = after(event);

    assert.deepEqual(state, { ...SHOWN, run: { ...RUN, ...change } });
    assert.deepEqual(SHOWN, before);
  });
}

Deno.test("reduce() leaves a run that has ended as it is when events are repeated", () => {
  const ended = after({ type: "run:complete", output: 1 });

  assert.equal(after({ type: "run:start" }, ended), ended);
});

Deno.test("reduce() forgets a run that was deleted, and ignores events before the first snapshot", () => {
  assert.equal(after({ type: "run:delete" }).run, null);
  assert.equal(after({ type: "run:start" }, NOTHING_KNOWN).run, null);
});

Deno.test("followRun() shows the run with its waits up to its end", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("approve", {});
  const { subscribe, getState } = followRun(client, runId);
  const ended = Promise.withResolvers<void>();

  const unsubscribe = subscribe(() => {
    const { run, waits } = getState();
    const open = waits.find(({ status }) => status === "pending");
    if (run?.isWaiting && open) void client.signal(runId, open.id, { signalId: "s", payload: 1 });
    if (run?.isTerminal) ended.resolve();
  });
  await ended.promise;
  unsubscribe();

  const { run, waits, error } = getState();
  assert.deepEqual(run?.output, { isApproved: true, at: "1970-01-01T00:00:00.000Z" });
  assert.deepEqual(waits.map(({ status }) => status), ["resolved"]);
  assert.equal(error, null);
});

Deno.test("followRun() shows why a run cannot be followed, and nothing after it was left", async () => {
  await using service = await aService();
  const states: RunState<AnyRun>[] = [];
  const failed = Promise.withResolvers<void>();

  const left = followRun(service.client, "no-run");
  left.subscribe(() => states.push(left.getState() as RunState<AnyRun>))();
  const { subscribe, getState } = followRun(service.client, "no-run");
  const unsubscribe = subscribe(failed.resolve);
  await failed.promise;
  unsubscribe();

  assert.match(getState().error!.message, /GET \/subscribe was answered 404/);
  assert.deepEqual(states, []);
});

Deno.test("followRun() goes on when what it reads after an event is not answered", async () => {
  let reads = 0;
  await using service = await aService({
    // The first read of the run is the snapshot's, and the second one follows an event.
    between: (request, send) => {
      const isLost = new URL(request.url).pathname.endsWith("/run") && ++reads === 2;
      return isLost ? Promise.reject(new TypeError("connection reset")) : send(request);
    },
  });
  const { client } = service;
  const { runId } = await client.trigger("approve", {}, { delay: 100 });
  const { subscribe, getState } = followRun(client, runId);
  const ended = Promise.withResolvers<void>();

  const unsubscribe = subscribe(() => {
    const { run, waits, error } = getState();
    const open = waits.find(({ status }) => status === "pending");
    if (run?.isWaiting && open) void client.signal(runId, open.id, { signalId: "s", payload: 1 });
    if (run?.isTerminal || error) ended.resolve();
  });
  await ended.promise;
  unsubscribe();

  assert.equal(getState().error, null);
  assert.equal(getState().run?.status, "completed");
  assert.ok(reads > 2, `${reads} reads`);
});
