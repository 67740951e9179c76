import type { TableCheck } from "../table_check.ts";
import { LAST_KEPT } from "../rules.ts";

const ENDED = "('completed', 'failed', 'cancelled')";
const RUNS = "holdfast_runs r LEFT JOIN holdfast_holds h ON h.run_seq = r.seq AND h.since IS NOT NULL";
const PAUSES = "holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq";

/** The number of runs of each job and status that is kept is right. */
export const COUNT_CHECK: TableCheck = {
  name: "the numbers of runs are kept rightly",
  sql:
    `SELECT 'There are ' || sum(counted) || ' ' || status || ' runs of ' || job || ', but ' || sum(kept) || ' are kept' AS r
     FROM (SELECT status, job, runs AS kept, 0 AS counted FROM holdfast_counts
       UNION ALL SELECT status, job, 0, 1 FROM holdfast_runs)
     GROUP BY status, job HAVING sum(kept) <> sum(counted)`,
};

/**
 * The queues are right: K1 and K2 of flow/concurrency_keys.ts, T1 of flow/turns.ts, and a held run is in the queue in
 * which it is offered, or in none.
 */
export const QUEUE_CHECKS: readonly TableCheck[] = [
  {
    name: "of each concurrency key the first runs are ready, as many as it has room for",
    sql: `SELECT iif(state = 'R', 'K1', 'K2') || ' is broken: run ' || id || ' of the key ' || key || ' is ' ||
         iif(state = 'R', 'ready, and has to wait for its key', 'blocked, and its key is free') AS r
       FROM (SELECT id, key, state, iif(position < ${LAST_KEPT} OR (
           row_number() OVER (PARTITION BY key, queue ORDER BY position, seq) = 1
           AND (SELECT count(*) FROM holdfast_holders WHERE concurrency_key = key) < concurrency
           AND NOT (is_rated AND EXISTS (SELECT 1 FROM holdfast_openings o
             WHERE o.concurrency_key = key AND o.queue = q.queue AND o.is_open = 0))), 'R', 'B') AS expected
         FROM (SELECT seq, id, queue, concurrency_key AS key, position, queue_state AS state,
             key_concurrency AS concurrency, key_rate_limit IS NOT NULL AND started_at IS NULL AS is_rated
           FROM holdfast_runs WHERE concurrency_key IS NOT NULL AND queue_state IS NOT NULL) q)
       WHERE state <> expected`,
  },
  {
    name: "the first run of each fairness key is known",
    sql:
      `SELECT 'T1 is broken: the first run of the fairness key ' || key || ' of ' || queue || ' is not the one that is kept' AS r
       FROM (SELECT queue, fairness_key AS key, run_seq AS seq, position FROM holdfast_heads
         UNION ALL
         SELECT queue, key, seq, position FROM (SELECT queue, fairness_key AS key, seq, position,
             row_number() OVER (PARTITION BY queue, fairness_key ORDER BY position, seq) AS place
           FROM holdfast_runs WHERE queue_state = 'R' AND fairness_key IS NOT NULL) WHERE place = 1)
       GROUP BY queue, key HAVING count(*) <> 2 OR min(seq) <> max(seq) OR min(position) <> max(position)`,
  },
  {
    name: "a held run is in the queue in which it is offered",
    sql:
      `SELECT 'Run ' || r.id || ' is in another queue than that of its job, or in which it is offered' AS r FROM ${RUNS}
       WHERE iif(h.run_seq IS NULL,
         r.queue_state IS NOT NULL AND r.queue <> r.job AND substr(r.queue, -1) <> char(9),
         r.status <> 'pending' OR
           iif(h.offered_in = '', r.queue_state IS NOT NULL, r.queue_state IS NULL OR r.queue <> h.offered_in))`,
  },
];

/** What is true of each run by its rows, however it came to them. */
export const RUN_CHECKS: readonly TableCheck[] = [
  {
    name: "a run has ended exactly if it has a time of its end",
    sql: `SELECT 'Run ' || id || ' is ' || status || ', and has ' || iif(completed_at IS NULL, 'no', 'a') ||
         ' time of its end' AS r
       FROM holdfast_runs WHERE (status IN ${ENDED}) <> (completed_at IS NOT NULL)`,
  },
  {
    name: "a run has a lease exactly while it is executed",
    sql:
      `SELECT 'Run ' || id || ' is ' || status || ', and its lease is that of ' || coalesce(lease_owner, 'nobody') AS r
       FROM holdfast_runs WHERE (status = 'running') <> (lease_owner IS NOT NULL)
         OR (lease_owner IS NULL) <> (lease_expires_at IS NULL)`,
  },
  {
    name: "only a run that is not executed and has not ended is in a queue, or wakes at a time",
    sql:
      `SELECT 'Run ' || r.id || ' is ' || r.status || ', and ' || iif(r.queue_state IS NULL, 'wakes at a time', 'is in a queue') AS r
       FROM ${RUNS} WHERE (r.queue_state IS NOT NULL AND r.status NOT IN ('pending', 'waiting'))
         OR (r.timer_at IS NOT NULL AND r.status <> 'waiting')`,
  },
  {
    name: "each pending run is in a queue, or comes into one",
    sql: `SELECT 'Run ' || r.id || ' is pending, and in no queue' AS r
       FROM ${RUNS} WHERE r.status = 'pending' AND r.queue_state IS NULL AND r.due_at IS NULL AND h.run_seq IS NULL`,
  },
  {
    name: "each waiting run is due, or something can resume it",
    sql: `SELECT 'Run ' || r.id || ' is waiting, and ' || CASE
           WHEN EXISTS (SELECT 1 FROM holdfast_pauses p WHERE p.run_seq = r.seq AND p.awaited = 1 AND p.status = 'resolved')
           THEN 'not due though it waits for nothing any more' ELSE 'nothing can resume it' END AS r
       FROM ${RUNS} WHERE r.status = 'waiting' AND r.queue_state IS NULL AND (
         EXISTS (SELECT 1 FROM holdfast_pauses p WHERE p.run_seq = r.seq AND p.awaited = 1 AND p.status = 'resolved')
         OR (r.timer_at IS NULL AND NOT EXISTS (SELECT 1 FROM holdfast_pauses p WHERE p.run_seq = r.seq AND p.awaited = 1)))`,
  },
  {
    name: "each waiting run wakes at the first deadline of its pauses",
    sql: `SELECT 'Run ' || r.id || ' is waiting, and wakes after the deadline of "' || p.name || '"' AS r
       FROM ${RUNS} JOIN holdfast_pauses p ON p.run_seq = r.seq
       WHERE r.status = 'waiting' AND r.queue_state IS NULL AND p.awaited = 1 AND p.status = 'pending'
         AND p.deadline_at IS NOT NULL AND (r.timer_at IS NULL OR r.timer_at > p.deadline_at)`,
  },
  {
    // A patch is an answer, and never ends.
    name: "a pause has ended exactly if it has an outcome, and with its run",
    sql:
      `SELECT 'Pause "' || p.name || '" of run ' || r.id || ' is ' || p.status || ', and its run ' || r.status AS r FROM ${PAUSES}
       WHERE (p.status = 'resolved') <> (p.outcome IS NOT NULL) OR (p.status = 'pending' AND p.kind <> 'patch' AND r.status IN ${ENDED})`,
  },
  {
    name: "a wait timed out at its deadline, or was signalled before it",
    sql: `SELECT 'Pause "' || p.name || '" of run ' || r.id || ' has ended by ' || p.outcome || ' at another time' AS r
       FROM ${PAUSES} WHERE (p.outcome = 'timeout' AND p.kind <> 'receive' AND p.resolved_at IS NOT p.deadline_at)
         OR (p.outcome = 'signal' AND p.deadline_at IS NOT NULL AND p.resolved_at >= p.deadline_at)`,
  },
  {
    name: "no message is unread that an open receive takes",
    sql:
      `SELECT 'Message "' || m.id || '" of run ' || r.id || ' is unread, and receive "' || p.name || '" waits for it' AS r
       FROM ${PAUSES} JOIN holdfast_messages m ON m.run_seq = p.run_seq AND m.pause_seq IS NULL
       WHERE p.kind = 'receive' AND p.status = 'pending'
         AND m.name IN (SELECT value FROM json_each(p.receive, '$.names'))`,
  },
  {
    name: "each message was taken by a receive of its run that has ended by it",
    sql: `SELECT 'Message "' || m.id || '" of run ' || r.id || ' was taken by no receive' AS r
       FROM holdfast_messages m JOIN holdfast_runs r ON r.seq = m.run_seq LEFT JOIN holdfast_pauses p ON p.seq = m.pause_seq
       WHERE m.pause_seq IS NOT NULL AND (p.run_seq IS NOT m.run_seq OR p.outcome IS NOT 'messages')`,
  },
  {
    name: "a receive that has ended by messages has some, of its names, and no more than it takes",
    sql:
      `SELECT 'Receive "' || p.name || '" of run ' || r.id || ' has ended by ' || count(m.seq) || ' messages, ' || count(m.seq) FILTER (
           WHERE p.receive <> '"closed"' AND m.name NOT IN (SELECT value FROM json_each(p.receive, '$.names'))
         ) || ' of other names' AS r
       FROM ${PAUSES} LEFT JOIN holdfast_messages m ON m.pause_seq = p.seq WHERE p.outcome = 'messages'
       GROUP BY p.seq HAVING count(m.seq) = 0 OR count(m.seq) > iif(p.receive = '"closed"', NULL, p.receive ->> '$.max')
         OR count(m.seq) FILTER (
           WHERE p.receive <> '"closed"' AND m.name NOT IN (SELECT value FROM json_each(p.receive, '$.names'))) > 0`,
  },
  {
    name: "no receive is open in an inbox that is closed",
    sql: `SELECT 'Receive "' || p.name || '" of run ' || r.id || ' is open, and the inbox is closed' AS r
       FROM ${PAUSES} WHERE p.kind = 'receive' AND p.status = 'pending'
         AND EXISTS (SELECT 1 FROM holdfast_pauses c WHERE c.run_seq = p.run_seq AND c.receive = '"closed"')`,
  },
  {
    name: "the messages of a run are numbered from 1 on, and it knows that it has some",
    sql:
      `SELECT 'Run ' || r.id || ' has ' || count(*) || ' messages, and ' || iif((r.has_pauses & 1) = 0, 'does not know of any',
           'their numbers are ' || min(m.no) || ' to ' || max(m.no)) AS r
       FROM holdfast_messages m JOIN holdfast_runs r ON r.seq = m.run_seq GROUP BY m.run_seq
       HAVING min(m.no) <> 1 OR max(m.no) <> count(*) OR count(DISTINCT m.no) <> count(*) OR (r.has_pauses & 1) = 0`,
  },
  {
    name: "each chunk of a stream has as many items as it says, and none that are permanent are void",
    sql: `SELECT 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' says that it has ' ||
         c.count || ' items, and ' || iif(c.items IS NULL, 'is void, and permanent', 'has others') AS r
       FROM holdfast_chunks c JOIN holdfast_runs r ON r.seq = c.run_seq
       WHERE iif(c.items IS NULL, c.generation IS NULL,
         json_array_length(iif(json_valid(c.items), c.items, '[]')) <> c.count)`,
  },
  {
    name: "no open chunk of a stream is of a lease that was never given",
    sql: `SELECT 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' is of lease ' ||
         c.generation || ', of ' || r.lease_generation AS r
       FROM holdfast_chunks c JOIN holdfast_runs r ON r.seq = c.run_seq WHERE c.generation > r.lease_generation
         AND NOT EXISTS (SELECT 1 FROM holdfast_chunks p WHERE p.run_seq = c.run_seq AND p.stream = c.stream
           AND p.generation IS NULL AND p.position > c.position)`,
  },
  {
    name: "each chunk of a stream follows the one before it that has items, so void ones have none",
    sql:
      `SELECT 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' does not follow chunk ' ||
         c.before AS r
       FROM (SELECT *, lag(position, 1, 0) OVER w AS before, lag(first + count, 1, 0) OVER w AS items_before,
           lag(size, 1, 0) OVER w AS size_before FROM holdfast_chunks WHERE items IS NOT NULL
         WINDOW w AS (PARTITION BY run_seq, stream ORDER BY position)) c JOIN holdfast_runs r ON r.seq = c.run_seq
       WHERE c.follows <> c.before OR c.first <> c.items_before OR c.size < c.size_before`,
  },
  {
    name: "a run has counted what is recorded of its steps",
    sql: `SELECT 'Step "' || s.name || '" of run ' || r.id || ' is a record that its run has not counted' AS r
       FROM holdfast_steps s JOIN holdfast_runs r ON r.seq = s.run_seq WHERE s.recorded_no > r.recorded`,
  },
  {
    // A step that was executed when its run was cancelled is no record of its own.
    name: "no two steps of a run are the same record",
    sql:
      `SELECT 'Run ' || r.id || ' has ' || count(*) || ' steps that are one record: "' || group_concat(s.name, '", "') || '"' AS r
       FROM holdfast_steps s JOIN holdfast_runs r ON r.seq = s.run_seq
       WHERE s.status <> 'cancelled' GROUP BY s.run_seq, s.recorded_no HAVING count(*) > 1`,
  },
  {
    name: "a run that has failed says why",
    sql: `SELECT 'Run ' || id || ' is failed, and has no failure' AS r
       FROM holdfast_runs WHERE status = 'failed' AND (failure IS NULL OR error IS NULL)`,
  },
  {
    name: "each run has an input",
    sql: `SELECT 'Run ' || id || ' has no input' AS r
       FROM holdfast_runs r WHERE NOT EXISTS (SELECT 1 FROM holdfast_inputs i WHERE i.run_seq = r.seq)`,
  },
  {
    name: "a concurrency key is held by runs that are executed, or that come back to it",
    sql: `SELECT 'The key ' || k.concurrency_key || ' is held by run ' || k.run_id || ', which is ' ||
         coalesce(r.status, 'deleted') AS r
       FROM holdfast_holders k LEFT JOIN holdfast_runs r ON r.id = k.run_id
       WHERE (r.id IS NULL OR r.status IN ${ENDED}) AND NOT EXISTS (SELECT 1 FROM holdfast_ghosts g WHERE g.run_id = k.run_id)`,
  },
  {
    name: "each run that is executed holds its concurrency key",
    sql:
      `SELECT 'Run ' || r.id || ' is executed, and does not hold its key ' || r.concurrency_key AS r FROM holdfast_runs r
       WHERE r.status = 'running' AND r.concurrency_key IS NOT NULL AND NOT EXISTS (
         SELECT 1 FROM holdfast_holders k WHERE k.concurrency_key = r.concurrency_key AND k.run_id = r.id)`,
  },
  {
    name: "a concurrency key has no more holders than it allows",
    sql:
      `SELECT 'The key ' || k.concurrency_key || ' is held by ' || count(*) || ' runs, of ' || max(coalesce(r.key_concurrency, 1)) AS r
       FROM holdfast_holders k LEFT JOIN holdfast_runs r ON r.id = k.run_id
       GROUP BY k.concurrency_key HAVING count(*) > max(coalesce(r.key_concurrency, 1))
         AND sum(r.id IS NULL OR r.status IN ${ENDED}) = 0`,
  },
];

/** What SQLite itself finds wrong with a file, and rows that belong to no run. */
const FILE_CHECKS: readonly TableCheck[] = [
  {
    name: "the file is in order",
    sql: "SELECT 'The file is damaged: ' || quick_check AS r FROM pragma_quick_check WHERE quick_check <> 'ok'",
  },
  {
    name: "every row belongs to a run",
    sql:
      `SELECT 'A row of ' || "table" || ' belongs to no row of ' || parent || ': ' || coalesce(rowid, 'without a number') AS r
       FROM pragma_foreign_key_check`,
  },
];

const LABELS = "json_each(iif(json_valid(r.labels), r.labels, '{}'))";

/** What follows from the rows of runs, and is kept beside them. */
const DERIVED_CHECKS: readonly TableCheck[] = [
  {
    name: "runs are found by their labels, and by no others",
    sql: `SELECT 'Run ' || r.id || ' is not found by its label "' || l.key || '"' AS r FROM holdfast_runs r, ${LABELS} l
       WHERE NOT EXISTS (SELECT 1 FROM holdfast_labels i WHERE i.key = l.key AND i.value = l.value AND i.run_seq = r.seq)
       UNION ALL SELECT 'Run ' || r.id || ' is found by a label "' || i.key || '" that it has not' FROM holdfast_runs r
       JOIN holdfast_labels i ON i.run_seq = r.seq
       WHERE NOT EXISTS (SELECT 1 FROM ${LABELS} l WHERE l.key = i.key AND l.value = i.value)`,
  },
  {
    // What happened to a run before its oldest row may have been removed from the journal.
    name: "the journal has what happened last to each run",
    sql: `SELECT 'The journal lacks that run ' || r.id || ' is ' || r.status AS r FROM holdfast_runs r LEFT JOIN (
         SELECT json_extract(f.value, '$[0]') AS run, json_extract(f.value, '$[1]') AS kind, max(j.position * 4096 + f.key)
         FROM holdfast_journal j, json_each(iif(json_valid(j.facts), j.facts, '[]')) f
         WHERE json_extract(f.value, '$[1]') IN ('claimed', 'waiting', 'completed', 'failed', 'cancelled') GROUP BY run
       ) l ON l.run = r.seq
       WHERE r.status <> 'pending' AND coalesce(r.completed_at, r.started_at) > (SELECT min(at) FROM holdfast_journal)
         AND l.kind IS NOT iif(r.status = 'running', 'claimed', r.status)`,
  },
];

/** What always has to be true of the tables. */
export const SQLITE_CHECKS: readonly TableCheck[] = [
  ...FILE_CHECKS,
  COUNT_CHECK,
  ...QUEUE_CHECKS,
  ...RUN_CHECKS,
  ...DERIVED_CHECKS,
];

const NOW = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/** What is true unless something is stuck, by the clock of this machine. */
export const SQLITE_STUCK_CHECKS: readonly TableCheck[] = [
  {
    name: "expired leases are claimed",
    sql:
      `SELECT 'The lease of run ' || id || ' has expired over a minute ago, and nobody has claimed it' AS r FROM holdfast_runs
       WHERE lease_expires_at < ${NOW} - 60000`,
  },
  {
    name: "no message of a run that has completed is unread",
    sql:
      `SELECT 'Runs of ' || job || ' have completed with ' || count(*) || ' unread messages, and had not closed their inboxes: run ' ||
         max(id) || ' is one of them' AS r
       FROM (SELECT substr(r.job, 1, instr(r.job || char(9), char(9)) - 1) AS job, r.id
         FROM holdfast_messages m JOIN holdfast_runs r ON r.seq = m.run_seq
         WHERE m.pause_seq IS NULL AND r.status = 'completed') GROUP BY job`,
  },
  {
    name: "no run is abandoned again and again",
    sql: `SELECT 'Run ' || id || ' was abandoned ' || abandonments || ' times in a row' AS r FROM holdfast_runs
       WHERE abandonments >= 3 AND completed_at IS NULL`,
  },
  {
    name: "no wait without a deadline is forgotten",
    sql:
      `SELECT 'Wait ' || p.id || ' ("' || p.name || '") of run ' || r.id || ' has no deadline, and is older than 30 days' AS r
       FROM ${PAUSES} WHERE p.kind = 'wait' AND p.status = 'pending' AND p.deadline_at IS NULL
         AND p.created_at < ${NOW} - 2592000000`,
  },
  {
    name: "no row of the outbox is refused, or waits for long",
    sql: `SELECT 'Row ' || no || ' of the outbox (' || kind || ' "' || name || '") ' ||
         coalesce('is refused: ' || error, 'waits for an engine that has its job') AS r FROM holdfast_outbox
       WHERE error IS NOT NULL OR at < ${NOW} - 60000 ORDER BY no`,
    ifAny: "SELECT name AS r FROM sqlite_schema WHERE name = 'holdfast_outbox'",
  },
  {
    name: "the clocks of workers agree with this one",
    sql:
      `SELECT 'The clock of worker ' || id || ' is ' || ((seen_at - ${NOW}) / 1000) || ' s ahead' AS r FROM holdfast_workers
       WHERE seen_at > ${NOW} + 5000`,
  },
];

/** Statements that count all runs again. */
export const SQLITE_RECOUNT = `
BEGIN IMMEDIATE;
DELETE FROM holdfast_counts;
INSERT INTO holdfast_counts (status, job, runs) SELECT status, job, count(*) FROM holdfast_runs GROUP BY status, job;
COMMIT;
`;
