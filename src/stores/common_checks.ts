import { LAST_KEPT } from "./rules.ts";
import { checksOf, type TableCheck } from "./table_check.ts";

const ENDED = "('completed', 'failed', 'cancelled')";

/** The checks that are the same statements in SQLite and in PostgreSQL. */
interface CommonChecks {
  /** The number of runs of each job and status that is kept is right. */
  count: TableCheck;
  /** K1 and K2 of concurrency keys, and T1 of fairness keys. */
  queues: readonly TableCheck[];
  /** What is true of each run by its rows, however it came to them. */
  runs: readonly TableCheck[];
  /** What is true unless something is stuck. */
  stuck: readonly TableCheck[];
}

/** What the two databases say differently. */
interface Dialect {
  /** What comes before the name of a table. */
  prefix: string;
  /** The instant in milliseconds, as an expression. */
  now: string;
  /** The name of the job of a run `r`, as an expression. */
  jobName: string;
  /** A statement that returns a row if there is an outbox. */
  findOutbox: string;
}

/** The checks of the tables that both SQL stores have. */
export function commonChecks({ prefix, now, jobName, findOutbox }: Dialect): CommonChecks {
  const pauses = `${prefix}pauses p join ${prefix}runs r on r.seq = p.run_seq`;
  const isOver =
    `exists (select 1 from ${prefix}pauses p where p.run_seq = r.seq and p.awaited and p.status = 'resolved')`;
  return {
    count: {
      name: "the numbers of runs are kept rightly",
      sql:
        `select 'There are ' || sum(counted) || ' ' || status || ' runs of ' || job || ', but ' || sum(kept) || ' are kept' as r
         from (select status, job, runs as kept, 0 as counted from ${prefix}counts
           union all select status, job, 0, 1 from ${prefix}runs) c
         group by status, job having sum(kept) <> sum(counted)`,
    },
    queues: checksOf({
      "of each concurrency key the first runs are ready, as many as it has room for":
        `select case queue_state when 'R' then 'K1' else 'K2' end || ' is broken: run ' || id || ' of the key ' || concurrency_key ||
             ' is ' || case queue_state when 'R' then 'ready, and has to wait for its key' else 'blocked, and its key is free' end as r
           from (select r.id, r.concurrency_key, r.queue_state, case when r.position < ${LAST_KEPT} or (
               row_number() over (partition by r.concurrency_key, r.queue order by r.position, r.seq) = 1
               and (select count(*) from ${prefix}holders h where h.concurrency_key = r.concurrency_key) < r.key_concurrency
               and (r.key_rate_limit is null or r.started_at is not null or not exists (select 1 from ${prefix}openings o
                 where o.concurrency_key = r.concurrency_key and o.queue = r.queue and not o.is_open)))
             then 'R' else 'B' end as expected
           from ${prefix}runs r where r.concurrency_key is not null and r.queue_state is not null) q
           where queue_state <> expected`,
      "the first run of each fairness key is known":
        `select 'T1 is broken: the first run of the fairness key ' || fairness_key || ' of ' || queue || ' is not the one that is kept' as r
           from (select queue, fairness_key, run_seq as seq, position from ${prefix}heads
             union all
             select queue, fairness_key, seq, position from (select queue, fairness_key, seq, position,
                 row_number() over (partition by queue, fairness_key order by position, seq) as place
               from ${prefix}runs where queue_state = 'R' and fairness_key is not null) f where place = 1) x
           group by queue, fairness_key having count(*) <> 2 or min(seq) <> max(seq) or min(position) <> max(position)`,
    }),
    runs: checksOf({
      "a run has ended exactly if it has a time of its end":
        `select 'Run ' || id || ' is ' || status || ', and has ' || case when completed_at is null then 'no' else 'a' end ||
             ' time of its end' as r
           from ${prefix}runs where (status in ${ENDED}) <> (completed_at is not null)`,
      "a run has a lease exactly while it is executed":
        `select 'Run ' || id || ' is ' || status || ', and its lease is that of ' || coalesce(lease_owner, 'nobody') as r
           from ${prefix}runs where (status = 'running') <> (lease_owner is not null)
             or (lease_owner is null) <> (lease_expires_at is null)`,
      "each waiting run is due, or something can resume it":
        `select 'Run ' || r.id || ' is waiting, and ' || case when ${isOver}
             then 'not due though it waits for nothing any more' else 'nothing can resume it' end as r
           from ${prefix}runs r where r.status = 'waiting' and r.queue_state is null and (${isOver} or (r.timer_at is null
             and not exists (select 1 from ${prefix}pauses p where p.run_seq = r.seq and p.awaited)))`,
      "each waiting run wakes at the first deadline of its pauses":
        `select 'Run ' || r.id || ' is waiting, and wakes after the deadline of "' || p.name || '"' as r from ${pauses}
           where r.status = 'waiting' and r.queue_state is null and p.awaited and p.status = 'pending'
             and p.deadline_at is not null and (r.timer_at is null or r.timer_at > p.deadline_at)`,
      // A patch is an answer, and never ends.
      "a pause has ended exactly if it has an outcome, and with its run":
        `select 'Pause "' || p.name || '" of run ' || r.id || ' is ' || p.status || ', and its run ' || r.status as r from ${pauses}
           where (p.status = 'resolved') <> (p.outcome is not null)
             or (p.status = 'pending' and p.kind <> 'patch' and r.status in ${ENDED})`,
      "a wait timed out at its deadline, or was signalled before it":
        `select 'Pause "' || p.name || '" of run ' || r.id || ' has ended by ' || p.outcome || ' at another time' as r
           from ${pauses} where (p.outcome = 'timeout' and p.kind <> 'receive' and p.resolved_at is distinct from p.deadline_at)
             or (p.outcome = 'signal' and p.deadline_at is not null and p.resolved_at >= p.deadline_at)`,
      "each message was taken by a receive of its run that has ended by it":
        `select 'Message "' || m.id || '" of run ' || r.id || ' was taken by no receive' as r
           from ${prefix}messages m join ${prefix}runs r on r.seq = m.run_seq left join ${prefix}pauses p on p.seq = m.pause_seq
           where m.pause_seq is not null and (p.run_seq is distinct from m.run_seq or p.outcome is distinct from 'messages')`,
      "no receive is open in an inbox that is closed":
        `select 'Receive "' || p.name || '" of run ' || r.id || ' is open, and the inbox is closed' as r
           from ${pauses} where p.kind = 'receive' and p.status = 'pending'
             and exists (select 1 from ${prefix}pauses c where c.run_seq = p.run_seq and c.receive = '"closed"')`,
      "no open chunk of a stream is of a lease that was never given":
        `select 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' is of lease ' ||
             c.generation || ', of ' || r.lease_generation as r
           from ${prefix}chunks c join ${prefix}runs r on r.seq = c.run_seq where c.generation > r.lease_generation
             and not exists (select 1 from ${prefix}chunks p where p.run_seq = c.run_seq and p.stream = c.stream
               and p.generation is null and p.position > c.position)`,
      "each chunk of a stream follows the one before it that has items, so void ones have none":
        `select 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' does not follow chunk ' ||
             c.before as r
           from (select o.*, coalesce(lag(o.position) over w, 0) as before, coalesce(lag(o.first + o.count) over w, 0) as items_before,
               coalesce(lag(o.size) over w, 0) as size_before from ${prefix}chunks o where o.items is not null
             window w as (partition by o.run_seq, o.stream order by o.position)) c join ${prefix}runs r on r.seq = c.run_seq
           where c.follows <> c.before or c.first <> c.items_before or c.size < c.size_before`,
      "a run has counted what is recorded of its steps":
        `select 'Step "' || s.name || '" of run ' || r.id || ' is a record that its run has not counted' as r
           from ${prefix}steps s join ${prefix}runs r on r.seq = s.run_seq where s.recorded_no > r.recorded`,
      "a run that has failed says why": `select 'Run ' || id || ' is failed, and has no failure' as r
           from ${prefix}runs where status = 'failed' and (failure is null or error is null)`,
      "each pending run is in a queue, or comes into one":
        `select 'Run ' || id || ' is pending, and in no queue' as r from ${prefix}runs r
           where status = 'pending' and queue_state is null and due_at is null
             and not exists (select 1 from ${prefix}holds h where h.run_seq = r.seq and h.since is not null)`,
      "each run has an input": `select 'Run ' || id || ' has no input' as r
           from ${prefix}runs r where not exists (select 1 from ${prefix}inputs i where i.run_seq = r.seq)`,
      "a concurrency key is held by runs that are executed, or that come back to it":
        `select 'The key ' || k.concurrency_key || ' is held by run ' || k.run_id || ', which is ' ||
             coalesce(r.status, 'deleted') as r
           from ${prefix}holders k left join ${prefix}runs r on r.id = k.run_id
           where (r.id is null or r.status in ${ENDED})
             and not exists (select 1 from ${prefix}ghosts g where g.run_id = k.run_id)`,
      "each run that is executed holds its concurrency key":
        `select 'Run ' || r.id || ' is executed, and does not hold its key ' || r.concurrency_key as r from ${prefix}runs r
           where r.status = 'running' and r.concurrency_key is not null and not exists (
             select 1 from ${prefix}holders k where k.concurrency_key = r.concurrency_key and k.run_id = r.id)`,
      "a concurrency key has no more holders than it allows":
        `select 'The key ' || k.concurrency_key || ' is held by ' || count(*) || ' runs, of ' || max(coalesce(r.key_concurrency, 1)) as r
           from ${prefix}holders k left join ${prefix}runs r on r.id = k.run_id
           group by k.concurrency_key having count(*) > max(coalesce(r.key_concurrency, 1))
             and count(*) filter (where r.id is null or r.status in ${ENDED}) = 0`,
    }),
    stuck: [
      ...checksOf({
        "expired leases are claimed":
          `select 'The lease of run ' || id || ' has expired over a minute ago, and nobody has claimed it' as r from ${prefix}runs
           where lease_expires_at < ${now} - 60000`,
        "no run is abandoned again and again":
          `select 'Run ' || id || ' was abandoned ' || abandonments || ' times in a row' as r from ${prefix}runs
           where abandonments >= 3 and completed_at is null`,
        "no wait without a deadline is forgotten":
          `select 'Wait ' || p.id || ' ("' || p.name || '") of run ' || r.id || ' has no deadline, and is older than 30 days' as r
           from ${pauses} where p.kind = 'wait' and p.status = 'pending' and p.deadline_at is null
             and p.created_at < ${now} - 2592000000`,
        "the clocks of workers agree with this one":
          `select 'The clock of worker ' || id || ' is ' || ((seen_at - ${now}) / 1000) || ' s ahead' as r
           from ${prefix}workers where seen_at > ${now} + 5000`,
        "no message of a run that has completed is unread":
          `select 'Runs of ' || job || ' have completed with ' || count(*) ||
             ' unread messages, and had not closed their inboxes: run ' || max(id) || ' is one of them' as r
           from (select ${jobName} as job, r.id from ${prefix}messages m join ${prefix}runs r on r.seq = m.run_seq
             where m.pause_seq is null and r.status = 'completed') x group by job`,
      }),
      {
        name: "no row of the outbox is refused, or waits for long",
        sql: `select 'Row ' || no || ' of the outbox (' || kind || ' "' || name || '") ' ||
             coalesce('is refused: ' || error, 'waits for an engine that has its job') as r from ${prefix}outbox
           where error is not null or at < ${now} - 60000 order by no`,
        ifAny: findOutbox,
      },
    ],
  };
}
