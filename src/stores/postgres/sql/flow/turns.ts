import { MAX_FORGOTTEN } from "../../../rules.ts";
import { queueScan } from "../claim/scan_starts.ts";

// The claimable runs of one queue and one fairness key are a group. Its head is the run with the lowest position, and the
// group has a turn. T1: each group that is not empty has exactly one row in `heads`, with its first run.
//
// A group gets its turn when its first run becomes claimable: the turn being served, or a later one if its fairness key
// has had that already. It keeps the turn, whichever run is its head, until one of its runs is claimed or none is left.
//
// Within a call a group may be empty for a moment. So groups that have changed are noted, in a setting of the
// transaction, and settled when the call ends, and within a claim before the next run is looked for.

/** The turns of fairness keys. */
export const TURNS = `
-- Notes that a run of a queue can be claimed now.
create or replace function fn.add_ready(p_queue text, p_fairness_key text, p_position bigint) returns void
language plpgsql as $$
begin
  if p_fairness_key is null then perform fn.start_before(${queueScan("p_queue")}, p_position);
  else perform fn.touch_group(p_queue, p_fairness_key);
  end if;
end $$;

-- Notes that the claimable runs of a group have changed.
create or replace function fn.touch_group(p_queue text, p_fairness_key text) returns void language plpgsql as $$
declare v_touched jsonb; v_group text := jsonb_build_array(p_queue, p_fairness_key)::text;
begin
  if p_fairness_key is null then return; end if;
  v_touched := coalesce(nullif(current_setting('holdfast.touched', true), ''), '[]')::jsonb;
  if v_touched ? v_group then return; end if;
  perform set_config('holdfast.touched', (v_touched || to_jsonb(v_group))::text, true);
end $$;

-- Restores T1.
create or replace function fn.settle_heads() returns void language plpgsql as $$
declare v_touched text := current_setting('holdfast.touched', true); g record; r record;
begin
  if coalesce(v_touched, '') = '' then return; end if;
  perform set_config('holdfast.touched', '', true);
  for g in select t.x::jsonb ->> 0 as queue, t.x::jsonb ->> 1 as fairness_key
      from jsonb_array_elements_text(v_touched::jsonb) t (x) loop
    select q.seq, q.position into r from {schema}.runs q
      where q.queue = g.queue and q.fairness_key = g.fairness_key and q.queue_state = 'R' and q.fairness_key is not null
      order by q.position, q.seq limit 1;
    if not found then
      delete from {schema}.heads h where h.queue = g.queue and h.fairness_key = g.fairness_key;
    else
      insert into {schema}.heads as h (queue, fairness_key, turn, position, run_seq)
        select g.queue, g.fairness_key,
          greatest(s.turn, coalesce((select k.next_turn from {schema}.fairness_keys k
            where k.fairness_key = g.fairness_key), 0)), r.position, r.seq
        from {schema}.serving s
        on conflict (queue, fairness_key) do update set position = excluded.position, run_seq = excluded.run_seq
        where h.run_seq <> excluded.run_seq or h.position <> excluded.position;
    end if;
  end loop;
end $$;

-- Notes that a group was served in its turn, before its run leaves it.
create or replace function fn.serve_group(p_queue text, p_fairness_key text, p_turn bigint) returns void
language plpgsql as $$
begin
  update {schema}.serving set turn = p_turn where turn < p_turn;
  insert into {schema}.fairness_keys as k values (p_fairness_key, p_turn + 1)
    on conflict (fairness_key) do update set next_turn = excluded.next_turn;
  delete from {schema}.heads h where h.queue = p_queue and h.fairness_key = p_fairness_key;
  perform fn.touch_group(p_queue, p_fairness_key);
  -- The other groups of the fairness key have had this turn, too.
  update {schema}.heads h set turn = p_turn + 1 where h.fairness_key = p_fairness_key and h.turn < p_turn + 1;
end $$;

-- Notes that a run without a fairness key was served in its turn.
create or replace function fn.serve_keyless(p_turn bigint) returns void language plpgsql volatile as $$
begin
  update {schema}.serving set turn = greatest(turn, p_turn), keyless = p_turn + 1;
end $$;

-- Removes some of the fairness keys whose next turn says nothing any more.
create or replace function fn.forget_turns() returns void language sql volatile as $$
  delete from {schema}.fairness_keys where fairness_key = any(array(
    select k.fairness_key from {schema}.fairness_keys k where k.next_turn <= (select turn from {schema}.serving)
    order by k.next_turn limit ${MAX_FORGOTTEN}))
$$;
`;
