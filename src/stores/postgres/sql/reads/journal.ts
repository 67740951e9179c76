import { ENTRY, SEARCH_PATH } from "../basics.ts";
import { FACTS_PER_ROW } from "../names.ts";

// The maximum number of rows of a page.
const MAX_ROWS = 500;
// How long a reader waits for others that are about to commit, before it does without what comes after a gap, and before
// it is asked to try again.
const GAP_MS = 100;
const END_MS = 1_000;
// How often the state of a run is read that changes meanwhile, before its row is locked.
const MAX_LOOKS = 3;
// The maximum size of the journal in bytes of facts, about, and the maximum age of a row.
const MAX_BYTES = 33_554_432;
const MAX_AGE_MS = 3_600_000;
// How many of the newest rows tell how long a row is.
const SAMPLE = 200;
// The maximum number of rows that are removed at once.
const MAX_TRIMMED = 10_000;

/**
 * Reads of the journal. Positions are drawn in the order of the sequence, and commits become visible in another one. So a
 * transaction takes a shared lock before it draws its first position (`fn.note`), and a reader that finds a gap looks who
 * holds that lock: once all of these have ended, what is not there never comes.
 */
export const JOURNAL = `
-- The transactions of others that may have drawn positions and have not ended.
create or replace function fn.open_notes() returns text[] language plpgsql volatile as $$
begin
  return (select array(select k.virtualtransaction from pg_catalog.pg_locks k
    where k.locktype = 'advisory' and k.objsubid = 2 and k.granted and k.pid <> pg_backend_pid()
      and k.classid = (hashtext('holdfast/journal')::bigint & 4294967295)::oid
      and k.objid = (hashtext({literal})::bigint & 4294967295)::oid
      and k.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())));
end $$;

-- Waits until all transactions have ended that may have drawn a position before this call. Returns whether they have.
create or replace function fn.await_notes(p_ms int) returns boolean language plpgsql volatile as $$
declare v_open text[] := fn.open_notes();
  v_until timestamptz := clock_timestamp() + p_ms * interval '1 millisecond';
begin
  perform fn.check_isolation();
  while v_open && fn.open_notes() loop
    if clock_timestamp() > v_until then return false; end if;
    perform pg_sleep(0.002);
  end loop;
  return true;
end $$;

-- What was committed after a position. See Store.readJournal(). The answer is JSON and not \`jsonb\`: a fact may have
-- characters in its strings that \`jsonb\` does not take.
create or replace function fn.read_journal(p jsonb, p_now bigint) returns json language plpgsql volatile ${ENTRY} as $$
declare
  v_after bigint := (p ->> 'after')::bigint; v_settled bigint; v_gap bigint; v_newest bigint; v_at bigint; v_page record;
  v_answer json;
begin
  loop
    -- The gap is the first position that is missing among those behind which a commit may still come.
    select count(*) as rows, min(x.position - ${FACTS_PER_ROW}) filter (where x.position <> x.before + ${FACTS_PER_ROW}
        and x.position - ${FACTS_PER_ROW} > coalesce(v_settled, 0)) as gap, max(x.position) as last
      into v_page from (select o.position, lag(o.position, 1, v_after) over (order by o.position) as before
        from (select j.position from {schema}.journal j where j.position > v_after order by j.position limit ${MAX_ROWS}) o) x;
    v_gap := v_page.gap;
    exit when v_gap is null or v_settled is not null;
    exit when not fn.await_notes(${GAP_MS});
    v_settled := v_page.last;
  end loop;
  select j.position, j.at into v_newest, v_at from {schema}.journal j order by j.position desc limit 1;
  if v_page.rows = 0 then
    if coalesce(v_newest, 0) < v_after then return null; end if;
    -- What has come since the page was read comes with the next one.
    if v_newest > v_after then
      v_newest := v_after;
      select j.at into v_at from {schema}.journal j where j.position = v_after;
    end if;
    v_answer := json_build_object('rows', '[]'::json,
      'end', json_build_object('position', coalesce(v_newest, 0), 'at', coalesce(v_at, 0)));
  else v_answer := (
    with page as materialized (
      select x.position, x.at, x.facts from (
        select j.position, j.at, j.facts, sum(length(j.facts)) over (order by j.position) as length,
          row_number() over (order by j.position) as no
        from {schema}.journal j where j.position > v_after and j.position <= v_page.last
          and (v_gap is null or j.position < v_gap)) x
      where x.no = 1 or x.length <= (p ->> 'maxLength')::float8)
    select json_build_object(
      'rows', coalesce((select json_agg(json_build_object('position', g.position, 'at', g.at, 'facts', ('[' || g.facts || ']')::json)
        order by g.position) from page g), '[]'),
      'end', case when v_gap is null or exists (
          select from {schema}.journal j where j.position < v_gap and j.position > (select max(g.position) from page g))
        then json_build_object('position', v_newest, 'at', v_at)
        else coalesce((select json_build_object('position', g.position, 'at', g.at) from page g
          order by g.position desc limit 1), json_build_object('position', v_after, 'at', coalesce(
            (select j.at from {schema}.journal j where j.position = v_after), 0))) end));
  end if;
  -- Afterwards, since rows can be removed between the statements of this function.
  select s.trimmed_to into v_settled from {schema}.journal_start s;
  -- After a failover to a standby without the last commits, other rows come to the positions of those that are lost.
  if v_after > v_settled and not exists (select from {schema}.journal j where j.position = v_after
      and j.at = coalesce((p ->> 'at')::bigint, j.at)) then return null; end if;
  return case when v_settled <= v_after then v_answer end;
end $$;

-- The newest row of the journal.
create or replace function fn.journal_end() returns jsonb language plpgsql stable as $$
begin
  return (select coalesce((select jsonb_build_object('position', j.position, 'at', j.at)
    from {schema}.journal j order by j.position desc limit 1), '{"position": 0, "at": 0}'));
end $$;

-- The end of the journal, or the given cursor if it is valid. See Store.findCursor().
create or replace function fn.find_cursor(p jsonb, p_now bigint) returns jsonb language plpgsql volatile ${ENTRY} as $$
declare v_end jsonb; v_position bigint := (p ->> 'position')::bigint; v_trimmed_to bigint;
begin
  if p = 'null' then
    v_end := fn.journal_end();
    -- Everything up to it is committed when this call returns.
    if not fn.await_notes(${END_MS}) then
      raise exception 'holdfast: a transaction that writes to the journal does not end' using errcode = '55P03'; -- tried again
    end if;
    return v_end;
  end if;
  if v_position = 0 then
    if (p ->> 'at')::bigint <> 0 then return null; end if;
  else
    perform from {schema}.journal j where j.position = v_position and j.at = (p ->> 'at')::bigint;
    if not found then return null; end if;
  end if;
  select s.trimmed_to into v_trimmed_to from {schema}.journal_start s;
  return case when v_trimmed_to <= v_position then p end;
end $$;

-- The position of the last row after a position that has a fact about a run. See Store.findLastFact(). Quotes within a
-- string of a fact have a backslash before them.
create or replace function fn.find_last_fact(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_beginnings text[] := case when p -> 'kinds' = 'null' then array['[' || (p ->> 'run') || ',"']
  else (select array_agg('[' || (p ->> 'run') || ',"' || k || '"') from jsonb_array_elements_text(p -> 'kinds') k) end;
begin
  return to_jsonb((select j.position from {schema}.journal j where j.position > (p ->> 'after')::bigint
    and exists (select from unnest(v_beginnings) b where strpos(j.facts, b) > 0) order by j.position desc limit 1));
end $$;

-- A run and the end of the journal at one moment. See Store.getRunState(). A writer of this run locks its row before it
-- draws positions. So if the row is unchanged when all have ended that may have drawn some, none of the positions up to
-- the end belongs to a change of the run that is not in the answer. If the run changes all the time, the row is locked,
-- so that nobody writes to it meanwhile.
create or replace function fn.get_run_state(p jsonb, p_now bigint) returns jsonb language plpgsql volatile ${ENTRY} as $$
declare s record; v_seen text;
begin
  for i in 1 .. ${MAX_LOOKS} loop
    select * into s from fn.run_state(p ->> 'runId');
    if not found then return null; end if;
    if not fn.await_notes(${GAP_MS}) then exit; end if;
    select concat_ws('/', r.ctid, r.xmin, r.xmax) into v_seen from {schema}.runs r where r.id = p ->> 'runId';
    if v_seen = s.row then return s.state; end if;
  end loop;
  perform from {schema}.runs r where r.id = p ->> 'runId' for share;
  return (select f.state from fn.run_state(p ->> 'runId') f);
end $$;

-- A run, what it waits for and the end of the journal; \`row\` is another one after each change of its row.
create or replace function fn.run_state(p_run_id text) returns table (state jsonb, "row" text)
language sql volatile as $$
  select jsonb_build_object('run', fn.run_json(r), 'trace', r.trace, 'place', fn.journal_end(), 'pauses',
      case when r.status = 'waiting' then (
        select coalesce(jsonb_agg(x.pause order by x.of, x.position, x.seq), '[]') from (
          select 1 as of, 0 as position, w.seq, jsonb_build_object('waitId', case when w.kind = 'wait' then w.id end,
            'name', w.name, 'deadlineAt', w.deadline_at) || case when w.kind = 'children' then jsonb_build_object('children',
              jsonb_build_object('total', w.total, 'unfinished', w.unfinished)) else '{}' end as pause
            from {schema}.pauses w where w.run_seq = r.seq and w.awaited
          union all select 2, s.position, s.seq,
            jsonb_build_object('waitId', null, 'name', s.name, 'deadlineAt', s.retry_at)
            from {schema}.steps s where s.run_seq = r.seq and s.status = 'retrying') x) else '[]' end),
    concat_ws('/', r.ctid, r.xmin, r.xmax)
  from {schema}.runs r where r.id = p_run_id
$$;

-- The identities of runs by their row numbers. See Store.getRunIdentities().
create or replace function fn.get_run_identities(p jsonb, p_now bigint) returns jsonb
language plpgsql stable ${ENTRY} as $$
begin
  return (select coalesce(jsonb_agg(case when r.seq is not null then
      jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels) end order by t.no), '[]')
    from jsonb_array_elements_text(p) with ordinality t (seq, no) 
      left join lateral (select q.* from {schema}.runs q where q.seq = t.seq::bigint offset 0) r on true);
end $$;

-- Values that facts leave out, about as many as fit. See Store.readFactValues().
create or replace function fn.read_fact_values(p jsonb, p_now bigint) returns jsonb
language plpgsql stable ${ENTRY} as $$
declare v jsonb; v_run bigint; v_value jsonb; v_values jsonb[] := '{}';
  v_room bigint := coalesce((p ->> 'maxLength')::bigint, ${Number.MAX_SAFE_INTEGER});
begin
  for v in select x from jsonb_array_elements(p -> 'values') x loop
    exit when v_room <= 0;
    v_run := (v ->> 'run')::bigint;
    v_value := case v ->> 'of'
      when 'payload' then (select jsonb_build_object('json', i.payload) from {schema}.inputs i where i.run_seq = v_run)
      when 'output' then (select jsonb_build_object('json', r.output) from {schema}.runs r where r.seq = v_run)
      when 'failure' then (select jsonb_build_object('error', r.error, 'failed_step', r.failed_step)
        from {schema}.runs r where r.seq = v_run)
      else (select jsonb_build_object('json', s.output, 'failure', s.failure)
        from {schema}.steps s where s.run_seq = v_run and s.name = v ->> 'stepName') end;
    v_values := array_append(v_values, v_value);
    v_room := v_room - coalesce(length(v_value ->> 'json'), 0) - coalesce(length(v_value ->> 'error'), 0);
  end loop;
  return to_jsonb(v_values);
end $$;

-- A number that changes whenever a transaction has committed.
create or replace function fn.get_version(p jsonb, p_now bigint) returns jsonb language plpgsql volatile set ${SEARCH_PATH} as $$
begin
  return to_jsonb(hashtextextended(pg_current_snapshot()::text, 0) & ${Number.MAX_SAFE_INTEGER});
end $$;

-- Removes the oldest rows of a journal that is too long or too old, so that facts of deleted runs do not stay for long in
-- an idle system. The newest row is never removed. It does nothing while another call does it.
create or replace function fn.trim_journal(p_now bigint) returns void language plpgsql as $$
declare v_oldest record; v_last bigint; v_kept bigint; v_to bigint; v_old bigint;
begin
  select j.position, j.at into v_oldest from {schema}.journal j order by j.position limit 1;
  if not found then return; end if;
  select max(o.position), ${MAX_BYTES} / greatest(1, avg(octet_length(o.facts)))::bigint into v_last, v_kept
    from (select j.position, j.facts from {schema}.journal j order by j.position desc limit ${SAMPLE}) o;
  -- Rows have equal distances, but for those that were never committed.
  v_kept := v_last - v_kept * ${FACTS_PER_ROW};
  if v_oldest.at > p_now - ${MAX_AGE_MS} and v_oldest.position > v_kept then return; end if;
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast/trim/' || {literal}, 0)) then return; end if;
  v_to := least(v_kept, v_oldest.position + ${MAX_TRIMMED * FACTS_PER_ROW});
  -- The newest of the old rows stays: a reader that has read up to it has missed nothing.
  select max(o.position) into v_old from (
    select j.position, j.at from {schema}.journal j order by j.position limit ${MAX_TRIMMED}) o
    where o.at <= p_now - ${MAX_AGE_MS};
  select greatest(v_to, max(j.position)) into v_to from {schema}.journal j where j.position < v_old;
  if v_to is null or v_to < v_oldest.position or v_to >= v_last then return; end if;
  delete from {schema}.journal where position <= v_to;
  update {schema}.journal_start set trimmed_to = v_to;
end $$;
`;
