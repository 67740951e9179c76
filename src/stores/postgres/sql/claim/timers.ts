import { MAX_TIMERS } from "../../../rules.ts";

/** What a claim does about time. */
export const TIMERS = `
-- Processes expired timers. Returns the runs that failed.
create or replace function fn.process_timers(p_max int, p_newest_start bigint, p_now bigint) returns jsonb
language plpgsql as $$
declare r {schema}.runs; v_failed jsonb := '[]'; v_one jsonb; g record; v_key text;
begin
  if p_newest_start > p_now then perform fn.correct_starts(p_now); end if;
  for r in select q.* from {schema}.runs q where q.status = 'running' and q.lease_expires_at <= p_now
      order by q.lease_expires_at, q.seq limit ${MAX_TIMERS} loop
    v_one := fn.revoke_lease(r, p_max, p_now);
    if v_one is not null then v_failed := v_failed || v_one; end if;
  end loop;
  for g in select q.run_id, q.generation from {schema}.ghosts q where q.expires_at <= p_now
      order by q.expires_at limit ${MAX_TIMERS} loop
    perform fn.release_ghost(g.run_id, g.generation, null, null, p_now);
  end loop;
  for r in select o.* from (select q.* from {schema}.runs q where q.deadline_at <= p_now
      order by q.deadline_at, q.seq limit ${MAX_TIMERS}) o order by o.seq loop
    v_failed := v_failed || fn.fail_late_run(r, p_now);
  end loop;
  for g in select q.seq from {schema}.runs q where q.timer_at <= p_now order by q.timer_at, q.seq limit ${MAX_TIMERS} loop
    perform fn.commit_deadlines(g.seq, p_now);
    perform fn.wake(g.seq, p_now);
  end loop;
  for g in select q.seq from {schema}.runs q where q.due_at <= p_now order by q.due_at, q.seq limit ${MAX_TIMERS} loop
    update {schema}.runs set updated_at = p_now where seq = g.seq;
    perform fn.enter_queue(g.seq, p_now);
  end loop;
  -- Keys whose rate has opened, and all whose rate is closed again: a run that has passed it would be claimed too early.
  for v_key in (select o.concurrency_key from {schema}.openings o where not o.is_open and o.opens_at <= p_now
        order by o.opens_at limit ${MAX_TIMERS})
      union all (select o.concurrency_key from {schema}.openings o where o.is_open and o.opens_at > p_now) loop
    perform fn.update_queue(v_key, p_now);
  end loop;
  return v_failed;
end $$;
`;
