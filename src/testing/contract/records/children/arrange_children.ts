import { type Flow, PLAIN_FLOW } from "../../../../model/flow.ts";
import type { Lease } from "../../../../model/lease.ts";
import type { Store } from "../../../../store/store.ts";
import type { Claim, ClaimResult } from "../../../../store/claim.ts";
import type { NewRun } from "../../../../store/new_run.ts";
import type { NewPause, PauseResult } from "../../../../store/pause_request.ts";
import type { ChildResult } from "../../../../model/wait.ts";
import { aClaimRequest, aFailure, aPause, aRun, aStep, type ClaimOverrides } from "../../fixtures.ts";
import { claimOne, complete, park, startRun } from "../../arrange.ts";

/** The job of parents. */
export const PARENT = "parent";
/** The flow of a run that starts after five seconds. */
export const DELAYED = { ...PLAIN_FLOW, start: { afterMs: 5_000 } };
/** The job of children. */
export const CHILD = "child";

/** Adds a parent that failed with four children: two completed, the second failed after a step, the third was cancelled. */
export async function addFailedParent(store: Store): Promise<{ runId: string; children: string[] }> {
  const { lease } = await startParent(store);
  const children = Array.from({ length: 4 }, () => aChild());
  await park(store, lease, onChildren(children));
  const { claims } = await claimAll(store);
  await end(store, claims[0]!, '"0"');
  await store.saveStep(claims[1]!.lease, aStep(), []);
  await fail(store, claims[1]!);
  await store.cancel(children[2]!.id, "request-1", null);
  await end(store, claims[3]!, '"3"');
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));
  return { runId: lease.runId, children: children.map(({ id }) => id) };
}

/** A child to add. */
export function aChild(overrides: Partial<NewRun> = {}): NewRun {
  return aRun({ jobName: CHILD, ...overrides });
}

/** The flow of a run with a fairness key. */
export function inTurn(fairnessKey: string, flow: Partial<Flow> = {}): Pick<NewRun, "flow"> {
  return { flow: { ...PLAIN_FLOW, fairnessKey, ...flow } };
}

/** A pause on these children, on no others unless it says so. */
export function onChildren(
  runs: readonly NewRun[],
  { name = "all", total = runs.length, from = 0 }: { name?: string; total?: number; from?: number } = {},
): NewPause {
  return aPause({ kind: "children", name, children: { total, from, runs } });
}

/** How many children the first pause of each result has. */
export function counts(results: readonly PauseResult[]): number[] {
  return results.map(({ pauses }) => pauses[0]!.childCount);
}

/** Adds a parent and claims it. */
export function startParent(store: Store, overrides: Partial<NewRun> = {}): Promise<Claim> {
  return startRun(store, { jobName: PARENT, ...overrides });
}

/** Parks another parent. */
export async function parkAnother(store: Store, pause: NewPause): Promise<PauseResult> {
  return await park(store, (await startParent(store)).lease, pause);
}

/** Claims what is due of the children. */
export function claimAll(store: Store, overrides: ClaimOverrides = {}): Promise<ClaimResult> {
  return store.claim(aClaimRequest({ jobNames: [CHILD], ...overrides }));
}

/** Claims one child. */
export function claimChild(store: Store, overrides: ClaimOverrides = {}): Promise<Claim> {
  return claimOne(store, { jobNames: [CHILD], ...overrides });
}

/** Completes a run. */
export function end(store: Store, { lease }: Claim, output: string): Promise<void> {
  return store.finish(lease, { status: "completed", output, durationMs: 0 }, []);
}

/** Fails a run. */
export function fail(store: Store, { lease }: Claim): Promise<void> {
  return store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
}

/** Ends a run. */
export async function endAs(store: Store, lease: Lease, status: "completed" | "failed" | "cancelled"): Promise<void> {
  if (status === "completed") await complete(store, lease);
  else if (status === "cancelled") await store.cancel(lease.runId, "request-1", null);
  else await store.finish(lease, { status, failure: aFailure(), failedStepName: null }, []);
}

/** How the children of a pause have ended. */
export async function resultsOf(store: Store, pauseId: string): Promise<ChildResult[]> {
  return (await store.readChildren(pauseId, 0, Infinity))!.items;
}

/** A run that retries another one from its failure. */
export function fromFailure({ runId }: { runId: string }): Pick<NewRun, "retriggerOf"> {
  return { retriggerOf: { runId, from: "failure" } };
}
