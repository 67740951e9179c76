import { STATISTICS_SPANS } from "../../../operate/numbers.ts";
import { MAX_TIMED, TIMED_RUNS } from "../../../run_conditions.ts";
import { ENTRY } from "../basics.ts";

const COUNTS = ["triggered", "started", "completed", "failed", "cancelled", "steps", "step_failures"];
const SAMPLES = ["samples", "pending", "running", "waiting", "busy"];
// How long it waits for those who may be adding a run, before it leaves it to the next call.
const SETTLE_MS = 20;
const ALL = [...COUNTS, ...SAMPLES];

/** The statistics: counts and durations by slots of time. */
export const STATISTICS = `
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
-- order: each row has the first and the last one. Whoever adds a run shares a lock before it draws the number: once those who
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
