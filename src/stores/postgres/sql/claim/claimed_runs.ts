/** Claimed runs with their histories. */
export const CLAIMED_RUNS = `
-- Claimed runs with their histories, in the order of p_seqs.
create or replace function fn.claimed(p_seqs bigint[]) returns json language plpgsql stable as $$
begin
  return (select coalesce(json_agg(json_build_object('id', r.id, 'job', r.job, 'labels', r.labels,
    'concurrency_key', r.concurrency_key, 'lease_generation', r.lease_generation,
    'lease_claim', r.lease_claim, 'recorded', r.recorded, 'lease_expires_at', r.lease_expires_at,
    'interruptions', r.interruptions, 'created_at', r.created_at, 'start_at', r.start_at, 'started_at', r.started_at,
    'priority', r.priority, 'fairness_key', r.fairness_key,
    'depth', r.depth, 'slot_at', r.slot_at, 'slot', r.slot, 'trace', r.trace, 'finish_by', r.finish_by, 'origin_id', r.origin_id,
    'payload', i.payload, 'input', i.input, 'schema_print', i.schema_print,
    'hold', case when r.lease_generation > 1 then (select jsonb_build_object('continues', h.continues,
      'generation', h.generation) from {schema}.holds h where h.run_seq = r.seq) end,
    'copied', case when r.origin_id is not null then (select jsonb_build_object('upTo', c.copied_up_to,
      'unfinished', c.unfinished::jsonb) from {schema}.copies c where c.run_seq = r.seq) end,
    'steps', case when r.recorded > 0 then fn.steps_json(r.seq) else '[]' end,
    'pauses', case when r.has_pauses then fn.pauses_json(r.seq) else '[]' end) order by x.no), '[]')
  from unnest(p_seqs) with ordinality x (seq, no)
    cross join lateral (select q.* from {schema}.runs q where q.seq = x.seq offset 0) r
    cross join lateral (select j.* from {schema}.inputs j where j.run_seq = x.seq offset 0) i);
end $$;

-- The recorded steps of a run as a replay needs them: see ReplayedStepRow.
create or replace function fn.steps_json(p_seq bigint) returns jsonb language plpgsql stable as $$
begin
  return (select coalesce(jsonb_agg(jsonb_build_object('name', s.name, 'position', s.position, 'status', s.status,
    'output', s.output, 'failure', s.failure, 'attempts', s.attempts, 'retry_at', s.retry_at, 'recorded_no', s.recorded_no)
    order by s.recorded_no), '[]')
  from {schema}.steps s where s.run_seq = p_seq and s.status <> 'cancelled');
end $$;

-- All pauses of a run: see PauseRow.
create or replace function fn.pauses_json(p_seq bigint) returns jsonb language plpgsql stable as $$
begin
  return (select coalesce(jsonb_agg(fn.pause_json(w) order by w.seq), '[]') from {schema}.pauses w where w.run_seq = p_seq);
end $$;
`;
