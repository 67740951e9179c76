import type { Store } from "../../src/store/store.ts";
import type { Blocker } from "../../src/store/blockers.ts";
import type { ClaimRequest, ClaimResult } from "../../src/store/claim.ts";
import { isOrphan } from "./child_facts.ts";
import { type Facts, isDue } from "./facts.ts";
import { lineOf } from "./queue.ts";

/** What `explain()` said first of each run right before a claim. */
export type Explained = ReadonlyMap<string, Blocker>;

// The answer for a run takes a look at all others. So of hundreds some are asked, others before the next claim.
const MAX_ASKED = 32;

/** Asks of the open runs what holds them up. */
export async function explainAll(store: Store, facts: Facts): Promise<Explained> {
  const open = facts.open();
  const each = Math.ceil(open.length / MAX_ASKED);
  const ids = open.filter((_, at) => at % each === 0).map(({ request: { id } }) => id);
  const found = await Promise.all(ids.map((id) => store.getBlockers(id)));
  return new Map(found.flatMap((one) => one === null ? [] : [[one.run.id, one.blockers[0]!]]));
}

/**
 * A claim takes a run exactly if nothing was said to hold it up: as long as no timer has expired, which the claim
 * processes first.
 */
export function checkExplained(
  facts: Facts,
  request: ClaimRequest,
  { claims, hasMore, now }: ClaimResult,
  explained: Explained,
): void {
  if (!isSettled(facts, request, now) || !facts.flow.isLiveAsBefore(request, now)) return;
  const taken = new Set(claims.map(({ run }) => run.id));
  const isOrderKnown = !hasTurnsOrSharedKeys(facts);
  // The claim itself may take the last place of a limited job. Then its runs hold up no others of their keys any more.
  const mayPassOthers = !isOrderKnown &&
    request.jobs.some(({ concurrency, rate }) => concurrency !== null || rate !== null);
  for (const id of taken) {
    const blocker = explained.get(id);
    const reason = blocker?.kind;
    if (mayShareKey(facts, id)) continue;
    facts.expect(
      reason === undefined || reason === "due" || reason === "slots" || (reason === "alone" && request.isAlone) ||
        (reason === "limit" && !isOrderKnown) ||
        (reason === "key" && mayPassOthers),
      "E1",
      () => `${id} was claimed, and explain() said that it was not due: ${JSON.stringify(blocker)}`,
    );
  }
  if (taken.size > 0) facts.notice("a run was claimed after explain() had said that it was due");
  // Another worker may take what this one does not know, or has other limits for.
  if (request.isAlone || hasMore || claims.length >= request.limit || !facts.flow.areWorkersAlike(request, now)) return;
  for (const [id, { kind: reason }] of explained) {
    const { jobName, version } = facts.run(id).request;
    const job = request.jobs.find((job) => job.name === jobName && job.version === version);
    if (job === undefined || mayShareKey(facts, id)) continue;
    if ((job.concurrency !== null || job.rate !== null) && !isOrderKnown) continue;
    facts.expect(
      reason !== "due" || taken.has(id),
      "E1",
      () => `explain() said that ${id} was due, and a claim with room for more did not take it`,
    );
    if (reason === "key") facts.notice("a claim left a run that explain() said was behind its key");
    if (reason === "limit") facts.notice("a claim left a run that explain() said was behind a limit");
  }
}

/**
 * Whether runs take turns, or runs of several jobs share a key. Then it is not certain which of the runs of a limited job
 * that come before another one are claimed before it: explain() counts all of them by their positions.
 */
function hasTurnsOrSharedKeys(facts: Facts): boolean {
  const lines = new Map<string, string>();
  return facts.open().some((run) => {
    const { concurrencyKey: key, flow } = run.request;
    if (flow.fairnessKey !== null) return true;
    if (key === null) return false;
    const other = lines.get(key);
    lines.set(key, lineOf(run));
    return other !== undefined && other !== lineOf(run);
  });
}

/**
 * Whether a run of another job may take the key of a run in an earlier turn, although it comes later, or several of them
 * may be taken by one claim, one after another. So may runs of one job, if the key has a rate: explain() takes it to have
 * room for one.
 */
function mayShareKey(facts: Facts, runId: string): boolean {
  const { request: { concurrencyKey: key, flow } } = facts.run(runId);
  const sharing = key === null ? [] : facts.open().filter(({ request }) => request.concurrencyKey === key);
  if (sharing.length > 1 && flow.keyRate !== null && flow.keyConcurrency > 1) return true;
  return new Set(sharing.map(lineOf)).size > 1 &&
    sharing.some(({ request: { flow } }) => flow.fairnessKey !== null || flow.keyConcurrency > 1);
}

/** Whether a claim takes all runs that are due, and has no timer to process. */
function isSettled(facts: Facts, { holding, triesHeld, limit }: ClaimRequest, now: number): boolean {
  if (triesHeld || (holding.length > 0 && limit === 0)) return false;
  for (const run of facts.runs.values()) {
    if (run.isGhost && (run.leaseEndsAt ?? 0) <= now) return false;
    if (run.hasEnded || run.isDeleted) continue;
    if (run.isUnread || isOrphan(run)) return false;
    if (run.state?.run.status === "running" && (run.leaseEndsAt ?? 0) <= now) return false;
    if (run.isClaimedAlone && run.request.concurrencyKey !== null) return false;
    if (run.isDelayed && (run.startAt ?? 0) <= now) return false;
    if (run.parking !== null && !run.isWoken && isDue(facts, run, now)) return false;
    if (((run.startedAt === null ? run.startBy : run.finishBy) ?? Infinity) <= now) return false;
  }
  return true;
}
