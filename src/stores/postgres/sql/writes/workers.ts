import { LISTED_LEASES } from "../../../worker_details.ts";
import { ENTRY } from "../basics.ts";
import { underLease } from "./under_lease.ts";

/** Workers, their leases, and the jobs that are paused. */
export const WORKERS = `
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
  return (select coalesce(jsonb_agg(t.no - 1 order by t.no), '[]') from jsonb_array_elements(p) with ordinality t (x, no)
  where not exists (select 1 from {schema}.runs r where r.id = t.x ->> 'runId'
    and ${underLease("r", "t.x")}));
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

-- Pauses a job, unless it is paused already. See Store.pauseJob().
create or replace function fn.pause_job(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  insert into {schema}.paused_jobs (job, paused_at, paused_by, note)
    values (p ->> 'jobName', p_now, p ->> 'by', p ->> 'note') on conflict do nothing;
  select to_jsonb(j) from {schema}.paused_jobs j where j.job = p ->> 'jobName'
$$;

-- Ends the pause of a job. Returns whether it was paused.
create or replace function fn.resume_job(p jsonb, p_now bigint) returns jsonb language sql volatile as $$
  with gone as (delete from {schema}.paused_jobs where job = p ->> 'jobName' returning 1)
  select to_jsonb(exists (select 1 from gone))
$$;

-- The paused jobs, in the order of their names.
create or replace function fn.get_paused_jobs(p jsonb, p_now bigint) returns jsonb language sql stable ${ENTRY} as $$
  select coalesce(jsonb_agg(to_jsonb(j) order by j.job), '[]') from {schema}.paused_jobs j
$$;
`;
