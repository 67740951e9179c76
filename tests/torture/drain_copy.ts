import { Child } from "../processes/child.ts";
import { inTime, until } from "../processes/deadline.ts";
import { checkRecovery } from "./checks/check_recovery.ts";
import type { CopyThread } from "./copy_thread.ts";
import type { Placed } from "./fact.ts";
import { WORKER } from "./worker_pool.ts";
import { LedgerReader } from "./ledger.ts";
import { readRuns, type RunRows } from "./rows.ts";
import { withDatabase } from "./with_database.ts";

/** What came of a copy that was drained. */
export interface Drained {
  /** How many bodies were executed: none if there was nothing to drain. */
  bodies: number;
  /** What is wrong. */
  problems: string[];
}

/**
 * Lets a worker execute what is left in a copy, until nothing is left but waits that nobody answers; then examines the
 * copy, and what the worker has written down.
 *
 * @param leaseMs How long a lease lasts, in milliseconds.
 */
export async function drainCopy(path: string, leaseMs: number, copies: CopyThread): Promise<Drained> {
  const ledgerPath = `${path}.ledger`;
  const before = readUnfinished(path);
  await using worker = new Child(WORKER, path, ledgerPath, String(leaseMs));
  await worker.hear("ready");
  await worker.tell("begin");
  await worker.hear("serving");
  await until(() => countLeft(path) === 0, `the runs of ${path} were to end`);
  const { code } = await inTime(worker.end("SIGTERM"), "the worker of a copy was to end");
  using ledger = new LedgerReader(ledgerPath);
  const facts = ledger.readNew();
  return {
    bodies: facts.filter(({ is }) => is === "begin").length,
    problems: [
      ...(code === 0 ? [] : [`its worker ended with ${code}`]),
      ...facts.flatMap((fact) => fact.is === "error" && !fact.isExpected ? [`it complained of ${fact.message}`] : []),
      ...findWrongRuns(path, facts, before),
      ...await copies.examine(path, null),
    ],
  };
}

function findWrongRuns(path: string, facts: readonly Placed[], before: ReadonlyMap<string, RunRows>): string[] {
  const byRun = Map.groupBy(facts, (fact) => "run" in fact ? fact.run : null);
  byRun.delete(null);
  const ids = JSON.stringify([...byRun.keys()]);
  const runs = withDatabase(path, (database) => readRuns(database, "id IN (SELECT value FROM json_each(?))", ids));
  const problems = runs.flatMap((run) =>
    checkRecovery(byRun.get(run.id)!, before.get(run.id) ?? null, run).map((problem) => `run ${run.id}: ${problem}`)
  );
  return runs.length === byRun.size ? problems : [...problems, "runs were executed that are not there"];
}

/** What has not ended, by id. A copy may be as old as a file without tables. */
function readUnfinished(path: string): Map<string, RunRows> {
  return withDatabase(path, (database) => {
    const tables = database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_runs'").all();
    const runs = tables.length === 0 ? [] : readRuns(database, "completed_at IS NULL");
    return new Map(runs.map((run) => [run.id, run]));
  });
}

function countLeft(path: string): number {
  return withDatabase(path, (database) => {
    const row = database.prepare(
      `SELECT count(*) AS runs FROM holdfast_runs
       WHERE completed_at IS NULL AND (status <> 'waiting' OR queue_state IS NOT NULL OR timer_at IS NOT NULL)`,
    ).get()!;
    return Number(row.runs);
  });
}
