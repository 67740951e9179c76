import assert from "node:assert/strict";
import type { Run } from "../../../src/model/run.ts";
import { type Action, isRequest } from "./action.ts";
import { type Naming, storedKey } from "./tenants.ts";
import type { Deed } from "./find_order.ts";

/** What was done at once while the engine executed runs, and the runs before and after it. */
export interface Burst {
  naming: Naming;
  deeds: readonly Deed[];
  before: readonly Run[];
  after: readonly Run[];
}

/** Checks what has to hold whatever the order in which things happened. */
export function checkBurst(burst: Burst): void {
  checkOwners(burst);
  checkKeys(burst);
  checkEnded(burst);
  checkWinners(burst.deeds);
  checkOrigins(burst);
}

/** Nobody is shown a run of somebody else, nor its id. */
function checkOwners({ deeds, before, after }: Burst): void {
  const runs = new Map([...before, ...after].map((run) => [run.id, run]));
  for (const { action, answer: { status, body } } of deeds) {
    if (!isRequest(action) || status !== 200) continue;
    const listed: Run[] = action.kind === "runs" ? body.runs : [];
    const shown = [body.runId, "runId" in action ? action.runId : undefined].map((id) => runs.get(id));
    for (const run of [...listed, ...shown]) assert.equal(run?.labels.org ?? action.by, action.by);
  }
}

/** A key of a job never has two runs. */
function checkKeys({ naming, deeds, after }: Burst): void {
  const keys = after.filter(({ idempotencyKey }) => idempotencyKey !== null)
    .map(({ jobName, idempotencyKey }) => `${jobName} ${idempotencyKey}`);
  assert.equal(new Set(keys).size, keys.length, "two runs have one idempotency key");
  const deleted = successes(deeds, "delete").length;
  const created = successes(deeds, "trigger").filter(({ answer: { body } }) => body.disposition === "created");
  const byKey = Map.groupBy(
    created.filter(({ action }) => action.body.idempotencyKey !== undefined),
    ({ action: { by, body } }) => `${body.jobName} ${storedKey(naming, by, body.idempotencyKey!)}`,
  );
  for (const [key, runs] of byKey) assert.ok(runs.length <= 1 + deleted, `${key} made ${runs.length} runs`);
}

/** What has ended stays as it is, until it is deleted; only its newest retry may be another. */
function checkEnded({ deeds, before, after }: Burst): void {
  const left = new Map(after.map((run) => [run.id, run]));
  const deleted = new Set(successes(deeds, "delete").map(({ action }) => action.runId));
  for (const run of before) {
    assert.equal(left.has(run.id), !deleted.has(run.id), `run ${run.id} should be there, or gone`);
    if (!["completed", "failed", "cancelled"].includes(run.status) || deleted.has(run.id)) continue;
    const { retriggeredAs, completedAs } = left.get(run.id)!;
    assert.deepEqual(left.get(run.id), { ...run, retriggeredAs, completedAs });
  }
  for (const { action: { runId } } of successes(deeds, "cancel")) {
    assert.equal(left.get(runId)?.status ?? "cancelled", "cancelled");
  }
}

/** A run is cancelled once and deleted once, and a wait takes one signal; who sends that again gets its receipt. */
function checkWinners(deeds: readonly Deed[]): void {
  for (const kind of ["cancel", "delete"] as const) {
    const ids = successes(deeds, kind).map(({ action }) => action.runId);
    assert.equal(new Set(ids).size, ids.length, `two could ${kind} one run`);
  }
  for (const signals of Map.groupBy(successes(deeds, "signal"), ({ action }) => action.waitId).values()) {
    const accepted = signals.filter(({ answer: { body } }) => body.disposition === "accepted");
    assert.ok(accepted.length <= 1, "two signals were accepted");
    for (const { answer: { body } } of signals) assert.deepEqual(body.wait, signals[0]!.answer.body.wait);
  }
}

/** Runs come from triggers that were told so, and from nowhere else. */
function checkOrigins({ deeds, before, after }: Burst): void {
  const made = [...successes(deeds, "trigger"), ...successes(deeds, "retrigger")]
    .filter(({ answer: { body } }) => body.disposition === "created" || body.success === true)
    .map(({ answer: { body } }) => body.runId);
  const known = new Set(before.map(({ id }) => id));
  // Two retriggers may be answered one retry, which may have been there before.
  const found = new Set(made.filter((id) => !known.has(id)));
  assert.deepEqual(after.filter(({ id }) => !known.has(id)).map(({ id }) => id).sort(), [...found].sort());
}

function successes<Kind extends Action["kind"]>(
  deeds: readonly Deed[],
  kind: Kind,
): (Deed & { action: Action & { kind: Kind } })[] {
  return deeds.filter(({ action, answer: { status } }) => action.kind === kind && status === 200) as // deno-lint-ignore no-explicit-any -- the kind has been looked at
  any;
}
