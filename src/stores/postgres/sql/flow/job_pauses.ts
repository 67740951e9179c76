/** How jobs are paused and resumed. */
export const JOB_PAUSES = `
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
`;
