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

/** Everything that a store shows of its runs, in a form that can be compared. */
export async function dump(store: Store): Promise<unknown> {
  const { runs, total } = await getRuns(store, { limit: 1_000 });
  const details = [];
  for (const { id } of runs) {
    // Positions and row numbers are a store's own.
    const { seq: _seq, place: _place, ...state } = (await store.getRunState(id))!;
    // A repeated call may count as an update of the run.
    details.push({ ...state, run: { ...state.run, updatedAt: null } });
    details.push(await getSteps(store, id), await getWaits(store, id), await getMessages(store, id));
  }
  const leases = (await store.getLeases()).sort(byRunId);
  return normal({ order: runs.map(({ id }) => id), total, details, leases, holds: await readHolds(store) });
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
