import { ownPosition } from "./flow/queues.ts";
import { isTerminal, RUN_STATUSES } from "../../../model/run.ts";
import { HEAD_START, MAX_OFFERS, SECOND_TRY_MS } from "../../rules.ts";
import { ONCE } from "../../holds.ts";
import { ENTRY, underLease } from "./basics.ts";

const OPEN = `array[${RUN_STATUSES.filter((status) => !isTerminal(status)).map((status) => `'${status}'`).join(", ")}]`;

/**
 * Held runs. A row of \`holds\` stays when the run is claimed, or resumed: \`since\` is NULL unless the run is held. \`prints\`
 * are those that have tried it since its last record, as JSON, with \`${ONCE}\` before one that may try it once more;
 * \`recorded\` was its record counter when it was held, and \`generation\` is that of the lease that ended then, or of the
 * lease that ended the hold.
 */
export const CHANGED_CODE = `
-- Holds a run. See Store.hold().
create or replace function fn.hold(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs; n record; v_generation int := (p ->> 'generation')::int; v_prints jsonb; v_once text;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId' for no key update;
  if (${underLease("r", "p")}) is not true then
    -- The answer for a call that is repeated.
    perform from {schema}.holds h where h.run_seq = r.seq and h.generation = v_generation and h.since is not null;
    return case when not (found and r.status = 'pending' and r.lease_claim = p ->> 'claimId') then '{"refused": "lease_lost"}'::jsonb end;
  end if;
  n := fn.new_reports(p -> 'reports', r.last_report_no);
  select h.prints::jsonb into v_prints from {schema}.holds h where h.run_seq = r.seq and h.recorded = r.recorded;
  v_prints := coalesce(v_prints, '[]');
  v_once := '${ONCE}' || (p ->> 'print');
  if not v_prints ? (p ->> 'print') then
    v_prints := case when p ->> 'code' = 'ended_early' and not v_prints ? v_once then v_prints || to_jsonb(v_once)
      else v_prints - v_once || (p -> 'print') end;
  end if;
  insert into {schema}.holds (run_seq, queue, code, message, details, since, generation, recorded, prints)
    values (r.seq, r.job, p ->> 'code', p ->> 'message', p ->> 'details', p_now, v_generation, r.recorded, v_prints::text)
    on conflict (run_seq) do update set code = excluded.code, message = excluded.message, details = excluded.details,
      since = excluded.since, generation = excluded.generation, recorded = excluded.recorded, prints = excluded.prints,
      offered_in = '';
  r.progress := coalesce(n.progress, r.progress); r.last_report_no := n.last_no;
  perform fn.leave_lease(r, 'held',
    n.facts || ('"held",' || to_json(p ->> 'code')::text || ',' || to_json(p ->> 'message')::text || ']'), null, p_now);
  return null;
end $$;

-- Makes a held run due. See Store.resumeHeld().
create or replace function fn.resume_held(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId' and q.is_held for no key update;
  if not found then return null; end if;
  perform fn.leave_print(r);
  update {schema}.holds set since = null, offered_in = '', prints = '[]', continues = continues or (p ->> 'continues')::boolean
    where run_seq = r.seq;
  update {schema}.runs set is_held = false, updated_at = p_now where seq = r.seq;
  perform fn.note(r.seq, '"resumed"' || fn.actor_of_fact(p ->> 'actor') || ']', p_now);
  perform fn.enter_queue(r.seq, p_now);
  return (select fn.run_json(q) from {schema}.runs q where q.seq = r.seq);
end $$;

-- Takes a held run out of the queue of the print to which it is offered. The caller puts it into a queue again.
create or replace function fn.leave_print(r {schema}.runs) returns void language plpgsql as $$
begin
  if r.queue_state is null then return; end if;
  update {schema}.runs set queue = job, queue_state = null,
    position = ${ownPosition("r")} where seq = r.seq;
  perform fn.touch_group(r.queue, r.fairness_key);
  if r.concurrency_key is not null then delete from {schema}.openings where concurrency_key = r.concurrency_key and queue = r.queue; end if;
end $$;

-- The held runs that can be offered to a worker: those that its code has not tried, or may try once more, and that no other
-- live worker can take. It takes one probe for each group of runs that the same prints have tried, however many runs it has.
create or replace function fn.offers_for(p_jobs jsonb, p_live text[], p_limit int, p_now bigint, out run_seq bigint, out queue text)
returns setof record language plpgsql stable as $$
declare j jsonb; v_offered_in text collate "C"; v_prints text collate "C"; v_since bigint;
begin
  perform from {schema}.holds h where h.since is not null and h.queue >= '' limit 1;
  if not found then return; end if;
  for j in select x from jsonb_array_elements(p_jobs) x loop
    v_offered_in := '';
    v_prints := '';
    loop
      select h.offered_in, h.prints into v_offered_in, v_prints from {schema}.holds h
        where h.since is not null and h.queue = j ->> 'queue' and (h.offered_in, h.prints) > (v_offered_in, v_prints)
        order by h.offered_in, h.prints limit 1;
      exit when not found;
      continue when v_offered_in <> '' and v_offered_in = any(p_live) or v_prints::jsonb ? (j ->> 'print');
      v_since := case when v_prints::jsonb ? ('${ONCE}' || (j ->> 'print')) then p_now - ${SECOND_TRY_MS} end;
      return query select h.run_seq, j ->> 'printQueue' from {schema}.holds h
        where h.since is not null and h.queue = j ->> 'queue' and h.offered_in = v_offered_in and h.prints = v_prints
          and (v_since is null or h.since <= v_since)
        order by h.run_seq limit p_limit;
    end loop;
  end loop;
end $$;

-- Offers held runs to a worker. Returns whether there were any. A run that is offered comes after those that are not held:
-- it keeps none of them from its key.
create or replace function fn.offer_held_runs(p_jobs jsonb, p_live text[], p_now bigint) returns boolean
language plpgsql as $$
declare o record; r {schema}.runs; v_any boolean := false;
begin
  for o in select f.run_seq, f.queue from fn.offers_for(p_jobs, p_live, ${MAX_OFFERS}, p_now) f
      order by f.run_seq limit ${MAX_OFFERS} loop
    select q.* into r from {schema}.runs q where q.seq = o.run_seq for no key update;
    perform fn.leave_print(r);
    update {schema}.holds set offered_in = o.queue where run_seq = r.seq;
    update {schema}.runs set queue = o.queue,
      position = ${ownPosition("r")} + ${HEAD_START} where seq = r.seq;
    perform fn.enter_queue(r.seq, p_now);
    v_any := true;
  end loop;
  return v_any;
end $$;

-- The hold of a run. See Store.getHold().
create or replace function fn.get_hold(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
begin
  return (select to_jsonb(h) || jsonb_build_object('prints', h.prints::jsonb) from {schema}.runs r join {schema}.holds h on h.run_seq = r.seq
    where r.id = p ->> 'runId' and r.is_held and h.since is not null);
end $$;

-- Held runs in the order of their row numbers. See Store.findHeld().
create or replace function fn.find_held(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_queues text[];
begin
  if p ->> 'jobNames' is not null then
    v_queues := array(select q from unnest(fn.texts(p -> 'jobNames')) n, unnest(fn.queues_of(n)) q);
  end if;
  return (select jsonb_build_object('ids', coalesce(jsonb_agg(o.id order by o.seq), '[]'),
      'seqs', coalesce(jsonb_agg(o.seq order by o.seq), '[]'))
    from (select r.id, r.seq from {schema}.holds h
      cross join lateral (select q.id, q.seq, q.is_held from {schema}.runs q where q.seq = h.run_seq offset 0) r
      where h.since is not null and h.run_seq > (p ->> 'after')::bigint and r.is_held
        and (v_queues is null or h.queue = any(v_queues)) and (p ->> 'code' is null or h.code = p ->> 'code')
      order by h.run_seq limit (p ->> 'limit')::bigint) o);
end $$;

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
        || case when c.undone is null then '{}' else jsonb_build_object('undone', c.undone::jsonb) end from {schema}.copies c where c.run_seq = r.seq))
    from {schema}.runs r join {schema}.inputs i on i.run_seq = r.seq where r.id = p ->> 'runId');
end $$;

-- The queues of open runs that no live worker knows. See Store.getStrandedJobs().
create or replace function fn.get_stranded_jobs(p jsonb, p_now bigint) returns jsonb
language plpgsql volatile ${ENTRY} as $$
declare v_live text[] := fn.live_queues('', fn.clock(p_now));
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('job', o.job, 'runs', o.runs,
      'oldestAt', coalesce(fn.oldest_open(o.job), 0))), '[]')
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
