import assert from "node:assert/strict";
import { LeaseLostError, StoreError } from "../../src/model/error.ts";
import { ClientRecords, type TriggerRequest } from "./client_records.ts";
import type { Fact } from "./fact.ts";
import { History } from "./history.ts";
import { isExpectedError } from "./is_expected_error.ts";
import { LedgerReader, LedgerWriter } from "./ledger.ts";
import type { RunRows } from "./rows.ts";
import { Tally } from "./tally.ts";

const run = {
  id: "run",
  job: "straight",
  status: "completed",
  generation: 3,
  hash: 1,
  input: { token: "token", seed: 1, key: null },
  steps: [{ name: "a", status: "completed", attempts: 1, value: '"x"', recordedNo: 1 }],
} as RunRows;

/** What a history has to say about a fact that was written after its run had been seen to have ended. */
function judgeLate(fact: Fact, status = "completed"): string {
  const problems: string[] = [];
  const history = new History(new Tally(), (message) => problems.push(message));
  history.settle({ ...run, status });
  history.take([{ ...fact, at: 1 }]);
  return problems.join();
}

Deno.test("a history finds what happens after the end of a run", () => {
  const start = (generation: number): Fact => {
    return { is: "start", pid: 1, run: "run", generation, step: "a", attempt: 1 };
  };
  const ack = (value: string): Fact => ({ is: "ack", pid: 1, run: "run", step: "a", attempt: 1, value, isLast: true });

  assert.equal(judgeLate(start(1)), ""); // a zombie
  assert.equal(judgeLate(start(3), "cancelled"), ""); // whoever executes it has not noticed yet
  assert.equal(judgeLate(ack('"x"')), "");
  assert.match(judgeLate(start(3)), /a start came after the run was completed/);
  assert.match(judgeLate(start(4), "cancelled"), /a start came after the run was cancelled/);
  assert.match(judgeLate(ack('"y"')), /is not recorded/);
  assert.match(judgeLate({ is: "over", pid: 1, run: "run", status: "failed" }), /is said to be failed/);
});

Deno.test("a history finds what no worker may complain of", () => {
  const problems: string[] = [];
  const history = new History(new Tally(), (message) => problems.push(message));
  const errors = [
    new StoreError("The database was locked by another process for 10000 ms"),
    new Error("The event loop was blocked for 700 ms, which endangers leases of 500 ms"),
    new StoreError("It is damaged", { code: "internal" }),
    new LeaseLostError({ runId: "run", generation: 1 }),
    new TypeError("undefined is not a function"),
  ];

  history.take(errors.map((error, at) => {
    return { is: "error", pid: 1, message: error.message, isExpected: isExpectedError(error), at };
  }));

  assert.deepEqual(problems, errors.slice(2).map(({ message }) => `a worker complained of ${message}`));
});

Deno.test("client records count how many runs may have been made with a token", () => {
  const records = new ClientRecords(() => {});
  const request = { job: "straight", seed: 1, key: null, coalesce: null } as const;
  const keyed: TriggerRequest = { ...request, token: "keyed", idempotencyKey: "key" };
  const plain: TriggerRequest = { ...request, token: "plain", idempotencyKey: null };

  for (const each of [keyed, keyed, plain, plain]) records.noteTrigger(each);
  const asked = ["keyed", "plain", "other"].map((token) => records.mostRuns(token));
  records.noteRetrigger("keyed");
  records.noteDelete("run", "keyed");
  records.noteDelete("run", "keyed");

  assert.deepEqual(asked, [1, 2, 0]);
  assert.equal(records.mostRuns("keyed"), 3);
  assert.equal(records.of("run").deletesAsked, 2);
});

Deno.test("client records find two runs of one idempotency key, unless one was deleted", () => {
  const problems: string[] = [];
  const records = new ClientRecords((message) => problems.push(message));
  const request: TriggerRequest = {
    job: "straight",
    token: "token",
    seed: 1,
    key: null,
    idempotencyKey: "key",
    coalesce: null,
  };

  records.takeTrigger(request, { runId: "one", disposition: "created" });
  records.takeTrigger(request, { runId: "one", disposition: "idempotent" });
  const isQuiet = problems.length === 0;
  records.takeTrigger(request, { runId: "one", disposition: "created" });
  records.takeTrigger(request, { runId: "two", disposition: "created" });
  records.noteDelete("two", "token");
  records.takeTrigger(request, { runId: "three", disposition: "created" });
  records.takeTrigger(request, { runId: "three", disposition: "coalesced" });

  assert.ok(isQuiet);
  assert.deepEqual(problems, [
    "the run was created twice",
    "key key names two runs; the other is one",
    "a trigger was coalesced, and had not asked for it",
  ]);
});

Deno.test("a ledger is read as it grows, and a line that was cut off spoils no other", async () => {
  const path = await Deno.makeTempFile({ prefix: "holdfast-storm-" });
  try {
    using reader = new LedgerReader(path);
    using writer = new LedgerWriter(path);
    const fact: Fact = { is: "end", pid: 1, run: "run", generation: 1 };

    writer.write(fact);
    const first = reader.readNew();
    Deno.writeTextFileSync(path, '\n{"is":"en', { append: true });
    const none = reader.readNew();
    writer.write(fact);
    const second = reader.readNew();

    assert.deepEqual([first, none, second], [[{ ...fact, at: 0 }], [], [{ ...fact, at: 1 }]]);
    assert.equal(reader.tornLines, 1);
  } finally {
    await Deno.remove(path);
  }
});
