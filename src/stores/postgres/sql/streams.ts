import { MAX_CHUNKS_READ, MAX_PURGED_STREAMS } from "../../rules.ts";
import { ENTRY, underLease } from "./basics.ts";

/** Items of streams. */
export const STREAMS = `
-- The chunks of a write that are not stored yet, as JSON; NULL if a stream does not end right before one of them.
create or replace function fn.new_chunks(p_seq bigint, p_chunks jsonb) returns jsonb language plpgsql stable as $$
declare c jsonb; v_lasts jsonb := '{}'; v_last bigint; v_position bigint; v_new jsonb := '[]';
begin
  for c in select t.x from jsonb_array_elements(p_chunks) with ordinality t (x, no) order by t.no loop
    v_last := coalesce((v_lasts ->> (c ->> 'stream'))::bigint, (select o.position from {schema}.chunks o
      where o.run_seq = p_seq and o.stream = c ->> 'stream' order by o.position desc limit 1), 0);
    v_position := (c ->> 'position')::bigint;
    if v_position > v_last + 1 then return null; end if;
    v_lasts := v_lasts || jsonb_build_object(c ->> 'stream', greatest(v_last, v_position));
    if v_position > v_last then v_new := v_new || c; end if;
  end loop;
  return v_new;
end $$;

-- Stores chunks that new_chunks() has found.
create or replace function fn.insert_chunks(p_seq bigint, p_generation int, p_chunks jsonb, p_now bigint) returns void
language plpgsql as $$
declare c jsonb;
begin
  for c in select t.x from jsonb_array_elements(p_chunks) with ordinality t (x, no) order by t.no loop
    if (c ->> 'after')::bigint < (c ->> 'position')::bigint - 1 then
      update {schema}.chunks o set items = null where o.run_seq = p_seq and o.stream = c ->> 'stream'
        and o.position > (c ->> 'after')::bigint and o.position < (c ->> 'position')::bigint;
    end if;
    insert into {schema}.chunks (run_seq, stream, position, follows, first, count, size, at, generation, items)
      values (p_seq, c ->> 'stream', (c ->> 'position')::bigint, (c ->> 'after')::bigint, (c ->> 'first')::bigint,
        (c ->> 'count')::int, (c ->> 'size')::bigint, p_now,
        case when not (c ->> 'isPermanent')::boolean then p_generation end, c ->> 'items');
  end loop;
end $$;

-- Stores items of streams. See Store.appendItems().
create or replace function fn.append_items(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare w jsonb; v_seq bigint; v_new jsonb; v_held jsonb := '[]'; v_seqs bigint[] := '{}';
begin
  for w in select t.x from jsonb_array_elements(p -> 'writes') with ordinality t (x, no) order by t.no loop
    v_new := null;
    select q.seq into v_seq from {schema}.runs q where q.id = w ->> 'runId' and ${underLease("q", "w")};
    if found then v_new := fn.new_chunks(v_seq, w -> 'chunks'); end if;
    v_held := v_held || to_jsonb(v_new is not null);
    continue when v_new is null or v_new = '[]';
    perform fn.insert_chunks(v_seq, (w ->> 'generation')::int, v_new, p_now);
    v_seqs := v_seqs || v_seq;
  end loop;
  insert into {schema}.journal (at, facts)
    select p_now, k.facts from fn.pack_facts(array(select '[' || s || ',"streamed"]' from unnest(v_seqs) s)) k;
  return v_held;
end $$;

-- Copies the permanent chunks of a run to a retry of it.
create or replace function fn.copy_chunks(p_seq bigint, p_old bigint) returns void language plpgsql as $$
begin
  insert into {schema}.chunks (run_seq, stream, position, follows, first, count, size, at, generation, items)
    select p_seq, c.stream, c.position, c.follows, c.first, c.count, c.size, c.at, c.generation, c.items
    from {schema}.chunks c where c.run_seq = p_old and c.items is not null and c.position <= (
      select max(o.position) from {schema}.chunks o where o.run_seq = p_old and o.stream = c.stream and o.generation is null);
end $$;

-- Deletes the items of runs that ended long enough ago. A run that was added after that instant has not ended before it:
-- rows of runs are in that order.
create or replace function fn.purge_chunks(p_streams bigint, p_now bigint) returns void language plpgsql as $$
declare r record; v_last bigint := 0; v_purged int := 0;
begin
  while v_purged < ${MAX_PURGED_STREAMS} loop
    select q.seq, q.created_at, q.completed_at into r from {schema}.runs q
      where q.seq = (select c.run_seq from {schema}.chunks c where c.run_seq > v_last order by c.run_seq limit 1);
    if not found or r.created_at > p_now - p_streams then return; end if;
    v_last := r.seq;
    continue when r.completed_at is null or r.completed_at > p_now - p_streams;
    delete from {schema}.chunks where run_seq = r.seq;
    v_purged := v_purged + 1;
  end loop;
end $$;

-- How much of a stream there is up to a chunk.
create or replace function fn.end_json(c {schema}.chunks) returns jsonb language plpgsql immutable as $$
begin
  return jsonb_build_object('position', coalesce(c.position, 0), 'at', coalesce(c.at, 0),
    'items', coalesce(c.first + c.count, 0), 'bytes', coalesce(c.size, 0));
end $$;

-- Where a stream ends: what counts, what is permanent, and the number and the instant of its last chunk.
create or replace function fn.ends_of(r {schema}.runs, p_stream text) returns jsonb language plpgsql stable as $$
declare v_last {schema}.chunks; v_permanent {schema}.chunks;
begin
  select c.* into v_last from {schema}.chunks c
    where c.run_seq = r.seq and c.stream = p_stream order by c.position desc limit 1;
  select c.* into v_permanent from {schema}.chunks c
    where c.run_seq = r.seq and c.stream = p_stream and c.generation is null order by c.position desc limit 1;
  return jsonb_build_object('permanent', fn.end_json(v_permanent), 'last', coalesce(v_last.position, 0), 'at', v_last.at,
    'end', case when v_last.generation = r.lease_generation and r.status <> 'completed'
      then fn.end_json(v_last) else fn.end_json(v_permanent) end);
end $$;

-- A stream after a place. See Store.readStream().
create or replace function fn.read_stream(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare
  r {schema}.runs; e jsonb; v_from bigint := coalesce((p ->> 'position')::bigint, 0); v_chunks jsonb := '[]';
  v_max bigint := (p ->> 'maxLength')::bigint; v_last bigint; v_end bigint; v_is_place boolean;
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId';
  if not found then return null; end if;
  e := fn.ends_of(r, p ->> 'stream');
  v_end := (e -> 'end' ->> 'position')::bigint;
  if v_max > 0 and v_from < v_end then
    select coalesce(jsonb_agg(jsonb_build_object('position', x.position, 'at', x.at, 'after', x.follows, 'first', x.first,
        'items', x.items) order by x.position) filter (where x.size <= x.least + v_max), '[]'),
      max(x.position) filter (where x.size <= x.least + v_max)
      into v_chunks, v_last from (
        select c.*, min(c.size) over () as least from (
          select o.* from {schema}.chunks o where o.run_seq = r.seq and o.stream = p ->> 'stream'
            and o.position > v_from and o.position <= v_end and o.items is not null
          order by o.position limit ${MAX_CHUNKS_READ}) c) x;
  end if;
  v_is_place := v_from = 0;
  if not v_is_place then
    select c.at = (p ->> 'at')::bigint into v_is_place from {schema}.chunks c
      where c.run_seq = r.seq and c.stream = p ->> 'stream' and c.position = v_from;
  end if;
  return jsonb_build_object('chunks', v_chunks, 'hasMore', v_max > 0 and coalesce(v_last, v_from) < v_end,
    'isPlace', coalesce(v_is_place, false), 'end', e -> 'end', 'permanent', (e -> 'permanent') - 'at', 'last', e -> 'last',
    'isEnded', r.completed_at is not null);
end $$;

-- The streams of a run, by name. See Store.getStreams().
create or replace function fn.get_streams(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare r {schema}.runs; e jsonb; v_name text collate "C" := ''; v_streams jsonb := '[]';
begin
  select q.* into r from {schema}.runs q where q.id = p ->> 'runId';
  if not found then return v_streams; end if;
  loop
    select c.stream into v_name from {schema}.chunks c where c.run_seq = r.seq and c.stream > v_name
      order by c.stream limit 1;
    exit when not found;
    e := fn.ends_of(r, v_name);
    v_streams := v_streams || (e -> 'end' || jsonb_build_object('name', v_name, 'updatedAt', e -> 'at',
      'isOpen', (e -> 'end' -> 'position') <> (e -> 'permanent' -> 'position')));
  end loop;
  return v_streams;
end $$;
`;
