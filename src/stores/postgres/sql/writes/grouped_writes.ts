import { JOINS_LISTS } from "../basics.ts";
import { FACTS_PER_ROW } from "../names.ts";
import { NO_MORE } from "./endings.ts";

// The three kinds of writes that are by far the most frequent are performed for a whole group with a few statements. What
// they cannot do is left to the function of the kind: they answer NULL for it. The lists have no run twice, but for steps
// of different names: see write_group.ts.

// The runs of the writes i which are under a lease. `lock_some()` or `lock_all()` keeps them from changing meanwhile. They
// are found by their ids alone: a plan that is made while the tables are empty could prefer the index of all runs under a
// lease.
const RUNS_UNDER_LEASE = `
    select r.* from (
      select r.seq, r.id, r.status, r.lease_generation, r.lease_claim, r.recorded, r.last_report_no,
        r.concurrency_key, not r.has_pauses and r.parent_seq is null and r.retrigger_of is null and r.on_end is null as is_plain
      from {schema}.runs r where r.id = any(array(select i.id from i)) offset 0) r
    where r.status = 'running'`;

// Whether b is the run of the write i, under its lease: as `underLease()` has it.
const HOLDS_LEASE =
  "b.id = i.id and b.lease_generation = i.generation and b.lease_claim = i.claim and b.recorded >= i.known";

/** Writes of a group that are performed together. */
export const GROUPED_WRITES = `
-- Whether runs can be added together: none of them was added before, and none is there twice.
create or replace function fn.are_new_runs(p_ids text[]) returns boolean language plpgsql stable as $$
begin
  return (select (select count(distinct x) = count(*) from unnest(p_ids) x)
    and not exists (select 1 from {schema}.runs r where r.id = any(p_ids))
    and not exists (select 1 from {schema}.deleted d where d.id = any(p_ids)));
end $$;

-- Records steps that were not recorded before, with no report but that the step began. Returns an answer for each.
create or replace function fn.save_steps(p_writes jsonb, p_now bigint) returns text[] language plpgsql ${JOINS_LISTS} as $$
declare v_answers text[];
begin
  with i as materialized (
    select x.no, x.id, x.generation, x.claim, x.known, x.name, x.index, x.status, x.output, x.failure, x.attempts, x.ago, x.message,
      p_now + ceil(x.delay)::bigint as retry_at, coalesce((x.reports -> 0 ->> 'no')::bigint, 0) as report_no
    from rows from (jsonb_to_recordset(p_writes) as ("runId" text, generation int, "claimId" text, recorded int,
      name text, index int, status text,
      output text, failure text, attempts int, "agoMs" bigint, message text, "delayMs" numeric, reports jsonb))
      with ordinality x (id, generation, claim, known, name, index, status, output, failure, attempts, ago, message, delay, reports, no)),
  b as materialized (${RUNS_UNDER_LEASE}),
  n as materialized (
    select i.*, b.seq, b.recorded + row_number() over (partition by b.seq order by i.no) as recorded_no,
      i.report_no > b.last_report_no as is_new
    from i join b on ${HOLDS_LEASE}
    -- Not "exists": that could be planned as a join which reads all steps.
    where (select 1 from {schema}.steps s where s.run_seq = b.seq and s.name = i.name) is null),
  w as (
    insert into {schema}.steps (run_seq, name, position, status, output, failure, attempts, retry_at, recorded_no,
        started_at, completed_at)
      select n.seq, n.name, n.index, n.status, n.output, n.failure, n.attempts, n.retry_at, n.recorded_no, p_now - n.ago,
        case when n.status <> 'retrying' then p_now end
      from n order by n.no),
  u as (
    update {schema}.runs r set recorded = g.recorded, abandonments = 0, updated_at = p_now,
      last_report_no = greatest(r.last_report_no, g.report_no)
    from (select n.seq, max(n.recorded_no) as recorded, max(n.report_no) as report_no from n group by n.seq) g
    where r.seq = any(array(select n.seq from n)) and r.seq + 0 = g.seq),
  f as (
    insert into {schema}.journal (at, facts) select p_now, p.facts from fn.pack_facts(array(
      select '[' || n.seq || case when n.status = 'completed' then ',"step_completed",' else ',"step_failed",' end
        || to_json(n.name)::text || ',' || n.index || ',' || n.attempts || ','
        || case when n.is_new then (p_now - n.ago)::text else 'null' end || ','
        || case when n.status = 'completed' then n.ago::text
          else coalesce(to_json(n.message)::text, 'null') || ',' || coalesce(n.retry_at::text, 'null') end || ']'
      from n order by n.no)) p)
  select array_agg(case when b.seq is null then '{"refused":"lease_lost"}'
      when n.no is not null then '{"recordedNo":' || n.recorded_no || ',"retryAt":' || coalesce(n.retry_at::text, 'null')
        || ',"now":' || p_now || '}' end order by i.no)
    into v_answers
    from i left join b on ${HOLDS_LEASE} left join n on n.no = i.no;
  return v_answers;
end $$;

-- Ends runs without pauses and a parent, which are no retries, without reports, as end_run() does one of them. Returns an answer for each.
create or replace function fn.finish_runs(p_writes jsonb, p_now bigint) returns text[] language plpgsql ${JOINS_LISTS} as $$
declare k record;
begin
  with i as materialized (
    select x.* from rows from (jsonb_to_recordset(p_writes) as ("runId" text, generation int, "claimId" text, recorded int,
      status text, output text,
      error text, failure text, "failedStep" text, fact text))
      with ordinality x (id, generation, claim, known, status, output, error, failure, failed_step, fact, no)),
  b as materialized (${RUNS_UNDER_LEASE}),
  n as materialized (
    select i.*, b.seq from i join b on ${HOLDS_LEASE} where b.is_plain),
  u as (
    update {schema}.runs r set status = n.status, output = n.output, error = n.error, failure = n.failure,
      failed_step = n.failed_step, ${NO_MORE}, updated_at = p_now, completed_at = greatest(p_now, r.created_at)
    from n where r.seq = any(array(select n.seq from n)) and r.seq + 0 = n.seq
    returning n.no, r.seq, r.id, r.job, r.status, n.fact, r.concurrency_key, r.lease_generation),
  c as (
    insert into {schema}.counts (status, job, runs)
      select m.status, m.job, sum(m.runs) from (select u.status, u.job, 1 as runs from u
        union all select 'running', u.job, -1 from u) m group by m.status, m.job),
  f as (
    insert into {schema}.journal (at, facts)
      select p_now, p.facts from fn.pack_facts(array(select '[' || u.seq || ',' || u.fact from u order by u.no)) p)
  -- What has not ended now is for the function of one ending: it has ended before, or the lease is lost.
  select array_agg(case when u.no is not null then 'null' end order by i.no) as answers,
      array_agg(u.concurrency_key order by i.no) filter (where u.concurrency_key is not null) as keys,
      array_agg(u.id order by i.no) filter (where u.concurrency_key is not null) as ids,
      array_agg(u.lease_generation order by i.no) filter (where u.concurrency_key is not null) as generations
    into k from i left join u on u.no = i.no;
  for at in 1 .. coalesce(cardinality(k.keys), 0) loop
    perform fn.release_key(k.keys[at], k.ids[at], k.generations[at], p_now);
    perform fn.settle_heads();
  end loop;
  return k.answers;
end $$;

-- Adds runs that use nothing but labels. Returns an answer for each call.
create or replace function fn.enqueue_plain(p_writes jsonb, p_now bigint) returns text[] language plpgsql ${JOINS_LISTS} as $$
declare v_answers text[];
begin
  with i as materialized (
    select o.call, o.no, o.n, nextval('{schema}.runs_seq_seq'::regclass) as seq from (
      select e.no as call, x.no, x.n from jsonb_array_elements(p_writes) with ordinality e (x, no)
        cross join lateral jsonb_array_elements(e.x -> 'runs') with ordinality x (n, no) order by e.no, x.no) o),
  r as (
    insert into {schema}.runs as q (seq, id, job, status, queue, position, queue_state, labels, trace, created_at,
        updated_at) overriding system value
      select i.seq, i.n ->> 'id', i.n ->> 'queue', 'pending', i.n ->> 'queue', i.seq, 'R', i.n ->> 'labels',
        i.n ->> 'trace', p_now, p_now
      from i order by i.seq
    returning q.*),
  -- What all of them have in common is made once: a row has so many columns that its JSON takes longer than its insert.
  k as (
    select substr((to_jsonb(r) - '{seq,id,job,queue,position,labels,trace}'::text[])::text, 2) as others from r limit 1),
  v as (
    insert into {schema}.inputs (run_seq, payload, input, schema_print)
      select i.seq, i.n ->> 'payload', i.n ->> 'input', i.n ->> 'schemaPrint' from i),
  l as (
    insert into {schema}.labels (key, value, run_seq)
      select y.key, y.value, i.seq from i, jsonb_each_text(i.n -> 'labelMap') y),
  c as (
    insert into {schema}.counts (status, job, runs) select 'pending', i.n ->> 'queue', count(*) from i group by i.n ->> 'queue'),
  f as (
    insert into {schema}.journal (at, facts)
      select p_now, p.facts from fn.pack_facts(array(select '[' || i.seq || ',"triggered"'
        || case when strpos(i.n ->> 'trace', chr(10)) > 0 then ',null,null,null' || fn.actor_of_fact(i.n ->> 'trace') else '' end || ']'
      from i order by i.seq)) p)
  select array_agg(o.answer order by o.call) into v_answers from (
    select i.call, '[' || string_agg('{"disposition":"created","run":{"seq":' || i.seq || ',"id":' || (i.n -> 'id')
      || ',"job":' || (i.n -> 'queue') || ',"labels":' || (i.n -> 'labels') || ',"trace":' || coalesce(i.n -> 'trace', 'null')
      || ',"payload":' || coalesce(i.n -> 'payload', 'null') || ',"held":null,' || k.others || '}', ',' order by i.no) || ']'
      as answer
    from i, k group by i.call) o;
  return v_answers;
end $$;

-- Rows of the journal with facts, in their order.
create or replace function fn.pack_facts(p_facts text[]) returns table (facts text) language plpgsql immutable as $$
begin
  for at in 1 .. cardinality(p_facts) by ${FACTS_PER_ROW} loop
    facts := array_to_string(p_facts[at : at + ${FACTS_PER_ROW - 1}], ',');
    return next;
  end loop;
end $$;
`;
