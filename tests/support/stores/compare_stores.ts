import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { HoldfastError } from "../../../src/model/error.ts";
import type { Lease } from "../../../src/model/lease.ts";
import type { Store } from "../../../src/store/store.ts";
import type { Claim, ClaimResult } from "../../../src/store/claim.ts";
import type { RunHistory } from "../../../src/store/hold_record.ts";
import type { RecordName } from "../../../src/model/hold.ts";
import { getMessages, getRuns, getSteps, getWaits } from "../../../src/store/reads.ts";

/** What a call to a store came to, in a form that can be compared. */
export type Outcome = { value: unknown } | { refusal: string };

/** Waits for the answer of a store. */
export async function outcomeOf(call: Promise<unknown>): Promise<Outcome> {
  try {
    return { value: normal(await call) };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return { refusal: error.code };
  }
}

/** The rows that tables have of each run, as text, by the id of the run. */
export type RunRows = ReadonlyMap<string, string>;

/** Everything that a store shows of its runs, in a form that can be compared. */
export function dump(store: Store): Promise<unknown> {
  return dumpRuns(store, (id) => dumpRun(store, id));
}

async function dumpRuns(store: Store, dumpRun: (runId: string) => Promise<unknown>): Promise<unknown> {
  const { runs, total } = await getRuns(store, { limit: 1_000 });
  const details = [];
  for (const { id } of runs) details.push(await dumpRun(id));
  const leases = (await store.getLeases()).sort(byRunId);
  const rest = normal({ order: runs.map(({ id }) => id), total, leases, holds: await readHolds(store) });
  return { rest, details };
}

/** Everything that a store shows of one run. */
async function dumpRun(store: Store, id: string): Promise<unknown> {
  // Positions and row numbers are a store's own.
  const { seq: _seq, place: _place, ...state } = (await store.getRunState(id))!;
  const records = [await getSteps(store, id), await getWaits(store, id), await getMessages(store, id)];
  // A repeated call may count as an update of the run.
  return normal([{ ...state, run: { ...state.run, updatedAt: null } }, ...records]);
}

/**
 * Compares everything that a store shows of its runs with what a reference shows, again and again. What the store shows of
 * a run whose rows are as they were is not read again: that takes most of the time.
 */
export class StateComparison {
  readonly #reference: Store;
  readonly #store: Store;
  readonly #readRows: () => Promise<RunRows> | RunRows;
  /** What was shown of each run when it had these rows. */
  #shown = new Map<string, { rows: string; details: unknown }>();

  /** @param readRows Reads the rows of the runs of the store. */
  constructor(reference: Store, store: Store, readRows: () => Promise<RunRows> | RunRows) {
    this.#reference = reference;
    this.#store = store;
    this.#readRows = readRows;
  }

  /** Throws, with this text, if the two show different things. */
  async check(message: string): Promise<void> {
    const expected = await dump(this.#reference);
    // What is shown of a run may have changed with the rows of another one.
    if (isDeepStrictEqual(await this.#dumpChanged(), expected)) return;
    await this.checkAll(message);
    this.#shown.clear();
  }

  /** The same, and reads everything. */
  async checkAll(message: string): Promise<void> {
    assert.deepEqual(await dump(this.#store), await dump(this.#reference), message);
  }

  async #dumpChanged(): Promise<unknown> {
    const rows = await this.#readRows();
    const shown = new Map<string, { rows: string; details: unknown }>();
    const dumped = await dumpRuns(this.#store, async (id) => {
      const own = rows.get(id) ?? "";
      const before = this.#shown.get(id);
      const details = before?.rows === own ? before.details : await dumpRun(this.#store, id);
      shown.set(id, { rows: own, details });
      return details;
    });
    this.#shown = shown;
    return dumped;
  }
}

async function readHolds(store: Store): Promise<unknown[]> {
  const { ids } = await store.findHeld({ after: 0, limit: 1_000 });
  return await Promise.all(ids.map(async (id) => [id, await store.getHold(id)]));
}

/** A history with its records in an order. */
export function withSortedRecords(history: RunHistory | null): RunHistory | null {
  if (history !== null) sortRecords(history);
  return history;
}

/** Plain objects, and arrays whose order is not promised sorted. */
function normal(value: unknown): unknown {
  const plain = JSON.parse(
    JSON.stringify(value ?? null, (key, item) => key === "updatedAt" || key === "error" ? undefined : item),
  );
  if (Array.isArray(plain) && plain[0]?.expiresAt !== undefined) plain.sort(byRunId);
  for (const claim of (plain as ClaimResult | null)?.claims ?? []) sortHistory(claim);
  if (Array.isArray((plain as ClaimResult | null)?.failed)) {
    delete plain.hasMore; // only a hint
    plain.failed.sort((a: { run: { id: string } }, b: { run: { id: string } }) => a.run.id < b.run.id ? -1 : 1);
  }
  return plain;
}

function byRunId(left: Lease, right: Lease): number {
  return left.runId < right.runId ? -1 : 1;
}

function sortHistory(claim: Claim): void {
  sortRecords(claim);
  claim.pauses.sort((a, b) => a.id < b.id ? -1 : 1);
}

function sortRecords({ steps, copied }: Pick<Claim, "steps" | "copied">): void {
  steps.sort((a, b) => a.recordedNo - b.recordedNo);
  if (copied === null) return;
  copied.unfinished = copied.unfinished.toSorted((a, b) => nameOf(a) < nameOf(b) ? -1 : 1);
}

function nameOf({ kind, name }: RecordName): string {
  return `${kind} ${name}`;
}
