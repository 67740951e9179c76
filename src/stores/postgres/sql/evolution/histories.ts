import { isTerminal, RUN_STATUSES } from "../../../../run.ts";
import { ENTRY } from "../basics.ts";
import { underLease } from "../writes/under_lease.ts";

const OPEN = `array[${RUN_STATUSES.filter((status) => !isTerminal(status)).map((status) => `'${status}'`).join(", ")}]`;

/** What changes of the code need: inputs of other schemas, histories for a replay, and jobs that no worker knows. */
export const HISTORIES = `
-- The input of a run as parsed by another schema. See Store.getInput().
create or replace function fn.get_input(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
begin
  return (select jsonb_build_object('input', o.input)
    from {schema}.runs r join {schema}.other_inputs o on o.run_seq = r.seq
    where r.id = p ->> 'runId' and o.schema_print = p ->> 'schemaPrint');
end $$;

-- Stores the input of a run as parsed by another schema. See Store.saveInput().
create or replace function fn.save_input(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare v_run bigint;
begin
  select q.seq into v_run from {schema}.runs q where q.id = p ->> 'runId'
    and ${underLease("q", "p")} for no key update;
  if not found then return '{"refused": "lease_lost"}'; end if;
  insert into {schema}.other_inputs (run_seq, schema_print, input) values (v_run, p ->> 'schemaPrint', p ->> 'input')
    on conflict do nothing;
  if found then update {schema}.runs set updated_at = p_now where seq = v_run; end if;
  return (select jsonb_build_object('input', o.input) from {schema}.other_inputs o
    where o.run_seq = v_run and o.schema_print = p ->> 'schemaPrint');
end $$;

-- All that a replay of a run needs. See Store.getHistory().
create or replace function fn.get_history(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
begin
  return (select jsonb_build_object('run', fn.run_json(r), 'input', i.input, 'schema_print', i.schema_print, 'steps', fn.steps_json(r.seq),
      'pauses', fn.pauses_json(r.seq), 'now', fn.clock(p_now),
      'copied', (select jsonb_build_object('upTo', c.copied_up_to, 'unfinished', c.unfinished::jsonb)
        from {schema}.copies c where c.run_seq = r.seq))
    from {schema}.runs r join {schema}.inputs i on i.run_seq = r.seq where r.id = p ->> 'runId');
end $$;

-- The queues of open runs that no live worker knows. See Store.getStrandedJobs().
create or replace function fn.get_stranded_jobs(p jsonb, p_now bigint) returns jsonb
language plpgsql volatile ${ENTRY} as $$
declare v_live text[] := fn.live_queues('', fn.clock(p_now));
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('job', o.job, 'runs', o.runs,
      'oldest_at', coalesce(fn.oldest_open(o.job), 0))), '[]')
    from (select c.job, sum(c.runs) as runs from {schema}.counts c where c.status = any(${OPEN})
      group by c.job having sum(c.runs) > 0) o
    where o.job <> all(v_live));
end $$;

-- When the oldest open run of a queue was triggered. It is looked for among all runs of the queue or all in the status,
-- whichever are fewer: an expression in the place of a column keeps the other index out.
create or replace function fn.oldest_open(p_job text) returns bigint language plpgsql stable as $$
declare v_status text; v_seq bigint; v_first bigint;
begin
  foreach v_status in array ${OPEN} loop
    continue when fn.count_runs(array[p_job], array[v_status]) = 0;
    if fn.count_runs(array[p_job], null) <= fn.count_runs(null, array[v_status]) then
      select r.seq into v_seq from {schema}.runs r where r.job between p_job and p_job
        and r.status || '' = v_status order by r.job, r.seq limit 1;
    else
      select r.seq into v_seq from {schema}.runs r where r.status between v_status and v_status
        and r.job || '' = p_job order by r.status, r.seq limit 1;
    end if;
    v_first := least(v_first, v_seq);
  end loop;
  return (select r.created_at from {schema}.runs r where r.seq = v_first);
end $$;
`;
