import { DatabaseSync } from "node:sqlite";
import { findWrongCount } from "../support/counts.ts";
import { findBrokenLine } from "../support/lines.ts";
import { checkEnding } from "./checks/check_values.ts";
import { checkFacts } from "./checks/check_facts.ts";
import { checkState } from "./checks/check_state.ts";
import { readKeptFrom, readRows } from "./known_journal.ts";
import { readRuns, type RunRows } from "./rows.ts";

/** What a copy has to contain, since somebody was told of it before the copy was made. */
export interface Expected {
  /** Runs that exist. */
  runs: string[];
  /** Steps that are recorded. */
  steps: [run: string, step: string, value: string][];
  /** Waits that were signalled. */
  signals: [run: string, waitId: string, value: string][];
  /** Runs that have ended so. */
  endings: [run: string, status: string][];
  /** Runs that have ended, with the hash of all their rows. */
  hashes: [run: string, hash: number][];
}

// What can be missing is the end of the log: older runs were looked at in earlier copies.
const LATEST_RUNS = 1_000;

/**
 * Examines a copy of the database that nobody else has open: it has to be a state that some sequence of committed
 * transactions leads to, with all that is expected in it.
 *
 * @returns What is wrong.
 */
export function examineCopy(path: string, expected: Expected | null): string[] {
  let database: DatabaseSync;
  try {
    database = new DatabaseSync(path);
  } catch (error) {
    return [`it cannot be opened: ${error}`];
  }
  try {
    const damage = findDamage(database);
    if (damage.length > 0) return damage;
    // A prefix may be as short as one without any tables.
    if (database.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_runs'").get() === undefined) {
      return expected === null ? [] : ["it has no tables"];
    }
    const latest = "seq > (SELECT coalesce(max(seq), 0) FROM holdfast_runs) - ? OR completed_at IS NULL";
    const runs = readRuns(database, latest, LATEST_RUNS);
    return [
      ...runs.flatMap((run) => [...checkState(run), ...checkEnding(run).map((problem) => `run ${run.id}: ${problem}`)]),
      ...findWrongFacts(database, runs),
      ...[findWrongCount(database), findBrokenLine(database)].filter((problem) => problem !== null),
      ...(expected === null ? [] : findMissing(database, expected)),
    ];
  } catch (error) {
    return [`it cannot be read: ${error}`];
  } finally {
    database.close();
  }
}

/** Compares the journal with the runs of which it has everything. */
function findWrongFacts(database: DatabaseSync, runs: readonly RunRows[]): string[] {
  const keptFrom = readKeptFrom(database);
  const rows = readRows(database, keptFrom);
  if (rows === null) return [`its journal has a hole after ${keptFrom}`];
  const facts = Map.groupBy(rows.flatMap(({ facts }) => facts), ([seq]) => seq);
  return runs.filter(({ seq }) => seq > keptFrom).flatMap((run) => checkFacts(run, facts.get(run.seq) ?? []));
}

/** What SQLite finds wrong with a file, and rows that belong to nobody. */
export function findDamage(database: DatabaseSync): string[] {
  const texts = database.prepare("PRAGMA integrity_check").all().map((row) => String(row.integrity_check));
  const orphans = database.prepare("PRAGMA foreign_key_check").all();
  return [
    ...texts.filter((text) => text !== "ok").map((text) => `it is damaged: ${text}`),
    ...orphans.map((orphan) => `a row belongs to no run: ${JSON.stringify(orphan)}`),
  ];
}

function findMissing(database: DatabaseSync, expected: Expected): string[] {
  const ids = new Set(
    [expected.runs, ...[expected.steps, expected.signals, expected.endings, expected.hashes].map(idsOf)].flat(),
  );
  const rows = readRuns(database, "id IN (SELECT value FROM json_each(?))", JSON.stringify([...ids]));
  const runs = new Map<string, RunRows>(rows.map((run) => [run.id, run]));
  const problems = [...ids].filter((id) => !runs.has(id)).map((id) => `run ${id} is missing`);
  for (const [id, step, value] of expected.steps) {
    const recorded = runs.get(id)?.steps.find(({ name }) => name === step)?.value;
    if (recorded !== value) problems.push(`step "${step}" of run ${id} is ${recorded}, acknowledged was ${value}`);
  }
  for (const [id, waitId, value] of expected.signals) {
    const recorded = runs.get(id)?.pauses.find((pause) => pause.id === waitId)?.value;
    if (recorded !== value) problems.push(`wait ${waitId} of run ${id} is ${recorded}, accepted was ${value}`);
  }
  for (const [id, status] of expected.endings) {
    const recorded = runs.get(id)?.status;
    if (recorded !== status) problems.push(`run ${id} is ${recorded}, and was told to be ${status}`);
  }
  for (const [id, hash] of expected.hashes) {
    if (runs.get(id)?.hash !== hash) problems.push(`run ${id} had ended, and is another`);
  }
  return problems;
}

function idsOf(entries: readonly (readonly [run: string, ...rest: unknown[]])[]): string[] {
  return entries.map(([id]) => id);
}
