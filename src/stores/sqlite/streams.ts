import type { Lease } from "../../model/lease.ts";
import { isTerminal, type Retention } from "../../model/run.ts";
import type { Chunk, StreamInfo, StreamPlace } from "../../model/stream.ts";
import type { StreamText } from "../../store/run_query.ts";
import { isoTime } from "../../values/iso_time.ts";
import { findNewChunks } from "../record_rules.ts";
import { MAX_CHUNKS_READ, MAX_PURGED_STREAMS } from "../rules.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import { raw } from "./statement.ts";
import { underLease } from "./writes/lease_cache.ts";
import { fitLine, MAX_LOG_LINES, type NewLogEntry } from "../../model/log.ts";
import type { RunWith } from "./rows.ts";

/** Stores items of streams. See `Store.appendItems()`. */
export function appendItems(
  db: SqliteDatabase,
  writes: readonly { lease: Lease; chunks: readonly Chunk[] }[],
  now: number,
): boolean[] {
  return writes.map(({ lease, chunks }) => {
    const run = findRun(db, lease);
    const added = run === undefined ? null : newChunks(db, run.seq, chunks);
    if (run === undefined || added === null) return false;
    insertChunks(db, run.seq, lease.generation, added, now);
    if (added.length > 0) db.facts.note([run.seq, "streamed"]);
    return true;
  });
}

/**
 * The chunks of an attempt that are not stored; `null` if a stream does not end right before one of them. None under a
 * lost lease, which the write itself refuses.
 */
export function chunksOf(db: SqliteDatabase, lease: Lease, chunks: readonly Chunk[]): Chunk[] | null {
  if (chunks.length === 0) return [];
  const run = findRun(db, lease);
  return run === undefined ? [] : newChunks(db, run.seq, chunks);
}

function findRun(db: SqliteDatabase, lease: Lease): { seq: number } | undefined {
  return db.get<{ seq: number }>`SELECT seq FROM holdfast_runs WHERE ${underLease(lease)}`;
}

function newChunks(db: SqliteDatabase, runSeq: number, chunks: readonly Chunk[]): Chunk[] | null {
  return findNewChunks(chunks, (stream) =>
    db.one<{ last: number | null }>`
      SELECT max(position) AS last FROM holdfast_chunks WHERE run_seq = ${runSeq} AND stream = ${stream}`.last ?? 0);
}

/** Stores chunks that {@linkcode chunksOf} has found. */
export function insertChunks(
  db: SqliteDatabase,
  runSeq: number,
  generation: number,
  chunks: readonly Chunk[],
  now: number,
): void {
  for (const { stream, position, after, first, count, size, items, isPermanent } of chunks) {
    if (after < position - 1) {
      db.run`
        UPDATE holdfast_chunks SET items = NULL WHERE run_seq = ${runSeq} AND stream = ${stream}
          AND position > ${after} AND position < ${position}`;
    }
    db.run`INSERT INTO holdfast_chunks (run_seq, stream, position, follows, first, count, size, at, generation, items)
      VALUES (${runSeq}, ${stream}, ${position}, ${after}, ${first}, ${count}, ${size}, ${now},
        ${isPermanent ? null : generation}, ${items})`;
  }
}

/** Copies the permanent chunks of a run to a retry of it. */
export function copyChunks(db: SqliteDatabase, runSeq: number, oldSeq: number): void {
  db.run`INSERT INTO holdfast_chunks (run_seq, stream, position, follows, first, count, size, at, generation, items)
    SELECT ${runSeq}, stream, position, follows, first, count, size, at, generation, items FROM holdfast_chunks c
    WHERE run_seq = ${oldSeq} AND items IS NOT NULL AND position <= (
      SELECT max(position) FROM holdfast_chunks p WHERE p.run_seq = c.run_seq AND p.stream = c.stream
        AND p.generation IS NULL)`;
}

/** Deletes the items of runs that ended long enough ago. */
export function purgeChunks(db: SqliteDatabase, { streams }: Retention, now: number): void {
  if (streams === undefined) return;
  // A run that was added after that instant has not ended before it: rows of runs are in that order.
  let last = 0;
  for (let purged = 0; purged < MAX_PURGED_STREAMS;) {
    const run = db.get<{ seq: number; created_at: number; completed_at: number | null }>`
      SELECT seq, created_at, completed_at FROM holdfast_runs
      WHERE seq = (SELECT min(run_seq) FROM holdfast_chunks WHERE run_seq > ${last})`;
    if (run === undefined || run.created_at > now - streams) return;
    last = run.seq;
    if (run.completed_at === null || run.completed_at > now - streams) continue;
    db.run`DELETE FROM holdfast_chunks WHERE run_seq = ${run.seq}`;
    purged += 1;
  }
}

type RunOfStream = RunWith<"seq status lease_generation">;

function findRunOfStream(db: SqliteDatabase, runId: string): RunOfStream | undefined {
  return db.get<RunOfStream>`SELECT seq, status, lease_generation FROM holdfast_runs WHERE id = ${runId}`;
}

interface ChunkRow {
  position: number;
  follows: number;
  first: number;
  count: number;
  size: number;
  at: number;
  generation: number | null;
  items: string;
}

const NOTHING = { position: 0, at: 0, first: 0, count: 0, size: 0 };

/** Where a stream ends: its last chunk, the last permanent one, and the last one that counts. */
function endsOf(db: SqliteDatabase, run: RunOfStream, stream: string) {
  const last = db.get<ChunkRow>`SELECT * FROM holdfast_chunks WHERE run_seq = ${run.seq} AND stream = ${stream}
    ORDER BY position DESC LIMIT 1`;
  const permanent = db.get<ChunkRow>`SELECT * FROM holdfast_chunks WHERE run_seq = ${run.seq} AND stream = ${stream}
    AND generation IS NULL ORDER BY position DESC LIMIT 1` ?? NOTHING;
  const counts = last?.generation === run.lease_generation && run.status !== "completed";
  return { last, permanent, end: last !== undefined && counts ? last : permanent };
}

/** Reads a stream after a place. See `Store.readStream()`. */
export function readStream(
  db: SqliteDatabase,
  runId: string,
  stream: string,
  after: StreamPlace | null,
  maxLength: number,
): StreamText | null {
  const run = findRunOfStream(db, runId);
  if (run === undefined) return null;
  const { last, permanent, end } = endsOf(db, run, stream);
  const from = after?.position ?? 0;
  // Which chunks fit is known before their items are read.
  const rows = maxLength === 0 ? [] : db.all<ChunkRow>`
    WITH near AS (
      SELECT rowid AS id, size FROM holdfast_chunks
      WHERE run_seq = ${run.seq} AND stream = ${stream} AND position > ${from} AND position <= ${end.position}
        AND items IS NOT NULL
      ORDER BY position LIMIT ${raw(MAX_CHUNKS_READ)})
    SELECT c.position, c.follows, c.first, c.size, c.at, c.items FROM near JOIN holdfast_chunks c ON c.rowid = near.id
    WHERE near.size <= ${maxLength} + (SELECT min(size) FROM near) ORDER BY c.position`;
  return {
    chunks: rows.map(({ position, follows, first, at, items }) => ({ position, at, after: follows, first, items })),
    hasMore: maxLength > 0 && (rows.at(-1)?.position ?? from) < end.position,
    isPlace: after === null || from === 0 ||
      db.get<{ at: number }>`
        SELECT at FROM holdfast_chunks WHERE run_seq = ${run.seq} AND stream = ${stream} AND position = ${from}`?.at ===
        after.at,
    end: { position: end.position, at: end.at, items: end.first + end.count, bytes: end.size },
    permanent: { position: permanent.position, items: permanent.first + permanent.count, bytes: permanent.size },
    last: last?.position ?? 0,
    isEnded: isTerminal(run.status),
  };
}

/** The streams of a run, by name. See `Store.getStreams()`. */
export function readStreams(db: SqliteDatabase, runId: string): StreamInfo[] {
  const run = findRunOfStream(db, runId);
  if (run === undefined) return [];
  const streams: StreamInfo[] = [];
  for (let name = "";;) {
    const next = db.get<{ stream: string }>`
      SELECT stream FROM holdfast_chunks WHERE run_seq = ${run.seq} AND stream > ${name} ORDER BY stream LIMIT 1`;
    if (next === undefined) return streams;
    name = next.stream;
    const { last, permanent, end } = endsOf(db, run, name);
    streams.push({
      name,
      items: end.first + end.count,
      bytes: end.size,
      isOpen: end.position > permanent.position,
      updatedAt: isoTime(last!.at), // it has a chunk
    });
  }
}

/** Stores log lines. See `Store.appendLogs()`. */
export function appendLines(db: SqliteDatabase, entries: readonly NewLogEntry[]): void {
  for (const { id, runId, stepName, level, message, data, writtenAt } of entries.map(fitLine)) {
    const added = db.get<{ run_seq: number; no: number }>`
      INSERT INTO holdfast_logs (id, run_seq, no, step_name, level, message, data, written_at)
      SELECT ${id}, r.seq, coalesce((SELECT max(no) FROM holdfast_logs l WHERE l.run_seq = r.seq), 0) + 1,
        ${stepName}, ${level}, ${message}, ${data}, ${writtenAt}
      FROM holdfast_runs r WHERE r.id = ${runId} ON CONFLICT DO NOTHING RETURNING run_seq, no`;
    if (added === undefined || added.no <= MAX_LOG_LINES + 1) continue;
    // The last dropped line stays: `readLogs()` returns it as the line that reports how many were dropped.
    db.run`DELETE FROM holdfast_logs WHERE run_seq = ${added.run_seq} AND no < ${added.no - MAX_LOG_LINES}`;
  }
}
