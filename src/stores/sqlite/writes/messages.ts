import { HoldfastError, NotFoundError } from "../../../model/error.ts";
import type { Host } from "../../../model/host.ts";
import {
  describeTarget,
  isSameMessage,
  MAX_MESSAGES,
  messageIdError,
  type Receive,
  runEndedError,
  tooManyMessagesError,
} from "../../../model/message.ts";
import { isTerminal } from "../../../model/run.ts";
import type { SendOutcome, SendRequest, SendTarget } from "../../../store/send_request.ts";
import type { JsonText } from "../../../values/json.ts";
import { fromInput, type IdentityRow, toRunIdentity } from "../../rows.ts";
import { QueueSearch } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { sql } from "../statement.ts";
import { enqueueRuns } from "./enqueue.ts";
import { commitDeadlines, hasClosedInbox, takeMessages, wake } from "./pause_resolution.ts";
import type { RunWith } from "../rows.ts";
import { RETRY } from "./retry_links.ts";

/** A run to which a message is sent. */
type InboxRow = IdentityRow & RunWith<"seq status has_pauses retriggered_as">;

const SELECT_INBOX = sql`SELECT seq, id, job, labels, status, has_pauses, retriggered_as FROM holdfast_runs`;

/**
 * Sends a message to a run, or starts one. See `Store.send()`. A refusal is a result, and not an exception: deadlines that
 * have passed are committed, although one of them may refuse the message.
 */
export function sendMessage(
  db: SqliteDatabase,
  request: SendRequest,
  host: Pick<Host, "newId">,
  now: number,
): SendOutcome | { refused: HoldfastError } {
  const { to, message, start, expect } = request;
  const run = findInbox(db, to);
  const known = run === undefined ? undefined : db.get<{ name: string; payload: JsonText }>`
    SELECT name, payload FROM holdfast_messages WHERE run_seq = ${run.seq} AND id = ${message.id}`;
  if (run !== undefined && known !== undefined && isSameMessage(known, message)) {
    const started = run.id === start?.id ? enqueueRuns(db, [start], host, now)[0]! : null; // this call is a repetition
    return { run: toRunIdentity(run), disposition: "duplicate", started };
  }
  const hasEnded = run !== undefined && isTerminal(run.status);
  // Deadlines that passed before the message are committed, even if one of them closes the inbox.
  const mayExpire = run !== undefined && known === undefined && !hasEnded && run.has_pauses !== 0;
  if (mayExpire && commitDeadlines(db, run.seq, now)) wake(db, run.seq, now);
  const isOpen = run !== undefined && !hasEnded && !hasClosedInbox(db, run.seq);
  const found = run !== undefined && (isOpen || start === null || known !== undefined) ? toRunIdentity(run) : null;
  if (expect !== undefined && expect !== (found?.id ?? null)) return { changed: true, found };
  if (run !== undefined && known !== undefined) return { refused: messageIdError(run.id, message.id) };
  if (run !== undefined && isOpen) {
    const isAccepted = deliver(db, run, message, now);
    if (!isAccepted) return { refused: tooManyMessagesError(run.id) };
    return { run: toRunIdentity(run), disposition: "accepted", started: null };
  }
  if (start !== null) return startRun(db, { ...request, start }, host, now);
  if (run === undefined) return { refused: new NotFoundError(`There is no ${describeTarget(to)}`) };
  const { id: runId, status, retriggered_as: retriggeredAs } = run;
  return { refused: runEndedError({ runId, status, retriggeredAs }, hasEnded) };
}

/** Adds a run with its first message. No run with its key counts. */
function startRun(
  db: SqliteDatabase,
  { start, message }: SendRequest & { start: NonNullable<SendRequest["start"]> },
  host: Pick<Host, "newId">,
  now: number,
): SendOutcome | { refused: HoldfastError } {
  try {
    const [started] = enqueueRuns(db, [start], host, now);
    const { seq } = db.one<{ seq: number }>`SELECT seq FROM holdfast_runs WHERE id = ${start.id}`;
    deliver(db, { seq, id: start.id, has_pauses: 0 }, message, now);
    const { id, jobName, labels } = started!.run; // one for each request
    return { run: { id, jobName, labels }, disposition: "accepted", started: started! };
  } catch (refused) {
    // A run of this call was deleted: deadlines may be committed already.
    if (refused instanceof HoldfastError && refused.code === "conflict") return { refused };
    throw refused;
  }
}

function findInbox(db: SqliteDatabase, to: SendTarget): InboxRow | undefined {
  if ("runId" in to) return db.get<InboxRow>`${SELECT_INBOX} WHERE id = ${to.runId}`;
  const search = new QueueSearch(db);
  for (const queue of to.jobNames.flatMap((jobName) => search.queuesFor({ jobName, aliases: [], version: 1 }))) {
    let run = db.get<InboxRow>`${SELECT_INBOX} WHERE job = ${queue} AND idempotency_key = ${to.key}`;
    if (run === undefined) continue;
    for (let next: InboxRow | undefined = run; next !== undefined;) {
      run = next; // its newest retry, the newest one of that, and so on
      next = run.retriggered_as === null
        ? undefined
        : db.get<InboxRow>`${SELECT_INBOX} WHERE id = (SELECT ${RETRY} FROM holdfast_runs r WHERE r.seq = ${run.seq})`;
    }
    return run;
  }
  return undefined;
}

/** Adds a message to a run, unless it has too many: the first open receive that takes its name takes it. */
function deliver(
  db: SqliteDatabase,
  run: Pick<InboxRow, "seq" | "id" | "has_pauses">,
  message: SendRequest["message"],
  now: number,
): boolean {
  const { no } = db.one<{ no: number }>`
    SELECT coalesce(max(no), 0) + 1 AS no FROM holdfast_messages WHERE run_seq = ${run.seq}`;
  if (no > MAX_MESSAGES) return false;
  db.run`INSERT INTO holdfast_messages (run_seq, no, id, name, payload, input, trace, accepted_at)
    VALUES (${run.seq}, ${no}, ${message.id}, ${message.name}, ${message.payload},
      ${fromInput(message.payload, message.input)}, ${message.trace}, ${now})`;
  if ((run.has_pauses & 1) === 0) {
    db.run`UPDATE holdfast_runs SET has_pauses = has_pauses | 1 WHERE seq = ${run.seq}`;
    db.leased.notePause(run.id);
    return true; // it has no receive
  }
  const open = db.all<{ seq: number; receive: JsonText }>`
    SELECT seq, receive FROM holdfast_pauses WHERE run_seq = ${run.seq} AND kind = 'receive' AND status = 'pending'
      ORDER BY seq`.map(({ seq, receive }) => ({ seq, ...JSON.parse(receive) as Receive }));
  const receive = open.find(({ names }) => names.includes(message.name));
  if (receive !== undefined && takeMessages(db, { ...receive, runSeq: run.seq }, now)) wake(db, run.seq, now);
  return true;
}
