import assert from "node:assert/strict";
import type { Lease } from "../../model/lease.ts";
import type { LogEntry } from "../../model/log.ts";
import { type Disposition, parseRun, type Run } from "../../model/run.ts";
import type { Step, StepWrite } from "../../model/step.ts";
import type { Store } from "../../store/store.ts";
import type { Claim } from "../../store/claim.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { NewPause, PauseRequest, PauseResult } from "../../store/pause_request.ts";
import type { Wait } from "../../model/wait.ts";
import { aClaimRequest, aFailure, aRun, aStep, type ClaimOverrides } from "./fixtures.ts";
import { getLogs, getRun, getSteps, getWaits } from "../../store/reads.ts";

/** A request to pause on nothing, not even for a moment. */
export const NO_PAUSE: PauseRequest = { pauses: [], retryAt: null, park: false, reports: [] };

/** Adds one run. Its values are parsed, as those of `getRun()` are. */
export async function add(
  store: Store,
  overrides: Partial<NewRun> = {},
): Promise<{ run: Run; disposition: Disposition }> {
  const [added] = await store.enqueue([aRun(overrides)]);
  return { ...added!, run: parseRun(added!.run) };
}

/** The ids of the runs that a claim takes, in their order. */
export async function claimedIds(store: Store, overrides: ClaimOverrides = {}): Promise<string[]> {
  const { claims } = await store.claim(aClaimRequest(overrides));
  return claims.map(({ run }) => run.id);
}

/** Adds runs of one flow after another, and answers their ids. */
export async function addIds(store: Store, ...overrides: Partial<NewRun>[]): Promise<string[]> {
  const added = await store.enqueue(overrides.map((one) => aRun(one)));
  return added.map(({ run }) => run.id);
}

/** Claims one run, of which there must be one. */
export async function claimOne(store: Store, overrides: ClaimOverrides = {}): Promise<Claim> {
  const { claims } = await store.claim(aClaimRequest({ limit: 1, ...overrides }));
  assert.equal(claims.length, 1, "there is no run to claim");
  return claims[0]!;
}

/** Adds one run and claims it. No older run may be due. */
export async function startRun(
  store: Store,
  overrides: Partial<NewRun> = {},
  request: ClaimOverrides = {},
): Promise<Claim> {
  const { run } = await add(store, overrides);
  const claim = await claimOne(store, { jobNames: [run.jobName], ...request });
  assert.equal(claim.run.id, run.id, "another run was due first");
  return claim;
}

/** Prepares pauses. */
export function prepare(store: Store, lease: Lease, ...pauses: NewPause[]): Promise<PauseResult> {
  return store.pause(lease, { ...NO_PAUSE, pauses });
}

/** Parks a run on pauses, none of which may be over. */
export async function park(store: Store, lease: Lease, ...pauses: NewPause[]): Promise<PauseResult> {
  const result = await store.pause(lease, { ...NO_PAUSE, pauses, park: true });
  assert.equal(result.parked, true, "the run did not park");
  return result;
}

/** Parks a run until an instant at which a step is to be tried again. */
export async function parkUntilRetry(store: Store, lease: Lease, retryAt: number): Promise<void> {
  const { parked } = await store.pause(lease, { ...NO_PAUSE, retryAt, park: true });
  assert.equal(parked, true, "the run did not park");
}

/** Completes a run. */
export function complete(store: Store, lease: Lease): Promise<void> {
  return store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
}

/** Adds a run that has completed already. No older run may be due. */
export async function addCompleted(store: Store, overrides: Partial<NewRun> = {}): Promise<Run> {
  const { lease } = await startRun(store, overrides);
  await complete(store, lease);
  return (await getRun(store, lease.runId))!;
}

/** An attempt that is to be followed by another one. */
export function aRetry(delayMs: number, overrides: Partial<StepWrite> = {}): StepWrite {
  const failure = aFailure({ name: "TypeError", message: "not now" });
  return aStep({ result: { status: "retrying", failure, delayMs }, ...overrides });
}

/** All that can be seen of a run. */
export async function look(
  store: Store,
  runId: string,
): Promise<{ run: Run | null; steps: Step[]; waits: Wait[]; logs: LogEntry[] }> {
  return {
    run: await getRun(store, runId),
    steps: await getSteps(store, runId),
    waits: await getWaits(store, runId),
    logs: await getLogs(store, runId),
  };
}

/** What was recorded, in the order in which it was. */
export function inOrder<T extends { recordedNo: number }>(records: readonly T[]): T[] {
  return records.toSorted((left, right) => left.recordedNo - right.recordedNo);
}
