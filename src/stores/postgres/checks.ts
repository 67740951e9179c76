import { checksOf, type TableCheck } from "../table_check.ts";
import { commonChecks } from "../common_checks.ts";
import { LEASE_SCAN, queueScan } from "./sql/claim/scan_starts.ts";

const COMMON = commonChecks({
  prefix: "{schema}.",
  now: "(extract(epoch from clock_timestamp()) * 1000)::bigint",
  jobName: "split_part(r.job, E'\\t', 1)",
  findOutbox: "select name as r from to_regclass('{schema}.outbox') name where name is not null",
});
const PAUSES = "{schema}.pauses p join {schema}.runs r on r.seq = p.run_seq";
const OWNED = ["inputs", "labels", "steps", "pauses", "logs", "attempts", "interruptions", "messages", "chunks"];

/** What always has to be true of the tables of a schema: `{schema}` is its name. */
export const POSTGRES_CHECKS: readonly TableCheck[] = [
  COMMON.count,
  ...COMMON.queues,
  ...COMMON.runs,
  ...checksOf({
    "every row belongs to a run": OWNED.map((table) =>
      `select 'A row of ${table} belongs to no run: ' || o.run_seq as r from {schema}.${table} o
       where not exists (select 1 from {schema}.runs r where r.seq = o.run_seq)`
    ).join(" union all "),
    "no run without a key waits for one":
      `select 'Run ' || id || ' has no key, and waits for one' as r from {schema}.runs
       where concurrency_key is null and queue_state = 'B'`,
    "no claim begins behind a run that is ready, or a lease":
      `select 'S1 is broken: ' || e.what || ' comes before the place where claims begin' as r from (
         select 'run ' || id as what, ${queueScan("queue")} as scope, position from {schema}.runs
           where queue_state = 'R' and fairness_key is null
         union all select 'the lease of run ' || id, ${LEASE_SCAN}, lease_expires_at from {schema}.runs where status = 'running') e
       where e.position <= (select min(s.position) from {schema}.scan_starts s where s.scope = e.scope)`,
    "a held run is in the queue in which it is offered":
      `select 'Run ' || r.id || ' is ' || r.status || ', and in a queue that it cannot be in' as r from {schema}.runs r
       left join {schema}.holds h on h.run_seq = r.seq and h.since is not null
       where r.is_held <> (h.run_seq is not null)
         or (r.queue_state is not null and r.status not in ('pending', 'waiting'))
         or (r.is_held and (r.status <> 'pending' or (h.offered_in = '') <> (r.queue_state is null)
           or (h.offered_in <> '' and h.offered_in <> r.queue)))
         or (not r.is_held and r.queue <> r.job and right(r.queue, 1) <> E'\\t')`,
    "only a waiting run wakes at a time":
      `select 'Run ' || id || ' is ' || status || ', and wakes at a time' as r from {schema}.runs
       where timer_at is not null and status <> 'waiting'`,
    "no message is unread that an open receive takes":
      `select 'Message "' || m.id || '" of run ' || r.id || ' is unread, and receive "' || p.name || '" waits for it' as r
       from ${PAUSES} join {schema}.messages m on m.run_seq = p.run_seq and m.pause_seq is null
       where p.kind = 'receive' and p.status = 'pending' and jsonb_exists(p.receive::jsonb -> 'names', m.name)`,
    "a receive that has ended by messages has some, of its names, and no more than it takes":
      `select 'Receive "' || name || '" of run ' || id || ' has ended by ' || taken || ' messages, ' || others ||
         ' of other names' as r
       from (select p.name, r.id, p.receive::jsonb as receive, count(m.seq) as taken, count(m.seq) filter (
           where p.receive <> '"closed"' and not jsonb_exists(p.receive::jsonb -> 'names', m.name)) as others
         from ${PAUSES} left join {schema}.messages m on m.pause_seq = p.seq where p.outcome = 'messages'
         group by p.seq, p.name, r.id, p.receive) x
       where taken = 0 or others > 0 or taken > (receive ->> 'max')::int`,
    "the messages of a run are numbered from 1 on, and it knows that it has some":
      `select 'Run ' || r.id || ' has ' || m.messages || ' messages, and ' || case when r.has_pauses
           then 'their numbers are ' || m.first || ' to ' || m.last else 'does not know of any' end as r
       from (select run_seq, count(*) as messages, count(distinct no) as numbers, min(no) as first, max(no) as last
         from {schema}.messages group by run_seq) m join {schema}.runs r on r.seq = m.run_seq
       where m.first <> 1 or m.last <> m.messages or m.numbers <> m.messages or not r.has_pauses`,
    "each chunk of a stream has as many items as it says, and none that are permanent are void":
      `select 'Chunk ' || c.position || ' of stream "' || c.stream || '" of run ' || r.id || ' says that it has ' ||
         c.count || ' items, and ' || case when c.items is null then 'is void, and permanent' else 'has others' end as r
       from {schema}.chunks c join {schema}.runs r on r.seq = c.run_seq
       where case when c.items is null then c.generation is null else json_array_length(c.items::json) <> c.count end`,
    // A step that was executed when its run was cancelled is no record of its own.
    "no two steps of a run are the same record":
      `select 'Run ' || r.id || ' has ' || count(*) || ' steps that are one record: "' || string_agg(s.name, '", "') || '"' as r
       from {schema}.steps s join {schema}.runs r on r.seq = s.run_seq
       where s.status <> 'cancelled' group by r.id, s.run_seq, s.recorded_no having count(*) > 1`,
    "runs are found by their labels, and by no others":
      `select 'Run ' || r.id || ' is not found by its label "' || l.key || '"' as r
       from {schema}.runs r, json_each_text(r.labels::json) l
       where not exists (select 1 from {schema}.labels i where i.key = l.key and i.value = l.value and i.run_seq = r.seq)
       union all select 'Run ' || r.id || ' is found by a label "' || i.key || '" that it has not'
       from {schema}.runs r join {schema}.labels i on i.run_seq = r.seq
       where not exists (select 1 from json_each_text(r.labels::json) l where l.key = i.key and l.value = i.value)`,
    // What happened to a run before its oldest row may have been removed from the journal.
    "the journal has what happened last to each run": `with facts as materialized (
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
  }),
];

/** What is true unless something is stuck, by the clock of the database. */
export const POSTGRES_STUCK_CHECKS: readonly TableCheck[] = COMMON.stuck;

/**
 * Statements that count all runs again. The lock waits for calls that have written their change of a number, and the
 * count does not see the runs of those that have not.
 */
export const POSTGRES_RECOUNT = `
lock table {schema}.counts in exclusive mode;
delete from {schema}.counts;
insert into {schema}.counts (status, job, runs) select status, job, count(*) from {schema}.runs group by status, job;
`;
