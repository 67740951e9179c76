import type { Host } from "../../../model/host.ts";
import type { JsonText } from "../../../values/json.ts";
import { isoTime } from "../../../values/iso_time.ts";
import type { RunIdentity, RunStatus } from "../../../model/run.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { CreatedChild, NewChildren, NewPause } from "../../../store/pause_request.ts";
import { jobNameOf } from "../../queue_name.ts";
import { type IdentityRow, toRunIdentity } from "../../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { insertRun, type ParentOfRun } from "../writes/insert_run.ts";
import { findOpenRetry } from "../writes/retry_links.ts";
import { resolveChildren } from "../writes/pause_resolution.ts";
import { cancelOrphan, isOrphan } from "./orphans.ts";

/** A pause on children. */
interface PauseOnChildren {
  seq: number;
  name: string;
  status: string;
  added: number | null;
  unfinished: number | null;
}

/** Whether a pause lacks children that were added before those of a request. See `Store.pause()`. */
export function lacksChildren(db: SqliteDatabase, runId: string, { kind, name, children }: NewPause): boolean {
  if (kind !== "children") return false;
  const known = db.get<{ total: number | null; added: number | null }>`
    SELECT total, added FROM holdfast_pauses
    WHERE run_seq = (SELECT seq FROM holdfast_runs WHERE id = ${runId}) AND kind = ${kind} AND name = ${name}`;
  return (known?.added ?? 0) < (children === null ? known?.total ?? Infinity : children.from);
}

/**
 * Adds the children that a pause does not have yet, and resolves it if all its children have ended.
 *
 * @returns The children of the old run that it has cancelled.
 */
export function addChildren(
  db: SqliteDatabase,
  { parentSeq, pause }: { parentSeq: number; pause: PauseOnChildren },
  request: NewChildren,
  host: Pick<Host, "newId">,
  now: number,
): RunIdentity[] {
  const cancelled: RunIdentity[] = [];
  let added = pause.added ?? 0;
  let unfinished = pause.unfinished ?? request.total;
  const asked = request.runs.slice(Math.max(0, added - request.from));
  if (pause.status !== "pending" || asked.length === 0) return cancelled;
  const parent = db.one<{ id: string; depth: number }>`SELECT id, depth FROM holdfast_runs WHERE seq = ${parentSeq}`;
  const place: ParentOfRun = { seq: parentSeq, id: parent.id, pauseSeq: pause.seq, depth: parent.depth + 1 };
  const former = findFormer(db, parentSeq, pause.name);
  for (const run of asked) {
    const formerPause = former.find((pause) => added < pause.added);
    const old = formerPause === undefined ? null : findOld(db, formerPause.seq, added, run);
    if (old !== null && old.id !== null && isOrphan(db, old.run_seq)) {
      // The following claims would cancel it, too late to retry it from there.
      cancelled.push(cancelOrphan(db, old.id, now));
      old.status = "cancelled";
    }
    if (old !== null && old.status === "completed") {
      addMember(db, pause.seq, added, old);
      unfinished -= 1;
    } else {
      const seq = insertRun(db, old === null ? run : toRetry(db, run, old), host, now, place)!.seq; // its id is new
      addMember(db, pause.seq, added, { run_seq: seq, result: null, payload: null });
    }
    added += 1;
  }
  db.run`
    UPDATE holdfast_pauses SET total = ${request.total}, added = ${added}, unfinished = ${unfinished}
      WHERE seq = ${pause.seq}`;
  if (unfinished === 0) resolveChildren(db, parentSeq, pause.seq, now);
  return cancelled;
}

function addMember(
  db: SqliteDatabase,
  pauseSeq: number,
  no: number,
  member: { run_seq: number; result: JsonText | null; payload: JsonText | null },
): void {
  db.run`
    INSERT INTO holdfast_children (pause_seq, no, run_seq, result, payload)
      VALUES (${pauseSeq}, ${no}, ${member.run_seq}, ${member.result}, ${member.payload})`;
}

/** A pause of an old run, and how many children it has. */
interface FormerPause {
  seq: number;
  added: number;
}

/**
 * The pauses of this name in the run of which the parent is a retry from the failure, and in those before it. A run that
 * ended between two slices has only the first children.
 */
function findFormer(db: SqliteDatabase, parentSeq: number, name: string): FormerPause[] {
  const former: FormerPause[] = [];
  for (let seq = parentSeq;;) {
    const old = db.get<{ run_seq: number; seq: number | null; added: number | null; total: number | null }>`
      SELECT o.seq AS run_seq, p.seq, p.added, p.total
      FROM holdfast_runs r JOIN holdfast_runs o ON o.id = r.retrigger_of
      LEFT JOIN holdfast_pauses p ON p.run_seq = o.seq AND p.kind = 'children' AND p.name = ${name}
      WHERE r.seq = ${seq} AND r.origin_id IS NOT NULL AND r.origin_id <> r.id`;
    if (old === undefined) return former;
    if (old.seq !== null && old.added !== null) {
      former.push({ seq: old.seq, added: old.added });
      if (old.added === old.total) return former;
    }
    seq = old.run_seq;
  }
}

/** A child of the pause in the old run. */
interface OldChild {
  run_seq: number;
  /** The queue of the version of its job, or its job if it was deleted; `null`: its result is lost. */
  job: string | null;
  /** `null`: it was deleted, and its result is kept. */
  id: string | null;
  status: RunStatus;
  result: JsonText | null;
  payload: JsonText | null;
}

/** The old child with this number, if it has the same job and input, and its result is not lost. */
function findOld(db: SqliteDatabase, pauseSeq: number, no: number, request: NewRun): OldChild | null {
  const { jobName, aliases, payload } = request;
  const old = db.get<OldChild>`
    SELECT m.run_seq, coalesce(r.job, m.result ->> '$.run.jobName') AS job, r.id,
      coalesce(r.status, m.result ->> '$.status') AS status, m.result, m.payload
    FROM holdfast_children m LEFT JOIN holdfast_runs r ON r.seq = m.run_seq
    LEFT JOIN holdfast_inputs i ON i.run_seq = r.seq
    WHERE m.pause_seq = ${pauseSeq} AND m.no = ${no} AND iif(r.seq IS NULL, m.payload, i.payload) IS ${payload}`;
  const isSame = old != null && old.job !== null && [jobName, ...aliases].includes(jobNameOf(old.job));
  return isSame ? old : null;
}

/** The same request as a retry of a child that failed or was cancelled, from its failure, if there can be one. */
function toRetry(db: SqliteDatabase, request: NewRun, { id, status }: OldChild): NewRun {
  if (id === null || (status !== "failed" && status !== "cancelled")) return request;
  const open = findOpenRetry(db, id);
  return open === undefined ? { ...request, retriggerOf: { runId: id, from: "failure" } } : request;
}

/** Which of the requested children a pause has: those that this call, or the same call before, has created. */
export function findCreated(db: SqliteDatabase, pauseSeq: number, { from, runs }: NewChildren): CreatedChild[] {
  const members = db.all<IdentityRow & { no: number; start_at: number | null; retrigger_of: string | null }>`
    SELECT m.no, r.id, r.job, r.labels, r.retrigger_of, r.start_at
    FROM holdfast_children m JOIN holdfast_runs r ON r.seq = m.run_seq
    WHERE m.pause_seq = ${pauseSeq} AND m.no >= ${from} AND m.no < ${from + runs.length} ORDER BY m.no`;
  return members.filter(({ id, no }) => runs[no - from]!.id === id).map((row) => {
    const old = row.retrigger_of === null
      ? undefined
      : db.get<IdentityRow>`SELECT id, job, labels FROM holdfast_runs WHERE id = ${row.retrigger_of}`;
    const retryOf = old === undefined ? null : toRunIdentity(old);
    return { run: toRunIdentity(row), startAt: isoTime(row.start_at), retryOf };
  });
}
