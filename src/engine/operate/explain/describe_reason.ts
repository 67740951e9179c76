import { isoTime } from "../../../values/iso_time.ts";
import type { StoredRun } from "../../../model/run.ts";
import type { Blocker, BlockingRun, BlockingWorker, UnreadName } from "../../../store/blockers.ts";
import { describeDuration } from "./describe_duration.ts";
import type { HeldChild } from "./held_child.ts";
import { type Counting, mayCount, type Visibility } from "./visibility.ts";

/** For whom, and of which run, a reason is described. */
export interface ReasonContext {
  /** The run. */
  run: StoredRun;
  /** The current instant. */
  now: number;
  /** What may be named. */
  visibility: Visibility;
}

/** A reason in words, without a full stop. */
export function describeReason(blocker: Blocker | HeldChild, { run, now, visibility }: ReasonContext): string {
  const since = (at: number) => describeDuration(now - at);
  const until = (at: number) => `${isoTime(at)} (in ${describeDuration(at - now)})`;
  const worker = (named: BlockingWorker) => visibility.workers ? `worker ${named.name ?? named.id}` : "a worker";
  switch (blocker.kind) {
    case "ended":
      return `${capitalized(run.status)} ${since(blocker.endedAt)} ago${run.error === null ? "" : `: ${run.error}`}`;
    case "unread": {
      const count = countMessages(blocker.messages);
      const retry = run.retriggeredAs === null ? "" : `; its retry began with ${count === 1 ? "it" : "them"}`;
      return `${count} ${count === 1 ? "message was" : "messages were"} never received: ${
        namesOf(blocker.messages)
      }${retry}`;
    }
    case "executing":
      return `Running for ${since(blocker.since)}${visibility.workers ? ` on ${nameOf(blocker.worker)}` : ""}`;
    case "worker_lost":
      return `${capitalized(worker(blocker.worker))} was lost: its lease expired ${
        since(blocker.leaseExpiresAt)
      } ago; ` +
        `the next claim of a worker that has the job ${run.jobName} takes the run over`;
    case "parent_ended":
      return `Its parent, ${runName(blocker.runId, visibility)}, has ended: the next claim cancels it`;
    case "late":
      return `Too late by ${since(blocker.at)} to ${blocker.deadline === "startBy" ? "start" : "end"}: ` +
        "the next claim fails it";
    case "alone": {
      const { abandonments, until: at } = blocker;
      const when = at === null ? "by the next worker that executes nothing else" : `not before ${until(at)}`;
      return `Claimed alone, after ${abandonments} executions in a row whose workers died or stalled: ${when}`;
    }
    case "delayed":
      return `Starts at ${until(blocker.until)}`;
    case "signal": {
      const deadline = blocker.deadlineAt === null ? "no deadline" : `times out at ${until(blocker.deadlineAt)}`;
      return `Waiting for a signal to "${blocker.name}"; ${deadline}`;
    }
    case "message": {
      const names = blocker.names.map((name) => `"${name}"`).join(" or ");
      const deadline = blocker.deadlineAt === null ? "" : `, until ${until(blocker.deadlineAt)}`;
      const { others } = blocker;
      const unread = others === 0
        ? ""
        : `; ${others} unread ${others === 1 ? "message has" : "messages have"} other names`;
      return `Waits for a message ${names} since ${isoTime(blocker.since)}${deadline}${unread}`;
    }
    case "sleep":
      return `Sleeping in "${blocker.name}" until ${until(blocker.until)}`;
    case "retry": {
      const { stepName, attempts, error, at } = blocker;
      return `Step "${stepName}" has failed ${times(attempts)} (${error}); it is tried again at ${until(at)}`;
    }
    case "child": {
      const { child, open } = blocker;
      const others = open > 1 ? `, and for ${runs(open - 1, "other")}` : "";
      return `Waiting for ${describeChild(child, visibility)}${others}`;
    }
    case "held_child": {
      const { child: { runId, jobName }, held, count } = blocker;
      if (!visibility.mayRead(runId)) return count === 1 ? "A child run is held" : `${count} child runs are held`;
      const others = count === 1 ? "is" : `and ${runs(count - 1, "other")} are`;
      return `Its child ${jobName} ${runId} ${others} held: ${held.message.replace(/^Held: /, "")}`;
    }
    case "held":
      return blocker.message;
    case "job_paused": {
      const by = blocker.by === null ? "" : ` by ${blocker.by}`;
      const note = blocker.note === null || blocker.note === "" ? "" : `: ${blocker.note}`;
      return `Job ${run.jobName} has been paused${by} for ${since(blocker.since)}${note}`;
    }
    case "no_worker":
      return blocker.lastSeenAt === null
        ? "No worker is live, and none has claimed for long"
        : `No worker is live; the last one claimed ${since(blocker.lastSeenAt)} ago`;
    case "unknown_job":
      return describeUnknownJob(blocker, { run, now, visibility });
    case "key":
      return describeKey(blocker, { run, now, visibility });
    case "limit":
      return describeLimit(blocker, { run, now, visibility });
    case "slots": {
      const workers = `slots of the workers that have the job ${run.jobName}`;
      const { busy, total } = blocker;
      const taken = mayCount(blocker, visibility)
        ? `${busy} of ${total} ${workers} are busy`
        : `All ${workers} are taken`;
      return `${taken}; ${aheadOf(blocker, visibility)}`;
    }
    case "due":
      return `Due for ${since(blocker.since)}; the next claim takes it`;
  }
}

/** How many messages of all names there are. */
export function countMessages(messages: readonly UnreadName[]): number {
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
  const { of, inUse, max, rate } = blocker;
  const isCounted = mayCount(blocker, visibility);
  const ahead = aheadOf(blocker, visibility);
  const subject = of === "job" ? `job ${run.jobName}` : `key ${run.concurrencyKey}`;
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

function describeChild({ runId, jobName, status }: BlockingRun, visibility: Visibility): string {
  return visibility.mayRead(runId) ? `child run ${runId} (${jobName}, ${status})` : "a child run";
}

function runName(runId: string, visibility: Visibility): string {
  return visibility.mayRead(runId) ? `run ${runId}` : "another run";
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

function times(count: number): string {
  return count === 1 ? "once" : `${count} times`;
}

function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
