import { DELETED_RUNS_KNOWN_MS } from "../../../rules.ts";

// A purge ends after this many steps, so that none takes long.
const MAX_PURGED_STEPS = 1_000;

/** How runs are deleted. */
export const DELETIONS = `
-- Deletes a run that has ended. See Store.delete().
create or replace function fn.delete(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId' and q.completed_at is not null for update;
  if not found or (fn.open_end(r)).id is not null then return null; end if;
  if r.parent_seq is not null then
    -- Its result and its input are kept for the parents that have not ended.
    update {schema}.children m set result = fn.child_json(m)::text,
      payload = (select i.payload from {schema}.inputs i where i.run_seq = r.seq)
      where m.run_seq = r.seq and exists (select 1 from {schema}.runs o where o.completed_at is null
        and o.seq = (select w.run_seq from {schema}.pauses w where w.seq = m.pause_seq));
  end if;
  if r.end_of is not null then perform fn.keep_undone(r); end if;
  delete from {schema}.runs where seq = r.seq;
  delete from {schema}.inputs where run_seq = r.seq;
  delete from {schema}.other_inputs where run_seq = r.seq;
  if r.labels <> '{}' then delete from {schema}.labels where run_seq = r.seq; end if;
  delete from {schema}.steps where run_seq = r.seq;
  if r.recorded > 0 then delete from {schema}.attempts where run_seq = r.seq; end if;
  if r.lease_generation > 1 then delete from {schema}.interruptions where run_seq = r.seq; end if;
  if r.has_pauses then
    delete from {schema}.children where pause_seq = any(array(
      select w.seq from {schema}.pauses w where w.run_seq = r.seq and w.kind = 'children'));
    delete from {schema}.pauses where run_seq = r.seq;
    delete from {schema}.messages where run_seq = r.seq;
  end if;
  delete from {schema}.logs where run_seq = r.seq;
  delete from {schema}.chunks where run_seq = r.seq;
  delete from {schema}.holds where run_seq = r.seq;
  if r.origin_id is not null then delete from {schema}.copies where run_seq = r.seq; end if;
  perform fn.move_run(r.job, r.status, null);
  perform fn.note(r.seq, '"deleted",' || to_json(r.id)::text || ',' || to_json(fn.job_name_of(r.job))::text || ','
    || r.labels || fn.actor_of_fact(p ->> 'actor') || ']', p_now);
  delete from {schema}.deleted where deleted_at <= p_now - ${DELETED_RUNS_KNOWN_MS};
  insert into {schema}.deleted as d values (r.id, p_now) on conflict (id) do update set deleted_at = excluded.deleted_at;
  return jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels);
end $$;

-- Notes in a run what its end run has undone, which is about to be deleted.
create or replace function fn.keep_undone(e {schema}.runs) returns void language plpgsql as $$
declare v_undoing jsonb;
begin
  select jsonb_agg(s.name) into v_undoing from {schema}.steps s
    where s.run_seq = e.seq and s.status = 'completed' and s.name like 'undo %';
  if v_undoing is null then return; end if;
  update {schema}.runs q set on_end = (q.on_end::jsonb || jsonb_build_object('deleted',
      coalesce(q.on_end::jsonb -> 'deleted', '[]') || jsonb_build_object('id', e.id, 'seq', e.seq, 'undoing', v_undoing)))::text
    where q.id = e.end_of and q.on_end is not null;
end $$;

-- Deletes runs that ended long enough ago. See Store.purge().
create or replace function fn.purge(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare
  r record; v_steps bigint := 0; v_seqs bigint[] := '{}'; v_ids text[] := '{}'; v_id text; v_gone jsonb;
  v_purged jsonb := '[]'; v_limit bigint := (p ->> 'limit')::bigint;
begin
  perform fn.trim_journal(p_now);
  if p -> 'retention' ->> 'streams' is not null then
    perform fn.purge_chunks(ceil((p -> 'retention' ->> 'streams')::numeric)::bigint, p_now);
  end if;
  for r in select d.* from jsonb_each_text(p -> 'retention') t cross join lateral (
      select q.id, q.completed_at, q.seq, q.recorded from {schema}.runs q
      where q.status = t.key and q.completed_at is not null and q.completed_at <= p_now - ceil(t.value::numeric)::bigint
        and (q.on_end is null or (fn.open_end(q)).id is null)
        and (q.retriggered_as is null or not exists (select from {schema}.runs n
          where n.origin_id = coalesce(q.origin_id, q.id) and n.completed_at is null))
      order by q.completed_at, q.seq limit v_limit) d
      order by d.completed_at, d.seq limit v_limit loop
    v_steps := v_steps + r.recorded;
    exit when v_ids <> '{}' and v_steps > ${MAX_PURGED_STEPS};
    v_seqs := v_seqs || r.seq;
    v_ids := v_ids || r.id;
  end loop;
  -- In the order in which those who append log lines lock them.
  perform 1 from {schema}.runs q where q.seq = any(v_seqs) order by q.seq for update;
  foreach v_id in array v_ids loop
    v_gone := fn.delete(jsonb_build_object('runId', v_id), p_now);
    if v_gone is not null then v_purged := v_purged || v_gone; end if;
  end loop;
  return v_purged;
end $$;
`;
