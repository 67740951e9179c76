import { abandonedFailure, ALONE_DELAY, ALONE_FROM } from "../../../rules.ts";
import { deadlineFailure, type Failure, failureText } from "../../../../model/failure.ts";
import { hadLease, underLease } from "../basics.ts";

// A number that stands for another one in the text of a failure.
const PLACEHOLDER = 987_654_321;

/** The failure and its text as an SQL array, with a number in the place of the placeholder. */
function failureArray(failure: Failure, number: string): string {
  const texts = [JSON.stringify(failure), failureText(failure)];
  const replaced = texts.map((text) => `replace('${text.replaceAll("'", "''")}', '${PLACEHOLDER}', ${number}::text)`);
  return `array[${replaced.join(", ")}]`;
}

/** What a run that has ended has no more, as the assignments of an update. */
export const NO_MORE =
  "lease_owner = null, lease_expires_at = null, queue_state = null, timer_at = null, due_at = null, " +
  "deadline_at = null, is_held = false";

/** How runs end, and how they leave a lease. */
export const ENDINGS = `
-- Ends a run: its row, the numbers of runs, its facts, its pauses, its hold, its queue and its key, in this order. r is the
-- run before its end, with what the caller knows of it: output, error, failure, failed_step, ended_by, and its last reports.
create or replace function fn.end_run(r {schema}.runs, p_status text, p_facts text[], p_now bigint,
  p_still_executing boolean default false) returns void
language plpgsql as $$
begin
  update {schema}.runs set status = p_status, output = r.output, error = r.error, failure = r.failure,
    failed_step = r.failed_step, ended_by = r.ended_by, progress = r.progress, last_report_no = r.last_report_no,
    ${NO_MORE}, updated_at = p_now, completed_at = greatest(p_now, created_at)
    where seq = r.seq;
  perform fn.move_run(r.job, r.status, p_status);
  perform fn.note_all(r.seq, p_facts, p_now);
  perform fn.close_pauses(r, case p_status when 'cancelled' then 'cancelled' else 'closed' end, p_now);
  if r.is_held then perform fn.end_hold(r.seq, null); end if;
  if p_status = 'completed' and r.retrigger_of is not null then
    -- A run keeps the first retry that has completed, and so have those before it.
    update {schema}.runs set completed_as = r.id where id = any(fn.retried_runs(r.retrigger_of));
  end if;
  if r.status <> 'running' then perform fn.touch_group(r.queue, r.fairness_key); end if;
  if r.on_end is not null then perform fn.add_end_run(r, p_status, p_now); end if;
  -- A worker may still execute a cancelled run, and a late one.
  if (p_status = 'cancelled' or p_still_executing) and r.status = 'running' and r.lease_expires_at > p_now then perform fn.keep_ghost(r);
  elsif r.concurrency_key is not null then
    perform fn.release_key(r.concurrency_key, r.id, r.lease_generation, p_now);
  end if;
end $$;

-- Takes the lease from a run that does not end: its row, the numbers of runs, its facts, its queue and its key, in this
-- order. p_kind is lost, released or held, as in \`interruptions\`, or parked, or retrying: then only a retry is to come, and it keeps
-- its key. r is the run under the lease, with what the
-- caller knows: its last reports, timer_at, and its abandonments. One that was abandoned too often is claimed alone, from
-- p_alone_at on.
create or replace function fn.leave_lease(r {schema}.runs, p_kind text, p_facts text[], p_alone_at bigint, p_now bigint)
returns void language plpgsql as $$
declare
  v_interrupted boolean := p_kind in ('lost', 'released', 'held'); v_queued boolean := p_kind in ('lost', 'released');
  v_alone boolean := v_queued and r.abandonments >= ${ALONE_FROM}; v_delayed boolean := v_alone and p_alone_at > p_now;
begin
  if v_interrupted then
    insert into {schema}.interruptions (run_seq, generation, kind, worker, leased_at, ended_at)
      values (r.seq, r.lease_generation, p_kind, r.lease_owner, r.leased_at, p_now) on conflict do nothing;
  end if;
  update {schema}.runs set status = case when v_interrupted then 'pending' else 'waiting' end, lease_owner = null,
    lease_claim = case when not v_queued then lease_claim end, lease_expires_at = null,
    lease_generation = lease_generation + v_interrupted::int, interruptions = interruptions + v_queued::int,
    abandonments = r.abandonments, abandonments_alone = r.abandonments_alone, is_held = p_kind = 'held',
    timer_at = r.timer_at, parked_no = case when v_interrupted then parked_no else recorded end, deadline_at = finish_by, due_at = case when v_delayed then p_alone_at end,
    queue = case when v_alone then fn.alone_queue(job) else queue end, progress = r.progress,
    last_report_no = r.last_report_no, updated_at = p_now where seq = r.seq;
  perform fn.move_run(r.job, 'running', case when v_interrupted then 'pending' else 'waiting' end);
  perform fn.note_all(r.seq, p_facts, p_now);
  if v_queued and not v_delayed then perform fn.enter_queue(r.seq, p_now); end if;
  if r.concurrency_key is not null and p_kind <> 'retrying' then
    perform fn.release_key(r.concurrency_key, r.id, r.lease_generation, p_now);
  end if;
end $$;

-- The run of which another one is a retry, that of which this is one, and so on, up to one of which a retry has completed.
create or replace function fn.retried_runs(p_id text) returns text[] language plpgsql stable as $$
declare v_ids text[] := '{}'; v_id text collate "C" := p_id; v_next text collate "C";
begin
  loop
    select q.retrigger_of into v_next from {schema}.runs q where q.id = v_id and q.completed_as is null;
    exit when not found or v_id = any(v_ids);
    v_ids := v_ids || v_id;
    v_id := v_next;
  end loop;
  return v_ids;
end $$;

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
  r.progress := coalesce(n.progress, r.progress); r.last_report_no := n.last_no;
  r.output := p ->> 'output'; r.error := p ->> 'error'; r.failure := p ->> 'failure'; r.failed_step := p ->> 'failedStep';
  perform fn.end_run(r, v_status, n.facts || (p ->> 'fact'), p_now, p ->> 'stillExecuting' is not null);
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
  r.ended_by := p ->> 'requestId';
  perform fn.cancel_run(r, nullif(p -> 'execution', 'null'), p_now);
  return (select fn.run_json(q) from {schema}.runs q where q.seq = r.seq);
end $$;

-- Cancels a run, with the steps that its worker executes.
create or replace function fn.cancel_run(r {schema}.runs, p_execution jsonb, p_now bigint) returns void language plpgsql as $$
declare n record; s jsonb; v_recorded boolean; v_facts text[] := '{}';
begin
  if ${underLease("r", "p_execution")} then
    n := fn.new_reports(p_execution -> 'reports', r.last_report_no);
    r.progress := coalesce(n.progress, r.progress); r.last_report_no := n.last_no;
    v_facts := n.facts;
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
        v_facts := v_facts || ('"step_cancelled",' || to_json(s ->> 'name')::text || ',' || (s ->> 'index') || ']');
      end if;
    end loop;
  end if;
  if r.recorded > 0 then
    update {schema}.steps set status = 'cancelled', completed_at = p_now where run_seq = r.seq and status = 'retrying';
  end if;
  perform fn.end_run(r, 'cancelled', v_facts || ('"cancelled"' || fn.actor_of_fact(r.ended_by) || ']'), p_now);
end $$;

-- Fails a run that is not under a lease. p_number is what the text of the failure tells. Returns what a claim says of it.
create or replace function fn.fail_run(r {schema}.runs, p_kind text, p_number bigint, p_now bigint) returns jsonb
language plpgsql as $$
declare v_failure text[] := fn.failure_of(p_kind, p_number);
begin
  r.failure := v_failure[1]; r.error := v_failure[2];
  perform fn.end_run(r, 'failed', array['"failed","' || p_kind || '"]'], p_now);
  return jsonb_build_object('id', r.id, 'job', r.job, 'labels', r.labels, 'error', r.error, 'kind', p_kind);
end $$;

-- Revokes a lease, so that the run can be claimed again; a run that was abandoned too often fails instead: then it
-- returns what a claim says of it. p_max NULL: none fails.
create or replace function fn.revoke_lease(r {schema}.runs, p_max int, p_now bigint) returns jsonb language plpgsql as $$
declare w record;
begin
  select q.sole_claim, q.lease_ms into w from {schema}.workers q where q.id = r.lease_owner;
  r.abandonments_alone := case when r.abandonments = 0 then 0 else r.abandonments_alone end
    + case when w.sole_claim = r.lease_claim then 1 else 0 end;
  r.abandonments := r.abandonments + 1;
  perform fn.leave_lease(r, 'lost', '{}',
    p_now + ceil((r.abandonments - 1) * coalesce(w.lease_ms, 0) * ${ALONE_DELAY})::bigint, p_now);
  if r.abandonments_alone < p_max is not false then return null; end if;
  select q.* into r from {schema}.runs q where q.seq = r.seq;
  return fn.fail_run(r, 'abandoned', r.abandonments, p_now);
end $$;

-- The failure of a run that a claim ends, and its text.
create or replace function fn.failure_of(p_kind text, p_number bigint) returns text[] language sql immutable as $$
  select case p_kind
    when 'abandoned' then ${failureArray(abandonedFailure(PLACEHOLDER), "p_number")}
    when 'expired' then ${failureArray(deadlineFailure("expired", PLACEHOLDER), "p_number")}
    when 'timeout' then ${failureArray(deadlineFailure("timeout", PLACEHOLDER), "p_number")} end
$$;

-- Notes that a run is held no more: it is claimed, or it ends. p_generation is that of the lease which the claim gives.
create or replace function fn.end_hold(p_seq bigint, p_generation int) returns void language plpgsql volatile as $$
begin
  update {schema}.holds set since = null, offered_in = '', generation = coalesce(p_generation, generation)
  where run_seq = p_seq and since is not null;
end $$;
`;
