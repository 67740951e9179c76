import type { HoldCode } from "../../../model/hold.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { RunStatus, StoredRun, TerminalStatus } from "../../../model/run.ts";
import type { Blocker, BlockingRun, BlockingWorker } from "../../../store/blockers.ts";
import type { Causes, HeldChild } from "./held_child.ts";
import { countMessages, describeReason } from "./describe_reason.ts";
import { type Counting, mayCount, type Visibility } from "./visibility.ts";

/** Why a run is not executed, or that it is. Times are ISO 8601 in UTC. */
export interface Explanation {
  /** The run. */
  runId: string;
  /** Its status. */
  status: RunStatus;
  /** When it was asked, by the store's clock. */
  at: string;
  /** The message of the first reason. */
  message: string;
  /** The reasons, the one to act on first at the front: at least one. */
  reasons: Reason[];
}

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

/** The runs that the explanation would name, besides its own. */
export function namedRuns({ blockers }: Causes): string[] {
  return blockers.flatMap((blocker) => {
    if (blocker.kind === "child" || blocker.kind === "held_child") return [blocker.child.runId];
    if (blocker.kind === "parent_ended") return [blocker.runId];
    return blocker.kind === "key" && blocker.holder !== null ? [blocker.holder.runId] : [];
  });
}

/** What a store found, in words. */
export function toExplanation({ run, blockers, now }: Causes, visibility: Visibility): Explanation {
  const reasons = blockers.map((blocker): Reason => {
    const message = describeReason(blocker, { run, now, visibility });
    return { message, ...toFields(blocker, run, visibility) } as Reason; // the fields are those of its kind
  });
  return { runId: run.id, status: run.status, at: isoTime(now), message: reasons[0]!.message, reasons }; // there is one
}

const NOT_NAMED = { runId: null, jobName: null, code: null, since: null };

type Fields<R> = R extends unknown ? Omit<R, "message"> : never;

function toFields(blocker: Blocker | HeldChild, run: StoredRun, visibility: Visibility): Fields<Reason> {
  const worker = (named: BlockingWorker | null) => named === null || !visibility.workers ? null : toWorkerRef(named);
  const own = ({ runId, jobName, status }: BlockingRun) =>
    visibility.mayRead(runId) ? { runId, jobName, status } : { runId: null, jobName: null, status: null };
  const counted = <T>(of: Counting, count: T) => mayCount(of, visibility) ? count : null;
  const aheadOf = (of: Counting) => of.ahead === 0 ? 0 : counted(of, of.ahead);
  switch (blocker.kind) {
    case "ended":
      return { kind: "ended", status: run.status as TerminalStatus, endedAt: isoTime(blocker.endedAt) };
    case "unread": {
      const { messages } = blocker;
      return { kind: "unread", count: countMessages(messages), names: messages.map(({ name }) => name) };
    }
    case "executing": {
      const [since, leaseExpiresAt] = [isoTime(blocker.since), isoTime(blocker.leaseExpiresAt)];
      return { kind: "executing", worker: worker(blocker.worker), since, leaseExpiresAt };
    }
    case "worker_lost":
      return {
        kind: "worker_lost",
        worker: worker(blocker.worker),
        leaseExpiresAt: isoTime(blocker.leaseExpiresAt),
      };
    case "parent_ended":
      return { kind: "parent_ended", runId: visibility.mayRead(blocker.runId) ? blocker.runId : null };
    case "late":
      return { kind: "late", deadline: blocker.deadline, at: isoTime(blocker.at) };
    case "alone":
      return { kind: "alone", abandonments: blocker.abandonments, until: isoTime(blocker.until) };
    case "delayed":
      return { kind: "delayed", until: isoTime(blocker.until) };
    case "signal": {
      const { waitId, name, deadlineAt } = blocker;
      return { kind: "signal", waitId, name, deadlineAt: isoTime(deadlineAt) };
    }
    case "message": {
      const { name, names, since, deadlineAt, others } = blocker;
      const [from, until] = [isoTime(since), isoTime(deadlineAt)];
      return { kind: "message", name, names: [...names], since: from, deadlineAt: until, unread: others };
    }
    case "sleep":
      return { kind: "sleep", name: blocker.name, until: isoTime(blocker.until) };
    case "retry": {
      const { stepName, attempts, error, at } = blocker;
      return { kind: "retry", stepName, attempts, error, at: isoTime(at) };
    }
    case "child": {
      const { child, open } = blocker;
      return { kind: "child", ...own(child), open };
    }
    case "held_child": {
      const { child: { runId, jobName }, held: { code, since }, count } = blocker;
      const named = visibility.mayRead(runId) ? { runId, jobName, code, since } : NOT_NAMED;
      return { kind: "held_child", ...named, count };
    }
    case "held":
      return { kind: "held", code: blocker.code, since: isoTime(blocker.since) };
    case "job_paused": {
      const { by, since, note } = blocker;
      return { kind: "job_paused", jobName: run.jobName, by, since: isoTime(since), note };
    }
    case "no_worker":
      return { kind: "no_worker", lastSeenAt: isoTime(blocker.lastSeenAt) };
    case "unknown_job": {
      const lastKnownBy = worker(blocker.lastKnownBy);
      return { kind: "unknown_job", jobName: run.jobName, version: run.version, lastKnownBy };
    }
    case "key": {
      const { holder } = blocker;
      const ahead = aheadOf(blocker);
      const concurrencyKey = run.concurrencyKey!; // its key holds it up
      if (holder === null) return { kind: "key", concurrencyKey, holder, ahead };
      const since = visibility.mayRead(holder.runId) ? isoTime(holder.since) : null;
      return { kind: "key", concurrencyKey, holder: { ...own(holder), since }, ahead };
    }
    case "limit": {
      const { inUse, max, rate } = blocker;
      const [name, opensAt] = [limitName(blocker, run), isoTime(rate?.opensAt ?? null)];
      return { kind: "limit", name, inUse: counted(blocker, inUse), max, opensAt };
    }
    case "slots": {
      const { busy, total } = blocker;
      return { kind: "slots", busy: counted(blocker, busy), total, ahead: aheadOf(blocker) };
    }
    case "due":
      return { kind: "due", since: isoTime(blocker.since) };
  }
}

/** The name of a limit: `rate of key import:acme`. */
function limitName({ of, rate }: Extract<Blocker, { kind: "limit" }>, run: StoredRun): string {
  const subject = of === "job" ? `job ${run.jobName}` : `key ${run.concurrencyKey}`;
  return `${rate === null ? "concurrency" : "rate"} of ${subject}`;
}

function toWorkerRef({ id, name, hostname, lastSeenAt }: BlockingWorker): WorkerRef {
  return { id, name, hostname, lastSeenAt: isoTime(lastSeenAt) };
}
