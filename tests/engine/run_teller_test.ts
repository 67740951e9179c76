import assert from "node:assert/strict";
import { Hub } from "../../src/engine/hub.ts";
import { RunTeller } from "../../src/engine/run_teller.ts";
import type { RunEvent, RunHappening } from "../../src/event.ts";
import type { Run } from "../../src/run.ts";
import type { Step } from "../../src/step.ts";
import type { AwaitedPause, RunState } from "../../src/store.ts";
import { isoTime } from "../../src/time.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";

const ID = "01-run";
const EXPIRES_AT = isoTime(FAKE_START + 30_000);
const REVIEW = { waitId: "w1", name: "review", deadlineAt: null };
const LEASED = { type: "run:leased", leaseOwner: "worker-a", leaseExpiresAt: EXPIRES_AT } as const;
const START = { type: "run:start", execution: 1 } as const;
const WAITING = { type: "run:waiting", waitId: "w1", waitName: "review", deadlineAt: null } as const;
const COMPLETE = { type: "run:complete", output: "out", duration: 0 } as const;

function aTeller() {
  const hub = new Hub(new FakeHost());
  const told: RunEvent[] = [];
  const teller = new RunTeller(hub, (event) => told.push(event));
  const hearUnder = (generation: number, ...happenings: RunHappening[]) => {
    const lease = { runId: ID, generation, concurrencyKey: null };
    for (const happening of happenings) {
      teller.hear(hub.runEvent({ id: ID, jobName: "job", labels: {} }, happening), lease);
    }
  };
  const hear = (...happenings: RunHappening[]) => hearUnder(1, ...happenings);
  return { hub, teller, told, hear, hearUnder, types: () => told.map(({ type }) => type) };
}

type Shown = Partial<Run> & { steps?: Partial<Step>[]; pauses?: AwaitedPause[]; execution?: number };

/** How a run stands in the store. Those that are executed are held by worker A. */
function aState({ steps = [], pauses = [], execution = 1, ...run }: Shown = {}): RunState {
  const isHeld = run.status === "leased" || run.status === "running";
  const at = isoTime(FAKE_START);
  return {
    run: {
      id: ID,
      jobName: "job",
      status: "pending",
      payload: null,
      output: null,
      error: null,
      failedStepName: null,
      failure: null,
      progress: null,
      labels: {},
      idempotencyKey: null,
      concurrencyKey: null,
      leaseOwner: isHeld ? "worker-a" : null,
      leaseExpiresAt: isHeld ? EXPIRES_AT : null,
      leaseGeneration: run.status === undefined || run.status === "pending" ? 0 : 1,
      createdAt: at,
      updatedAt: at,
      startedAt: at,
      completedAt: at,
      retriggerOf: null,
      retriggeredAs: null,
      ...run,
    },
    payload: null,
    execution,
    steps: steps.map((step, index) => ({
      id: `${ID}/${step.name}`,
      runId: ID,
      name: "read",
      index,
      status: "completed",
      output: "rows",
      error: null,
      failure: null,
      attempts: 1,
      startedAt: at,
      completedAt: at,
      ...step,
    })),
    pauses,
  };
}

const STANDING: { that: string; state: RunState; told: object[] }[] = [
  { that: "is pending", state: aState(), told: [] },
  { that: "is leased", state: aState({ status: "leased" }), told: [LEASED] },
  {
    that: "is running",
    state: aState({ status: "running", execution: 3 }),
    told: [LEASED, { ...START, execution: 3 }],
  },
  {
    that: "has come some way",
    state: aState({ status: "running", progress: { current: 2, total: 3 } }),
    told: [LEASED, START, { type: "run:progress", progress: { current: 2, total: 3 } }],
  },
  { that: "waits", state: aState({ status: "waiting", progress: { current: 2 }, pauses: [REVIEW] }), told: [WAITING] },
  {
    that: "waits for several things",
    state: aState({ status: "waiting", pauses: [REVIEW, { waitId: null, name: "nap", deadlineAt: EXPIRES_AT }] }),
    told: [WAITING, { type: "run:waiting", waitId: null, waitName: "nap", deadlineAt: EXPIRES_AT }],
  },
  { that: "has completed", state: aState({ status: "completed", output: "out" }), told: [COMPLETE] },
  {
    that: "has failed",
    state: aState({ status: "failed", error: "no", failedStepName: "read" }),
    told: [{ type: "run:fail", error: "no", failedStepName: "read" }],
  },
  { that: "was cancelled", state: aState({ status: "cancelled" }), told: [{ type: "run:cancel" }] },
];

for (const { that, state, told: expected } of STANDING) {
  Deno.test(`RunTeller.begin() tells how a run stands that ${that}, and nothing of its steps`, () => {
    const { teller, told } = aTeller();

    teller.begin({ ...state, steps: aState({ steps: [{ name: "read" }] }).steps });

    assert.equal(told.length, expected.length);
    assert.partialDeepStrictEqual(told, expected);
    assert.equal(teller.status, state.run.status);
    assert.deepEqual(teller.standing, told);
  });

  Deno.test(`RunTeller.beginSilently() tells nothing of a run that ${that}, but knows it`, () => {
    const { teller, told } = aTeller();

    teller.beginSilently(state);
    teller.see(state);

    assert.deepEqual(told, []);
    assert.equal(teller.status, state.run.status);
    assert.partialDeepStrictEqual(teller.standing, expected);
  });

  Deno.test(`RunTeller.see() tells nothing twice of a run that ${that}`, () => {
    const { teller, told } = aTeller();
    teller.begin(state);

    teller.see(state);
    teller.see(state);

    assert.equal(told.length, expected.length);
  });
}

Deno.test("RunTeller.see() tells what another process has done since", () => {
  const { teller, told } = aTeller();
  teller.begin(aState());

  teller.see(aState({ status: "running", steps: [{ name: "read" }] }));
  teller.see(aState({ status: "running", progress: { current: 1 }, steps: [{ name: "read" }, { name: "write" }] }));
  teller.see(aState({ status: "waiting", pauses: [REVIEW], steps: [{ name: "read" }, { name: "write" }] }));
  teller.see(aState({ status: "completed", leaseGeneration: 2, output: "out", steps: [{ name: "read" }] }));

  assert.partialDeepStrictEqual(told, [
    LEASED,
    START,
    { type: "step:complete", stepName: "read", stepIndex: 0, output: "rows", duration: 0 },
    { type: "run:progress", progress: { current: 1 } },
    { type: "step:complete", stepName: "write", stepIndex: 1 },
    WAITING,
    COMPLETE,
  ]);
  assert.equal(told.length, 7);
});

Deno.test("RunTeller.see() tells the last steps before the end", () => {
  const { teller, types } = aTeller();
  teller.begin(aState());

  teller.see(aState({ status: "completed", steps: [{ name: "read" }] }));

  assert.deepEqual(types(), ["step:complete", "run:complete"]);
});

Deno.test("RunTeller.see() tells that a leased run was entered", () => {
  const { teller, types } = aTeller();
  teller.begin(aState({ status: "leased" }));

  teller.see(aState({ status: "running" }));

  assert.deepEqual(types(), ["run:leased", "run:start"]);
});

Deno.test("RunTeller.see() tells each attempt at a step that the run waits to try again, and how it ended", () => {
  const { teller, told } = aTeller();
  const failed = { name: "send", status: "failed", error: "not now", completedAt: null } as const;
  const retry = (at: number) => ({ waitId: null, name: "send", deadlineAt: isoTime(at) });
  teller.begin(aState({ status: "running" }));
  told.length = 0;

  teller.see(aState({ status: "waiting", steps: [{ ...failed, attempts: 1 }], pauses: [retry(FAKE_START + 5_000)] }));
  teller.see(aState({ status: "running", leaseGeneration: 2, steps: [{ ...failed, attempts: 1 }] }));
  teller.see(aState({ status: "running", leaseGeneration: 2, steps: [{ ...failed, attempts: 2 }] }));
  teller.see(aState({ status: "completed", leaseGeneration: 2, steps: [{ name: "send", attempts: 3 }] }));

  assert.partialDeepStrictEqual(told, [
    { type: "step:fail", stepName: "send", attempt: 1, error: "not now", retryAt: isoTime(FAKE_START + 5_000) },
    { type: "run:waiting", waitId: null, waitName: "send", deadlineAt: isoTime(FAKE_START + 5_000) },
    LEASED,
    START,
    { type: "step:complete", stepName: "send" },
    { type: "run:complete" },
  ]);
  assert.equal(told.length, 6);
});

Deno.test("RunTeller.see() tells how a step ended elsewhere that had failed here at first", () => {
  const { teller, told, hear } = aTeller();
  teller.begin(aState());
  hear(LEASED, START, {
    type: "step:fail",
    stepName: "send",
    stepIndex: 0,
    attempt: 1,
    error: "not now",
    retryAt: EXPIRES_AT,
  });
  told.length = 0;

  teller.see(aState({ status: "failed", steps: [{ name: "send", status: "failed", error: "never", attempts: 2 }] }));

  assert.partialDeepStrictEqual(told, [
    { type: "step:fail", stepName: "send", attempt: 2, error: "never", retryAt: null },
    { type: "run:fail" },
  ]);
});

Deno.test("RunTeller.see() tells a step that was cancelled between two attempts", () => {
  const { teller, types } = aTeller();
  const failed = { name: "send", status: "failed", error: "no", completedAt: null } as const;
  const retry = { waitId: null, name: "send", deadlineAt: EXPIRES_AT };
  teller.begin(aState({ status: "waiting", steps: [failed], pauses: [retry] }));

  teller.see(aState({ status: "cancelled", steps: [{ name: "send", status: "cancelled" }] }));

  assert.deepEqual(types(), ["run:waiting", "step:cancel", "run:cancel"]);
});

Deno.test("RunTeller.see() tells that a run was taken over, by another worker or under another lease", () => {
  const { teller, told } = aTeller();
  const progress = { current: 1 };
  teller.begin(aState({ status: "running", progress }));
  told.length = 0;

  teller.see(aState({ status: "running", progress, leaseGeneration: 3, leaseOwner: "worker-b", execution: 2 }));
  teller.see(aState({ status: "running", progress, leaseGeneration: 5, leaseOwner: "worker-b", execution: 3 }));

  assert.deepEqual(told.map((event) => [event.type, "execution" in event ? event.execution : null]), [
    ["run:leased", null],
    ["run:start", 2],
    ["run:leased", null],
    ["run:start", 3],
  ]);
});

Deno.test("RunTeller.see() tells that another worker took over a run that was executed here", () => {
  const { teller, told, hear } = aTeller();
  teller.begin(aState());
  hear(LEASED, START);
  told.length = 0;

  teller.see(aState({ status: "running", leaseGeneration: 3, leaseOwner: "worker-b" }));

  assert.partialDeepStrictEqual(told, [{ type: "run:leased", leaseOwner: "worker-b" }, START]);
});

Deno.test("RunTeller.see() tells a pause that came right after another one", () => {
  const { teller, told } = aTeller();
  const publish = { waitId: "w2", name: "publish", deadlineAt: null };
  teller.begin(aState({ status: "waiting", pauses: [REVIEW] }));
  told.length = 0;

  teller.see(aState({ status: "waiting", leaseGeneration: 2, pauses: [publish] }));

  assert.partialDeepStrictEqual(told, [{ type: "run:waiting", waitId: "w2" }]);
  assert.deepEqual(teller.standing, told);
});

Deno.test("RunTeller.see() tells a pause elsewhere that came right after one here", () => {
  const { teller, told, hear } = aTeller();
  const publish = { waitId: "w2", name: "publish", deadlineAt: null };
  teller.begin(aState());
  hear(LEASED, START, WAITING);
  told.length = 0;

  teller.see(aState({ status: "waiting", leaseGeneration: 2, pauses: [publish] }));

  assert.partialDeepStrictEqual(told, [{ type: "run:waiting", waitId: "w2" }]);
});

Deno.test("RunTeller.see() tells nothing when one of several pauses is over", () => {
  const { teller, told } = aTeller();
  teller.begin(aState({ status: "waiting", pauses: [REVIEW, { ...REVIEW, waitId: "w2", name: "other" }] }));
  told.length = 0;

  teller.see(aState({ status: "waiting", pauses: [REVIEW] }));

  assert.deepEqual(told, []);
});

Deno.test("RunTeller.see() believes nothing any more once the end was told", () => {
  const { teller, types, hear } = aTeller();
  teller.begin(aState());
  hear(LEASED, START, COMPLETE);

  teller.see(aState({ status: "running" }));
  teller.see(aState({ status: "completed" }));
  hear({ type: "run:cancel" });

  assert.deepEqual(types(), ["run:leased", "run:start", "run:complete"]);
});

Deno.test("RunTeller.hear() tells everything that happens here", () => {
  const { teller, types, hearUnder } = aTeller();
  const progress = { type: "run:progress", progress: { current: 1 } } as const;
  const first: RunHappening[] = [
    LEASED,
    START,
    progress,
    progress,
    { type: "step:start", stepName: "read", stepIndex: 0, attempt: 1 },
    { type: "step:complete", stepName: "read", stepIndex: 0, output: null, duration: 0 },
    { type: "log:write", stepName: null, level: "info", message: "hello", data: null },
    WAITING,
    { ...WAITING, waitId: null, waitName: "nap" },
    { ...WAITING, waitId: null, waitName: "nap" },
  ];
  const second: RunHappening[] = [
    LEASED,
    START,
    progress,
    { type: "run:lease-renewed", leaseOwner: "worker-a", leaseExpiresAt: EXPIRES_AT },
    COMPLETE,
    { type: "run:retry", newRunId: "02-run" },
    { type: "run:delete" },
  ];
  teller.begin(aState());

  hearUnder(1, ...first);
  hearUnder(2, ...second);

  assert.deepEqual(types(), [...first, ...second].map(({ type }) => type));
});

Deno.test("RunTeller.hear() tells nothing again that the store has shown before", () => {
  const { teller, types, hear } = aTeller();

  teller.begin(aState({ status: "running", progress: { current: 1 } }));
  hear(LEASED, START, { type: "run:progress", progress: { current: 1 } });
  teller.see(aState({ status: "waiting", pauses: [REVIEW] }));
  hear(WAITING);
  teller.see(aState({ status: "cancelled" }));
  hear({ type: "run:cancel" });

  assert.deepEqual(types(), ["run:leased", "run:start", "run:progress", "run:waiting", "run:cancel"]);
});

Deno.test("RunTeller.see() tells nothing again that was heard before", () => {
  const { teller, types, hear } = aTeller();
  teller.begin(aState());

  hear(LEASED, START, { type: "run:progress", progress: { current: 1 } });
  hear({ type: "step:complete", stepName: "read", stepIndex: 0, output: null, duration: 0 });
  teller.see(aState({ status: "running", progress: { current: 1 }, steps: [{ name: "read" }] }));
  hear(WAITING);
  teller.see(aState({ status: "waiting", pauses: [{ ...REVIEW, deadlineAt: EXPIRES_AT }] }));
  hear({ type: "run:fail", error: "no", failedStepName: null });
  teller.see(aState({ status: "failed" }));

  assert.deepEqual(types(), ["run:leased", "run:start", "run:progress", "step:complete", "run:waiting", "run:fail"]);
});

Deno.test("RunTeller.seeTrigger() tells a trigger once, and none of a run that was taken up already", () => {
  const [seen, heard, taken] = [aTeller(), aTeller(), aTeller()];
  const { run } = aState();
  const trigger = { type: "run:trigger", input: 1 } as const;

  seen.teller.seeTrigger(run);
  seen.teller.seeTrigger(run);
  seen.hear(trigger);
  heard.hear(trigger);
  heard.teller.seeTrigger(run);
  taken.hear(LEASED, START);
  taken.teller.seeTrigger(run);

  assert.deepEqual([seen, heard, taken].map(({ types }) => types()), [
    ["run:trigger"],
    ["run:trigger"],
    ["run:leased", "run:start"],
  ]);
});

Deno.test("RunTeller.standing tells the latest progress of a run that is executed again", () => {
  const { teller, hearUnder } = aTeller();
  teller.begin(aState({ status: "waiting", progress: { current: 7 }, pauses: [REVIEW] }));

  hearUnder(2, LEASED, START);

  assert.partialDeepStrictEqual(teller.standing, [LEASED, START, { progress: { current: 7 } }]);
});

Deno.test("RunTeller.standing tells nothing of a run that was handed back", () => {
  const { teller, hear } = aTeller();
  teller.begin(aState());
  hear(LEASED, START);

  teller.see(aState({ leaseGeneration: 2 }));

  assert.deepEqual([teller.status, teller.standing], ["pending", []]);
});

Deno.test("RunTeller.see() tells progress elsewhere before the pause or the end that followed it", () => {
  const progress = { current: 1, total: 2 };
  const paused = aTeller();
  const ended = aTeller();
  for (const { teller } of [paused, ended]) teller.begin(aState());

  paused.teller.see(aState({ status: "waiting", progress, pauses: [REVIEW] }));
  ended.teller.see(aState({ status: "completed", progress }));

  assert.deepEqual(paused.types(), ["run:progress", "run:waiting"]);
  assert.deepEqual(ended.types(), ["run:progress", "run:complete"]);
});

for (const status of ["waiting", "completed"] as const) {
  Deno.test(`RunTeller.hear() tells nothing of a lease that was over when the run was read as ${status}`, () => {
    const { teller, hearUnder, types } = aTeller();
    teller.begin(aState({ status, pauses: status === "waiting" ? [REVIEW] : [] }));
    const before = types();

    hearUnder(1, LEASED, START, { type: "step:start", stepName: "read", stepIndex: 0, attempt: 1 }, WAITING);

    assert.deepEqual(types(), before);
    if (status === "completed") return;
    hearUnder(2, LEASED, START);
    assert.deepEqual(types(), [...before, "run:leased", "run:start"]);
  });
}

Deno.test("RunTeller.hear() tells progress that is made again, though the store has shown it", () => {
  const { teller, told, hear } = aTeller();
  const at = (current: number) => ({ type: "run:progress", progress: { current } }) as const;
  teller.begin(aState({ status: "running", progress: { current: 0 } }));
  told.length = 0;

  hear(at(0), at(10), at(0));

  assert.partialDeepStrictEqual(told, [at(10), at(0)]);
  assert.partialDeepStrictEqual(teller.standing.at(-1), at(0));
});

Deno.test("RunTeller.hear() tells nothing of an execution that began before the first look, and was over by then", () => {
  const { teller, types, hear } = aTeller();
  teller.begin(aState({ status: "waiting", pauses: [REVIEW] }));

  hear({ type: "run:progress", progress: { current: 1 } }, {
    type: "step:start",
    stepName: "read",
    stepIndex: 0,
    attempt: 1,
  });

  assert.deepEqual(types(), ["run:waiting"]);
});

Deno.test("RunTeller.hear() tells no attempt that failed before one of which was told", () => {
  const { teller, types, hear } = aTeller();
  const failed = { type: "step:fail", stepName: "read", stepIndex: 0, error: "no", retryAt: EXPIRES_AT } as const;
  const complete = { type: "step:complete", stepName: "read", stepIndex: 0, output: null, duration: 0 } as const;
  teller.begin(aState());

  hear({ ...failed, attempt: 2 }, { ...failed, attempt: 1 }, complete, { ...failed, attempt: 3 }, complete);

  assert.deepEqual(types(), ["step:fail", "step:complete"]);
});

Deno.test("RunTeller.hear() tells that the same worker took a run up again, wherever its clock stands", () => {
  const { teller, types, hearUnder } = aTeller();
  teller.begin(aState());

  hearUnder(1, LEASED, START);
  hearUnder(3, { ...LEASED, leaseExpiresAt: isoTime(FAKE_START) }, START);

  assert.deepEqual(types(), ["run:leased", "run:start", "run:leased", "run:start"]);
});

Deno.test("RunTeller.standing tells progress of before under a number that is higher than that of the new start", () => {
  const { teller, hearUnder } = aTeller();
  teller.begin(aState({ status: "waiting", progress: { current: 7 }, pauses: [REVIEW] }));

  hearUnder(2, LEASED, START);

  const numbers = teller.standing.map(({ sequence }) => sequence);
  assert.deepEqual(numbers, numbers.toSorted((a, b) => a - b));
});

Deno.test("RunTeller.hear() lets a late renewal of a lease that is over change nothing", () => {
  const { teller, types, hear } = aTeller();
  const later = isoTime(FAKE_START + 90_000);
  teller.begin(aState({ status: "running", leaseGeneration: 3, leaseOwner: "worker-b" }));

  hear({ type: "run:lease-renewed", leaseOwner: "worker-a", leaseExpiresAt: later });

  assert.deepEqual(types(), ["run:leased", "run:start"]);
  assert.partialDeepStrictEqual(teller.standing, [{ leaseOwner: "worker-b", leaseExpiresAt: EXPIRES_AT }, START]);
});

Deno.test("RunTeller.see() tells when a step is tried again, not when a sleep of that name is over", () => {
  const { teller, told } = aTeller();
  const [soon, late] = [isoTime(FAKE_START + 1_000), isoTime(FAKE_START + 5_000)];
  teller.begin(aState({ status: "running" }));
  const failed = { name: "send", status: "failed", error: "no", completedAt: null } as const;
  const pauses = [soon, late].map((deadlineAt) => ({ waitId: null, name: "send", deadlineAt }));

  teller.see(aState({ status: "waiting", steps: [failed], pauses }));

  assert.partialDeepStrictEqual(told.filter(({ type }) => type === "step:fail"), [{ retryAt: late }]);
});

Deno.test("RunTeller.standing tells until when a lease lasts after it was renewed", () => {
  const { teller, hear } = aTeller();
  const [later, latest] = [isoTime(FAKE_START + 40_000), isoTime(FAKE_START + 50_000)];
  teller.begin(aState());

  hear(LEASED, START, { type: "run:lease-renewed", leaseOwner: "worker-a", leaseExpiresAt: later });
  const renewedHere = teller.standing;
  teller.see(aState({ status: "running", leaseExpiresAt: latest }));

  assert.partialDeepStrictEqual(renewedHere, [{ ...LEASED, leaseExpiresAt: later }, START]);
  assert.partialDeepStrictEqual(teller.standing, [{ ...LEASED, leaseExpiresAt: latest }, START]);
});

Deno.test("RunTeller.hear() tells an event that has waited under a number that is higher than the last one", () => {
  const { hub, teller, told } = aTeller();
  const early = hub.runEvent({ id: ID, jobName: "job", labels: {} }, COMPLETE);

  teller.begin(aState({ status: "running" }));
  teller.hear(early, { runId: ID, generation: 1, concurrencyKey: null });

  assert.deepEqual(told.map(({ type }) => type), ["run:leased", "run:start", "run:complete"]);
  assert.deepEqual(told.map(({ sequence }) => sequence), [2, 3, 4]);
});

Deno.test("RunTeller.hear() tells no trigger whose answer comes after the run was taken up", () => {
  const { hear, types } = aTeller();

  hear(LEASED, START, COMPLETE, { type: "run:trigger", input: null });

  assert.deepEqual(types(), ["run:leased", "run:start", "run:complete"]);
});
