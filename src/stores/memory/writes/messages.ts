import { NotFoundError } from "../../../model/error.ts";
import {
  describeTarget,
  isSameMessage,
  MAX_MESSAGES,
  messageIdError,
  runEndedError,
  tooManyMessagesError,
} from "../../../model/message.ts";
import { isTerminal } from "../../../model/run.ts";
import type { SendOutcome, SendRequest } from "../../../store/send_request.ts";
import { toIdentity, toRunText } from "../copies.ts";
import { commitDeadlines, hasClosedInbox, isQueued, isWoken, takeMessages } from "../pauses.ts";
import type { KeptRun } from "../records.ts";
import type { MemoryRuns } from "../runs.ts";
import { enqueueRuns } from "./runs.ts";

/** Sends a message to a run, or starts one. See `Store.send()`. */
export function sendMessage(runs: MemoryRuns, request: SendRequest, now: number): SendOutcome {
  const { to, message, start, expect } = request;
  const run = "runId" in to ? runs.get(to.runId) : runs.findKeyed(to.jobNames, to.key);
  const known = run?.messages.get(message.id);
  if (run !== undefined && known !== undefined && isSameMessage(known, message)) {
    const started = run.id === start?.id ? { run: toRunText(run), disposition: "created" as const } : null;
    return { run: toIdentity(run), disposition: "duplicate", started };
  }
  if (run !== undefined && known === undefined) commitPassed(runs, run, now);
  const isOpen = run !== undefined && !isTerminal(run.status) && !hasClosedInbox(run);
  const found = run !== undefined && (isOpen || start === null || known !== undefined) ? toIdentity(run) : null;
  if (expect !== undefined && expect !== (found?.id ?? null)) return { changed: true, found };
  if (run !== undefined && known !== undefined) throw messageIdError(run.id, message.id);
  if (run !== undefined && isOpen) {
    if (run.messages.size >= MAX_MESSAGES) throw tooManyMessagesError(run.id);
    deliver(runs, run, message, now);
    return { run: toIdentity(run), disposition: "accepted", started: null };
  }
  if (start !== null) {
    const [started] = enqueueRuns(runs, [start], now);
    const added = runs.get(start.id)!; // no run with the key counts
    deliver(runs, added, message, now);
    return { run: toIdentity(added), disposition: "accepted", started: started! }; // one for each request
  }
  if (run === undefined) throw new NotFoundError(`There is no ${describeTarget(to)}`);
  throw runEndedError({ ...run, runId: run.id }, isTerminal(run.status));
}

/** Commits the deadlines that passed before a message, even if one of them closes the inbox. */
function commitPassed(runs: MemoryRuns, run: KeptRun, now: number): void {
  const wasDue = isWoken(run) || isQueued(run);
  if (!isTerminal(run.status) && commitDeadlines(run, now)) runs.noteResolution(run, wasDue, now);
}

/** Adds a message to a run: the first open receive that takes its name takes it. */
function deliver(runs: MemoryRuns, run: KeptRun, message: SendRequest["message"], now: number): void {
  const wasDue = isWoken(run) || isQueued(run);
  run.messages.set(message.id, { ...message, acceptedAt: now, takenBy: null });
  const receive = run.pauses.find(({ state, receive }) =>
    state.status === "pending" && receive?.names.includes(message.name)
  );
  if (receive === undefined) return runs.countChange();
  takeMessages(run, receive, now);
  runs.noteResolution(run, wasDue, now);
}
