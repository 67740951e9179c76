import type { Store } from "../../../../store/store.ts";
import type { ClaimRequest } from "../../../../store/claim.ts";
import type { HeldQuery, NewHold } from "../../../../store/hold_record.ts";
import type { NewRun } from "../../../../store/new_run.ts";
import { FactReader, type NamedFact } from "../../fact_reader.ts";
import { aClaimRequest, aHold, aKnownJob, type ClaimOverrides } from "../../fixtures.ts";
import { addIds, claimOne, complete, startRun } from "../../arrange.ts";

/** A concurrency key. */
export const KEY = "cust-1";

/** Adds a run, and holds it. No older run may be due. */
export async function addHeld(
  store: Store,
  overrides: Partial<NewRun> = {},
  hold: Partial<NewHold> = {},
): Promise<string> {
  const { lease } = await startRun(store, overrides);
  await store.hold(lease, aHold(hold), []);
  return lease.runId;
}

/** A claim by code with a print, to which held runs are offered. */
export function offering(print: string, overrides: ClaimOverrides = {}): ClaimRequest {
  return aClaimRequest({ jobs: [aKnownJob({ print })], triesHeld: true, ...overrides });
}

/** A run that is offered to worker A with print 2, and a younger one of the same job and key. */
export async function addOfferedBefore(
  store: Store,
  overrides: Partial<NewRun> = {},
): Promise<{ offered: string; younger: string }> {
  const offered = await addHeld(store, { concurrencyKey: KEY, ...overrides });
  const first = await startRun(store, { concurrencyKey: KEY });
  await store.claim(offering("print-2"));
  const [younger] = await addIds(store, { concurrencyKey: KEY });
  await complete(store, first.lease);
  return { offered, younger: younger! };
}

/** Claims the run that is offered to code with a print, and holds it. */
export async function holdOffered(store: Store, print: string): Promise<void> {
  const { lease } = await claimOne(store, offering(print));
  await store.hold(lease, aHold({ print }), []);
}

/** The ids of the held runs that a query finds. */
export async function findHeldIds(
  store: Store,
  query: Partial<HeldQuery> = {},
): Promise<string[]> {
  return (await store.findHeld({ after: 0, limit: 100, ...query })).ids;
}

/** The facts that a call adds. */
export async function factsOf(store: Store, act: () => Promise<unknown>): Promise<NamedFact[]> {
  const reader = new FactReader(store);
  await reader.skip();
  await act();
  return await reader.read();
}
