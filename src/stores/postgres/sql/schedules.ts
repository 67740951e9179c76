import { ENTRY } from "./basics.ts";

/** Schedules. */
export const SCHEDULES = `
-- All schedules in the order of their names, or the one with a name. See Store.getSchedules().
create or replace function fn.get_schedules(p jsonb, p_now bigint) returns jsonb language plpgsql volatile ${ENTRY} as $$
begin
  return jsonb_build_object('now', fn.clock(p_now), 'schedules', coalesce((
    select jsonb_agg(to_jsonb(s) order by s.name) from {schema}.schedules s
    where p ->> 'name' is null or s.name = p ->> 'name'), '[]'));
end $$;

-- Adds or replaces a schedule. See Store.setSchedule().
create or replace function fn.set_schedule(p jsonb, p_now bigint) returns jsonb language plpgsql ${ENTRY} as $$
declare s {schema}.schedules; v_version bigint := (p ->> 'version')::bigint;
begin
  if v_version is null then
    insert into {schema}.schedules (name, job, options, declared, paused_at, paused_by, next_at, last_slot_at, last_run_id,
        skipped, error, version)
      values (p ->> 'name', p ->> 'jobName', p ->> 'options', p ->> 'declared', (p ->> 'pausedAt')::bigint,
        p ->> 'pausedBy', (p ->> 'nextAt')::bigint, (p ->> 'lastSlotAt')::bigint, p ->> 'lastRunId', (p ->> 'skipped')::bigint,
        p ->> 'error', fn.clock(p_now))
      on conflict do nothing returning * into s;
  else
    update {schema}.schedules set job = p ->> 'jobName', options = p ->> 'options', declared = p ->> 'declared',
      paused_at = (p ->> 'pausedAt')::bigint, paused_by = p ->> 'pausedBy', next_at = (p ->> 'nextAt')::bigint,
      last_slot_at = (p ->> 'lastSlotAt')::bigint, last_run_id = p ->> 'lastRunId', skipped = (p ->> 'skipped')::bigint,
      error = p ->> 'error', version = version + 1
      where name = p ->> 'name' and version = v_version returning * into s;
  end if;
  perform fn.commit_something();
  return case when s.name is not null then to_jsonb(s) end;
end $$;

-- Deletes a schedule. See Store.deleteSchedule().
create or replace function fn.delete_schedule(p jsonb, p_now bigint) returns jsonb language plpgsql ${ENTRY} as $$
declare v_name text;
begin
  delete from {schema}.schedules where name = p ->> 'name' returning name into v_name;
  perform fn.commit_something();
  return to_jsonb(v_name is not null);
end $$;

-- Fires or skips a slot. See Store.fireSchedule().
create or replace function fn.fire_schedule(p jsonb, p_now bigint) returns jsonb language plpgsql as $$
declare
  s {schema}.schedules; r {schema}.runs; v_run jsonb := nullif(p -> 'run', 'null'); v_open bigint; v_added jsonb;
begin
  select q.* into s from {schema}.schedules q where q.name = p ->> 'name' for no key update;
  if not found then return null; end if;
  if v_run is not null then
    select q.* into r from {schema}.runs q where q.id = v_run ->> 'id';
    if found then
      return jsonb_build_object('schedule', to_jsonb(s), 'run',
        jsonb_build_object('run', fn.run_json(r), 'disposition', 'created'));
    end if;
  end if;
  if s.version <> (p ->> 'version')::bigint then return null; end if;
  if v_run is not null and (p ->> 'skipsOverlap')::boolean then
    -- All runs of the schedule before this one have ended: they are not looked at again.
    select q.seq into v_open from {schema}.runs q where q.schedule_name = s.name and q.seq >= s.open_from
      and q.completed_at is null order by q.seq limit 1;
    if found then s.open_from := v_open; v_run := null;
    else
      select q.seq into v_open from {schema}.runs q where q.schedule_name = s.name order by q.seq desc limit 1;
      if found then s.open_from := v_open + 1; end if;
    end if;
  end if;
  if v_run is not null then
    v_added := fn.enqueue(jsonb_build_object('runs', jsonb_build_array(v_run)), p_now);
    if jsonb_typeof(v_added) = 'object' then return v_added; end if; -- it is refused
    v_added := v_added -> 0;
  end if;
  update {schema}.schedules set next_at = (p -> 'next' ->> 'nextAt')::bigint,
    last_slot_at = (p -> 'next' ->> 'lastSlotAt')::bigint, error = p -> 'next' ->> 'error',
    last_run_id = coalesce(v_added -> 'run' ->> 'id', last_run_id),
    skipped = skipped + (p ->> 'skipped')::bigint + case when v_added is null then 1 else 0 end,
    open_from = s.open_from, version = version + 1
    where name = s.name returning * into s;
  return jsonb_build_object('schedule', to_jsonb(s), 'run', v_added);
end $$;
`;
