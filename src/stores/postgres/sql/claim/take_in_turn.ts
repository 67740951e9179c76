import { MAX_PASSED_OVER, MAX_TIMERS } from "../../../rules.ts";
import { FIRST, queueScan, scanStart } from "./scan_starts.ts";
import { underLease } from "../basics.ts";

// How many runs are read ahead, at least.
const MIN_PAGE = 4;
// How many runs of a group are read at once after the first one.
const GROUP_PAGE = 32;
// Leaves out the runs that have missed a deadline: the timers fail them, a bounded number in each claim.
const IN_TIME = "and (r.deadline_at is null or r.deadline_at > p_now)";

/** How a claim takes the runs that pass all gates. */
export const TAKE_IN_TURN = `
-- Processes expired timers, then takes the runs that pass all gates, in their order. p is the request of the claim.
create or replace function fn.take_in_turn(p jsonb, p_now bigint, out seqs bigint[], out before text[],
  out resumed bigint[], out failed jsonb, out cancelled jsonb, out more boolean) language plpgsql as $$
declare
  v_worker text := p ->> 'workerId'; v_limit int := (p ->> 'limit')::int; v_own text[] := fn.queues_of_worker(p);
  v_live jsonb; v_late boolean; f record; g record; v_open text[]; v_begun text[];
  v_page {schema}.runs[] := '{}'; v_at int := 1; v_size int; v_last boolean := false;
  v_position bigint := ${FIRST}; v_seq bigint := 0; v_passed int := 0;
  v_fair boolean; v_own_gate int; v_counted boolean; v_limited boolean; v_started bigint[];
  v_added boolean; v_by_turn boolean; v_keys text[] := '{}'; v_groups jsonb := '{}';
  r {schema}.runs; d record;
begin
  seqs := '{}'; before := '{}'; resumed := '{}'; failed := '[]'; cancelled := '[]'; more := false;
  update {schema}.runs q set lease_expires_at = p_now + ceil((p ->> 'leaseMs')::numeric)::bigint
    from jsonb_array_elements(p -> 'holding') x where q.id = x ->> 'runId' and ${underLease("q", "x")}
      and q.lease_expires_at <= p_now;
  f := fn.claim_facts();
  if f.has_orphans then cancelled := fn.cancel_orphans(${MAX_TIMERS}, p_now); end if;
  v_late := fn.has_expired(f.timer_at, f.opening_at, f.passed_opening_at, f.newest_start, f.has_orphans, p_now);
  if v_late then failed := fn.process_timers((p ->> 'maxAbandonments')::int, f.newest_start, p_now); end if;
  v_own := array(select q from unnest(v_own) q where fn.job_name_of(q) <> all(f.paused));
  v_live := fn.passing_queues(p, f.paused, p_now);
  perform fn.settle_heads();

  g := fn.open_gates(p, f.paused, v_limit + 1, p_now);
  v_limited := exists (select 1 from unnest(g.rooms, g.starts) x (room, starts)
    where x.room is not null or x.starts is not null);
  v_started := array_fill(0::bigint, array[cardinality(g.queues)]);
  v_open := fn.gates_where(g.queues, g.rooms, g.starts, false);
  v_begun := fn.gates_where(g.queues, g.rooms, g.starts, true);
  v_fair := exists (select 1 from {schema}.heads);
  v_size := greatest(${MIN_PAGE}, v_limit + 1);
  loop
    v_by_turn := v_fair;
    if v_at <= cardinality(v_page) and not v_fair then
      r := v_page[v_at];
      v_at := v_at + 1;
      v_position := r.position; v_seq := r.seq;
      continue when v_limited and r.queue <> all(v_open) and (r.queue <> all(v_begun) or r.started_at is null);
      if r.concurrency_key = any(v_keys) then
        -- A run of another queue has taken the key in this claim.
        select q.* into r from {schema}.runs q where q.seq = r.seq and q.queue_state = 'R';
        continue when not found;
      end if;
      if r.parent_seq is not null and fn.is_orphan(r.parent_seq) then
        v_passed := v_passed + 1;
        exit when v_passed >= ${MAX_PASSED_OVER};
        continue;
      end if;
      continue when fn.is_behind(r.concurrency_key, r.queue, r.position, v_live, v_own);
    elsif not v_fair then
      exit when v_last;
      v_page := fn.ready_page(v_open, v_begun, v_position, v_seq, v_size, p_now);
      v_at := 1;
      v_last := cardinality(v_page) < v_size;
      continue;
    else
      d := fn.next_in_turn(v_open, v_begun, v_live, v_own, v_position, v_seq, v_passed, v_groups, p_now);
      v_position := d.p_position; v_seq := d.p_seq; v_passed := d.p_passed; v_groups := d.p_groups;
      exit when v_passed >= ${MAX_PASSED_OVER} or d.run_seq is null;
      select q.* into r from {schema}.runs q where q.seq = d.run_seq;
    end if;

    if cardinality(seqs) >= v_limit then more := true; exit; end if;
    seqs := seqs || r.seq;
    before := before || r.status;
    if r.is_held then resumed := resumed || r.seq; end if;
    if v_limited then
      -- All queues of a job share its limits. A start counts if the worker has a rate for the version of the run.
      v_own_gate := array_position(g.queues, r.queue);
      v_counted := r.started_at is null and g.limits[v_own_gate] is not null;
      if v_counted then v_started[v_own_gate] := v_started[v_own_gate] + 1; end if;
      for i in 1 .. cardinality(g.queues) loop
        continue when g.names[i] <> g.names[v_own_gate];
        g.rooms[i] := g.rooms[i] - 1;
        if v_counted then g.starts[i] := g.starts[i] - 1; end if;
      end loop;
      v_open := fn.gates_where(g.queues, g.rooms, g.starts, false);
      v_begun := fn.gates_where(g.queues, g.rooms, g.starts, true);
    end if;
    if v_by_turn then
      if d.is_head then perform fn.serve_group(r.queue, r.fairness_key, d.turn);
      elsif d.turn is not null then update {schema}.serving set turn = greatest(turn, d.turn), keyless = d.turn + 1;
      end if;
    end if;
    if r.concurrency_key is null and not v_fair then continue; end if;

    -- Out of its queue at once, since the next run depends on it.
    update {schema}.runs set queue_state = null where seq = r.seq;
    perform fn.touch_group(r.queue, r.fairness_key);
    v_added := false;
    if r.concurrency_key is not null then
      v_keys := v_keys || r.concurrency_key;
      delete from {schema}.openings where concurrency_key = r.concurrency_key and queue = r.queue;
      if r.started_at is null and r.key_rate_limit is not null then
        perform fn.add_starts('key ' || r.concurrency_key, r.key_rate_limit, r.key_rate_period, 1, p_now);
      end if;
      v_added := fn.take_key(r.concurrency_key, r.id, r.lease_generation + 1, p_now);
    end if;
    v_fair := fn.are_turns_taken(v_fair, seqs);
    if v_added then v_groups := '{}'; end if;
    -- What comes after it may have changed, and, among runs that take turns, what comes before.
    if v_fair and r.concurrency_key is not null then v_position := ${FIRST}; end if;
    if v_added or v_fair or v_by_turn then v_page := '{}'; v_at := 1; v_last := false; end if;
    v_size := greatest(${MIN_PAGE}, v_limit + 1 - cardinality(seqs));
  end loop;
  more := more or v_passed >= ${MAX_PASSED_OVER};
  if (p ->> 'triesHeld')::boolean and v_limit > 0 and not more and cardinality(seqs) = 0
      and fn.offer_held_runs(p -> 'jobs', fn.queues_of_worker(p) || fn.live_queues(v_worker, p_now), p_now) then
    d := fn.take_in_turn(p, p_now);
    seqs := d.seqs; before := d.before; resumed := d.resumed; failed := failed || d.failed;
    cancelled := cancelled || d.cancelled; more := d.more;
    return;
  end if;

  for i in 1 .. cardinality(g.queues) loop
    if v_started[i] > 0 then
      perform fn.add_starts('job ' || g.names[i], g.limits[i], g.periods[i], v_started[i], p_now);
    end if;
  end loop;
end $$;

-- Whether runs take turns: a run with a fairness key can be claimed. If they did not before, the runs that were taken
-- leave their queues now: until then nobody looks at them again.
create or replace function fn.are_turns_taken(p_before boolean, p_taken bigint[]) returns boolean language plpgsql as $$
declare v_taken boolean;
begin
  perform fn.settle_heads();
  v_taken := exists (select 1 from {schema}.heads);
  if v_taken and not p_before then update {schema}.runs set queue_state = null where seq = any(p_taken); end if;
  return v_taken;
end $$;

-- The next run by turn, and its turn; turn NULL: no run with a fairness key can be claimed. The first run without a
-- fairness key comes after p_position and p_seq, which move over those that are passed over; p_groups says after which
-- place the first run of a group comes, for the same reason. p_passed counts the children of ended runs among all that are
-- passed over.
create or replace function fn.next_in_turn(p_open text[], p_begun text[], p_live jsonb, p_own text[],
  inout p_position bigint, inout p_seq bigint, inout p_passed int, inout p_groups jsonb, p_now bigint, out run_seq bigint,
  out turn bigint, out is_head boolean) language plpgsql stable as $$
declare k {schema}.runs; r {schema}.runs; h record; g record; v_page {schema}.runs[]; v_limit int := ${MIN_PAGE};
  v_count int; v_group text; v_place jsonb; v_head bigint; v_turn bigint; v_head_position bigint; v_certain boolean := false;
begin
  is_head := false;
  loop
    v_page := fn.ready_page(p_open, p_begun, p_position, p_seq, 1, p_now);
    exit when cardinality(v_page) = 0;
    r := v_page[1];
    if r.parent_seq is not null and fn.is_orphan(r.parent_seq) then p_passed := p_passed + 1;
    elsif not fn.is_behind(r.concurrency_key, r.queue, r.position, p_live, p_own) then
      k := r;
      exit;
    end if;
    p_position := r.position; p_seq := r.seq;
    exit when p_passed >= ${MAX_PASSED_OVER};
  end loop;
  loop
    v_count := 0;
    for h in select * from fn.first_heads(p_open, p_begun, v_limit) loop
      v_count := v_count + 1;
      v_certain := coalesce((h.turn, h.position) >= (v_turn, v_head_position), false);
      exit when v_certain or p_passed >= ${MAX_PASSED_OVER};
      v_group := jsonb_build_array(h.queue, h.fairness_key)::text;
      v_place := coalesce(p_groups -> v_group, '[${FIRST}, 0]');
      g := fn.first_of_group(h.queue, h.fairness_key, h.queue = any(p_begun), p_live, p_own, (v_place ->> 0)::bigint,
        (v_place ->> 1)::bigint, p_passed, p_now);
      p_passed := g.p_passed;
      if g.p_seq > 0 then p_groups := p_groups || jsonb_build_object(v_group, jsonb_build_array(g.p_position, g.p_seq)); end if;
      continue when g.run_seq is null;
      if v_head is null or (h.turn, g.run_position) < (v_turn, v_head_position) then
        v_head := g.run_seq; v_turn := h.turn; v_head_position := g.run_position;
      end if;
    end loop;
    exit when v_certain or v_count < v_limit or p_passed >= ${MAX_PASSED_OVER};
    v_limit := 4 * v_limit;
  end loop;
  run_seq := k.seq;
  if v_head is null then return; end if;
  -- The runs without a fairness key store no turn: they have the one that a new key would get.
  select greatest(s.turn, s.keyless) into turn from {schema}.serving s;
  if k.seq is null or (v_turn, v_head_position) < (turn, k.position) then
    run_seq := v_head; turn := v_turn; is_head := true;
  end if;
end $$;

-- The first run of a group that can be claimed, and its position; p_begun: among those that have begun. It comes after
-- p_position and p_seq, which move over those that are passed over: the turn of the group does not wait for them.
create or replace function fn.first_of_group(p_queue text, p_fairness_key text, p_begun boolean, p_live jsonb,
  p_own text[], inout p_position bigint, inout p_seq bigint, inout p_passed int, p_now bigint,
  out run_seq bigint, out run_position bigint) language plpgsql stable as $$
declare v_page {schema}.runs[]; v_size int := 1; r {schema}.runs;
begin
  loop
    v_page := fn.group_page(p_queue, p_fairness_key, p_begun, p_position, p_seq, v_size, p_now);
    foreach r in array v_page loop
      if r.parent_seq is not null and fn.is_orphan(r.parent_seq) then p_passed := p_passed + 1;
      elsif not fn.is_behind(r.concurrency_key, r.queue, r.position, p_live, p_own) then
        run_seq := r.seq; run_position := r.position;
        return;
      end if;
      p_position := r.position; p_seq := r.seq;
      if p_passed >= ${MAX_PASSED_OVER} then return; end if;
    end loop;
    exit when cardinality(v_page) < v_size;
    v_size := ${GROUP_PAGE};
  end loop;
end $$;

-- The ready runs of a group after a position that are not late, by position; p_begun: those that have begun.
create or replace function fn.group_page(p_queue text, p_fairness_key text, p_begun boolean, p_position bigint,
  p_seq bigint, p_size int, p_now bigint) returns {schema}.runs[] language plpgsql stable as $$
begin
  if p_begun then
    return array(select r from {schema}.runs r where r.queue = p_queue and r.fairness_key = p_fairness_key
      and r.fairness_key is not null and r.queue_state = 'R' and r.started_at is not null
      and (r.position, r.seq) > (p_position, p_seq) ${IN_TIME}
      order by r.position, r.seq limit p_size);
  end if;
  return array(select r from {schema}.runs r where r.queue = p_queue and r.fairness_key = p_fairness_key
    and r.fairness_key is not null and r.queue_state = 'R'
    and (r.position, r.seq) > (p_position, p_seq) ${IN_TIME}
    order by r.position, r.seq limit p_size);
end $$;

-- The ready runs without a fairness key after a position that are not late, by position.
create or replace function fn.ready_page(p_open text[], p_begun text[], p_position bigint, p_seq bigint, p_size int,
  p_now bigint) returns {schema}.runs[] language plpgsql stable as $$
begin
  return (select coalesce(array_agg(o.run order by (o.run).position, (o.run).seq), '{}') from (
    select u.run from (
      select c.run from (select q as queue, ${scanStart(queueScan("q"))} as start from unnest(p_open) q offset 0) q
      cross join lateral (
        select r as run from {schema}.runs r where r.queue = q.queue and r.queue_state = 'R' and r.fairness_key is null
          and (r.position, r.seq) > (greatest(p_position, q.start), p_seq) ${IN_TIME}
        order by r.position, r.seq limit p_size) c
      union all
      select c.run from (select q as queue, ${scanStart(queueScan("q"))} as start from unnest(p_begun) q offset 0) q
      cross join lateral (
        select r as run from {schema}.runs r where r.queue = q.queue and r.queue_state = 'R' and r.fairness_key is null
          and r.started_at is not null and (r.position, r.seq) > (greatest(p_position, q.start), p_seq) ${IN_TIME}
        order by r.position, r.seq limit p_size) c) u
    order by (u.run).position, (u.run).seq limit p_size) o);
end $$;

-- The first heads of queues, by turn. Of queues whose rate is used up, for each group the first run that has begun.
create or replace function fn.first_heads(p_open text[], p_begun text[], p_limit int)
returns table (queue text, fairness_key text, turn bigint, "position" bigint) language sql stable as $$
  select u.queue, u.fairness_key, u.turn, u.position from (
    select c.queue, c.fairness_key, c.turn, c.position from unnest(p_open) q cross join lateral (
      select h.queue, h.fairness_key, h.turn, h.position from {schema}.heads h where h.queue = q
      order by h.turn, h.position limit p_limit) c
    union all
    select h.queue, h.fairness_key, h.turn, b.position from unnest(p_begun) q cross join lateral (
      select distinct on (r.fairness_key) r.fairness_key, r.position, r.seq from {schema}.runs r
        where r.queue = q and r.queue_state = 'R' and r.fairness_key is not null and r.started_at is not null
        order by r.fairness_key, r.position, r.seq) b
      join {schema}.heads h on h.queue = q and h.fairness_key = b.fairness_key) u
  order by u.turn, u.position limit p_limit
$$;

-- Whether the run that waited for a run has ended: it is not claimed any more.
create or replace function fn.is_orphan(p_parent bigint) returns boolean language plpgsql stable as $$
begin
  return (select exists (select 1 from {schema}.orphans o where o.parent_seq = p_parent));
end $$;
`;
