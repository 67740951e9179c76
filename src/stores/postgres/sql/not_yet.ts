/** What is still missing: each of these is replaced by the function itself. */
export const NOT_YET = `
create or replace function fn.has_offer(p_jobs jsonb, p_live text[]) returns boolean language sql stable as $$
  select false
$$;
create or replace function fn.offer_held_runs(p_jobs jsonb, p_live text[], p_now bigint) returns boolean
language sql stable as $$ select false $$;
create or replace function fn.add_children(r {schema}.runs, w {schema}.pauses, p_children jsonb, p_places bigint[],
  p_now bigint) returns jsonb language sql stable as $$ select '[]'::jsonb $$;
create or replace function fn.find_created(p_pause bigint, p_children jsonb) returns jsonb language sql stable as $$
  select '[]'::jsonb
$$;
create or replace function fn.cancel_orphans(p_limit int, p_now bigint) returns jsonb language sql stable as $$
  select '[]'::jsonb
$$;
`;
