import { MAX_LOG_LINES } from "../../../../model/log.ts";
import { LARGE_VALUE_BYTES, VALUE_PART_LENGTH, VALUE_PARTS } from "../../../part_builder.ts";
import { ENTRY } from "../basics.ts";

// About how many characters a record takes besides its values. The client counts exactly: it asks again if the estimate
// was too high.
const RUN_LENGTH = 500;
const RECORD_LENGTH = 120;
const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/** Reads of single records, and of lists in parts of a bounded size. A value with more bytes is left out: \`large\`. */
export const BOUNDED_READS = `
-- A run, as run_json() returns it, without its large values.
create or replace function fn.small_run_json(r {schema}.runs) returns jsonb language plpgsql stable as $$
declare v_large text[] := '{}'; v_payload text; v_is_large boolean; v_held jsonb;
begin
  if octet_length(r.output) > ${LARGE_VALUE_BYTES} then
    r.output := null;
    v_large := v_large || 'output'::text;
  end if;
  select octet_length(i.payload) > ${LARGE_VALUE_BYTES},
    case when octet_length(i.payload) <= ${LARGE_VALUE_BYTES} then i.payload end
    into v_is_large, v_payload from {schema}.inputs i where i.run_seq = r.seq;
  if v_is_large then v_large := v_large || 'payload'::text; end if;
  if r.is_held then
    select jsonb_build_object('code', h.code, 'message', h.message, 'since', h.since) into v_held
      from {schema}.holds h where h.run_seq = r.seq and h.since is not null;
  end if;
  return to_jsonb(r) || jsonb_build_object('payload', v_payload, 'held', v_held, 'large', v_large);
end $$;

-- A row without some of its columns, if they are large.
create or replace function fn.without_large(p_row jsonb, p_columns text[]) returns jsonb language sql immutable as $$
  select p_row || coalesce(jsonb_object_agg(c, null) filter (where c = any(l.large)), '{}')
    || jsonb_build_object('large', to_jsonb(l.large))
  from unnest(p_columns) c, (select array(select n from unnest(p_columns) n
    where octet_length(p_row ->> n) > ${LARGE_VALUE_BYTES}) as large) l group by l.large
$$;

-- Runs in the order of their ids, NULL for unknown ones. See Store.readRuns().
create or replace function fn.read_runs(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_max bigint := coalesce((p ->> 'maxLength')::bigint, ${NO_LIMIT});
  v_is_whole boolean := p ->> 'maxLength' is null or p ? 'isWhole';
begin
  return ${
  part(
    `(select case when v_is_whole then fn.run_json(r) else fn.small_run_json(r) end
      from {schema}.runs r where r.seq = x.seq)`,
    `select t.no, q.seq, ${RUN_LENGTH} + ${sizeOf("i.payload", "q.output", "q.error")} as size
      from jsonb_array_elements_text(p -> 'runIds') with ordinality t (id, no)
      left join lateral (select o.seq, o.output, o.error from {schema}.runs o where o.id = t.id offset 0) q on true
      left join lateral (select o.payload from {schema}.inputs o where o.run_seq = q.seq offset 0) i on true`,
  )
};
end $$;

-- Steps of a run after one. See Store.readSteps().
create or replace function fn.read_steps(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_max bigint := coalesce((p ->> 'maxLength')::bigint, ${NO_LIMIT});
  v_is_whole boolean := p ->> 'maxLength' is null or p ? 'isWhole'; v_run bigint; v_position int; v_seq bigint;
begin
  select r.seq into v_run from {schema}.runs r where r.id = p ->> 'runId';
  if not found then return null; end if;
  select s.position, s.seq into v_position, v_seq from {schema}.steps s where s.run_seq = v_run and s.name = p ->> 'after';
  return ${
  part(
    `(select case when v_is_whole then to_jsonb(s) else fn.without_large(to_jsonb(s), '{output}') end
      from {schema}.steps s where s.run_seq = v_run and s.name = x.name)`,
    `select row_number() over (order by s.position, s.seq) as no, s.name, ${RECORD_LENGTH} + ${
      sizeOf("s.output", "s.failure")
    } as size
      from {schema}.steps s where s.run_seq = v_run
        and (s.position, s.seq) > (coalesce(v_position, -1), coalesce(v_seq, -1))`,
  )
};
end $$;

-- Waits of a run after one. See Store.readWaits().
create or replace function fn.read_waits(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_max bigint := coalesce((p ->> 'maxLength')::bigint, ${NO_LIMIT});
  v_is_whole boolean := p ->> 'maxLength' is null or p ? 'isWhole'; v_run bigint; v_seq bigint;
begin
  select r.seq into v_run from {schema}.runs r where r.id = p ->> 'runId';
  if not found then return null; end if;
  select w.seq into v_seq from {schema}.pauses w where w.run_seq = v_run and w.id = p ->> 'after';
  return ${
  part(
    `(select case when v_is_whole then to_jsonb(w) else fn.without_large(to_jsonb(w), '{metadata,payload}') end
      from {schema}.pauses w where w.seq = x.no)`,
    `select w.seq as no, ${RECORD_LENGTH} + ${sizeOf("w.metadata", "w.payload")} as size
      from {schema}.pauses w where w.run_seq = v_run and w.kind = 'wait' and w.seq > coalesce(v_seq, -1)`,
  )
};
end $$;

-- Messages of a run after one. See Store.readMessages().
create or replace function fn.read_messages(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_max bigint := coalesce((p ->> 'maxLength')::bigint, ${NO_LIMIT});
  v_is_whole boolean := p ->> 'maxLength' is null or p ? 'isWhole'; v_run bigint; v_no int; v_ended boolean;
begin
  select r.seq, r.completed_at is not null into v_run, v_ended from {schema}.runs r where r.id = p ->> 'runId';
  if not found then return null; end if;
  select m.no into v_no from {schema}.messages m where m.run_seq = v_run and m.id = p ->> 'after';
  return ${
  part(
    `(select case when v_is_whole then to_jsonb(m) else fn.without_large(to_jsonb(m), '{payload}') end
      || jsonb_build_object('has_ended', v_ended) || coalesce((
        select jsonb_build_object('received_by', w.name, 'received_at', w.resolved_at)
        from {schema}.pauses w where w.seq = m.pause_seq), '{"received_by": null, "received_at": null}')
      from {schema}.messages m where m.seq = x.seq)`,
    `select m.no, m.seq, ${RECORD_LENGTH} + ${sizeOf("m.payload")} as size
      from {schema}.messages m where m.run_seq = v_run and m.no > coalesce(v_no, 0)`,
  )
};
end $$;

-- A wait, with the id and the queue of its run. See Store.getWait().
create or replace function fn.get_wait(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
begin
  return (select to_jsonb(w) || jsonb_build_object('run_id', r.id, 'job', r.job)
    from {schema}.pauses w join {schema}.runs r on r.seq = w.run_seq where w.id = p ->> 'waitId' and w.kind = 'wait');
end $$;

-- The id of the retry that continues a run, or of one that began anew. See Store.findRetry().
create or replace function fn.retry_of(r {schema}.runs) returns text language plpgsql stable as $$
begin
  return coalesce((select n.id from {schema}.runs n where n.id = r.retriggered_as),
    (select n.id from {schema}.runs n where r.retriggered_as is not null and n.origin_id = coalesce(r.origin_id, r.id) and n.seq > r.seq
      order by n.seq desc limit 1));
end $$;

-- The id of the retry from the failure that continues a run. See Store.findRetry().
create or replace function fn.find_retry(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
begin
  return (select to_jsonb(n.id) from {schema}.runs r join {schema}.runs n on n.id = fn.retry_of(r)
    where r.id = p ->> 'runId' and n.origin_id is not null);
end $$;

-- The wait that a signal to this one is for: if it has ended with its run, that of its name, or of one of these names, in
-- the newest retry from the failure that has one.
create or replace function fn.get_current_wait(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
begin
  return (with recursive retries (seq, retry, nth, wait_name) as (
      select r.seq, case when w.status in ('closed', 'cancelled') then fn.retry_of(r) end, 0, w.name
      from {schema}.pauses w join {schema}.runs r on r.seq = w.run_seq where w.id = p ->> 'waitId' and w.kind = 'wait'
      union all select r.seq, fn.retry_of(r), nth + 1, wait_name
      from retries join {schema}.runs r on r.id = retries.retry and r.origin_id is not null)
    select to_jsonb(w) || jsonb_build_object('run_id', r.id, 'job', r.job) from retries
    join {schema}.runs r on r.seq = retries.seq
    join {schema}.pauses w on w.run_seq = r.seq and w.kind = 'wait'
      and (w.name = retries.wait_name or p -> 'names' ? w.name)
    order by nth desc, (w.name = retries.wait_name) desc limit 1);
end $$;

-- Log lines of a run after one. \`dropped\` is how many lines the first of them stands for. See Store.readLogs().
create or replace function fn.read_logs(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v_max bigint := coalesce((p ->> 'maxLength')::bigint, ${NO_LIMIT}); v_run bigint; v_no bigint; v_dropped bigint;
begin
  select r.seq into v_run from {schema}.runs r where r.id = p ->> 'runId';
  if not found then return null; end if;
  select g.no into v_no from {schema}.logs g where g.run_seq = v_run and g.id = p ->> 'after';
  select g.no - ${MAX_LOG_LINES} into v_dropped from {schema}.logs g where g.run_seq = v_run order by g.no desc limit 1;
  return ${
  part(
    "to_jsonb(x.g)",
    `select g.no, g, ${RECORD_LENGTH} + octet_length(g.message) + coalesce(octet_length(g.data), 0) as size
      from {schema}.logs g where g.run_seq = v_run and g.no > coalesce(v_no, 0)`,
  )
} || jsonb_build_object('dropped', v_dropped);
end $$;

-- Stores log lines. See Store.appendLogs().
create or replace function fn.append_logs(p jsonb, p_now bigint) returns jsonb language plpgsql ${ENTRY} as $$
declare v_runs bigint[]; r record;
begin
  select array_agg(o.seq order by o.seq) into v_runs from (
    select q.seq from {schema}.runs q where q.id = any(array(select x ->> 'runId' from jsonb_array_elements(p) x))
    order by q.seq for key share) o;
  -- The lines of a run are numbered by one call after another.
  perform pg_advisory_xact_lock(hashtextextended('holdfast/logs/' || {literal} || '/' || o.seq, 0))
    from unnest(v_runs) o (seq);
  -- The last numbers are read once: a search for each line would pass all lines that this statement has added before it.
  with last as materialized (
    select v.seq, coalesce((select g.no from {schema}.logs g where g.run_seq = v.seq order by g.no desc limit 1), 0) as no
    from unnest(v_runs) v (seq))
  insert into {schema}.logs (id, run_seq, no, step_name, level, message, data, written_at)
    select o.id, o.seq, l.no + row_number() over (partition by o.seq order by o.no), o.x ->> 'stepName',
      o.x ->> 'level', o.x ->> 'message', o.x ->> 'data', (o.x ->> 'writtenAt')::bigint
    from (select distinct on (q.seq, t.x ->> 'id') q.seq, t.x ->> 'id' as id, t.x, t.no
      from jsonb_array_elements(p) with ordinality t (x, no)
        cross join lateral (select u.seq from {schema}.runs u where u.id = t.x ->> 'runId' offset 0) q
      order by q.seq, t.x ->> 'id', t.no) o join last l on l.seq = o.seq
    where not exists (select from {schema}.logs g where g.id = o.id) on conflict do nothing;
  -- The last dropped line stays: it stands for those before it.
  for r in select o.seq, g.no from unnest(v_runs) o (seq) cross join lateral (
      select g.no from {schema}.logs g where g.run_seq = o.seq order by g.no desc limit 1) g
      where g.no > ${MAX_LOG_LINES + 1} loop
    delete from {schema}.logs where run_seq = r.seq and no < r.no - ${MAX_LOG_LINES};
  end loop;
  return null;
end $$;

-- The next part of a value. It never ends within the escape of a character: see portable_text.ts. See Store.readValue().
-- Parts are cut out of bytes: in a string all characters in front of one are counted. A place is the number of bytes before
-- it, negative, since it was the number of characters in a package before: a reader may go on from one of those.
create or replace function fn.read_value(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare
  v_value text; v_bytes bytea; v_length int; v_from int := (p ->> 'from')::int; v_to int; v_cut int; v_of text := p ->> 'of';
begin
  if v_of = 'run' then
    select case p ->> 'value' when 'payload' then i.payload else r.output end into v_value
      from {schema}.runs r join {schema}.inputs i on i.run_seq = r.seq where r.id = p ->> 'runId';
  elsif v_of = 'step' then
    select s.output into v_value from {schema}.runs r join {schema}.steps s on s.run_seq = r.seq
      where r.id = p ->> 'runId' and s.name = p ->> 'stepName';
  elsif v_of = 'message' then
    select m.payload into v_value from {schema}.runs r join {schema}.messages m on m.run_seq = r.seq
      where r.id = p ->> 'runId' and m.id = p ->> 'messageId';
  else
    select case p ->> 'value' when 'metadata' then w.metadata else w.payload end into v_value
      from {schema}.pauses w where w.id = p ->> 'waitId' and w.kind = 'wait';
  end if;
  if v_value is null then return null; end if;
  v_bytes := convert_to(v_value, 'UTF8');
  v_length := octet_length(v_bytes);
  v_from := case when v_from > 0 then octet_length(left(v_value, v_from)) else -v_from end;
  v_to := least(v_length, v_from + greatest(${VALUE_PART_LENGTH}, v_length / ${VALUE_PARTS}));
  if v_to < v_length then
    while get_byte(v_bytes, v_to) & 192 = 128 loop v_to := v_to - 1; end loop;
    v_cut := position('\\xee8080'::bytea in substr(v_bytes, v_to - 5, 6));
    if v_cut > 0 then v_to := v_to - 7 + v_cut; end if;
  end if;
  return jsonb_build_object('text', convert_from(substr(v_bytes, v_from + 1, v_to - v_from), 'UTF8'),
    'next', case when v_to < v_length then -v_to end);
end $$;
`;

/**
 * An expression for the rows of a list whose sizes before them are less than `v_max`, and whether there are more.
 *
 * @param row The expression for a row `x`.
 * @param rows A statement that finds the rows, with `no`, their order, `size`, and what `row` needs. That is a key, and no
 * row of a table: its large values would be read for all rows, also for those that are left out.
 */
export function part(row: string, rows: string): string {
  return `(select jsonb_build_object(
      'rows', coalesce(jsonb_agg(${row} order by x.no) filter (where x.before < v_max), '[]'),
      'hasMore', coalesce(bool_or(x.before >= v_max), false))
    from (select l.*, sum(l.size) over (order by l.no) - l.size as before from (${rows}) l) x)`;
}

/** How many characters some columns take that are read with their record, unless they are large and left out. */
function sizeOf(...columns: string[]): string {
  const most = `case when v_is_whole then ${NO_LIMIT} else ${LARGE_VALUE_BYTES} end`;
  return columns.map((column) => `least(coalesce(octet_length(${column}), 0), ${most})`).join(" + ");
}
