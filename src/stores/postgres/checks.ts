import type { TableCheck } from "../table_check.ts";
import { LAST_KEPT } from "../rules.ts";
import { LEASE_SCAN, queueScan } from "./sql/claim/scan_starts.ts";

const ENDED = "('completed', 'failed', 'cancelled')";
const PAUSES = "{schema}.pauses p join {schema}.runs r on r.seq = p.run_seq";
const OWNED = ["inputs", "labels", "steps", "pauses", "logs", "attempts", "interruptions", "messages", "chunks"];

/** What always has to be true of the tables of a schema: `{schema}` is its name. */
export const POSTGRES_CHECKS: readonly TableCheck[] = [
  {
    name: "every row belongs to a run",
    sql: OWNED.map((table) =>
      `select 'A row of ${table} belongs to no run: ' || o.run_seq as r from {schema}.${table} o
       where not exists (select 1 from {schema}.runs r where r.seq = o.run_seq)`
    ).join(" union all "),
  },
  {
    name: "the numbers of runs are kept rightly",
    sql:
      `select 'There are ' || sum(counted) || ' ' || status || ' runs of ' || job || ', but ' || sum(kept) || ' are kept' as r
       from (select status, job, runs as kept, 0 as counted from {schema}.counts
         union all select status, job, 0, 1 from {schema}.runs) c
       group by status, job having sum(kept) <> sum(counted)`,
  },
  {
    name: "of each concurrency key the first runs are ready, as many as it has room for",
    sql:
      `select case queue_state when 'R' then 'K1' else 'K2' end || ' is broken: run ' || id || ' of the key ' || concurrency_key ||
         ' is ' || case queue_state when 'R' then 'ready, and has to wait for its key' else 'blocked, and its key is free' end as r
       from (select r.id, r.concurrency_key, r.queue_state, case when r.position < ${LAST_KEPT} or (
           row_number() over (partition by r.concurrency_key, r.queue order by r.position, r.seq) = 1
           and (select count(*) from {schema}.holders h where h.concurrency_key = r.concurrency_key) < r.key_concurrency
           and (r.key_rate_limit is null or r.started_at is not null or not exists (select 1 from {schema}.openings o
             where o.concurrency_key = r.concurrency_key and o.queue = r.queue and not o.is_open)))
         then 'R' else 'B' end as expected
       from {schema}.runs r where r.concurrency_key is not null and r.queue_state is not null) q
       where queue_state <> expected::"char"`,
  },
  {
    name: "no run without a key waits for one",
    sql: `select 'Run ' || id || ' has no key, and waits for one' as r from {schema}.runs
       where concurrency_key is null and queue_state = 'B'`,
  },
  {
    name: "the first run of each fairness key is known",
    sql:
      `select 'T1 is broken: the first run of the fairness key ' || fairness_key || ' of ' || queue || ' is not the one that is kept' as r
       from (select queue, fairness_key, run_seq, position from {schema}.heads) h
       full join (select distinct on (queue, fairness_key) queue, fairness_key, seq as run_seq, position
         from {schema}.runs where queue_state = 'R' and fairness_key is not null
         order by queue, fairness_key, position, seq) r using (queue, fairness_key, run_seq, position)
       where h.* is null or r.* is null`,
  },
  {
    name: "no claim begins behind a run that is ready, or a lease",
    sql: `select 'S1 is broken: ' || e.what || ' comes before the place where claims begin' as r from (
         select 'run ' || id as what, ${queueScan("queue")} as scope, position from {schema}.runs
           where queue_state = 'R' and fairness_key is null
         union all select 'the lease of run ' || id, ${LEASE_SCAN}, lease_expires_at from {schema}.runs where status = 'running') e
       where e.position <= (select min(s.position) from {schema}.scan_starts s where s.scope = e.scope)`,
  },
  {
    name: "a held run is in the queue in which it is offered",
    sql:
      `select 'Run ' || r.id || ' is ' || r.status || ', and in a queue that it cannot be in' as r from {schema}.runs r
       left join {schema}.holds h on h.run_seq = r.seq and h.since is not null
       where r.is_held <> (h.run_seq is not null)
         or (r.queue_state is not null and r.status not in ('pending', 'waiting'))
         or (r.is_held and (r.status <> 'pending' or (h.offered_in = '') <> (r.queue_state is null)
           or (h.offered_in <> '' and h.offered_in <> r.queue)))
         or (not r.is_held and r.queue <> r.job and right(r.queue, 1) <> E'\\t')`,
  },
  {
    name: "a run has ended exactly if it has a time of its end",
    sql:
      `select 'Run ' || id || ' is ' || status || ', and has ' || case when completed_at is null then 'no' else 'a' end ||
         ' time of its end' as r
       from {schema}.runs where (status in ${ENDED}) <> (completed_at is not null)`,
  },
  {
    name: "a run has a lease exactly while it is executed",
    sql:
      `select 'Run ' || id || ' is ' || status || ', and its lease is that of ' || coalesce(lease_owner, 'nobody') as r
       from {schema}.runs where (status = 'running') <> (lease_owner is not null)
         or (lease_owner is null) <> (lease_expires_at is null)`,
  },
  {
    name: "only a waiting run wakes at a time",
    sql: `select 'Run ' || id || ' is ' || status || ', and wakes at a time' as r from {schema}.runs
       where timer_at is not null and status <> 'waiting'`,
  },
  {
    name: "each pending run is in a queue, or comes into one",
    sql: `select 'Run ' || id || ' is pending, and in no queue' as r from {schema}.runs
       where status = 'pending' and queue_state is null and due_at is null and not is_held`,
  },
  {
    name: "each waiting run is due, or something can resume it",
    sql:
      `select 'Run ' || r.id || ' is waiting, and ' || case when a.is_over then 'not due though it waits for nothing any more'
           else 'nothing can resume it' end as r
       from {schema}.runs r, lateral (select coalesce(bool_or(p.status = 'resolved'), false) as is_over, count(*) as awaited
         from {schema}.pauses p where p.run_seq = r.seq and p.awaited) a
       where r.status = 'waiting' and r.queue_state is null and (a.is_over or (r.timer_at is null and a.awaited = 0))`,
  },
  {
    name: "each waiting run wakes at the first deadline of its pauses",
    sql: `select 'Run ' || r.id || ' is waiting, and wakes after the deadline of "' || p.name || '"' as r from ${PAUSES}
       where r.status = 'waiting' and r.queue_state is null and p.awaited and p.status = 'pending'
         and p.deadline_at is not null and (r.timer_at is null or r.timer_at > p.deadline_at)`,
  },
  {
    // A patch is an answer, and never ends.
    name: "a pause has ended exactly if it has an outcome, and with its run",
    sql:
      `select 'Pause "' || p.name || '" of run ' || r.id || ' is ' || p.status || ', and its run ' || r.status as r from ${PAUSES}
       where (p.status = 'resolved') <> (p.outcome is not null) or (p.status = 'pending' and p.kind <> 'patch' and r.status in ${ENDED})`,
  },
  {
    name: "a wait timed out at its deadline, or was signalled before it",
    sql: `select 'Pause "' || p.name || '" of run ' || r.id || ' has ended by ' || p.outcome || ' at another time' as r
       from ${PAUSES} where (p.outcome = 'timeout' and p.kind <> 'receive' and p.resolved_at is distinct from p.deadline_at)
         or (p.outcome = 'signal' and p.deadline_at is not null and p.resolved_at >= p.deadline_at)`,
  },
  {
    name: "no message is unread that an open receive takes",
    sql:
      `select 'Message "' || m.id || '" of run ' || r.id || ' is unread, and receive "' || p.name || '" waits for it' as r
       from ${PAUSES} join {schema}.messages m on m.run_seq = p.run_seq and m.pause_seq is null
       where p.kind = 'receive' and p.status = 'pending' and jsonb_exists(p.receive::jsonb -> 'names', m.name)`,
  },
  {
    name: "each message was taken by a receive of its run that has ended by it",
    sql: `select 'Message "' || m.id || '" of run ' || r.id || ' was taken by no receive' as r
       from {schema}.messages m join {schema}.runs r on r.seq = m.run_seq left join {schema}.pauses p on p.seq = m.pause_seq
       where m.pause_seq is not null and (p.run_seq is distinct from m.run_seq or p.outcome is distinct from 'messages')`,
  },
  {
    name: "a receive that has ended by messages has some, of its names, and no more than it takes",
    sql: `select 'Receive "' || name || '" of run ' || id || ' has ended by ' || taken || ' messages, ' || others ||
         ' of other names' as r
       from (select p.name, r.id, p.receive::jsonb as receive, count(m.seq) as taken, count(m.seq) filter (
           where p.receive <> '"closed"' and not jsonb_exists(p.receive::jsonb -> 'names', m.name)) as others
         from ${PAUSES} left join {schema}.messages m on m.pause_seq = p.seq where p.outcome = 'messages'
         group by p.seq, p.name, r.id, p.receive) x
       where taken = 0 or others > 0 or taken > (receive ->> 'max')::int`,
  },
  {
    name: "no receive is open in an inbox that is closed",
    sql: `select 'Receive "' || p.name || '" of run ' || r.id || ' is open, and the inbox is closed' as r
       from ${PAUSES} where p.kind = 'receive' and p.status = 'pending'
         and exists (select 1 from {schema}.pauses c where c.run_seq = p.run_seq and c.receive = '"closed"')`,
  },
  {
    name: "the messages of a run are numbered from 1 on, and it knows that it has some",
    sql: `select 'Run ' || r.id || ' has ' || m.messages || ' messages, and ' || case when r.has_pauses
           then 'their numbers are ' || m.first || ' to ' || m.last else 'does not know of any' end as r
       from (select run_seq, count(*) as messages, count(distinct no) as numbers, min(no) as first, max(no) as last
         from {schema}.messages group by run_seq) m join {schema}.runs r on r.seq = m.run_seq
       where m.first <> 1 or m.last <> m.messages or m.numbers <> m.messages or not r.has_pauses`,
  },
  {
    name: "each chunk of a stream has as many items as it says, and none that are permanent are void",
    sql: `select 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' says that it has ' ||
         c.count || ' items, and ' || case when c.items is null then 'is void, and permanent' else 'has others' end as r
       from {schema}.chunks c join {schema}.runs r on r.seq = c.run_seq
       where case when c.items is null then c.generation is null else json_array_length(c.items::json) <> c.count end`,
  },
  {
    name: "no open chunk of a stream is of a lease that was never given",
    sql: `select 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' is of lease ' ||
         c.generation || ', of ' || r.lease_generation as r
       from {schema}.chunks c join {schema}.runs r on r.seq = c.run_seq where c.generation > r.lease_generation
         and not exists (select 1 from {schema}.chunks p where p.run_seq = c.run_seq and p.stream = c.stream
           and p.generation is null and p.position > c.position)`,
  },
  {
    name: "each chunk of a stream follows the one before it that has items, so void ones have none",
    sql:
      `select 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' does not follow chunk ' ||
         c.before as r
       from (select o.*, coalesce(lag(o.position) over w, 0) as before, coalesce(lag(o.first + o.count) over w, 0) as items_before,
           coalesce(lag(o.size) over w, 0) as size_before from {schema}.chunks o where o.items is not null
         window w as (partition by o.run_seq, o.stream order by o.position)) c join {schema}.runs r on r.seq = c.run_seq
       where c.follows <> c.before or c.first <> c.items_before or c.size < c.size_before`,
  },
  {
    name: "a run has counted what is recorded of its steps",
    sql: `select 'Step "' || s.name || '" of run ' || r.id || ' is a record that its run has not counted' as r
       from {schema}.steps s join {schema}.runs r on r.seq = s.run_seq where s.recorded_no > r.recorded`,
  },
  {
    // A step that was executed when its run was cancelled is no record of its own.
    name: "no two steps of a run are the same record",
    sql:
      `select 'Run ' || r.id || ' has ' || count(*) || ' steps that are one record: "' || string_agg(s.name, '", "') || '"' as r
       from {schema}.steps s join {schema}.runs r on r.seq = s.run_seq
       where s.status <> 'cancelled' group by r.id, s.run_seq, s.recorded_no having count(*) > 1`,
  },
  {
    name: "a run that has failed says why",
    sql: `select 'Run ' || id || ' is failed, and has no failure' as r
       from {schema}.runs where status = 'failed' and (failure is null or error is null)`,
  },
  {
    name: "each run has an input",
    sql: `select 'Run ' || id || ' has no input' as r
       from {schema}.runs r where not exists (select 1 from {schema}.inputs i where i.run_seq = r.seq)`,
  },
  {
    name: "a concurrency key is held by runs that are executed, or that come back to it",
    sql: `select 'The key ' || k.concurrency_key || ' is held by run ' || k.run_id || ', which is ' ||
         coalesce(r.status, 'deleted') as r
       from {schema}.holders k left join {schema}.runs r on r.id = k.run_id
       where (r.id is null or r.status in ${ENDED})
         and not exists (select 1 from {schema}.ghosts g where g.run_id = k.run_id)`,
  },
  {
    name: "each run that is executed holds its concurrency key",
    sql:
      `select 'Run ' || r.id || ' is executed, and does not hold its key ' || r.concurrency_key as r from {schema}.runs r
       where r.status = 'running' and r.concurrency_key is not null and not exists (
         select 1 from {schema}.holders k where k.concurrency_key = r.concurrency_key and k.run_id = r.id)`,
  },
  {
    name: "a concurrency key has no more holders than it allows",
    sql:
      `select 'The key ' || k.concurrency_key || ' is held by ' || count(*) || ' runs, of ' || max(coalesce(r.key_concurrency, 1)) as r
       from {schema}.holders k left join {schema}.runs r on r.id = k.run_id
       group by k.concurrency_key having count(*) > max(coalesce(r.key_concurrency, 1))
         and count(*) filter (where r.id is null or r.status in ${ENDED}) = 0`,
  },
  {
    name: "runs are found by their labels, and by no others",
    sql: `select 'Run ' || r.id || ' is not found by its label "' || l.key || '"' as r
       from {schema}.runs r, json_each_text(r.labels::json) l
       where not exists (select 1 from {schema}.labels i where i.key = l.key and i.value = l.value and i.run_seq = r.seq)
       union all select 'Run ' || r.id || ' is found by a label "' || i.key || '" that it has not'
       from {schema}.runs r join {schema}.labels i on i.run_seq = r.seq
       where not exists (select 1 from json_each_text(r.labels::json) l where l.key = i.key and l.value = i.value)`,
  },
  {
    // What happened to a run before its oldest row may have been removed from the journal.
    name: "the journal has what happened last to each run",
    sql: `with facts as materialized (
         select (f.fact->>0)::bigint as run, f.fact->>1 as kind, j.position, f.no
         from {schema}.journal j, json_array_elements(('[' || j.facts || ']')::json) with ordinality f (fact, no)
         where f.fact->>1 in ('triggered', 'claimed', 'waiting', 'completed', 'failed', 'cancelled')
       ), first as (select min(at) as at from {schema}.journal)
       select 'The journal lacks that run ' || r.id || ' was triggered' as r from first, {schema}.runs r
       where r.created_at > first.at and not exists (select 1 from facts f where f.run = r.seq and f.kind = 'triggered')
       union all select 'The journal lacks that run ' || r.id || ' is ' || r.status from first, {schema}.runs r left join (
         select distinct on (run) run, kind from facts where kind <> 'triggered' order by run, position desc, no desc
       ) l on l.run = r.seq
       where r.status <> 'pending' and coalesce(r.completed_at, r.started_at) > first.at
         and l.kind is distinct from case r.status when 'running' then 'claimed' else r.status end`,
  },
];

const NOW = "(extract(epoch from clock_timestamp()) * 1000)::bigint";

/** What is true unless something is stuck, by the clock of the database. */
export const POSTGRES_STUCK_CHECKS: readonly TableCheck[] = [
  {
    name: "expired leases are claimed",
    sql:
      `select 'The lease of run ' || id || ' has expired over a minute ago, and nobody has claimed it' as r from {schema}.runs
       where lease_expires_at < ${NOW} - 60000`,
  },
  {
    name: "no run is abandoned again and again",
    sql: `select 'Run ' || id || ' was abandoned ' || abandonments || ' times in a row' as r from {schema}.runs
       where abandonments >= 3 and completed_at is null`,
  },
  {
    name: "no wait without a deadline is forgotten",
    sql:
      `select 'Wait ' || p.id || ' ("' || p.name || '") of run ' || r.id || ' has no deadline, and is older than 30 days' as r
       from ${PAUSES} where p.kind = 'wait' and p.status = 'pending' and p.deadline_at is null
         and p.created_at < ${NOW} - 2592000000`,
  },
  {
    name: "no message of a run that has completed is unread",
    sql:
      `select 'Runs of ' || job || ' have completed with ' || count(*) || ' unread messages, and had not closed their inboxes: run ' ||
         max(id) || ' is one of them' as r
       from (select split_part(r.job, E'\\t', 1) as job, r.id from {schema}.messages m join {schema}.runs r on r.seq = m.run_seq
         where m.pause_seq is null and r.status = 'completed') x group by job`,
  },
  {
    name: "no row of the outbox is refused, or waits for long",
    sql: `select 'Row ' || no || ' of the outbox (' || kind || ' "' || name || '") ' ||
         coalesce('is refused: ' || error, 'waits for an engine that has its job') as r from {schema}.outbox
       where error is not null or at < ${NOW} - 60000 order by no`,
    ifAny: "select name as r from to_regclass('{schema}.outbox') name where name is not null",
  },
  {
    name: "the clocks of workers agree with this one",
    sql:
      `select 'The clock of worker ' || id || ' is ' || ((seen_at - ${NOW}) / 1000) || ' s ahead' as r from {schema}.workers
       where seen_at > ${NOW} + 5000`,
  },
];

/**
 * Statements that count all runs again. The lock waits for calls that have written their change of a number, and the
 * count does not see the runs of those that have not.
 */
export const POSTGRES_RECOUNT = `
lock table {schema}.counts in exclusive mode;
delete from {schema}.counts;
insert into {schema}.counts (status, job, runs) select status, job, count(*) from {schema}.runs group by status, job;
`;
