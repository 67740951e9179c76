import { ENTRY } from "../basics.ts";
import { hadLease, underLease } from "./under_lease.ts";

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
`;
