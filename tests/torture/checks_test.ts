import assert from "node:assert/strict";
import type { RunEvent } from "../../src/model/event.ts";
import { toEvents } from "../../src/model/fact.ts";
import type { JournalRow } from "../../src/model/journal.ts";
import { type Chain, checkChain, type Connection, type Message } from "./checks/check_chain.ts";
import { checkFacts } from "./checks/check_facts.ts";
import { checkRecovery } from "./checks/check_recovery.ts";
import { checkReceipts, noReceipts, type RunReceipts } from "./checks/check_receipts.ts";
import { checkSignalAnswer, type SignalHistory } from "./checks/check_signal_answer.ts";
import { checkState } from "./checks/check_state.ts";
import { checkSteps } from "./checks/check_steps.ts";
import { checkTenures, findStaleWrites, findTenures } from "./checks/check_tenures.ts";
import { checkValues } from "./checks/check_values.ts";
import type { Fact, Placed } from "./fact.ts";
import { KnownJournal } from "./known_journal.ts";
import { readAcknowledged } from "../processes/acknowledged_steps.ts";
import type { PauseRow, RunRows, StepRow } from "./rows.ts";

// A test of the tests: each check has nothing to say about a history that can be, and finds what was done to one.

const begin = (generation: number): Fact => ({ is: "begin", pid: 1, run: "run", generation, key: null });
const start = (generation: number, attempt = 1): Fact => {
  return { is: "start", pid: 1, run: "run", generation, step: "a", attempt };
};
const done = (generation: number, value: string, attempt = 1): Fact => {
  return { is: "done", pid: 1, run: "run", generation, step: "a", attempt, value };
};
const ack = (value: string, isLast = true, attempt = 1): Fact => {
  return { is: "ack", pid: 1, run: "run", step: "a", attempt, value, isLast };
};
const end = (generation: number): Fact => ({ is: "end", pid: 1, run: "run", generation });
const over = (status: "completed" | "failed"): Fact => ({ is: "over", pid: 1, run: "run", status });
const replay = (value: string): Fact => ({ is: "replay", pid: 1, run: "run", generation: 1, step: "a", value });
const outcome = (value: string): Fact => ({ is: "outcome", pid: 1, run: "run", generation: 1, wait: "w", value });

function placed(...facts: Fact[]): Placed[] {
  return facts.map((fact, at) => ({ ...fact, at }));
}

function aStep(row: Partial<StepRow> = {}): StepRow {
  return { name: "a", status: "completed", attempts: 1, value: '"x"', recordedNo: 1, isCopied: false, ...row };
}

function aWait(row: Partial<PauseRow> = {}): PauseRow {
  return {
    id: "wait",
    kind: "wait",
    name: "w",
    status: "resolved",
    isAwaited: true,
    value: '["s",1]',
    hasSignal: true,
    deadlineAt: 20,
    resolvedAt: 10,
    ...row,
  };
}

/** A run of one step that was completed under its first lease. */
function aRun(rows: Partial<RunRows> = {}): RunRows {
  return {
    seq: 1,
    id: "run",
    job: "straight",
    status: "completed",
    key: null,
    generation: 1,
    place: null,
    dueAt: null,
    timerAt: null,
    leaseOwner: null,
    leaseExpiresAt: null,
    completedAt: 30,
    recorded: 1,
    output: { token: "token", seen: [["step", "a", '"x"']] },
    error: null,
    failedStep: null,
    input: { token: "token", seed: 1, key: null },
    steps: [aStep()],
    pauses: [],
    hash: 0,
    ...rows,
  };
}

const NOTHING: ReadonlySet<string> = new Set();
const ORDINARY = [begin(1), start(1), done(1, '"x"'), ack('"x"'), end(1), over("completed")];

const steps = (facts: Fact[], rows: Partial<RunRows> = {}) => checkSteps(placed(...facts), aRun(rows), NOTHING);
const values = (facts: Fact[], rows: Partial<RunRows> = {}) => checkValues(placed(...facts), aRun(rows));
const stale = (facts: Fact[], rows: Partial<RunRows> = {}) => findStaleWrites(placed(...facts), aRun(rows)).join();

Deno.test("checkSteps() has nothing to say about a step that was killed before it was recorded", () => {
  const restarted = [begin(1), start(1), begin(3), start(3), done(3, '"x"'), ack('"x"'), end(3), over("completed")];

  assert.deepEqual(steps(ORDINARY), []);
  assert.deepEqual(steps(restarted, { generation: 3 }), []);
});

Deno.test("checkSteps() lets a zombie start what it does not know to be recorded, and nobody else", () => {
  const facts = [begin(1), begin(3), start(3), done(3, '"x"'), ack('"x"')];

  assert.deepEqual(steps([...facts, start(1)], { generation: 3 }), []);
  assert.match(steps([...facts, start(3)], { generation: 3 }).join(), /was started under lease 3 after/);
  assert.match(steps([...facts, begin(5), start(5)], { generation: 5 }).join(), /was started under lease 5 after/);
});

Deno.test("checkSteps() knows which attempts may follow one that has failed", () => {
  const failed = [begin(1), start(1), done(1, "failed: e"), ack("failed: e", false)];
  const second = [start(1, 2), done(1, '"x"', 2), ack('"x"', true, 2)];
  const recorded = { steps: [aStep({ attempts: 2 })] };

  assert.deepEqual(steps([...failed, ...second], recorded), []);
  assert.match(steps([...failed, begin(2), start(2, 1)], recorded).join(), /attempt 1 at step "a" was started/);
  assert.match(steps(failed, { steps: [] }).join(), /is not recorded/);
  assert.match(steps([...failed], { steps: [aStep({ attempts: 0 })] }).join(), /is lost/);
});

Deno.test("checkSteps() finds what was acknowledged and is not recorded", () => {
  assert.match(steps(ORDINARY, { steps: [] }).join(), /was acknowledged and is not recorded/);
  assert.match(
    steps(ORDINARY, { steps: [aStep({ value: '"y"' })] }).join(),
    /was acknowledged with "x", recorded is "y"/,
  );
});

Deno.test("checkSteps() finds values that no function has returned", () => {
  const known = checkSteps(placed(begin(1)), aRun(), new Set(['"x"']));

  assert.match(steps([begin(1), start(1), ack('"x"')]).join(), /which nothing has returned/);
  assert.match(steps([begin(1)]).join(), /which its function has never returned/);
  assert.deepEqual(known, []); // copied from the run that it was made from
});

Deno.test("checkSteps() finds two executions under one lease, and one without any", () => {
  assert.match(steps([begin(1), ...ORDINARY]).join(), /the body under lease 1 was started twice/);
  assert.match(steps([begin(1), start(1), ...ORDINARY.slice(1)]).join(), /attempt 1 .* was started twice/);
  assert.match(steps([...ORDINARY.slice(0, 4), begin(2)]).join(), /was under lease 2, the newest is 1/);
});

Deno.test("checkSteps() finds what goes on after the end of a run", () => {
  assert.match(steps([...ORDINARY, { ...start(1), step: "b" } as Fact]).join(), /a start came after the run was said/);
  assert.match(steps(ORDINARY, { status: "failed" }).join(), /was said to be completed, and is failed/);
  assert.match(steps(ORDINARY, { status: "running" }).join(), /the run goes on after its end/);
  assert.match(
    steps([...ORDINARY, { ...begin(3), pid: 2 } as Fact], { generation: 3 }).join(),
    /process 1 has ended the run under an older lease than 3/,
  );
});

Deno.test("findStaleWrites() finds a write that was accepted under a lease that had passed on", () => {
  const zombie = [begin(1), start(1), begin(3), done(1, '"x"')];

  assert.equal(stale(ORDINARY), "");
  assert.equal(stale(zombie, { steps: [], generation: 3 }), ""); // it was refused
  assert.match(stale(zombie, { generation: 3 }), /a write of .* under lease 1 .* was accepted after .* under lease 3/);
});

Deno.test("findStaleWrites() finds an ending that was accepted under a lease that had passed on", () => {
  const facts = [begin(1), begin(3), start(3), done(3, '"x"'), ack('"x"'), end(1)];

  assert.equal(stale(facts, { generation: 3 }), ""); // it was refused
  assert.match(stale(facts, { generation: 1 }), /a write of .* under lease 1 .* was accepted after .* under lease 3/);
});

Deno.test("a body that began long after it was claimed proves nothing", () => {
  const late = [begin(3), start(3), begin(1), done(3, '"x"'), ack('"x"'), end(3)];

  assert.equal(stale(late, { generation: 3 }), "");
  assert.deepEqual(findTenures(placed(...late), aRun({ generation: 3 })).map(({ generation }) => generation), [3]);
});

Deno.test("checkTenures() finds two runs that hold one key", () => {
  const one = findTenures(placed(...ORDINARY), aRun());
  const after = one.map((tenure) => ({ ...tenure, run: "other", from: tenure.until + 1, until: tenure.until + 5 }));
  const meanwhile = one.map((tenure) => ({ ...tenure, run: "other", from: tenure.from + 1, until: tenure.from + 1 }));

  assert.deepEqual(checkTenures([...one, ...after]), []);
  assert.match(checkTenures([...one, ...meanwhile]).join(), /was held until after run other/);
});

Deno.test("checkTenures() lets a run that waits for a retry keep its key", () => {
  const failed = [begin(1), start(1), done(1, "failed: e"), ack("failed: e", false)];
  const facts = placed(...failed, begin(2), start(2, 2), done(2, '"x"', 2));
  const [first, second] = findTenures(facts, aRun({ generation: 2 }));

  assert.deepEqual([first!.from, first!.until, second!.from], [0, 3, 4]);
  assert.deepEqual(checkTenures([first!, second!]), []);
  const between = { run: "other", generation: 1, key: null, from: 3, until: 3 };
  assert.match(checkTenures([first!, second!, between]).join(), /was held until after run other/);
});

Deno.test("checkValues() finds what a body saw and is not recorded", () => {
  const waited = { pauses: [aWait()], output: { token: "token", seen: [["wait", "w", '["s",1]']] } } as const;
  const rows = { ...waited, steps: [], output: { token: "token", seen: [...waited.output.seen] } } as never;

  assert.deepEqual(values([...ORDINARY, replay('"x"')]), []);
  assert.deepEqual(values([outcome('["s",1]')], rows), []);
  assert.match(values([replay('"y"')]).join(), /saw "y" of step a, recorded is "x"/);
  assert.match(values([outcome("timeout")], rows).join(), /saw timeout of wait w/);
});

Deno.test("checkValues() finds an output that is not made of what is recorded", () => {
  const seen = (value: string) => ({ output: { token: "token", seen: [["step", "a", value]] } }) as Partial<RunRows>;

  assert.match(values([], seen('"y"')).join(), /the output has "y" of step a, recorded is "x"/);
  assert.match(values([], { output: { token: "token", seen: [] } }).join(), /knows nothing of step a/);
  assert.match(values([], { output: { token: "other", seen: [["step", "a", '"x"']] } }).join(), /is that of other/);
  assert.match(values([], { output: null }).join(), /has no output/);
});

Deno.test("checkValues() lets a run fail for its own step only", () => {
  const failed = { status: "failed", error: "e", output: null };
  const broken = aStep({ name: "broken", status: "failed", value: "failed: e" });

  assert.deepEqual(values([], { ...failed, job: "failing", failedStep: "broken", steps: [broken] }), []);
  assert.match(values([], failed).join(), /a run of "straight" has failed: e/);
  assert.match(
    values([], { ...failed, job: "failing", failedStep: "broken", steps: [] }).join(),
    /recorded is undefined/,
  );
  assert.match(values([], { job: "failing" }).join(), /was completed/);
});

Deno.test("checkState() finds states that no transaction leads to", () => {
  const waiting = { status: "waiting", completedAt: null };
  const open = aWait({ status: "pending", value: null, hasSignal: false, resolvedAt: null });
  const state = (rows: Partial<RunRows>) => checkState(aRun(rows)).join();

  assert.equal(state({}), "");
  assert.equal(state({ ...waiting, pauses: [open] }), "");
  assert.equal(state({ ...waiting, place: "R", pauses: [aWait()] }), "");
  assert.match(state({ completedAt: null }), /has no time of its end/);
  assert.match(state({ pauses: [open] }), /is still open/);
  assert.match(state({ ...waiting, pauses: [aWait()] }), /is not due though "w" is over/);
  assert.match(state({ ...waiting }), /waits for nothing/);
  assert.match(state({ status: "running", completedAt: null }), /its lease is that of null/);
  assert.match(state({ status: "pending", completedAt: null }), /stands in no line/);
  assert.equal(state({ status: "pending", dueAt: 40, completedAt: null }), "");
  assert.match(state({ status: "pending", place: "R", dueAt: 40, completedAt: null }), /at R, which it enters at 40/);
  assert.match(state({ dueAt: 40 }), /enters its line at 40/);
  assert.match(state({ place: "R" }), /stands in line at R/);
  assert.match(state({ recorded: 0 }), /has counted 0 records only/);
  assert.match(state({ pauses: [aWait({ resolvedAt: 20 })] }), /was signalled too late/);
  assert.match(state({ pauses: [aWait({ hasSignal: false, value: "timeout" })] }), /ended at another time/);
});

Deno.test("checkReceipts() finds a run that is not as its client was told", () => {
  const receipts = (told: Partial<RunReceipts>, rows: Partial<RunRows> | null = {}) => {
    return checkReceipts({ ...noReceipts(), ...told }, rows === null ? null : aRun(rows)).join();
  };
  const signals = new Map([["wait", { waitId: "wait", value: '["s",1]', shown: "" }]]);
  const sent = new Map([["wait", new Set(['["s",1]'])]]);

  assert.equal(receipts({ job: "straight", token: "token" }), "");
  assert.equal(receipts({ signals, sent }, { pauses: [aWait()] }), "");
  assert.equal(receipts({ deletesAsked: 1 }, null), "");
  assert.match(receipts({ job: "straight" }, null), /is gone, and nobody has deleted it/);
  assert.match(receipts({ isDeleted: true }), /was deleted, and is there/);
  assert.match(receipts({ isCancelled: true, isCancelAsked: true }), /was cancelled, and is completed/);
  assert.match(receipts({}, { status: "cancelled" }), /nobody has asked for that/);
  assert.match(receipts({ isSeenOver: true }, { status: "running" }), /was said to have ended/);
  assert.match(receipts({ token: "other" }), /has another input/);
  assert.match(receipts({ signals, sent }), /was accepted, recorded is null/);
  assert.match(receipts({ signals, sent }, { pauses: [aWait({ value: "timeout", hasSignal: false })] }), /is timeout/);
  assert.match(receipts({}, { pauses: [aWait()] }), /which nobody has sent/);
});

Deno.test("checkRecovery() finds a step that is executed again although the copy shows it recorded", () => {
  const waiting = { status: "waiting", completedAt: null, output: null } as const;
  const recovery = (facts: Fact[], steps: StepRow[] | null) => {
    const before = steps === null ? null : aRun({ ...waiting, steps });
    return checkRecovery(placed(...facts), before, aRun({ generation: 2 })).join();
  };
  const failed = aStep({ status: "retrying", value: "failed: e", recordedNo: 0 });
  const again = [begin(2), start(2), done(2, '"x"'), ack('"x"'), end(2), over("completed")];

  assert.equal(recovery(again, []), "");
  assert.equal(recovery([begin(2), replay('"x"'), end(2), over("completed")], [aStep()]), "");
  assert.equal(recovery([begin(2), start(2, 2), done(2, '"x"', 2), ack('"x"', true, 2), end(2)], [failed]), "");
  assert.match(recovery(again, [aStep()]), /attempt 1 at step "a" was started, which was recorded as completed/);
  assert.match(recovery(again, [failed]), /attempt 1 at step "a" was started, which was recorded as retrying after 1/);
  assert.match(recovery([begin(2), end(2)], []), /which its function has never returned/);
  assert.match(recovery([begin(2)], null), /a begin came though the run had ended/);
});

Deno.test("readAcknowledged() lets an older execution start what a newer one has recorded, and no other", () => {
  const line = (word: string, execution: number, last = "receipt") => [word, "run", "step-0", `${execution}`, last];
  const recorded = [line("start", 2), line("ack", 2)];

  assert.deepEqual([...readAcknowledged([...recorded, line("start", 1)]).get("run")!], [["step-0", "receipt"]]);
  assert.throws(() => readAcknowledged([...recorded, line("start", 2)]), /executed again/);
  assert.throws(() => readAcknowledged([...recorded, line("ack", 3), line("start", 3)]), /executed again/);
  assert.throws(() => readAcknowledged([...recorded, line("ack", 3, "other")]), /two results/);
});

Deno.test("checkSignalAnswer() finds receipts that contradict each other", () => {
  const wait = { outcome: "signal", signalId: "s", payload: 1 };
  const receipt = (disposition: string, more = {}) => JSON.stringify({ wait: { ...wait, ...more }, disposition });
  const told = (...answers: [status: number, text: string, value?: string][]) => {
    const history: SignalHistory = { receipt: null, isAccepted: false, isExpired: false };
    return answers.map(([status, text, value = '["s",1]']) =>
      checkSignalAnswer(history, { waitId: "wait", value, status, text, mayBeGone: false })
    ).at(-1);
  };

  const accepted: [number, string] = [200, receipt("accepted")];
  assert.equal(told(accepted), null);
  assert.equal(told(accepted, [200, receipt("duplicate")]), null);
  assert.equal(told([200, receipt("duplicate")], accepted), null); // the first answer came later
  assert.equal(told(accepted, [409, "", '["t",1]']), null);
  assert.equal(told([410, ""]), null);
  assert.match(told(accepted, accepted)!, /had been accepted before/);
  assert.match(told(accepted, [200, receipt("duplicate", { resolvedAt: "later" })])!, /the first receipt was/);
  assert.match(told([200, receipt("accepted"), '["t",1]'])!, /that is another signal/);
  assert.match(told([410, ""], accepted)!, /its deadline had passed before/);
  assert.match(told(accepted, [410, ""])!, /accepted was/);
  assert.match(told(accepted, [409, ""])!, /accepted was/);
  assert.match(told([404, ""])!, /answered 404/);
  assert.match(told([500, ""])!, /answered 500/);
});

const IDENTITY = { id: "run", jobName: "straight", labels: {} };
const OUTPUT = { json: '"x"', error: null, failedStepName: null };
/** A run of one step, and another run that was triggered after it. Fact 3 and 4 are of one commit. */
const ROWS: JournalRow[] = [
  { position: 1, at: 10, facts: [[1, "triggered"]] },
  { position: 2, at: 20, facts: [[1, "claimed", 1, "worker", 90, 1]] },
  { position: 4, at: 40, facts: [[1, "progressed", 30, { current: 1 }], [1, "progressed", 40, { current: 2 }]] },
  { position: 5, at: 50, facts: [[1, "step_completed", "a", 0, 1, null, 5]] },
  { position: 6, at: 60, facts: [[1, "completed", 40]] },
  { position: 7, at: 70, facts: [[7, "triggered"]] },
];
const ID = (position: number): Message => ({ kind: "id", id: `${position}-${(position * 10).toString(36)}` });

/** The events of a fact, as a client receives them. */
function told(number: number, more: Partial<RunEvent> = {}): Message[] {
  const row = ROWS.find(({ position }) => position >= number)!;
  const fact = row.facts[number - 1 - (row.position - row.facts.length)]!;
  const run = fact[0] === 1 ? IDENTITY : { ...IDENTITY, id: "other" };
  return toEvents(fact, { number, at: row.at }, run, OUTPUT).map((event): Message => {
    return { kind: "event", event: { ...event, ...more } as RunEvent, heardAt: 1_000 };
  });
}

function aConnection(messages: Message[], more: Partial<Connection> = {}): Connection {
  const times = { askedAt: 100, readAt: Infinity, openedAt: 0 };
  return { lastId: null, status: 200, messages, pid: 1, owner: null, ...times, ...more };
}

/** What is wrong with some connections of somebody who follows the run, or the list. */
function chain(connections: Connection[], more: Partial<Chain> = {}, journal = aJournal()): string {
  return checkChain({ runId: "run", filter: {}, hasIds: true, connections, ...more }, journal).join();
}

function aJournal(rows = ROWS): KnownJournal {
  const journal = new KnownJournal();
  journal.take(rows, {
    identify: (runs) => runs.map((run) => run === 1 ? IDENTITY : { ...IDENTITY, id: "other" }),
    readValue: () => OUTPUT,
  });
  return journal;
}

Deno.test("checkChain() has nothing to say about a stream that equals the journal", () => {
  const all = [told(1), ID(1), told(2), ID(2), told(3), told(4), ID(4), told(5), ID(5), told(6), ID(6)].flat();

  assert.equal(chain([aConnection(all)]), "");
  assert.equal(chain([aConnection(all.slice(0, 5)), aConnection([...told(3), ...told(4)], { lastId: "2-k" })]), "");
  assert.equal(chain([aConnection(all.slice(0, 4)), aConnection(told(2), { lastId: "1-a" })]), ""); // before its id
  assert.equal(chain([aConnection([...told(2), ...told(4), ...told(5), ...told(6), ID(6)])]), ""); // thinned
  assert.equal(chain([aConnection([], { status: 204, lastId: "6-1o" })]), "");
  assert.equal(chain([aConnection([...told(6, { sequence: 14 }), ID(7)])]), ""); // the state
  const held = [...told(2), ID(2), ...told(5), ...told(4, { sequence: 11 }), ...told(6), ID(6)];
  assert.equal(chain([aConnection(held)]), "");
  const list = [...told(2), ...told(4), ID(4), ...told(6), ID(6), ...told(7, { input: undefined }), ID(7)];
  assert.equal(chain([aConnection(list)], { runId: null }), "");
});

Deno.test("checkChain() finds what is missing, told twice, in another order, or otherwise", () => {
  const after2 = (...messages: Message[][]) => chain([aConnection(messages.flat(), { lastId: "2-k" })]);

  assert.match(after2(told(4), told(6)), /step:complete of fact 5, run run, is missing/);
  assert.match(after2(told(4), [ID(5)]), /step:complete of fact 5, run run, is missing/);
  assert.match(after2(told(5), told(5)), /came twice, or too late/);
  assert.match(after2(told(2)), /run:leased of fact 2 came twice, or too late/);
  assert.match(after2(told(4), told(3)), /came twice, or too late/);
  assert.match(after2(told(3), told(4), told(5, { sequence: 11 })), /has the number 11, not 10/);
  assert.match(after2(told(4), told(5, { timestamp: "" })), /the journal has no/);
  assert.match(chain([aConnection([...told(6), ...told(7)])], { runId: null, filter: { jobName: "x" } }), /has no/);
  assert.match(chain([aConnection(told(1))], { runId: null }), /run:trigger shows an input/);
});

Deno.test("checkChain() finds ids that are no places, or come too early or uncalled for", () => {
  const wrong = { kind: "id", id: "5-1" } as const;

  assert.match(chain([aConnection([...told(5), wrong])]), /the id 5-1 is no place/);
  assert.match(chain([aConnection([...told(5), ID(4)])]), /came after an event of fact 5/);
  assert.match(chain([aConnection([...told(5), ID(5)])], { hasIds: false }), /had not asked for any/);
  assert.match(chain([aConnection([], { status: 204, lastId: "5-1e" })]), /204 was answered to 5-1e/);
});

Deno.test("checkChain() knows which gaps there are, and in which states a stream may begin", () => {
  const gap: Message = { kind: "gap" };
  const trimmed = aJournal();
  trimmed.noteTrim()(4);
  const deleted = aJournal([...ROWS, { position: 8, at: 80, facts: [[7, "deleted", "other", "straight", {}]] }]);
  const running = told(2).map((message, at) => {
    return { ...message, event: { ...(message as { event: RunEvent }).event, sequence: 7 + at } } as Message;
  });

  assert.match(chain([aConnection([gap], { lastId: "2-k" })]), /a gap was told after 2-k, and nothing is missing/);
  assert.equal(chain([aConnection([gap], { lastId: "2-k" })], {}, trimmed), "");
  assert.match(chain([aConnection(told(5), { lastId: "2-k", askedAt: Infinity })], {}, trimmed), /no gap was told/);
  assert.equal(chain([aConnection([gap], { lastId: "7-1y" })], { runId: null }, deleted), "");
  assert.match(chain([aConnection([...told(5), gap])]), /a gap came within/);
  assert.match(chain([aConnection(running)]), /the state of the run at 4 is not/); // without its progress
  assert.match(chain([aConnection(told(6, { sequence: 8 }))]), /the state of the run at 4 is not/);
});

Deno.test("checkFacts() finds facts that are not recorded, and what is recorded without a fact", () => {
  const facts = ROWS.flatMap(({ facts }) => facts).filter(([run]) => run === 1);
  const wrong = (rows: Partial<RunRows>, told = facts) => checkFacts(aRun(rows), told).join();

  assert.equal(wrong({}), "");
  assert.match(wrong({}, facts.slice(1)), /it was triggered 0 times/);
  assert.match(wrong({}, facts.slice(0, -1)), /it is completed, and its ends are/);
  assert.match(wrong({ status: "failed" }), /it is failed, and its ends are completed/);
  assert.match(wrong({}, [...facts, facts[2]!]), /something came after its end/);
  assert.match(wrong({ steps: [] }), /a fact says a completed after 1/);
  assert.match(wrong({}, facts.filter(([, kind]) => kind !== "step_completed")), /no fact says a completed after 1/);
  assert.match(wrong({ steps: [aStep({ attempts: 2 })] }), /no fact says a retrying after 1/);
  assert.match(wrong({ generation: 0 }), /its lease is number 0/);
});
