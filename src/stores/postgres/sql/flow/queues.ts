import { END_LEAD, LAST_KEPT } from "../../../rules.ts";
import { POSITIONS_PER_PRIORITY } from "../../../../model/flow.ts";

// The due runs with a concurrency key are its queue, by position. Their `queue_state` is R (they have passed the key) or
// B (blocked). Two invariants hold after every call:
//   K1: of each queue of a job only the first is R, and only while the key has room for it: fewer runs hold the key than
//       its own limit, and before its first start the rate of the key is open. Runs that kept their key over a retry
//       delay are all R.
//   K2: while that is so, it is R.
// It is one for each job, since a worker claims only jobs that it knows: a job that no worker knows blocks no other.

/** More than any instant: what it stands for never comes. */
const NEVER = Number.MAX_SAFE_INTEGER;

/** The queues of concurrency keys. */
export const QUEUES = `
-- Makes a run that is not under a lease claimable, or queues it for its key.
create or replace function fn.enter_queue(p_seq bigint, p_now bigint) returns void language plpgsql as $$
declare r record;
begin
  update {schema}.runs set queue_state = case when concurrency_key is null then 'R'::"char" else 'B'::"char" end,
    due_at = null, deadline_at = case when started_at is null then start_by else finish_by end
    where seq = p_seq returning queue, fairness_key, concurrency_key, position into r;
  if r.concurrency_key is null then perform fn.add_ready(r.queue, r.fairness_key, r.position);
  else perform fn.update_queue(r.concurrency_key, p_now);
  end if;
end $$;

-- Releases a key, if the run holds it under this lease. Every release of a key goes through this function.
create or replace function fn.release_key(p_key text, p_run_id text, p_generation int, p_now bigint) returns void
language plpgsql as $$
begin
  delete from {schema}.holders where concurrency_key = p_key and run_id = p_run_id and generation = p_generation;
  perform fn.update_queue(p_key, p_now);
end $$;

-- Gives a key to a run that was just claimed, and is out of the queue. Returns whether another run became claimable.
create or replace function fn.take_key(p_key text, p_run_id text, p_generation int, p_now bigint) returns boolean
language plpgsql as $$
begin
  insert into {schema}.holders as h (concurrency_key, run_id, generation) values (p_key, p_run_id, p_generation)
    on conflict (concurrency_key, run_id) do update set generation = excluded.generation;
  return fn.update_queue(p_key, p_now);
end $$;

-- When a key has room for a run; -1: it has, ${NEVER}: others have to leave.
create or replace function fn.key_opens_at(p_key text, p_holders bigint, p_begun boolean, p_concurrency bigint,
  p_limit bigint, p_period bigint, p_now bigint) returns bigint language sql stable as $$
  select case when p_holders >= p_concurrency then ${NEVER}
    when p_limit is null or p_begun then -1
    else fn.rate_opens_at('key ' || p_key, p_limit, p_period, p_now) end
$$;

-- The state of a new run in the queue of its key, if it changes nothing for the others; NULL: update_queue() has to say.
create or replace function fn.state_of_new_run(p_key text, p_queue text, p_position bigint, p_concurrency bigint,
  p_limit bigint, p_period bigint, p_now bigint) returns "char" language plpgsql stable as $$
declare v_first bigint; v_holders bigint;
begin
  select r.position into v_first from {schema}.runs r
    where r.concurrency_key = p_key and r.queue = p_queue and r.queue_state is not null
    order by r.position, r.seq limit 1;
  if found then return case when v_first <= p_position then 'B'::"char" end; end if;
  select count(*) into v_holders from {schema}.holders h where h.concurrency_key = p_key;
  if v_holders >= p_concurrency then return 'B'; end if;
  if p_limit is null or fn.rate_opens_at('key ' || p_key, p_limit, p_period, p_now) = -1 then return 'R'; end if;
  return null;
end $$;

-- Restores K1 and K2 for a key, after a change of the key or of its runs. Returns whether a run became claimable.
create or replace function fn.update_queue(p_key text, p_now bigint) returns boolean language plpgsql as $$
declare
  v_holders bigint; v_queue text collate "C" := ''; v_opens bigint; v_added boolean := false; f record; k record;
begin
  delete from {schema}.openings where concurrency_key = p_key;
  loop
    select r.queue into v_queue from {schema}.runs r
      where r.concurrency_key = p_key and r.queue_state is not null and r.queue > v_queue order by r.queue limit 1;
    exit when not found;
    if v_holders is null then
      select count(*) into v_holders from {schema}.holders h where h.concurrency_key = p_key;
    end if;
    select r.seq, r.position, r.queue_state, r.fairness_key, r.started_at, r.key_concurrency, r.key_rate_limit,
        r.key_rate_period into f
      from {schema}.runs r where r.concurrency_key = p_key and r.queue = v_queue and r.queue_state is not null
      order by r.position, r.seq limit 1;
    if f.position < ${LAST_KEPT} then
      perform fn.block(p_key, v_queue);
      for k in update {schema}.runs set queue_state = 'R'
          where concurrency_key = p_key and queue = v_queue and queue_state is not null and queue_state = 'B'
            and position < ${LAST_KEPT} returning fairness_key, position loop
        v_added := true;
        perform fn.add_ready(v_queue, k.fairness_key, k.position);
      end loop;
      continue;
    end if;
    v_opens := fn.key_opens_at(p_key, v_holders, f.started_at is not null, f.key_concurrency, f.key_rate_limit,
      f.key_rate_period, p_now);
    if v_opens > p_now then perform fn.block(p_key, v_queue);
    elsif f.queue_state = 'B' then
      perform fn.block(p_key, v_queue);
      update {schema}.runs set queue_state = 'R' where seq = f.seq;
      v_added := true;
      perform fn.add_ready(v_queue, f.fairness_key, f.position);
    end if;
    if v_opens not in (-1, ${NEVER}) then
      insert into {schema}.openings (concurrency_key, queue, opens_at, period, is_open)
        values (p_key, v_queue, v_opens, f.key_rate_period, v_opens <= p_now);
    end if;
  end loop;
  return v_added;
end $$;

-- Puts back what has passed the key in one queue, except runs that kept the key.
create or replace function fn.block(p_key text, p_queue text) returns void language plpgsql as $$
declare r record;
begin
  for r in update {schema}.runs set queue_state = 'B'
      where concurrency_key || '' = p_key and concurrency_key is not null and queue = p_queue and queue_state = 'R'
        and position > ${LAST_KEPT}
      returning fairness_key loop
    perform fn.touch_group(p_queue, r.fairness_key);
  end loop;
end $$;

-- Whether a run of another queue comes first for a key: one that the key has no room for yet, or one that only other
-- workers can claim, unless the limits of its job hold it back there. p_live are the queues that fn.passing_queues()
-- returns, p_own those of the claiming worker.
create or replace function fn.is_behind(p_key text, p_queue text, p_position bigint, p_live jsonb, p_own text[])
returns boolean language plpgsql stable as $$
declare v_queue text collate "C" := ''; f record;
begin
  if p_key is null or p_position < ${LAST_KEPT} then return false; end if;
  loop
    select r.queue into v_queue from {schema}.runs r
      where r.concurrency_key = p_key and r.queue_state is not null and r.queue > v_queue order by r.queue limit 1;
    exit when not found;
    continue when v_queue = p_queue or not p_live ? v_queue;
    select r.position, r.queue_state, r.started_at is not null as begun into f from {schema}.runs r
      where r.concurrency_key = p_key and r.queue = v_queue and r.queue_state is not null
      order by r.position, r.seq limit 1;
    continue when f.position >= p_position or (f.queue_state = 'R' and v_queue = any(p_own));
    if f.queue_state <> 'R' or coalesce((p_live ->> v_queue)::boolean, false) or (f.begun and p_live ->> v_queue is not null)
    then return true; end if;
  end loop;
  return false;
end $$;

-- Keeps what a run holds that is cancelled under a lease: until that is released or would have expired, its worker may
-- still execute it.
create or replace function fn.keep_ghost(r {schema}.runs) returns void language plpgsql volatile as $$
begin
  insert into {schema}.ghosts as g (run_id, generation, lease_claim, job, concurrency_key, expires_at)
  values (r.id, r.lease_generation, r.lease_claim, fn.job_name_of(r.job), r.concurrency_key, r.lease_expires_at)
  on conflict (run_id) do update set generation = excluded.generation, lease_claim = excluded.lease_claim,
    job = excluded.job, concurrency_key = excluded.concurrency_key, expires_at = excluded.expires_at;
end $$;

-- Releases what a run holds that was cancelled under a lease; for any other lease nothing happens. p_claim: only if this
-- claim gave the lease; p_expires_at: only if the lease still ended then when the run was cancelled; NULL: in any case.
create or replace function fn.release_ghost(p_run_id text, p_generation int, p_claim text, p_expires_at bigint,
  p_now bigint) returns void language plpgsql as $$
declare v_key text;
begin
  delete from {schema}.ghosts where run_id = p_run_id and generation = p_generation
    and (p_claim is null or lease_claim = p_claim) and expires_at = coalesce(p_expires_at, expires_at) returning concurrency_key into v_key;
  if found and v_key is not null then perform fn.release_key(v_key, p_run_id, p_generation, p_now); end if;
end $$;
`;

/** The position of a run that did not keep its key and is not held, as an expression: see `positionOf()`. */
export function ownPosition(run: string): string {
  return `${run}.seq - ${POSITIONS_PER_PRIORITY} * ${run}.priority::bigint
    - case when ${run}.end_of is null or ${run}.concurrency_key is null then 0 else ${END_LEAD} end`;
}
