import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { type Host, systemHost } from "../../src/model/host.ts";
import type { Store } from "../../src/store/store.ts";
import type { ClaimResult } from "../../src/store/claim.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { Chance } from "../support/chance.ts";
import { type Outcome, outcomeOf, type RunRows, StateComparison } from "../support/stores/compare_stores.ts";
import { readSqliteRows } from "../support/stores/run_rows.ts";
import { findWrongCount } from "../support/counts.ts";
import { FactReader, type ReadFact } from "../support/fact_reader.ts";
import { findBrokenLine } from "../support/lines.ts";
import { Script, type ScriptOptions, WORKERS } from "./operations.ts";

const OPERATIONS = 250;
// A history is moved after so many operations at least, and as many follow. A move takes longer than any lease.
const FIRST_MOVE = 60;
const MOVE_MS = 1_000;

/** A store that is compared with a `MemoryStore`. */
export interface Subject {
  /** The store; its tables exist. */
  store: Store;
  /** Makes the last claim of a worker a second older. */
  makeOld(workerId: string): Promise<void> | void;
  /** What is wrong with its tables, or `null`. */
  findFault(): Promise<string | null> | string | null;
  /** The rows that it has of each run. */
  readRows(): Promise<RunRows> | RunRows;
  /** Closes what was opened. */
  close(): Promise<void>;
  /** Moves everything to another store, with which the history continues. Left out: it stays. */
  move?(): Promise<Subject>;
}

/** Makes an empty store. The ids that it makes are `copy-0`, `copy-1` and so on. */
export type OpenSubject = (host: Host) => Promise<Subject>;

/** Makes the same random operations, one history for each seed, on both stores, and compares all that they show. */
export async function compareHistories(
  seeds: readonly number[],
  options: ScriptOptions,
  open: OpenSubject = openSqlite,
): Promise<void> {
  for (const seed of seeds) {
    try {
      await compareHistory(seed, options, open);
    } catch (error) {
      throw new Error(`Seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }
}

/** Makes a `SqliteStore` in memory. */
export async function openSqlite(host: Host): Promise<Subject> {
  const database = new DatabaseSync(":memory:");
  const store = await SqliteStore.from(database as unknown as SqliteDriver, { host: countingIds(host) });
  await store.migrate();
  const makeOld = database.prepare("UPDATE holdfast_workers SET seen_at = seen_at - 1000 WHERE id = ?");
  return {
    store,
    makeOld: (workerId) => void makeOld.run(workerId),
    findFault: () => findBrokenLine(database) ?? findWrongCount(database),
    readRows: () => readSqliteRows(database),
    close: async () => {
      await store.close();
      database.close();
    },
  };
}

async function compareHistory(seed: number, options: ScriptOptions, open: OpenSubject): Promise<void> {
  let now = 1_700_000_000_000;
  const host: Host = { ...systemHost, now: () => now };
  const memory = new MemoryStore({ host: countingIds(host) });
  let subject = await open(host);
  const script = new Script(new Chance(seed), () => now, (ms) => now += ms, options);
  let [memoryFacts, facts] = [new FactReader(memory), new FactReader(subject.store)];
  let states = new StateComparison(memory, subject.store, subject.readRows);
  const history: string[] = [];
  const movesAt = subject.move === undefined ? null : FIRST_MOVE + seed % (OPERATIONS - 2 * FIRST_MOVE);
  for (let i = 0; i < OPERATIONS; i++) {
    if (i === movesAt) {
      // All workers have ended, and the leases of those that have not released theirs have expired.
      for (const store of [memory, subject.store]) await forgetWorkers(store);
      script.forgetClaims();
      now += MOVE_MS;
      subject = await subject.move!(); // it can be moved
      [memoryFacts, facts] = [await FactReader.atEnd(memory), await FactReader.atEnd(subject.store)];
      states = new StateComparison(memory, subject.store, subject.readRows);
      await states.checkAll("different states after the move");
      assert.equal(await subject.findFault(), null, "after the move");
      history.push("move");
    }
    const { store, makeOld, findFault } = subject;
    const { text, call, request, newClaimBy } = script.next();
    history.push(text);
    const left = await outcomeOf(call(memory));
    // A claim that finds nothing is recorded only now and then, by which the liveness of workers would differ.
    if (newClaimBy !== undefined) await makeOld(newClaimBy);
    const right = await outcomeOf(call(store));
    // In which order a repeated claim returns what it still holds is not promised.
    if (request !== undefined && newClaimBy === undefined) { for (const outcome of [left, right]) sortClaims(outcome); }
    if (options.flow) takeTimers(left, right);
    assert.deepEqual(right, left, `different answers after:\n${history.slice(-12).join("\n")}`);
    script.learn(left);
    await states.check(`different states after:\n${history.slice(-12).join("\n")}`);
    assert.deepEqual(
      sortFailed(await facts.readAll()),
      sortFailed(await memoryFacts.readAll()),
      `different facts after:\n${history.slice(-12).join("\n")}`,
    );
    assert.equal(await findFault(), null, `after:\n${history.slice(-12).join("\n")}`);
  }
  await states.checkAll(`different states at the end:\n${history.slice(-12).join("\n")}`);
  await subject.close();
  await memory.close();
}

async function forgetWorkers(store: Store): Promise<void> {
  for (const [workerId] of WORKERS) await store.forgetWorker(workerId);
}

function sortClaims(outcome: Outcome): void {
  if (!("value" in outcome)) return;
  (outcome.value as ClaimResult).claims.sort((left, right) => left.run.id < right.run.id ? -1 : 1);
}

/**
 * Compares the next timers of two claims, and leaves them out: a store may name one too early that opens a rate, since
 * that costs a claim that finds nothing.
 */
function takeTimers(reference: Outcome, other: Outcome): void {
  if (!("value" in reference) || !("value" in other)) return;
  const [expected, found] = [reference.value, other.value] as (Partial<ClaimResult> | null)[];
  if (!Array.isArray(expected?.claims) || !Array.isArray(found?.claims)) return;
  const [latest, nextTimerAt] = [expected.nextTimerAt ?? Infinity, found.nextTimerAt ?? Infinity];
  assert.ok(nextTimerAt <= latest, `the next timer ${nextTimerAt} comes too late: ${latest}`);
  delete expected.nextTimerAt;
  delete found.nextTimerAt;
}

/** Facts with those of runs that failed together sorted: in which order a claim takes expired leases away is not promised. */
function sortFailed(facts: readonly ReadFact[]): ReadFact[] {
  const first = facts.findIndex(({ fact }) => fact[1] === "failed");
  const count = first === -1 ? 0 : facts.slice(first).findIndex(({ fact }) => fact[1] !== "failed");
  const end = count === -1 ? facts.length : first + count;
  const failed = facts.slice(first, end).sort((left, right) => left.fact[0]! < right.fact[0]! ? -1 : 1);
  return first === -1 ? [...facts] : [...facts.slice(0, first), ...failed, ...facts.slice(end)];
}

/** Each store makes the same ids, one after another. */
export function countingIds(host: Host): Host {
  let ids = 0;
  return { ...host, newId: () => `copy-${ids++}` };
}
