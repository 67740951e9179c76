import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import type { Claim } from "../../../src/store/claim.ts";
import type { Store } from "../../../src/store/store.ts";
import {
  aMessage,
  aReceive,
  receive,
  takenBy,
} from "../../../src/testing/contract/records/messages/arrange_messages.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aPause, aRun, aStep } from "../../support/fixtures.ts";
import { startServer } from "./server.ts";

const server = startServer();
const LEASE_MS = 30_000;
let schemas = 0;

interface Fixture {
  /** Claims and reads; each of these statements is noted. */
  store: PostgresStore;
  /** Writes beside it. */
  other: PostgresStore;
  host: FakeHost;
  /** How many characters the answers to the statements have. */
  answers: number[];
  /** What happens before each slice of histories is read. */
  beforeSlice: { do: () => void | Promise<void> };
}

function test(name: string, body: (fixture: Fixture) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore: ${name}`,
    ignore: server === null,
    async fn() {
      const { url } = server!; // ignored without one
      const [schema, host] = [`slices_${Deno.pid}_${++schemas}`, new FakeHost()];
      await using stack = new AsyncDisposableStack();
      const client = new pg.Pool({ connectionString: url });
      stack.defer(() => client.end());
      const answers: number[] = [];
      const beforeSlice: Fixture["beforeSlice"] = { do: () => {} };
      const query = async (sql: string, parameters?: unknown[]) => {
        if (sql.includes("read_histories")) await beforeSlice.do();
        const result = await client.query(sql, parameters);
        if (/^select .*(bounded_claim|read_histories|read_steps|read_runs)/.test(sql)) {
          answers.push(result.rows[0].r.length);
        }
        return result;
      };
      const options = { schema, durability: "relaxed", host } as const;
      const store = stack.use(PostgresStore.from({ query }, options));
      const other = stack.use(await PostgresStore.open(url, { ...options, listenUrl: null }));
      await other.migrate();
      await body({ store, other, host, answers, beforeSlice });
    },
  });
}

/** Triggers runs with some steps and a wait that is over, each with a value of so many characters; they wait for others, too. */
async function park(store: Store, ids: readonly string[], length: number): Promise<void> {
  const value = JSON.stringify("x".repeat(length));
  await store.enqueue(ids.map((id) => aRun({ id, payload: value, input: value })));
  const { claims } = await store.claim(aClaimRequest({ workerId: "a", claimId: "first", limit: 10 }));
  for (const { lease, run: { id } } of claims) {
    for (const [index, name] of ["c", "a", "b"].entries()) {
      await store.saveStep(lease, aStep({ name, index, result: { status: "completed", output: value } }), []);
    }
    const pauses = ["go", "before", "after"].map((name) => aPause({ id: waitId(id, name), name }));
    await store.pause({ ...lease, recorded: 3 }, { pauses, park: true, retryAt: null, reports: [] });
  }
  for (const id of ids) await store.signal(waitId(id, "go"), { signalId: "s", payload: "x".repeat(length) });
}

/** The id of a wait of a run, whose id is a digit. */
function waitId(runId: string, name: string): string {
  return `00000000-0000-7000-8000-${runId.padStart(6, "0")}${name.length}00000`;
}

async function claim(store: Store): Promise<Claim[]> {
  const request = aClaimRequest({ workerId: "b", claimId: "second", limit: 10, leaseMs: LEASE_MS });
  const { claims } = await store.claim(request);
  for (const { steps } of claims) steps.sort((one, another) => one.recordedNo - another.recordedNo);
  return claims;
}

test("a claim of small histories is one statement", async ({ store, other, answers }) => {
  await park(other, ["1", "2", "3"], 5_000);

  const claims = await claim(store);

  assert.equal(claims.length, 3);
  assert.equal(answers.length, 1);
});

test("a claim of large histories reads them in slices, and returns what a small one does", async ({ store, other, host, answers }) => {
  const memory = new MemoryStore({ host });
  for (const one of [memory, other]) await park(one, ["1", "2", "3"], 700_000);

  const claims = await claim(store);

  assert.deepEqual(claims, await claim(memory));
  assert.ok(answers.length > 5, `${answers.length} statements`);
  assert.ok(Math.max(...answers) < 3_000_000, `an answer has ${Math.max(...answers)} characters`);
});

test("a wait that is over while a claim reads histories is open in it", async ({ store, other, beforeSlice }) => {
  await park(other, ["1"], 700_000);
  beforeSlice.do = async () => {
    for (const name of ["after", "before"]) await other.signal(waitId("1", name), { signalId: "s", payload: 1 });
  };

  const [claimed] = await claim(store);

  assert.deepEqual(claimed!.pauses.map(({ name, resolution }) => [name, resolution?.outcome]), [
    ["go", "signal"],
    ["before", undefined],
    ["after", undefined],
  ]);
  const [renewed] = await store.renew([{ lease: claimed!.lease, reports: [] }], LEASE_MS);
  assert.notEqual(renewed, null);
});

test("a claim leaves out a run that is cancelled while it reads histories", async ({ store, other, beforeSlice }) => {
  await park(other, ["1", "2", "3"], 700_000);
  beforeSlice.do = async () => {
    await other.cancel("2", "cancel", null);
  };

  const claims = await claim(store);

  assert.deepEqual(claims.map(({ run, steps }) => [run.id, steps.length]), [["1", 3], ["3", 3]]);
});

test("a claim renews its leases while it reads histories", async ({ store, other, host, beforeSlice }) => {
  await park(other, ["1", "2", "3"], 700_000);
  beforeSlice.do = () => host.advance(LEASE_MS / 2);

  const claims = await claim(store);

  const { claims: taken } = await other.claim(aClaimRequest({ workerId: "c", claimId: "third", limit: 10 }));
  assert.equal(claims.length, 3);
  assert.deepEqual(taken, []);
});

test("runs and steps with all their values are read in slices", async ({ store, other, answers }) => {
  const value = JSON.stringify("x".repeat(3_000_000));
  const ids = Array.from({ length: 10 }, (_, n) => `run-${n}`);
  await other.enqueue(ids.map((id) => aRun({ id, payload: value })));
  const { claims: [claim] } = await other.claim(aClaimRequest());
  for (const index of ids.keys()) {
    const step = aStep({ name: `step-${index}`, index, result: { status: "completed", output: value } });
    await other.saveStep(claim!.lease, step, []); // the only run that was claimed
  }

  const runs = await store.readRuns(ids, Infinity);
  const steps = await store.readSteps(claim!.run.id, null, Infinity);

  assert.deepEqual(runs.map((run) => [run?.id, run?.payload === value]), ids.map((id) => [id, true]));
  assert.deepEqual(
    steps!.items.map(({ index, output }) => [index, output === value]),
    [...ids.keys()].map((n) => [n, true]),
  );
  assert.ok(Math.max(...answers) < 20_000_000, `an answer has ${Math.max(...answers)} characters`);
});

test("a receive takes no further messages once it has 16 MiB of them", async ({ other }) => {
  const payload = JSON.stringify("x".repeat(5_000_000));
  await other.enqueue([aRun({ id: "1" })]);
  const { claims: [claimed] } = await other.claim(aClaimRequest({ workerId: "a", claimId: "first", limit: 1 }));
  for (const id of ["a", "b", "c", "d", "e"]) await other.send(aMessage("1", { id, payload, input: payload }));

  const first = await receive(other, claimed!.lease, aReceive({ max: 1_000 }));
  const second = await receive(other, claimed!.lease, aReceive({ max: 1_000 }, { name: "next#2" }));

  assert.deepEqual([first, second].map(({ pauses: [one] }) => takenBy(one!)), [["a", "b", "c", "d"], ["e"]]);
});
