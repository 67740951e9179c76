import { ENTRY, hadLease, underLease } from "../basics.ts";
import { LISTED_LEASES } from "../../../rules.ts";

// A lease that expires while the server is away has not been abandoned: nobody could renew it. So the first claim after an
// outage begins all leases anew.
//
// The table `server` says which start of the server the last claim has seen. It is unlogged, so it is empty after a crash
// of the server, also of one of its processes, and on a standby that is promoted. None of these shows in the time at
// which the server was started.

/** How leases are extended, released, revoked and listed. */
export const LEASES = `
-- Extends leases. See Store.renew().
create or replace function fn.renew(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare x jsonb; r record; n record; v_ends jsonb := '[]'; v_end bigint;
begin
  for x in select e from jsonb_array_elements(p -> 'renewals') e loop
    select q.seq, q.last_report_no into r from {schema}.runs q where q.id = x ->> 'runId'
      and ${underLease("q", "x")} for no key update;
    if not found then v_ends := v_ends || 'null'::jsonb; continue; end if;
    n := fn.new_reports(x -> 'reports', r.last_report_no);
    update {schema}.runs set updated_at = p_now, progress = coalesce(n.progress, progress), last_report_no = n.last_no,
      lease_expires_at = greatest(lease_expires_at + 1, p_now + ceil((p ->> 'leaseMs')::numeric)::bigint)
      where seq = r.seq returning lease_expires_at into v_end;
    perform fn.note_all(r.seq, n.facts, p_now);
    v_ends := v_ends || to_jsonb(v_end);
  end loop;
  return v_ends;
end $$;

-- Releases a lease. See Store.release().
create or replace function fn.release(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare r {schema}.runs; n record;
begin
  -- Also if the run has fewer records than its holder knows: nothing is written, and others can go on.
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId'
    and ${hadLease("q", "p")} and q.status || '' = 'running' for no key update;
  if not found then
    perform fn.release_ghost(p ->> 'runId', (p ->> 'generation')::int, p ->> 'claimId', null, p_now);
    return null;
  end if;
  n := fn.new_reports(p -> 'reports', r.last_report_no);
  r.progress := coalesce(n.progress, r.progress); r.last_report_no := n.last_no;
  perform fn.leave_lease(r, 'released', n.facts, p_now, p_now);
  return null;
end $$;

-- Revokes leases that were not renewed since they were read. See Store.revoke().
create or replace function fn.revoke(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare x jsonb; r {schema}.runs;
begin
  for x in select e from jsonb_array_elements(p -> 'leases') e loop
    select q.* into r from {schema}.runs q where q.id = x ->> 'runId' and q.status || '' = 'running'
      and q.lease_generation = (x ->> 'generation')::int and q.lease_expires_at = (x ->> 'expiresAt')::bigint
      for no key update;
    if found then perform fn.revoke_lease(r, null, p_now);
    else perform fn.release_ghost(x ->> 'runId', (x ->> 'generation')::int, null, (x ->> 'expiresAt')::bigint, p_now);
    end if;
  end loop;
  return null;
end $$;

-- All leases, including those of cancelled runs that a worker may still execute. See Store.getLeases().
create or replace function fn.get_leases(p jsonb, p_now bigint) returns jsonb language sql stable ${ENTRY} as $$
  select coalesce(jsonb_agg(to_jsonb(l)), '[]') from (
    select r.id as "runId", r.lease_generation as generation, r.lease_claim as "claimId", r.recorded,
      r.concurrency_key as "concurrencyKey",
      r.lease_expires_at as "expiresAt", w.lease_ms as "leaseMs"
    from {schema}.runs r left join {schema}.workers w on w.id = r.lease_owner where r.status = 'running'
    union all
    select g.run_id, g.generation, g.lease_claim, 0, g.concurrency_key, g.expires_at, null
    from {schema}.ghosts g where g.expires_at > fn.clock(p_now)) l
$$;

-- The indexes of the leases that are no longer current. See Store.getLostLeases().
create or replace function fn.get_lost_leases(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
begin
  -- "not exists" could become a join, with a plan from when there were few runs: that reads all of them.
  return (select coalesce(jsonb_agg(t.no - 1 order by t.no), '[]') from jsonb_array_elements(p) with ordinality t (x, no)
  where (select true from {schema}.runs r where r.id = t.x ->> 'runId' and ${underLease("r", "t.x")}) is not true);
end $$;

-- Whether the server was away since the last claim.
create or replace function fn.was_away() returns boolean language plpgsql stable as $$
begin
  -- There, the table cannot even be read.
  if pg_is_in_recovery() then raise exception 'the server is a standby' using errcode = '25006'; end if;
  return not exists (select from {schema}.server s where s.started_at = pg_postmaster_start_time());
end $$;

-- After an outage, leases end no earlier than one length of them from now, and workers that were live before it stay live
-- as long. The caller holds the lock of the schema.
create or replace function fn.begin_leases_anew(p_now bigint) returns void language plpgsql as $$
declare v_seen_at bigint; v_longest bigint;
begin
  if not fn.was_away() then return; end if;
  select max(w.seen_at), max(w.lease_ms) into v_seen_at, v_longest from {schema}.workers w;
  update {schema}.runs r set lease_expires_at = greatest(r.lease_expires_at + 1, p_now + w.lease_ms)
    from {schema}.workers w where r.status = 'running' and w.id = r.lease_owner;
  update {schema}.ghosts g set expires_at = greatest(g.expires_at, p_now + v_longest) where v_longest is not null;
  -- The newest claim tells how long the server was certainly there.
  update {schema}.workers w set seen_at = p_now where w.seen_at + w.lease_ms > v_seen_at;
  -- Nothing of an unlogged table is in the log: no commit waits for it.
  perform fn.commit_something();
  delete from {schema}.server;
  insert into {schema}.server values (pg_postmaster_start_time());
end $$;

-- See Store.forgetWorker().
create or replace function fn.forget_worker(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  delete from {schema}.workers where id = p ->> 'workerId';
  select null::jsonb
$$;

-- Deletes the entries of workers that died long ago: after a hundred lengths of their leases without a claim, unless the
-- server was away.
create or replace function fn.forget_dead_workers(p_now bigint) returns void language sql volatile as $$
  delete from {schema}.workers where seen_at + lease_ms * ${LISTED_LEASES} < p_now and not fn.was_away()
$$;
`;
