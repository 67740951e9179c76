import { checksOf, type TableCheck } from "../table_check.ts";
import { commonChecks } from "../common_checks.ts";

const COMMON = commonChecks({
  prefix: "holdfast_",
  now: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
  jobName: "substr(r.job, 1, instr(r.job || char(9), char(9)) - 1)",
  findOutbox: "SELECT name AS r FROM sqlite_schema WHERE name = 'holdfast_outbox'",
});
const RUNS = "holdfast_runs r LEFT JOIN holdfast_holds h ON h.run_seq = r.seq AND h.since IS NOT NULL";
const PAUSES = "holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq";

/** The number of runs of each job and status that is kept is right. */
export const COUNT_CHECK: TableCheck = COMMON.count;

/**
 * The queues are right: K1 and K2 of flow/concurrency_keys.ts, T1 of flow/turns.ts, and a held run is in the queue in
 * which it is offered, or in none.
 */
export const QUEUE_CHECKS: readonly TableCheck[] = [
  ...COMMON.queues,
  ...checksOf({
    "a held run is in the queue in which it is offered":
      `SELECT 'Run ' || r.id || ' is in another queue than that of its job, or in which it is offered' AS r FROM ${RUNS}
       WHERE iif(h.run_seq IS NULL,
         r.queue_state IS NOT NULL AND r.queue <> r.job AND substr(r.queue, -1) <> char(9),
         r.status <> 'pending' OR
           iif(h.offered_in = '', r.queue_state IS NOT NULL, r.queue_state IS NULL OR r.queue <> h.offered_in))`,
  }),
];

/** What is true of each run by its rows, however it came to them. */
export const RUN_CHECKS: readonly TableCheck[] = [
  ...COMMON.runs,
  ...checksOf({
    "only a run that is not executed and has not ended is in a queue, or wakes at a time":
      `SELECT 'Run ' || r.id || ' is ' || r.status || ', and ' || iif(r.queue_state IS NULL, 'wakes at a time', 'is in a queue') AS r
       FROM ${RUNS} WHERE (r.queue_state IS NOT NULL AND r.status NOT IN ('pending', 'waiting'))
         OR (r.timer_at IS NOT NULL AND r.status <> 'waiting')`,
    "no message is unread that an open receive takes":
      `SELECT 'Message "' || m.id || '" of run ' || r.id || ' is unread, and receive "' || p.name || '" waits for it' AS r
       FROM ${PAUSES} JOIN holdfast_messages m ON m.run_seq = p.run_seq AND m.pause_seq IS NULL
       WHERE p.kind = 'receive' AND p.status = 'pending'
         AND m.name IN (SELECT value FROM json_each(p.receive, '$.names'))`,
    "a receive that has ended by messages has some, of its names, and no more than it takes":
      `SELECT 'Receive "' || p.name || '" of run ' || r.id || ' has ended by ' || count(m.seq) || ' messages, ' || count(m.seq) FILTER (
           WHERE p.receive <> '"closed"' AND m.name NOT IN (SELECT value FROM json_each(p.receive, '$.names'))
         ) || ' of other names' AS r
       FROM ${PAUSES} LEFT JOIN holdfast_messages m ON m.pause_seq = p.seq WHERE p.outcome = 'messages'
       GROUP BY p.seq HAVING count(m.seq) = 0 OR count(m.seq) > iif(p.receive = '"closed"', NULL, p.receive ->> '$.max')
         OR count(m.seq) FILTER (
           WHERE p.receive <> '"closed"' AND m.name NOT IN (SELECT value FROM json_each(p.receive, '$.names'))) > 0`,
    "the messages of a run are numbered from 1 on, and it knows that it has some":
      `SELECT 'Run ' || r.id || ' has ' || count(*) || ' messages, and ' || iif((r.has_pauses & 1) = 0, 'does not know of any',
           'their numbers are ' || min(m.no) || ' to ' || max(m.no)) AS r
       FROM holdfast_messages m JOIN holdfast_runs r ON r.seq = m.run_seq GROUP BY m.run_seq
       HAVING min(m.no) <> 1 OR max(m.no) <> count(*) OR count(DISTINCT m.no) <> count(*) OR (r.has_pauses & 1) = 0`,
    "each chunk of a stream has as many items as it says, and none that are permanent are void":
      `SELECT 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' says that it has ' ||
         c.count || ' items, and ' || iif(c.items IS NULL, 'is void, and permanent', 'has others') AS r
       FROM holdfast_chunks c JOIN holdfast_runs r ON r.seq = c.run_seq
       WHERE iif(c.items IS NULL, c.generation IS NULL,
         json_array_length(iif(json_valid(c.items), c.items, '[]')) <> c.count)`,
    // A step that was executed when its run was cancelled is no record of its own.
    "no two steps of a run are the same record":
      `SELECT 'Run ' || r.id || ' has ' || count(*) || ' steps that are one record: "' || group_concat(s.name, '", "') || '"' AS r
       FROM holdfast_steps s JOIN holdfast_runs r ON r.seq = s.run_seq
       WHERE s.status <> 'cancelled' GROUP BY s.run_seq, s.recorded_no HAVING count(*) > 1`,
  }),
];

/** What SQLite itself finds wrong with a file, and rows that belong to no run. */
const FILE_CHECKS: readonly TableCheck[] = checksOf({
  "the file is in order":
    "SELECT 'The file is damaged: ' || quick_check AS r FROM pragma_quick_check WHERE quick_check <> 'ok'",
  "every row belongs to a run":
    `SELECT 'A row of ' || "table" || ' belongs to no row of ' || parent || ': ' || coalesce(rowid, 'without a number') AS r
       FROM pragma_foreign_key_check`,
});

const LABELS = "json_each(iif(json_valid(r.labels), r.labels, '{}'))";

/** What follows from the rows of runs, and is kept beside them. */
const DERIVED_CHECKS: readonly TableCheck[] = checksOf({
  "runs are found by their labels, and by no others":
    `SELECT 'Run ' || r.id || ' is not found by its label "' || l.key || '"' AS r FROM holdfast_runs r, ${LABELS} l
       WHERE NOT EXISTS (SELECT 1 FROM holdfast_labels i WHERE i.key = l.key AND i.value = l.value AND i.run_seq = r.seq)
       UNION ALL SELECT 'Run ' || r.id || ' is found by a label "' || i.key || '" that it has not' FROM holdfast_runs r
       JOIN holdfast_labels i ON i.run_seq = r.seq
       WHERE NOT EXISTS (SELECT 1 FROM ${LABELS} l WHERE l.key = i.key AND l.value = i.value)`,
  // What happened to a run before its oldest row may have been removed from the journal.
  "the journal has what happened last to each run":
    `SELECT 'The journal lacks that run ' || r.id || ' is ' || r.status AS r FROM holdfast_runs r LEFT JOIN (
         SELECT CAST(json_extract(f.value, '$[0]') AS INTEGER) AS run, json_extract(f.value, '$[1]') AS kind,
           max(j.position * 4096 + f.key)
         FROM holdfast_journal j, json_each(iif(json_valid(j.facts), j.facts, '[]')) f
         WHERE json_extract(f.value, '$[1]') IN ('claimed', 'waiting', 'completed', 'failed', 'cancelled') GROUP BY run
       ) l ON l.run = r.seq
       WHERE r.status <> 'pending' AND coalesce(r.completed_at, r.started_at) > (SELECT min(at) FROM holdfast_journal)
         AND l.kind IS NOT iif(r.status = 'running', 'claimed', r.status)`,
});

/** What always has to be true of the tables. */
export const SQLITE_CHECKS: readonly TableCheck[] = [
  ...FILE_CHECKS,
  COUNT_CHECK,
  ...QUEUE_CHECKS,
  ...RUN_CHECKS,
  ...DERIVED_CHECKS,
];

/** What is true unless something is stuck, by the clock of this machine. */
export const SQLITE_STUCK_CHECKS: readonly TableCheck[] = COMMON.stuck;

/** Statements that count all runs again. */
export const SQLITE_RECOUNT = `
BEGIN IMMEDIATE;
DELETE FROM holdfast_counts;
INSERT INTO holdfast_counts (status, job, runs) SELECT status, job, count(*) FROM holdfast_runs GROUP BY status, job;
COMMIT;
`;
