import assert from "node:assert/strict";
import { StoreError } from "../../../../src/model/error.ts";
import { type Lane, NotSentError } from "../../../../src/stores/postgres/database/client.ts";
import { PostgresDatabase } from "../../../../src/stores/postgres/database/postgres_database.ts";
import { WriteBatch } from "../../../../src/stores/postgres/writes/write_batch.ts";

/** A statement that the server has received: the lane, and the runs of its writes. */
interface Statement {
  lane: Lane;
  runIds: string[];
}

/** A batch, and a server that answers each statement when `refuse` does not say why not. */
function aBatch(
  refuse: (statement: Statement) => Error | null = () => null,
  held: Partial<Record<Lane, Promise<void>>> = {},
) {
  const statements: Statement[] = [];
  const query = async (_sql: string, parameters?: readonly (string | null)[], lane: Lane = "writes") => {
    const { runIds, ...lists }: Record<string, unknown[]> = JSON.parse(parameters![0]!);
    const statement = { lane, runIds: runIds as string[] };
    statements.push(statement);
    await held[lane];
    const error = refuse(statement);
    if (error !== null) throw error;
    const answers = Object.entries(lists).map(([list, writes]) => [list, writes.map(() => "done")]);
    return [{ r: JSON.stringify(Object.fromEntries(answers)) }];
  };
  const database = new PostgresDatabase({ query, isLent: false, close: () => Promise.resolve() }, "schema", () => null);
  return { batch: new WriteBatch(database), statements };
}

const aStep = (runId: string) =>
  ({ kind: "save_step", runId, name: "step", status: "completed", attempts: 1 }) as const;

const refusedBy = (code: string) => Object.assign(new Error(`error ${code}`), { code, severity: "ERROR" });

/** How each write ended. */
async function endings(writes: readonly Promise<unknown>[]): Promise<unknown[]> {
  const results = await Promise.allSettled(writes);
  return results.map((result) => {
    if (result.status === "fulfilled") return result.value;
    assert.ok(result.reason instanceof StoreError);
    return [result.reason.code, result.reason.outcomeUnknown];
  });
}

Deno.test("WriteBatch tries each write alone when the server refuses one of them for its values", async () => {
  const { batch, statements } = aBatch(({ runIds }) => runIds.includes("b") ? refusedBy("22003") : null);

  const ended = await endings(["a", "b", "c"].map((id) => batch.submit(aStep(id))));

  assert.deepEqual(ended, ["done", ["internal", false], "done"]);
  assert.deepEqual(statements.map(({ runIds }) => runIds.join("")), ["abc", "a", "b", "c"]);
});

for (const [what, code] of [["is full", "53100"], ["is shut down", "57014"], ["lacks a function", "42883"]] as const) {
  Deno.test(`WriteBatch sends no write again when the server ${what}`, async () => {
    const { batch, statements } = aBatch(() => refusedBy(code));

    const ended = await endings(["a", "b", "c"].map((id) => batch.submit(aStep(id))));

    const groups = statements.filter(({ runIds }) => runIds.length > 0);
    assert.deepEqual(groups.map(({ runIds }) => runIds.join("")), ["abc"]);
    assert.deepEqual(ended, Array(3).fill([code === "42883" ? "internal" : "unavailable", false]));
  });
}

Deno.test("WriteBatch gives up when the server goes away while it tries writes alone", async () => {
  const errors: Record<string, Error> = {
    abc: refusedBy("22003"),
    b: new Error("Query read timeout"),
  };
  const { batch, statements } = aBatch(({ runIds }) => errors[runIds.join("")] ?? null);

  const ended = await endings(["a", "b", "c"].map((id) => batch.submit(aStep(id))));

  assert.deepEqual(statements.map(({ runIds }) => runIds.join("")), ["abc", "a", "b"]);
  // The second one may have been committed, the third was not sent.
  assert.deepEqual(ended, ["done", ["unavailable", true], ["unavailable", false]]);
});

Deno.test("WriteBatch sends an urgent write at once, alone, and on the connections for leases", async () => {
  const gate = Promise.withResolvers<void>();
  const { batch, statements } = aBatch(() => null, { writes: gate.promise });

  const others = ["a", "b"].map((id) => batch.submit(aStep(id)));
  const renewal = batch.submit({ kind: "renew", renewals: [{ runId: "c" }] }, { isUrgent: true });
  const answer = await renewal;
  gate.resolve();
  await Promise.all(others);

  assert.equal(answer, "done");
  assert.deepEqual(statements, [{ lane: "leases", runIds: ["c"] }, { lane: "writes", runIds: ["a", "b"] }]);
});

Deno.test("WriteBatch sends writes to a run after an urgent one that they wait for, and others at once", async () => {
  const gate = Promise.withResolvers<void>();
  const { batch, statements } = aBatch(() => null, { leases: gate.promise });
  const renew = (runId: string) => ({ kind: "renew", renewals: [{ runId }] }) as const;

  const first = batch.submit(renew("a"), { isUrgent: true, isAwaited: true });
  const silent = batch.submit(renew("c"), { isUrgent: true });
  const step = batch.submit(aStep("a"));
  await Promise.all(["b", "c"].map((id) => batch.submit(aStep(id))));
  gate.resolve();
  await Promise.all([first, silent, step]);

  assert.deepEqual(statements.map(({ runIds }) => runIds.join("")), ["a", "c", "bc", "a"]);
});

Deno.test("WriteBatch leaves a write that was not sent without an unknown outcome", async () => {
  const { batch } = aBatch(() => new NotSentError(new Error("connection refused")));

  const ended = await endings([batch.submit(aStep("a"))]);

  assert.deepEqual(ended, [["unavailable", false]]);
});
