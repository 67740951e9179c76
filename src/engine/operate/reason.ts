import type { Held, HoldCode } from "../../model/hold.ts";
import type { RunStatus, StoredRun, TerminalStatus } from "../../model/run.ts";
import type { Blocker, BlockingRun, BlockingWorker, UnreadName } from "../../store/blockers.ts";
import { describeDuration } from "../../values/duration.ts";
import { isoTime } from "../../values/iso_time.ts";
import { capitalized } from "../../values/text.ts";

/** A worker that a reason names. */
export interface WorkerRef {
  /** Its id. */
  id: string;
  /** Its name in the options; `null`: it has none, or is not known any more. */
  name: string | null;
  /** The name of its machine; `null`: it is not known. */
  hostname: string | null;
  /** When it claimed last; `null`: it is not known any more. */
  lastSeenAt: string | null;
}

/**
 * A reason why a run is not executed, or that it is. Over HTTP, `worker` and `lastKnownBy` are `null` for callers who may
 * not debug, and so is all that concerns a run that the caller may not read. `ahead`, `inUse` and `busy` count runs of all
 * callers: they are `null` where `auth.onRunAccess` decides who reads a run, unless `onOperate` lets the caller see
 * `stats`, or `auth.tenant` says that all runs of the key are of the caller's tenant. `ahead` is 0 if there is none.
 */
export type Reason =
  & {
    /** The reason in words. */
    message: string;
  }
  & (
    | { kind: "ended"; status: TerminalStatus; endedAt: string }
    | { kind: "unread"; count: number; names: string[] }
    | { kind: "executing"; worker: WorkerRef | null; since: string; leaseExpiresAt: string }
    | { kind: "worker_lost"; worker: WorkerRef | null; leaseExpiresAt: string }
    | { kind: "parent_ended"; runId: string | null }
    | { kind: "late"; deadline: "startBy" | "finishBy"; at: string }
    | { kind: "alone"; abandonments: number; until: string | null }
    | { kind: "delayed"; until: string }
    | { kind: "signal"; waitId: string; name: string; deadlineAt: string | null }
    | { kind: "message"; name: string; names: string[]; since: string; deadlineAt: string | null; unread: number }
    | { kind: "sleep"; name: string; until: string }
    | { kind: "retry"; stepName: string; attempts: number; error: string; at: string }
    | { kind: "child"; runId: string | null; jobName: string | null; status: RunStatus | null; open: number }
    | {
      kind: "held_child";
      runId: string | null;
      jobName: string | null;
      code: HoldCode | null;
      since: string | null;
      count: number;
    }
    | { kind: "held"; code: HoldCode; since: string }
    | { kind: "job_paused"; jobName: string; by: string | null; since: string; note: string | null }
    | { kind: "no_worker"; lastSeenAt: string | null }
    | { kind: "unknown_job"; jobName: string; version: number; lastKnownBy: WorkerRef | null }
    | {
      kind: "key";
      concurrencyKey: string;
      holder: { runId: string | null; jobName: string | null; status: RunStatus | null; since: string | null } | null;
      ahead: number | null;
    }
    | { kind: "limit"; name: string; inUse: number | null; max: number; opensAt: string | null }
    | { kind: "slots"; busy: number | null; total: number; ahead: number | null }
    | { kind: "due"; since: string }
  );

/** A child that is held: the run that waits for it waits for code, or for a person. */
export interface HeldChild {
  /** Tells it from what a store finds. */
  kind: "held_child";
  /** The newest such child. */
  child: BlockingRun;
  /** Its hold. */
  held: Held;
  /** How many children are held. */
  count: number;
}

/** What may be shown to the one who asks. */
export interface Visibility {
  /** Whether workers may be named. */
  workers: boolean;
  /** Of which runs the numbers may be shown: of all, of those with the key of the run, or of none. */
  counts: "all" | "key" | "none";
  /** Whether a run may be named. */
  mayRead(runId: string): boolean;
}

/** Shows everything. */
export const ALL_VISIBLE: Visibility = { workers: true, counts: "all", mayRead: () => true };

/** A reason with numbers of runs. */
type Counting = Extract<Blocker, { ahead: number }>;

/** Whether the numbers of a reason may be shown. */
function mayCount(blocker: Counting, { counts }: Visibility): boolean {
  return counts === "all" || (counts === "key" && (blocker.kind === "key" || "of" in blocker && blocker.of === "key"));
}

/** For whom, and of which run, a reason is described. */
interface ReasonContext {
  run: StoredRun;
  /** The current instant. */
  now: number;
  visibility: Visibility;
}

/** What holds up a run: its fields, and in words, without a full stop. */
export function toReason(blocker: Blocker | HeldChild, context: ReasonContext): Reason {
  const { run, now, visibility } = context;
  const { jobName, version } = run;
  const ago = (at: number) => describeDuration(now - at);
  const until = (at: number) => `${isoTime(at)} (in ${describeDuration(at - now)})`;
  const worker = (named: BlockingWorker | null) => named === null || !visibility.workers ? null : toWorkerRef(named);
  const named = ({ runId, jobName, status }: BlockingRun) =>
    visibility.mayRead(runId) ? { runId, jobName, status } : { runId: null, jobName: null, status: null };
  const counted = <T>(of: Counting, count: T) => mayCount(of, visibility) ? count : null;
  const ahead = (of: Counting) => of.ahead === 0 ? 0 : counted(of, of.ahead);
  const { kind } = blocker;
  switch (kind) {
    case "ended": {
      const status = run.status as TerminalStatus;
      const message = `${capitalized(status)} ${ago(blocker.endedAt)} ago${run.error === null ? "" : `: ${run.error}`}`;
      return { kind, message, status, endedAt: isoTime(blocker.endedAt) };
    }
    case "unread": {
      const { messages } = blocker;
      const count = countMessages(messages);
      const [were, them] = count === 1 ? ["message was", "it"] : ["messages were", "them"];
      const retry = run.retriggeredAs === null ? "" : `; its retry began with ${them}`;
      const message = `${count} ${were} never received: ${namesOf(messages)}${retry}`;
      return { kind, message, count, names: messages.map(({ name }) => name) };
    }
    case "executing": {
      const on = visibility.workers ? ` on ${nameOf(blocker.worker)}` : "";
      const [since, leaseExpiresAt] = [isoTime(blocker.since), isoTime(blocker.leaseExpiresAt)];
      const message = `Running for ${ago(blocker.since)}${on}`;
      return { kind, message, worker: worker(blocker.worker), since, leaseExpiresAt };
    }
    case "worker_lost": {
      const { leaseExpiresAt } = blocker;
      const who = visibility.workers ? `Worker ${nameOf(blocker.worker)}` : "A worker";
      const message = `${who} was lost: its lease expired ${ago(leaseExpiresAt)} ago; ` +
        `the next claim of a worker that has the job ${jobName} takes the run over`;
      return { kind, message, worker: worker(blocker.worker), leaseExpiresAt: isoTime(leaseExpiresAt) };
    }
    case "parent_ended": {
      const runId = visibility.mayRead(blocker.runId) ? blocker.runId : null;
      const parent = runId === null ? "another run" : `run ${runId}`;
      return { kind, message: `Its parent, ${parent}, has ended: the next claim cancels it`, runId };
    }
    case "late": {
      const { deadline, at } = blocker;
      const what = deadline === "startBy" ? "start" : "end";
      const message = `Too late by ${ago(at)} to ${what}: the next claim fails it`;
      return { kind, message, deadline, at: isoTime(at) };
    }
    case "alone": {
      const { abandonments, until: at } = blocker;
      const when = at === null ? "by the next worker that executes nothing else" : `not before ${until(at)}`;
      const message = `Claimed alone, after ${abandonments} executions in a row whose workers died or stalled: ${when}`;
      return { kind, message, abandonments, until: isoTime(at) };
    }
    case "delayed":
      return { kind, message: `Starts at ${until(blocker.until)}`, until: isoTime(blocker.until) };
    case "signal": {
      const { waitId, name, deadlineAt } = blocker;
      const deadline = deadlineAt === null ? "no deadline" : `times out at ${until(deadlineAt)}`;
      const message = `Waiting for a signal to "${name}"; ${deadline}`;
      return { kind, message, waitId, name, deadlineAt: isoTime(deadlineAt) };
    }
    case "message": {
      const { name, names, since, deadlineAt, others: unread } = blocker;
      const deadline = deadlineAt === null ? "" : `, until ${until(deadlineAt)}`;
      const have = unread === 1 ? "message has" : "messages have";
      const others = unread === 0 ? "" : `; ${unread} unread ${have} other names`;
      const wanted = names.map((name) => `"${name}"`).join(" or ");
      const message = `Waits for a message ${wanted} since ${isoTime(since)}${deadline}${others}`;
      return { kind, message, name, names: [...names], since: isoTime(since), deadlineAt: isoTime(deadlineAt), unread };
    }
    case "sleep": {
      const { name, until: at } = blocker;
      return { kind, message: `Sleeping in "${name}" until ${until(at)}`, name, until: isoTime(at) };
    }
    case "retry": {
      const { stepName, attempts, error, at } = blocker;
      const failed = `Step "${stepName}" has failed ${attempts === 1 ? "once" : `${attempts} times`} (${error})`;
      return {
        kind,
        message: `${failed}; it is tried again at ${until(at)}`,
        stepName,
        attempts,
        error,
        at: isoTime(at),
      };
    }
    case "child": {
      const { child, open } = blocker;
      const own = named(child);
      const what = own.runId === null ? "a child run" : `child run ${own.runId} (${own.jobName}, ${own.status})`;
      const others = open > 1 ? `, and for ${runs(open - 1, "other")}` : "";
      return { kind, message: `Waiting for ${what}${others}`, ...own, open };
    }
    case "held_child": {
      const { child: { runId, jobName }, held: { code, since, message: why }, count } = blocker;
      if (!visibility.mayRead(runId)) {
        const message = count === 1 ? "A child run is held" : `${count} child runs are held`;
        return { kind, message, runId: null, jobName: null, code: null, since: null, count };
      }
      const others = count === 1 ? "is" : `and ${runs(count - 1, "other")} are`;
      const message = `Its child ${jobName} ${runId} ${others} held: ${why.replace(/^Held: /, "")}`;
      return { kind, message, runId, jobName, code, since, count };
    }
    case "held":
      return { kind, message: blocker.message, code: blocker.code, since: isoTime(blocker.since) };
    case "job_paused": {
      const { by, since, note } = blocker;
      const who = by === null ? "" : ` by ${by}`;
      const why = note === null || note === "" ? "" : `: ${note}`;
      const message = `Job ${jobName} has been paused${who} for ${ago(since)}${why}`;
      return { kind, message, jobName, by, since: isoTime(since), note };
    }
    case "no_worker": {
      const { lastSeenAt } = blocker;
      const last = lastSeenAt === null
        ? ", and none has claimed for long"
        : `; the last one claimed ${ago(lastSeenAt)} ago`;
      return { kind, message: `No worker is live${last}`, lastSeenAt: isoTime(lastSeenAt) };
    }
    case "unknown_job": {
      const message = describeUnknownJob(blocker, context);
      return { kind, message, jobName, version, lastKnownBy: worker(blocker.lastKnownBy) };
    }
    case "key": {
      const { holder } = blocker;
      const concurrencyKey = run.concurrencyKey!; // its key holds it up
      const since = holder !== null && visibility.mayRead(holder.runId) ? isoTime(holder.since) : null;
      const shown = holder === null ? null : { ...named(holder), since };
      return { kind, message: describeKey(blocker, context), concurrencyKey, holder: shown, ahead: ahead(blocker) };
    }
    case "limit": {
      const { inUse, max, rate } = blocker;
      const name = `${rate === null ? "concurrency" : "rate"} of ${limited(blocker, run)}`;
      const opensAt = isoTime(rate?.opensAt ?? null);
      return { kind, message: describeLimit(blocker, context), name, inUse: counted(blocker, inUse), max, opensAt };
    }
    case "slots": {
      const { busy, total } = blocker;
      const workers = `slots of the workers that have the job ${jobName}`;
      const taken = mayCount(blocker, visibility)
        ? `${busy} of ${total} ${workers} are busy`
        : `All ${workers} are taken`;
      const message = `${taken}; ${aheadOf(blocker, visibility)}`;
      return { kind, message, busy: counted(blocker, busy), total, ahead: ahead(blocker) };
    }
    case "due":
      return { kind, message: `Due for ${ago(blocker.since)}; the next claim takes it`, since: isoTime(blocker.since) };
  }
}

/** How many messages of all names there are. */
function countMessages(messages: readonly UnreadName[]): number {
  return messages.reduce((sum, { count }) => sum + count, 0);
}

const SHOWN_NAMES = 5;

/** `"text" (2), "stop"`. */
function namesOf(messages: readonly UnreadName[]): string {
  const shown = messages.slice(0, SHOWN_NAMES).map(({ name, count }) => `"${name}"${count === 1 ? "" : ` (${count})`}`);
  const rest = messages.slice(SHOWN_NAMES);
  return rest.length === 0 ? shown.join(", ") : `${shown.join(", ")}, and ${countMessages(rest)} of other names`;
}

function describeUnknownJob(
  { lastKnownBy, hasOtherVersion }: Extract<Blocker, { kind: "unknown_job" }>,
  { run, now, visibility }: ReasonContext,
): string {
  const job = `job ${run.jobName}${run.version === 1 && !hasOtherVersion ? "" : ` version ${run.version}`}`;
  if (lastKnownBy === null) return `No live worker has the ${job}`;
  const last = lastKnownBy.lastSeenAt === null ? "" : `, ${describeDuration(now - lastKnownBy.lastSeenAt)} ago`;
  const version = lastKnownBy.deployment === null ? "" : ` (version ${lastKnownBy.deployment})`;
  const who = visibility.workers ? `the last that had it was ${nameOf(lastKnownBy)}${version}` : "one had it last";
  return `No live worker has the ${job}; ${who}${last}`;
}

function describeKey(
  blocker: Extract<Blocker, { kind: "key" }>,
  { run, now, visibility }: ReasonContext,
): string {
  const { holder } = blocker;
  const ahead = aheadOf(blocker, visibility);
  const key = `the key ${run.concurrencyKey}`;
  if (holder === null) return `Behind another run for ${key}, which is free; ${ahead}`;
  if (!visibility.mayRead(holder.runId)) return `Behind another run for ${key}; ${ahead}`;
  const { runId, jobName, status, since, worker } = holder;
  const on = worker === null || !visibility.workers ? "" : ` on ${nameOf(worker)}`;
  const state = `${status} for ${describeDuration(now - since)}${on}`;
  return `Behind run ${runId} (${jobName}, ${state}) for ${key}; ${ahead}`;
}

function describeLimit(
  blocker: Extract<Blocker, { kind: "limit" }>,
  { run, now, visibility }: ReasonContext,
): string {
  const { inUse, max, rate } = blocker;
  const isCounted = mayCount(blocker, visibility);
  const ahead = aheadOf(blocker, visibility);
  const subject = limited(blocker, run);
  const atMost = `At most ${runs(max)} of the ${subject}`;
  if (rate === null) {
    const executed = `${runs(inUse)} of the ${subject} ${inUse === 1 ? "is" : "are"} executed, of ${max} at most`;
    return `${isCounted ? executed : `${atMost} ${max === 1 ? "is" : "are"} executed at once`}; ${ahead}`;
  }
  const { period, opensAt } = rate;
  const opening = `${ahead}; the rate opens at ${isoTime(opensAt)} (in ${describeDuration(opensAt - now)})`;
  const within = `in ${describeDuration(period)}`;
  if (!isCounted) return `${atMost} ${max === 1 ? "starts" : "start"} ${within}; ${opening}`;
  const started = `${runs(inUse)} of the ${subject} ${inUse === 1 ? "has" : "have"} started`;
  return `${started} ${within}, of ${max} at most; ${opening}`;
}

function nameOf({ id, name }: BlockingWorker): string {
  return name ?? id;
}

function aheadOf(blocker: Counting, visibility: Visibility): string {
  const count = blocker.ahead;
  if (count > 0 && !mayCount(blocker, visibility)) return "others are ahead of it";
  const more = count >= 1_000 ? "1,000 or more runs" : runs(count);
  return count === 0 ? "no run is ahead of it" : `${more} ${count === 1 ? "is" : "are"} ahead of it`;
}

function runs(count: number, kind = ""): string {
  return `${count} ${kind === "" ? "" : `${kind} `}${count === 1 ? "run" : "runs"}`;
}

function limited({ of }: Extract<Blocker, { kind: "limit" }>, run: StoredRun): string {
  return of === "job" ? `job ${run.jobName}` : `key ${run.concurrencyKey}`;
}

function toWorkerRef({ id, name, hostname, lastSeenAt }: BlockingWorker): WorkerRef {
  return { id, name, hostname, lastSeenAt: isoTime(lastSeenAt) };
}
