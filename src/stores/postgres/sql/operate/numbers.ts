import { LISTED_LEASES, MAX_COUNTED_HELD } from "../../../rules.ts";
import { ENTRY } from "../basics.ts";
import { STATISTICS_SPANS } from "../../../operate/numbers.ts";
import { MAX_TIMED, TIMED_RUNS } from "../../../run_conditions.ts";

const COUNTS = ["triggered", "started", "completed", "failed", "cancelled", "steps", "step_failures"];
const SAMPLES = ["samples", "pending", "running", "waiting", "busy"];
// How long it waits for those who may be adding a run, before it leaves it to the next call.
const SETTLE_MS = 20;
const ALL = [...COUNTS, ...SAMPLES];

/** Workers, the numbers of jobs, and how large the tables are. */
export const NUMBERS = `
-- Notes that a worker claims nothing more. See Store.noteStopping().
create or replace function fn.note_stopping(p jsonb, p_now bigint) returns jsonb language sql volatile ${ENTRY} as $$
  update {schema}.workers set stopping = true where id = p ->> 'workerId';
  select null::jsonb
$$;

-- The workers, by their first claims. See Store.getWorkers().
create or replace function fn.get_workers(p jsonb, p_now bigint) returns jsonb language plpgsql volatile ${ENTRY} as $$
declare v_now bigint := fn.clock(p_now);
begin
  return jsonb_build_object('now', v_now, 'workers', (
    select coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'queues', w.queues, 'details', w.details,
      'startedAt', w.started_at, 'seenAt', w.seen_at, 'isStopping', w.stopping, 'leaseMs', w.lease_ms,
      'leases', (select count(*) from {schema}.runs r where r.status = 'running' and r.lease_owner = w.id))
      order by w.started_at, w.id), '[]')
    from {schema}.workers w where w.seen_at + w.lease_ms * ${LISTED_LEASES} >= v_now));
end $$;

-- The numbers of each queue, the first due run of each, and when rates open. See Store.getJobs().
create or replace function fn.get_jobs(p jsonb, p_now bigint) returns jsonb language plpgsql volatile ${ENTRY} as $$
declare v_now bigint := fn.clock(p_now); v_counts jsonb; v_queues text[];
begin
  select coalesce(jsonb_agg(jsonb_build_object('queue', c.job, 'status', c.status, 'runs', c.runs)), '[]'),
      coalesce(array_agg(distinct c.job) filter (where c.status in ('pending', 'waiting')), '{}')
    into v_counts, v_queues
    from (select k.job, k.status, sum(k.runs) as runs from {schema}.counts k group by k.job, k.status
      having sum(k.runs) > 0) c;
  return jsonb_build_object('now', v_now, 'counts', v_counts,
    'ghosts', (select coalesce(jsonb_object_agg(g.job, g.ghosts), '{}')
      from (select q.job, count(*) as ghosts from {schema}.ghosts q where q.expires_at > v_now group by q.job) g),
    'held', (select coalesce(jsonb_agg(to_jsonb(h)), '[]') from (
      select x.queue, count(*) as runs, min(x.since) as since from (
        select q.queue, q.since from {schema}.holds q where q.since is not null order by q.run_seq limit ${MAX_COUNTED_HELD}) x
      group by x.queue) h),
    'unread', (select coalesce(jsonb_agg(to_jsonb(u)), '[]') from (
      select r.job as queue, count(*) as messages from (select q.run_seq from {schema}.messages q where q.pause_seq is null
        order by q.run_seq desc limit ${MAX_COUNTED_HELD}) m join {schema}.runs r on r.seq = m.run_seq
      where r.completed_at is null group by r.job) u),
    'due', (select coalesce(jsonb_agg(jsonb_build_object('queue', x.queue, 'runId', d.id, 'position', d.position,
        'dueSince', d.due_since)), '[]')
      from unnest(v_queues) x (queue) cross join lateral (select * from fn.oldest_due(x.queue)) d where d.id is not null),
    'openings', (select coalesce(jsonb_agg(fn.rate_opens_at('job ' || (r.x ->> 'jobName'),
        (r.x #>> '{rate,limit}')::bigint, (r.x #>> '{rate,period}')::bigint, v_now) order by r.no), '[]')
      from jsonb_array_elements(p -> 'rates') with ordinality r (x, no)),
    'paused', (select coalesce(jsonb_agg(to_jsonb(j) order by j.job), '[]') from {schema}.paused_jobs j),
    'nextTimerAt', least(
      (select r.timer_at from {schema}.runs r where r.timer_at is not null order by r.timer_at limit 1),
      (select r.due_at from {schema}.runs r where r.due_at is not null order by r.due_at limit 1),
      (select r.deadline_at from {schema}.runs r where r.deadline_at is not null order by r.deadline_at limit 1)));
end $$;

-- The first due run of a queue: of those without a fairness key, and of those whose turn is next.
create or replace function fn.oldest_due(p_queue text, out id text, out "position" bigint, out due_since bigint)
language plpgsql stable as $$
declare v_seq bigint; v_fair bigint; r {schema}.runs;
begin
  select q.seq into v_seq from {schema}.runs q where q.queue_state = 'R' and q.fairness_key is null and q.queue = p_queue
    order by q.position, q.seq limit 1;
  select h.run_seq into v_fair from {schema}.heads h where h.queue = p_queue order by h.turn, h.position limit 1;
  select q.* into r from {schema}.runs q where q.seq = any(array[v_seq, v_fair]) order by q.position limit 1;
  id := r.id;
  position := r.position;
  due_since := case when r.lease_generation = 0 and r.status = 'pending'
    then greatest(r.created_at, coalesce(r.start_at, 0)) else r.updated_at end;
end $$;

-- How large the tables are. See Store.getInfo().
create or replace function fn.get_info(p jsonb, p_now bigint) returns jsonb language sql stable ${ENTRY} as $$
  select jsonb_build_object('id', (select v.id from {schema}.schema_version v), 'runs', fn.count_runs(null, null), 'bytes', (
    select sum(pg_total_relation_size(c.oid)) from pg_catalog.pg_class c
    where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = {literal}) and c.relkind = 'r'))
$$;

-- The sessions of this database whose transaction has been open for long, the oldest first. Only a role with the rights
-- of pg_read_all_stats sees those of other roles.
create or replace function fn.held_snapshots(p jsonb, p_now bigint) returns jsonb language sql stable ${ENTRY} as $$
  select coalesce(jsonb_agg(jsonb_build_object('pid', a.pid, 'user', a.usename, 'application', a.application_name,
      'state', a.state, 'since', floor(extract(epoch from a.xact_start) * 1000)) order by a.xact_start), '[]')
  from pg_catalog.pg_stat_activity a
  where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
    and (a.backend_xmin is not null or a.backend_xid is not null)
    and a.xact_start <= clock_timestamp() - (p ->> 'olderThanMs')::float8 * interval '1 millisecond'
$$;

-- The sums of two lists of counts.
create or replace function fn.add_latencies(p_one jsonb, p_other jsonb) returns jsonb language sql immutable as $$
  select coalesce(jsonb_object_agg(s.bucket, s.count), '{}') from (
    select e.key as bucket, sum(e.value::bigint) as count
    from (select * from jsonb_each_text(p_one) union all select * from jsonb_each_text(p_other)) e group by e.key) s
$$;

-- Adds counts to the slots of now. The rows are written in one order, so that processes never wait for each other in a
-- circle. See Store.addStats().
create or replace function fn.add_stats(p jsonb, p_now bigint) returns jsonb language plpgsql volatile ${ENTRY} as $$
declare v_now bigint := fn.clock(p_now); v_span record; x jsonb; v_pending bigint; v_running bigint; v_waiting bigint;
  v_busy bigint; v_all int;
begin
  v_pending := fn.count_runs(null, array['pending']);
  v_running := fn.count_runs(null, array['running']);
  v_waiting := fn.count_runs(null, array['waiting']);
  select count(*) into v_busy from {schema}.runs r where r.status = 'running' and r.lease_owner = any(array(
    select w.id from {schema}.workers w where w.seen_at <= v_now and w.seen_at + w.lease_ms > v_now));
  for v_span in select * from (values ${STATISTICS_SPANS.map(({ span, keptMs }) => `(${span}, ${keptMs})`).join(", ")})
      s (span, kept) order by 1 loop
    for x in select e from jsonb_array_elements(p -> 'statistics') e order by e ->> 'jobName' collate "C" loop
      v_all := case when x ->> 'jobName' = '' then 1 else 0 end;
      insert into {schema}.stats as s (span, job, at, latencies, ${ALL.join(", ")})
        values (v_span.span, x ->> 'jobName', v_now / v_span.span * v_span.span, x -> 'latencies',
          (x ->> 'triggered')::bigint, (x ->> 'started')::bigint, (x ->> 'completed')::bigint, (x ->> 'failed')::bigint,
          (x ->> 'cancelled')::bigint, (x ->> 'steps')::bigint, (x ->> 'stepFailures')::bigint,
          v_all, v_all * v_pending, v_all * v_running, v_all * v_waiting, v_all * v_busy)
        on conflict (span, job, at) do update set latencies = fn.add_latencies(s.latencies, excluded.latencies),
          ${ALL.map((name) => `${name} = s.${name} + excluded.${name}`).join(", ")};
    end loop;
    delete from {schema}.stats where span = v_span.span and at < v_now / v_span.span * v_span.span - v_span.kept;
  end loop;
  perform fn.note_times();
  return null;
end $$;

-- Notes when runs were added that are in no row yet. Clocks differ and are set back, so the times of runs are in no certain
-- order: each row has the first and the last one. A transaction that adds a run shares a lock before it draws the number: once those who
-- hold it have ended, no run comes below the newest one.
create or replace function fn.note_times() returns void language plpgsql volatile as $$
declare v_newest bigint := (select max(r.seq) from {schema}.runs r); v_last bigint; v record;
begin
  perform pg_advisory_xact_lock(fn.lock_no('times', ''));
  select coalesce(max(t.last_seq), 0) into v_last from {schema}.run_times t;
  if v_newest is null or v_newest < v_last + ${TIMED_RUNS} or not fn.await_notes(${SETTLE_MS}) then return; end if;
  delete from {schema}.run_times t where t.last_seq < (select min(r.seq) from {schema}.runs r);
  for row in 1 .. ${MAX_TIMED} loop
    select count(*) as runs, max(x.seq) as last, min(x.created_at) as first_at, max(x.created_at) as last_at into v from (
      select r.seq, r.created_at from {schema}.runs r where r.seq > v_last and r.seq <= v_newest order by r.seq
      limit ${TIMED_RUNS}) x;
    exit when v.runs < ${TIMED_RUNS};
    insert into {schema}.run_times values (v.last, v.first_at, v.last_at);
    v_last := v.last;
  end loop;
end $$;

-- Reads statistics by slot and job. See Store.readStats().
create or replace function fn.read_stats(p jsonb, p_now bigint) returns jsonb language plpgsql volatile ${ENTRY} as $$
declare v_rows {schema}.stats[]; v_from bigint := (p ->> 'from')::bigint; v_span int := (p ->> 'span')::int;
  v_at bigint := coalesce((p #>> '{after,at}')::bigint, v_from - 1); v_job text := coalesce(p #>> '{after,jobName}', '');
begin
  if p ->> 'jobName' is null then
    v_rows := array(select s from {schema}.stats s where s.span = v_span and s.at >= greatest(v_from, v_at)
      and (s.at, s.job) > (v_at, v_job) order by s.span, s.at, s.job limit (p ->> 'limit')::int);
  else
    v_rows := array(select s from {schema}.stats s where s.span = v_span and s.job = p ->> 'jobName'
      and s.at >= greatest(v_from, v_at) and (s.at, s.job) > (v_at, v_job) order by s.span, s.job, s.at
      limit (p ->> 'limit')::int);
  end if;
  return jsonb_build_object('now', fn.clock(p_now), 'rows', (
    select coalesce(jsonb_agg(jsonb_build_object('at', s.at, 'jobName', s.job,
      ${COUNTS.map((name) => `'${camelCase(name)}', s.${name}`).join(", ")}, 'latencies', s.latencies,
      'sampled', jsonb_build_object(${SAMPLES.map((name) => `'${name}', s.${name}`).join(", ")}))
      order by s.at, s.job), '[]') from unnest(v_rows) s));
end $$;
`;

function camelCase(name: string): string {
  return name.replace(/_(.)/, (_, letter: string) => letter.toUpperCase());
}
