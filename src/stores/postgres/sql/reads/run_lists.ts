import { CONDITION_LIST } from "../../../../model/run.ts";
import { type Columns, OPERATORS } from "../../../run_conditions.ts";
import { ENTRY } from "../basics.ts";

// How many runs are examined at first, and at most, before it is known whether the page is full.
const FIRST_SLICE = 200;
const MAX_SLICE = 5_000;
// Up to this many jobs or statuses are read as separate ranges of the index, in its order.
const MAX_RANGES = 50;
// Of labels with so many runs or more, any counts as the rarest.
const FEW = 1_000;

/** The columns of the conditions, and their values, if these are not those of the columns; `null`: an index has the runs. */
const COLUMNS: Columns<readonly [column: string, value?: string] | null> = {
  parentRunId: null,
  // Without its escapes: some of them are no valid characters for the database.
  failureKind: ["failure", String.raw`replace(replace(l.failure, ''\\'', ''''), ''\u'', ''u'')::jsonb ->> ''kind''`],
  completedAt: ["completed_at"],
  createdAt: ["created_at"],
  held: ["is_held"],
};

const CASTS = { is: "", from: "::bigint", until: "::bigint", has: "::boolean" };

const TERMS = CONDITION_LIST.flatMap(({ name, field, by }) => {
  const column = COLUMNS[field];
  if (column === null) return [];
  const value = column[1] ?? `l.${column[0]}`;
  return `('${name}', '${value} ${OPERATORS[by]} ($5 ->> ''${name}'')${CASTS[by]}')`;
}).join(",\n    ");
const READ = Object.values(COLUMNS).flatMap((one) => one === null ? [] : `, q.${one[0]}`).join("");

/**
 * Lists of runs. A list examines the runs of one range of an index, from the newest on, and checks the other conditions
 * on each of them. The statements are built for each call, so that they are planned with their values; what names a
 * range, or a condition, is always a parameter.
 */
export const RUN_LISTS = `
-- How many runs there are of these jobs in these statuses; NULL: of all.
create or replace function fn.count_runs(p_jobs text[], p_statuses text[]) returns bigint language sql stable as $$
  select coalesce(sum(c.runs), 0)::bigint from {schema}.counts c
  where (p_jobs is null or c.job = any(p_jobs)) and (p_statuses is null or c.status = any(p_statuses))
$$;

-- The row numbers of a page, newest first, and the total. See Store.findRuns().
create or replace function fn.list_runs(p jsonb, out seqs bigint[], out total bigint) language plpgsql stable as $$
declare
  v_jobs text[]; v_statuses text[] := fn.texts_or_null(p -> 'statuses');
  v_keys text[]; v_values text[]; v_scoped boolean[]; v_own_job boolean := (p ->> 'scopedByJob')::boolean;
  v_limit bigint := (p ->> 'limit')::bigint; v_offset bigint := (p ->> 'offset')::bigint;
  v_held boolean := coalesce((p ->> 'held')::boolean, false);
  v_uncounted boolean := (p ->> 'uncounted')::boolean; v_before bigint := (p ->> 'before')::bigint;
  v_wanted bigint := v_limit; v_label int; v_by text; v_fewest bigint; v_runs bigint; v_by_index boolean;
  v_range text; v_rest text; v_terms text[] := '{}'; v_own_terms text[] := '{}'; v_columns text[] := '{}';
  v_read text; v_all text; v_size bigint; v_entries bigint; v_last bigint; v_matches bigint[]; v_found bigint := 0;
begin
  seqs := '{}';
  total := 0;
  if p -> 'jobs' <> 'null' then
    select coalesce(array_agg(q), '{}') into v_jobs from unnest(fn.texts(p -> 'jobs')) n, unnest(fn.queues_of(n)) q;
  end if;
  -- A list that is always empty reads nothing, so its time reveals nothing.
  if cardinality(v_jobs) = 0 or cardinality(v_statuses) = 0 then return; end if;
  select array_agg(x ->> 0 order by t.no), array_agg(x ->> 1 order by t.no), array_agg((x ->> 2)::boolean order by t.no)
    into v_keys, v_values, v_scoped from jsonb_array_elements(p -> 'labels') with ordinality t (x, no);

  -- Which runs to examine: the caller's own, by the rarest label or the jobs of its scope; then those with the parent,
  -- those that are held, with the rarest label, of the jobs, in the statuses.
  for i in 1 .. coalesce(cardinality(v_keys), 0) loop
    continue when not v_scoped[i] and (true = any(v_scoped) or v_own_job and v_jobs is not null
      or p ->> 'parentRunId' is not null or v_held);
    select count(*) into v_runs from (select from {schema}.labels n
      where n.key = v_keys[i] and n.value = v_values[i] limit ${FEW}) few;
    if v_label is null or v_runs < v_fewest then v_label := i; v_fewest := v_runs; end if;
  end loop;
  v_by := case when v_label is not null then 'label'
    when v_own_job and v_jobs is not null then 'job'
    when p ->> 'parentRunId' is not null then 'parent'
    when v_held then 'hold'
    when v_jobs is null then case when v_statuses is null then 'all' else 'status' end
    when v_statuses is null or fn.count_runs(v_jobs, null) < fn.count_runs(null, v_statuses) then 'job'
    else 'status' end;

  -- What to check on each of them. A scope's conditions come first.
  for i in 1 .. coalesce(cardinality(v_keys), 0) loop
    continue when i = v_label;
    -- A scalar subquery is never turned into a join, which might begin with all runs that have the label.
    v_rest := format('(select true from {schema}.labels o where o.key = $3[%s] and o.value = $4[%s]
      and o.run_seq = l.seq) is not null', i, i);
    if v_scoped[i] then v_own_terms := v_own_terms || v_rest; else v_terms := v_terms || v_rest; end if;
  end loop;
  if v_jobs is not null and v_by <> 'job' then v_columns := v_columns || 'l.job = any($1)'::text; end if;
  if v_statuses is not null and v_by <> 'status' then v_columns := v_columns || 'l.status = any($2)'::text; end if;
  if p ->> 'parentRunId' is not null and v_by <> 'parent' then
    v_columns := v_columns || 'l.parent_id = $5 ->> ''parentRunId'''::text;
  end if;
  v_columns := v_columns || array(select c.term from (values
    ${TERMS}) c (name, term) where p ->> c.name is not null);
  if (p ->> 'notRetried')::boolean then v_columns := v_columns || 'l.retriggered_as is null'::text; end if;
  v_terms := v_columns || v_terms;
  v_rest := case when cardinality(v_terms) = 0 then 'true' else array_to_string(v_terms, ' and ') end;
  if cardinality(v_own_terms) > 0 then
    v_rest := format('case when %s then %s else false end', array_to_string(v_own_terms, ' and '), v_rest);
  end if;

  v_by_index := v_keys is null and p ->> 'parentRunId' is null and p ->> 'before' is null
    and cardinality(v_columns) = case when v_jobs is not null and v_statuses is not null then 1 else 0 end;
  v_before := coalesce(v_before, ${Number.MAX_SAFE_INTEGER});
  if v_uncounted then v_wanted := v_limit + 1;
  elsif v_by_index then
    total := fn.count_runs(v_jobs, v_statuses);
    v_wanted := least(v_limit, total - v_offset); -- a search for more would read to the end of the index
    if v_wanted <= 0 then return; end if;
  end if;

  -- The newest runs of the range before $6, at most $7. Each order begins with the column by which the range is, and that
  -- column is compared by its order: so no other index can serve the statement.
  v_read := case when cardinality(v_columns) = 0 then '' else
    ', q.job, q.status, q.parent_id${READ}, q.retriggered_as' end;
  v_range := case v_by
    when 'label' then format('select n.run_seq as seq from {schema}.labels n
      where n.key = $3[%1$s] and (n.value, n.run_seq) < ($4[%1$s], $6) and n.value >= $4[%1$s]
      order by n.value desc, n.run_seq desc limit $7', v_label)
    when 'hold' then 'select h.run_seq as seq from {schema}.holds h
      where h.since is not null and h.run_seq < $6 order by h.run_seq desc limit $7'
    when 'parent' then format('select q.seq%s from {schema}.runs q
      where (q.parent_id, q.seq) < ($5 ->> ''parentRunId'', $6) and q.parent_id >= $5 ->> ''parentRunId''
      order by q.parent_id desc, q.seq desc limit $7', v_read)
    when 'all' then format('select q.seq%s from {schema}.runs q where q.seq < $6 order by q.seq desc limit $7', v_read)
    else format(case when cardinality(case v_by when 'job' then v_jobs else v_statuses end) > ${MAX_RANGES}
      then 'select q.seq%3$s from {schema}.runs q where q.%1$s = any($%2$s) and q.seq < $6 order by q.seq desc limit $7'
      else 'select n.* from (select distinct v from unnest($%2$s) v) a cross join lateral (
        select q.seq%3$s from {schema}.runs q where (q.%1$s, q.seq) < (a.v, $6) and q.%1$s >= a.v
        order by q.%1$s desc, q.seq desc limit $7) n order by n.seq desc limit $7' end,
      v_by, case v_by when 'job' then 1 else 2 end, v_read) end;
  -- The same without an order and a limit, to count them.
  v_all := case v_by
    when 'label' then format('select n.run_seq as seq from {schema}.labels n
      where n.key = $3[%1$s] and n.value = $4[%1$s] and n.run_seq < $6 offset 0', v_label)
    when 'hold' then 'select h.run_seq as seq from {schema}.holds h where h.since is not null and h.run_seq < $6 offset 0'
    else format('select q.seq%s from {schema}.runs q where q.seq < $6%s offset 0', v_read, case v_by
      when 'parent' then ' and q.parent_id = $5 ->> ''parentRunId'''
      when 'job' then ' and q.job = any($1)' when 'status' then ' and q.status = any($2)' else '' end) end;
  if v_by in ('label', 'hold') and v_read <> '' then
    v_range := format('select q.* from (%s) n cross join lateral (
      select q.seq%s from {schema}.runs q where q.seq = n.seq offset 0) q', v_range, v_read);
    v_all := format('select q.* from (%s) n cross join lateral (
      select q.seq%s from {schema}.runs q where q.seq = n.seq offset 0) q', v_all, v_read);
  end if;

  v_size := case when v_rest = 'true' then greatest(1, v_offset + v_wanted) else ${FIRST_SLICE} end;
  loop
    execute format('select count(*), min(l.seq), coalesce(array_agg(l.seq order by l.seq desc) filter (where %s), ''{}'')
      from (%s) l', v_rest, v_range) into v_entries, v_last, v_matches
      using v_jobs, v_statuses, v_keys, v_values, p, v_before, v_size;
    seqs := seqs || v_matches[greatest(0, v_offset - v_found) + 1 :
      greatest(0, v_offset - v_found) + v_wanted - cardinality(seqs)];
    v_found := v_found + cardinality(v_matches);
    exit when v_entries < v_size or cardinality(seqs) >= v_wanted;
    v_before := v_last;
    v_size := least(v_size * 4, greatest(${MAX_SLICE}, v_size));
  end loop;

  if v_uncounted then
    total := least(v_found, v_offset + v_wanted);
    seqs := seqs[1 : v_limit];
  elsif not v_by_index then
    total := v_found;
    if v_entries = v_size then
      -- Those behind the page are only counted.
      execute format('select count(*) filter (where %s) from (%s) l', v_rest, v_all) into v_found
        using v_jobs, v_statuses, v_keys, v_values, p, v_last;
      total := total + v_found;
    end if;
  end if;
end $$;

-- The strings of an array; NULL: there is none.
create or replace function fn.texts_or_null(p jsonb) returns text[] language sql immutable as $$
  select case when p <> 'null' then fn.texts(p) end
$$;

-- The ids of the runs of a page. See Store.findRuns().
create or replace function fn.find_runs(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v record;
begin
  v := fn.list_runs(p);
  return jsonb_build_object('total', v.total, 'seqs', to_jsonb(v.seqs), 'ids', coalesce((
    select jsonb_agg(r.id order by r.seq desc) from {schema}.runs r where r.seq = any(v.seqs)), '[]'));
end $$;
`;
