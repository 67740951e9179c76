import { abandonedFailure, ALONE_DELAY, ALONE_FROM, DELETED_RUNS_KNOWN_MS } from "../../../rules.ts";
import { deadlineFailure } from "../../../../failure/deadline_failure.ts";
import { type Failure, failureText } from "../../../../failure.ts";
import { hadLease, underLease } from "./under_lease.ts";

// A number that stands for another one in the text of a failure.
const PLACEHOLDER = 987_654_321;

/** The failure and its text as an SQL array, with a number in the place of the placeholder. */
function failureArray(failure: Failure, number: string): string {
  const texts = [JSON.stringify(failure), failureText(failure)];
  const replaced = texts.map((text) => `replace('${text.replaceAll("'", "''")}', '${PLACEHOLDER}', ${number}::text)`);
  return `array[${replaced.join(", ")}]`;
}

// A purge ends after this many steps, so that none takes long.
const MAX_PURGED_STEPS = 1_000;

/** How runs end and are deleted. */
export const ENDINGS = `
-- The failure of a run that a claim ends, and its text.
create or replace function fn.failure_of(p_kind text, p_number bigint) returns text[] language sql immutable as $$
  select case p_kind
    when 'abandoned' then ${failureArray(abandonedFailure(PLACEHOLDER), "p_number")}
    when 'expired' then ${failureArray(deadlineFailure("expired", PLACEHOLDER), "p_number")}
    when 'timeout' then ${failureArray(deadlineFailure("timeout", PLACEHOLDER), "p_number")} end
$$;

-- Ends a run. See Store.finish().
create or replace function fn.finish(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs; n record; v_status text := p ->> 'status';
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId' for no key update;
  if (${underLease("r", "p")}) is not true then
    -- A call that is repeated after it ended the run: only this same call ends it with this status under this lease.
    if ${hadLease("r", "p")} and r.status = v_status then return null; end if;
    return '{"refused": "lease_lost"}';
  end if;
  n := fn.new_reports(p -> 'reports', r.last_report_no);
  update {schema}.runs set status = v_status, output = p ->> 'output', error = p ->> 'error', failure = p ->> 'failure',
    failed_step = p ->> 'failedStep', progress = coalesce(n.progress, progress), last_report_no = n.last_no,
    lease_owner = null, lease_expires_at = null, updated_at = p_now, completed_at = p_now
    where seq = r.seq;
  perform fn.move_run(r.job, 'running', v_status);
  perform fn.note_all(r.seq, n.facts || (p ->> 'fact'), p_now);
  perform fn.close_pauses(r, 'closed', p_now);
  if r.concurrency_key is not null then
    perform fn.release_key(r.concurrency_key, r.id, r.lease_generation, p_now);
  end if;
  return null;
end $$;

-- Cancels a run that has not ended. See Store.cancel().
create or replace function fn.cancel(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId' for no key update;
  if not found then return null; end if;
  if r.completed_at is not null then
    return case when r.ended_by = p ->> 'requestId' then fn.run_json(r) end;
  end if;
  perform fn.cancel_run(r, p ->> 'requestId', nullif(p -> 'execution', 'null'), p_now);
  return (select fn.run_json(q) from {schema}.runs q where q.seq = r.seq);
end $$;

create or replace function fn.cancel_run(r {schema}.runs, p_request_id text, p_execution jsonb, p_now bigint)
returns void language plpgsql as $$
declare n record; s jsonb; v_recorded boolean; v_live boolean := r.lease_expires_at > p_now;
  v_own boolean := ${underLease("r", "p_execution")};
begin
  n := fn.new_reports(case when v_own then p_execution -> 'reports' end, r.last_report_no);
  update {schema}.runs set status = 'cancelled', queue_state = null, timer_at = null, due_at = null, deadline_at = null,
    lease_owner = null, lease_claim = null, lease_expires_at = null, ended_by = p_request_id, updated_at = p_now,
    completed_at = p_now, progress = coalesce(n.progress, progress), is_held = false where seq = r.seq;
  perform fn.move_run(r.job, r.status, 'cancelled');
  perform fn.note_all(r.seq, n.facts, p_now);
  if v_own then
    for s in select x from jsonb_array_elements(p_execution -> 'steps') x loop
      insert into {schema}.steps (run_seq, name, position, status, attempts, recorded_no, started_at, completed_at)
        values (r.seq, s ->> 'name', (s ->> 'index')::int, 'cancelled', (s ->> 'attempts')::int, 0,
          p_now - (s ->> 'agoMs')::bigint, p_now) on conflict do nothing;
      v_recorded := found;
      if not v_recorded then
        -- All steps between two attempts are recorded as cancelled below.
        perform 1 from {schema}.steps t where t.run_seq = r.seq and t.name = s ->> 'name' and t.status = 'retrying';
        v_recorded := found;
      end if;
      if v_recorded then
        perform fn.note(r.seq, '"step_cancelled",' || to_json(s ->> 'name')::text || ',' || (s ->> 'index') || ']', p_now);
      end if;
    end loop;
  end if;
  if r.recorded > 0 then
    update {schema}.steps set status = 'cancelled', completed_at = p_now where run_seq = r.seq and status = 'retrying';
  end if;
  perform fn.note(r.seq, '"cancelled"]', p_now);
  perform fn.close_pauses(r, 'cancelled', p_now);
  if r.is_held then perform fn.end_hold(r.seq, null); end if;
  -- A worker may still execute the run.
  if r.status = 'running' and v_live then
    perform fn.keep_ghost(r);
  else
    perform fn.leave_queue(r.seq, p_now);
    if r.concurrency_key is not null then
      perform fn.release_key(r.concurrency_key, r.id, r.lease_generation, p_now);
    end if;
  end if;
end $$;

-- Notes that a run is held no more: it is claimed, or it ends. p_generation is that of the lease which the claim gives.
create or replace function fn.end_hold(p_seq bigint, p_generation int) returns void language plpgsql volatile as $$
begin
  update {schema}.holds set since = null, offered_in = '', generation = coalesce(p_generation, generation)
  where run_seq = p_seq and since is not null;
end $$;

-- Fails a run that is not under a lease and has missed a deadline. Returns what a claim says of it.
create or replace function fn.fail_late_run(r {schema}.runs, p_now bigint) returns jsonb language plpgsql as $$
declare v_kind text := case when r.started_at is null then 'expired' else 'timeout' end; v_failure text[];
begin
  v_failure := fn.failure_of(v_kind, case when v_kind = 'expired' then r.start_within else r.finish_within end);
  update {schema}.runs set status = 'failed', error = v_failure[2], failure = v_failure[1], updated_at = p_now,
    completed_at = p_now, is_held = false where seq = r.seq;
  perform fn.move_run(r.job, r.status, 'failed');
  perform fn.note(r.seq, '"failed","' || v_kind || '"]', p_now);
  perform fn.close_pauses(r, 'closed', p_now);
  perform fn.leave_queue(r.seq, p_now);
  if r.is_held then perform fn.end_hold(r.seq, null); end if;
  -- It holds its key if it waited for a retry.
  if r.concurrency_key is not null then
    perform fn.release_key(r.concurrency_key, r.id, r.lease_generation, p_now);
  end if;
  return jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels, 'error', v_failure[2], 'kind', v_kind);
end $$;

-- Revokes a lease, so that the run can be claimed again; a run that was abandoned too often fails instead: then it
-- returns what a claim says of it. p_max NULL: none fails.
create or replace function fn.revoke_lease(r {schema}.runs, p_max int, p_now bigint) returns jsonb language plpgsql as $$
declare v_failure text[]; w record; v_alone int;
begin
  select q.sole_claim, q.lease_ms into w from {schema}.workers q where q.id = r.lease_owner;
  v_alone := case when r.abandonments = 0 then 0 else r.abandonments_alone end + case when w.sole_claim = r.lease_claim then 1 else 0 end;
  if v_alone >= p_max then v_failure := fn.failure_of('abandoned', r.abandonments + 1); end if;
  perform fn.note_interruption(r, 'lost', p_now);
  update {schema}.runs set status = case when v_failure is null then 'pending' else 'failed' end, error = v_failure[2],
    failure = v_failure[1], completed_at = case when v_failure is not null then p_now end, updated_at = p_now,
    lease_owner = null, lease_claim = null, lease_expires_at = null, lease_generation = lease_generation + 1,
    interruptions = interruptions + 1, abandonments = abandonments + 1,
    abandonments_alone = v_alone where seq = r.seq;
  perform fn.move_run(r.job, 'running', case when v_failure is null then 'pending' else 'failed' end);
  if v_failure is null then
    perform fn.requeue(r.seq, r.abandonments + 1,
      p_now + ceil(r.abandonments * coalesce(w.lease_ms, 0) * ${ALONE_DELAY})::bigint, p_now);
  else
    perform fn.note(r.seq, '"failed","abandoned"]', p_now);
    perform fn.close_pauses(r, 'closed', p_now);
  end if;
  if r.concurrency_key is not null then
    perform fn.release_key(r.concurrency_key, r.id, r.lease_generation, p_now);
  end if;
  if v_failure is null then return null; end if;
  return jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels, 'error', v_failure[2], 'kind', 'abandoned');
end $$;

-- Puts a run back into its queue whose lease has ended. One that is claimed alone comes into a queue of its own, and is due
-- at p_alone_at.
create or replace function fn.requeue(p_seq bigint, p_abandonments int, p_alone_at bigint, p_now bigint) returns void
language plpgsql as $$
begin
  if p_abandonments >= ${ALONE_FROM} then
    update {schema}.runs set queue = fn.alone_queue(job), due_at = p_alone_at, deadline_at = finish_by where seq = p_seq;
    if p_alone_at > p_now then return; end if;
  end if;
  perform fn.enter_queue(p_seq, p_now);
end $$;

-- Deletes a run that has ended. See Store.delete().
create or replace function fn.delete_run(p_run_id text, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs;
begin
  select q.* into r from {schema}.runs q where q.id = p_run_id and q.completed_at is not null for update;
  if not found then return null; end if;
  if r.parent_seq is not null then
    -- Its result and its input are kept for the parents that have not ended.
    update {schema}.children m set result = fn.child_json(m)::text,
      payload = (select i.payload from {schema}.inputs i where i.run_seq = r.seq)
      where m.run_seq = r.seq and exists (select 1 from {schema}.runs o where o.completed_at is null
        and o.seq = (select w.run_seq from {schema}.pauses w where w.seq = m.pause_seq));
  end if;
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
  end if;
  delete from {schema}.logs where run_seq = r.seq;
  delete from {schema}.holds where run_seq = r.seq;
  if r.origin_id is not null then delete from {schema}.copies where run_seq = r.seq; end if;
  perform fn.move_run(r.job, r.status, null);
  perform fn.note(r.seq, '"deleted",' || to_json(r.id)::text || ',' || to_json(fn.job_name_of(r.job))::text || ','
    || r.labels || ']', p_now);
  delete from {schema}.deleted where deleted_at <= p_now - ${DELETED_RUNS_KNOWN_MS};
  insert into {schema}.deleted as d values (r.id, p_now) on conflict (id) do update set deleted_at = excluded.deleted_at;
  return jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels);
end $$;

-- Deletes runs that ended long enough ago. See Store.purge().
create or replace function fn.purge(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare
  r record; v_steps bigint := 0; v_seqs bigint[] := '{}'; v_ids text[] := '{}'; v_id text; v_gone jsonb;
  v_purged jsonb := '[]'; v_limit bigint := (p ->> 'limit')::bigint;
begin
  perform fn.trim_journal(p_now);
  for r in select d.* from jsonb_each_text(p -> 'retention') t cross join lateral (
      select q.id, q.completed_at, q.seq, q.recorded from {schema}.runs q
      where q.status = t.key and q.completed_at is not null and q.completed_at <= p_now - ceil(t.value::numeric)::bigint
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
    v_gone := fn.delete_run(v_id, p_now);
    if v_gone is not null then v_purged := v_purged || v_gone; end if;
  end loop;
  return v_purged;
end $$;
`;
