import { STATISTICS_SPANS } from "../../../statistics_slots.ts";
import { ENTRY } from "../basics.ts";

const COUNTS = ["triggered", "started", "completed", "failed", "cancelled", "steps", "step_failures"];
const SAMPLES = ["samples", "pending", "running", "waiting", "busy"];
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
  return null;
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
