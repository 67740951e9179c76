import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { type Run, SqliteStore } from "../../../mod.ts";
import type { Ledger } from "../../processes/ledger.ts";
import { readAcknowledged } from "../../processes/acknowledged_steps.ts";
import { assertNone } from "./assert_none.ts";
import type { Customers } from "./customers.ts";
import type { Receipt } from "./orders.ts";
import { getRuns, getSteps } from "../../../src/store/reads.ts";

/** How much was found in order. */
export interface Audit {
  /** How many runs there are. */
  runs: number;
  /** How many results of steps the jobs had been given. */
  acknowledged: number;
}

/**
 * Looks whether a file has all that customers were promised and no more: one run for each order, all of them completed,
 * with the very results that the jobs had seen, and no step that was executed again after that.
 *
 * @throws Something is wrong, or there is nothing to look at.
 */
export async function audit(
  database: string,
  ledger: Ledger,
  customers: Pick<Customers, "accepted" | "signalled">,
): Promise<Audit> {
  const acknowledged = readAcknowledged(ledger.read());
  await using store = await SqliteStore.open(database);
  const runs = await readRuns(store);
  const byId = new Map(runs.map((run) => [run.id, run]));

  assert.ok(customers.accepted.size > 0 && acknowledged.size > 0, "There is nothing to look at");
  assertNone(runs.filter(({ status }) => status !== "completed").map(tell), "Some runs have not completed");
  assertNone([...customers.accepted.values()].filter((id) => !byId.has(id)), "Accepted orders are gone");
  assertNone([...acknowledged.keys()].filter((id) => !byId.has(id)), "Runs that were executed are gone");
  assert.equal(runs.length, customers.accepted.size, "There is not one run for each order");
  for (const [runId, payload] of customers.signalled) {
    const output = byId.get(runId)!.output as { payload: unknown };
    assert.equal(output.payload, payload, `The accepted signal of run ${runId} was to be its outcome`);
  }
  for (const { id, output } of runs.filter(({ jobName }) => jobName === "order")) {
    const receipts = acknowledged.get(id) ?? new Map<string, string>();
    const steps = await getSteps(store, id);
    const recorded = steps.map(({ name, output }) => [name, (output as unknown as Receipt).receipt]);
    assert.deepEqual(recorded, [...receipts], `The steps of run ${id} were to be those that its job had seen`);
    assert.deepEqual(output, [...receipts.values()]);
  }
  assert.equal(checkIntegrity(database), "ok");
  return { runs: runs.length, acknowledged: [...acknowledged.values()].reduce((sum, { size }) => sum + size, 0) };
}

async function readRuns(store: SqliteStore): Promise<Run[]> {
  const runs: Run[] = [];
  for (let hasMore = true; hasMore;) {
    const page = await getRuns(store, { limit: 500, offset: runs.length });
    runs.push(...page.runs);
    hasMore = page.hasMore;
  }
  return runs;
}

function tell({ id, jobName, status, error }: Run): string {
  return `${jobName} ${id} is ${status}: ${error}`;
}

/** What SQLite says of a file that nobody has open. */
export function checkIntegrity(database: string): unknown {
  using db = new DatabaseSync(database, { readOnly: true });
  return db.prepare("PRAGMA integrity_check").get()!.integrity_check;
}
