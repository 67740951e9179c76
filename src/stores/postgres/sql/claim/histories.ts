import { ENTRY, underLease } from "../basics.ts";
import { part } from "../reads/bounded_reads.ts";

// About how many bytes a record takes besides its values.
const RECORD_LENGTH = 120;

/** A recorded step `s` as a replay needs it: see ReplayedStepRow. */
export const REPLAYED_STEP = `jsonb_build_object('name', s.name, 'position', s.position, 'status', s.status,
    'output', s.output, 'failure', s.failure, 'attempts', s.attempts, 'retry_at', s.retry_at, 'recorded_no', s.recorded_no)`;

const INPUT_LENGTH = lengthOf("i.payload", "i.input");
const STEP_LENGTH = lengthOf("s.output", "s.failure");
// A pause is read with the messages that it took, or the result of its only child.
const PAUSE_LENGTH = `(${lengthOf("w.metadata", "w.payload")} + case
    when w.outcome = 'messages' then (select coalesce(sum(${lengthOf("m.payload", "m.input")}), 0)
      from {schema}.messages m where m.pause_seq = w.seq)
    when w.outcome = 'children' and w.total = 1 then (select ${lengthOf("m.result", "r.output", "r.failure")}
      from {schema}.children m left join {schema}.runs r on r.seq = m.run_seq where m.pause_seq = w.seq and m.no = 0)
    else 0 end)`;

/** How the inputs and the histories of claimed runs are read in slices, if they are large. */
export const HISTORIES = `
-- About how many bytes the inputs and the histories of runs have. No value is read for that.
create or replace function fn.length_of_histories(p_seqs bigint[]) returns bigint language plpgsql stable as $$
declare v_length bigint; v_recorded bigint[]; v_paused bigint[];
begin
  select array_agg(r.seq) filter (where r.recorded > 0), array_agg(r.seq) filter (where r.has_pauses)
    into v_recorded, v_paused from {schema}.runs r where r.seq = any(p_seqs);
  select sum(${INPUT_LENGTH}) into v_length from {schema}.inputs i where i.run_seq = any(p_seqs);
  if v_recorded is not null then
    v_length := v_length + (select coalesce(sum(${STEP_LENGTH}), 0) from {schema}.steps s where s.run_seq = any(v_recorded));
  end if;
  if v_paused is not null then
    v_length := v_length + (select coalesce(sum(${PAUSE_LENGTH}), 0) from {schema}.pauses w where w.run_seq = any(v_paused));
  end if;
  return v_length;
end $$;

-- The next slice of the histories of runs: for each lease its records, or NULL if it is lost, until the slice is full. The
-- first run goes on after a record, and the last one may have more.
create or replace function fn.read_histories(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare
  v_runs jsonb := '[]'; v_part jsonb; v_max bigint := (p ->> 'maxLength')::bigint; v_seq bigint; x jsonb;
  v_kind text := p -> 'after' ->> 'kind'; v_name text := p -> 'after' ->> 'name';
begin
  for x in select e from jsonb_array_elements(p -> 'leases') e loop
    select q.seq into v_seq from {schema}.runs q where q.id = x ->> 'runId' and ${underLease("q", "x")};
    if not found then
      v_runs := v_runs || 'null'::jsonb;
    else
      v_part := ${
  part(
    `jsonb_build_object('kind', x.kind, 'name', x.name, 'row', case x.kind
        when 'input' then (select jsonb_build_object('payload', i.payload, 'input', i.input, 'schema_print', i.schema_print)
          from {schema}.inputs i where i.run_seq = v_seq)
        when 'step' then (select ${REPLAYED_STEP} from {schema}.steps s where s.run_seq = v_seq and s.name = x.name)
        else (select fn.pause_json(w) from {schema}.pauses w
          where w.run_seq = v_seq and w.kind = x.kind and w.name = x.name) end)`,
    `select row_number() over (order by o.kind, o.name) as no, o.kind, o.name, o.size from (
        select 'input' collate "C" as kind, '' collate "C" as name, ${INPUT_LENGTH} as size
          from {schema}.inputs i where i.run_seq = v_seq
        union all select 'step', s.name, ${STEP_LENGTH} from {schema}.steps s
          where s.run_seq = v_seq and s.status <> 'cancelled'
        union all select w.kind, w.name, ${PAUSE_LENGTH} from {schema}.pauses w where w.run_seq = v_seq) o
      where v_kind is null or (o.kind, o.name) > (v_kind, v_name)`,
  )
};
      v_runs := v_runs || jsonb_build_array(v_part -> 'rows');
      v_max := v_max - octet_length(v_part::text);
      exit when v_max <= 0 or (v_part ->> 'hasMore')::boolean;
    end if;
    v_kind := null;
  end loop;
  return jsonb_build_object('runs', v_runs, 'hasMore', coalesce((v_part ->> 'hasMore')::boolean, false));
end $$;
`;

/** How many bytes a record takes with these columns. */
function lengthOf(...columns: string[]): string {
  return `(${RECORD_LENGTH} + ${columns.map((column) => `coalesce(octet_length(${column}), 0)`).join(" + ")})`;
}
