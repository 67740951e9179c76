import { CONDITION_LIST, RUN_STATUSES } from "../../../../model/run.ts";
import {
  type Columns,
  MAX_COUNT_MS,
  MAX_PROBED,
  MAX_SORTED,
  MIN_EXAMINED,
  MIN_PROBED,
  OPERATORS,
  TIMED_RUNS,
} from "../../../run_conditions.ts";
import { ENTRY } from "../basics.ts";
import { failureKind } from "../names.ts";

// How many entries of an index are examined by one statement at first, and at most.
const FIRST_SLICE = 200;
const MAX_SLICE = 10_000;
// The entries of a longer slice are not looked up one by one, but intersected with the same part of the other indexes.
// These are then read in full: it pays for ranges that have more than one of so many runs.
const MAX_COMMON = 50_000;
const MIN_SHARE = 10;
// If a long slice has one of so many runs, these are read in their order, by an index if that has what is checked.
const NEAR = 3;
// Up to this many jobs or statuses are read as separate ranges of the index, in its order.
const MAX_RANGES = 50;
// To look up a row for an entry of an index takes about as long as to read so many rows in their order.
const LOOKUP = 3;

/** SQL inside a string of SQL. */
function doubled(sql: string): string {
  return sql.replaceAll("'", "''");
}

/** The columns of the conditions, and their values, if these are not those of the columns; `null`: an index has the runs. */
const COLUMNS: Columns<readonly [column: string, value?: string] | null> = {
  parentRunId: null,
  endOf: ["end_of"],
  // Few failures have to be parsed.
  failureKind: [
    "failure",
    `case when strpos(l.failure, $5 ->> ''failureKind'') > 0 then ${doubled(failureKind("l.failure"))} end`,
  ],
  completedAt: ["completed_at"],
  createdAt: ["created_at"],
  held: ["is_held", "l.is_held"],
  completedAs: ["completed_as", "(l.completed_as is not null)"],
};

const CASTS = { is: "", from: "::bigint", until: "::bigint", has: "::boolean" };

const TERMS = CONDITION_LIST.flatMap(({ name, field, by }) => {
  const column = COLUMNS[field];
  if (column === null) return [];
  const value = column[1] ?? (by === "has" ? `(l.${column[0]} is not null)` : `l.${column[0]}`);
  return `('${name}', '${value} ${OPERATORS[by]} ($5 ->> ''${name}'')${CASTS[by]}')`;
}).join(",\n    ");
const READ = [...Object.values(COLUMNS).flatMap((one) => one?.[0] ?? []), "former_key"].map((name) => `, q.${name}`)
  .join("");

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

-- The runs with one of some values in a column, before $6 and from $9 on; NULL: there are too many values.
create or replace function fn.window_of(p_column text, p_no int, p_values int) returns text language sql immutable as $$
  select string_agg(format('select q.seq from {schema}.runs q where (q.%1$s, q.seq) < ($%2$s[%3$s], $6)
    and (q.%1$s, q.seq) >= ($%2$s[%3$s], $9)', p_column, p_no, n), ' union all ')
  from generate_series(1, p_values) n where p_values <= ${MAX_RANGES}
$$;

-- The range of a list that is probably read the fastest: one of p_froms, or jobs, statuses or all runs; and how many runs it
-- has, if that is known. The former are counted step by step, until one of them has ended. p_all is the cost of all runs.
create or replace function fn.choose_range(p jsonb, p_jobs text[], p_statuses text[], p_keys text[], p_values text[],
  p_names text[], p_froms text[], p_is_own boolean, p_reads boolean, p_all bigint, out range text, out no int, out runs bigint)
language plpgsql stable as $$
declare
  v_count bigint; v_least bigint; v_most bigint := ${MIN_PROBED};
  v_cost int := case when not p_is_own and (p_reads or p_jobs is not null or p_statuses is not null) then ${LOOKUP} else 1 end;
begin
  if not p_is_own then
    select c.name, c.runs, c.cost into range, runs, v_least from (
      select 'status' as name, k.runs, k.runs * cardinality(p_statuses) * case when p_reads then ${LOOKUP} else 1 end as cost
        from fn.count_runs(null, p_statuses) k (runs) where p_statuses is not null
      union all select 'job', k.runs, k.runs * least(cardinality(p_jobs), ${MAX_RANGES})
          * case when p_reads or p_statuses is not null then ${LOOKUP} else 1 end
        from fn.count_runs(p_jobs, null) k (runs) where p_jobs is not null
      union all select 'all', p_all, p_all where p_reads or (p_jobs is null and p_statuses is null and p_froms = '{}')
    ) c order by c.cost limit 1;
  end if;
  while v_most <= ${MAX_PROBED} and (v_least is null or v_least > v_most * v_cost)
    and cardinality(p_froms) > case when range is null then 1 else 0 end
  loop
    for i in 1 .. cardinality(p_froms) loop
      continue when p_names[i] = 'few' and v_most > ${MAX_SORTED};
      execute format('select count(*) from (%s limit %s) few', p_froms[i], v_most) into v_count
        using p_jobs, p_statuses, p_keys, p_values, p;
      if v_count < v_most and (v_least is null or v_count * v_cost < v_least) then
        range := p_names[i];
        no := i;
        runs := v_count;
        v_least := v_count * v_cost;
      end if;
    end loop;
    v_most := v_most * 2;
  end loop;
  if range is null then
    range := p_names[1];
    no := 1;
  end if;
end $$;

-- The row numbers of a page, newest first, and the total. See Store.findRuns().
create or replace function fn.list_runs(p jsonb, out seqs bigint[], out total bigint, out has_more boolean,
  out counted_to bigint) language plpgsql stable as $$
declare
  v_started timestamptz := clock_timestamp();
  v_jobs text[]; v_statuses text[] := case when p -> 'statuses' <> 'null' then fn.texts(p -> 'statuses') end; v_keys text[]; v_values text[]; v_own boolean[];
  v_limit bigint := (p ->> 'limit')::bigint; v_offset bigint := (p ->> 'offset')::bigint; v_wanted bigint := v_limit;
  v_most bigint := (p ->> 'most')::bigint; v_before bigint := coalesce((p ->> 'before')::bigint, ${Number.MAX_SAFE_INTEGER});
  v_known bigint; v_by text; v_label int; v_runs bigint; v_joins boolean; v_term text; v_rest text; v_read text := '';
  v_range text; v_seqs text; v_common text; v_near text; v_check text; v_columns text[]; v_terms text[] := '{}'; v_own_terms text[] := '{}';
  v_names text[] := '{}'; v_froms text[] := '{}'; v_is_own boolean; v_few bigint[]; v_given text[]; v_at int; v_times jsonb := nullif(p -> 'times', 'null');
  v_afters bigint[]; v_lasts bigint[]; v_all bigint; v_windows text[] := '{}'; v_size bigint; v_entries bigint; v_last bigint; v_matches bigint[]; v_found bigint := 0;
  v_examined bigint := 0;
begin
  seqs := '{}';
  total := 0;
  has_more := false;
  if p -> 'jobs' <> 'null' then
    select coalesce(array_agg(q), '{}') into v_jobs from unnest(fn.texts(p -> 'jobs')) n, unnest(fn.queues_of(n)) q;
  end if;
  -- A list that is always empty reads nothing, so its time reveals nothing.
  if cardinality(v_jobs) = 0 or cardinality(v_statuses) = 0 then return; end if;
  if (p ->> 'inFull')::boolean then
    v_known := fn.count_runs(v_jobs, v_statuses);
    total := v_known;
    has_more := v_offset < v_known;
    v_wanted := least(v_limit, v_known - v_offset); -- a search for more would read to the end of the index
    if v_wanted <= 0 then return; end if;
  end if;
  select array_agg(x ->> 0 order by t.no), array_agg(x ->> 1 order by t.no), array_agg((x ->> 2)::boolean order by t.no)
    into v_keys, v_values, v_own from jsonb_array_elements(p -> 'labels') with ordinality t (x, no);
  v_is_own := coalesce(true = any(v_own), false);
  -- The ranges of these conditions. If a scope says which runs are the caller's own, it is theirs: by the rarest label, or by
  -- the jobs.
  for i in 1 .. coalesce(cardinality(v_keys), 0) loop
    continue when v_is_own and not v_own[i];
    v_names := v_names || i::text;
    v_froms := v_froms || format('select n.run_seq as seq from {schema}.labels n where n.key = $3[%1$s] and n.value = $4[%1$s]', i);
  end loop;
  if not v_is_own then
    select v_names || coalesce(array_agg(c.name order by c.no), '{}'), v_froms || coalesce(array_agg(c.source order by c.no), '{}')
      into v_names, v_froms from (values
        (1, 'held', p ->> 'held' = 'true', 'select h.run_seq as seq from {schema}.holds h where h.since is not null'),
        (2, 'parentRunId', p ? 'parentRunId', 'select q.seq from {schema}.runs q where q.parent_id = $5 ->> ''parentRunId'''),
        (3, 'failureKind', p ? 'failureKind', 'select q.seq from {schema}.runs q where q.failure is not null
          and ${doubled(failureKind("q.failure"))} = $5 ->> ''failureKind'''),
        (4, 'retried', p ->> 'retried' = 'true', 'select q.seq from {schema}.runs q where q.completed_as is not null'),
        (5, 'few', p ? 'endOf', 'select q.seq from {schema}.runs q where q.end_of = $5 ->> ''endOf'''),
        (6, 'few', p ->> 'endRun' = 'true', 'select q.seq from {schema}.runs q where q.end_of is not null'),
        (7, 'few', p ?| array['completedAfter', 'completedBefore'], 'select q.seq from {schema}.runs q
          where q.status = any($2) and q.completed_at >= coalesce(($5 ->> ''completedAfter'')::bigint, 0)
            and q.completed_at < coalesce(($5 ->> ''completedBefore'')::bigint, ${Number.MAX_SAFE_INTEGER})')
      ) c (no, name, is_given, source) where c.is_given;
  end if;
  -- Runs that were added at the right time are above one of v_afters, up to one of v_lasts: see fn.note_times().
  v_all := fn.count_runs(null, null);
  if v_times is not null then
    select array_agg(t.after order by t.after desc), array_agg(t.last_seq order by t.after desc),
        least(v_all, (count(*) - 1) * ${TIMED_RUNS} + greatest(0, v_all - max(t.rows) * ${TIMED_RUNS}))
      into v_afters, v_lasts, v_all
      from (select coalesce(lag(x.last_seq) over (order by x.last_seq), 0) as after, x.*, count(*) over () - 1 as rows
        from (select * from {schema}.run_times union all values (${Number.MAX_SAFE_INTEGER}, 0, ${Number.MAX_SAFE_INTEGER})) x) t
      where t.last_at >= (v_times ->> 'from')::bigint and t.first_at < (v_times ->> 'until')::bigint;
  end if;
  select coalesce(array_agg(c.term), '{}'), array_agg(c.name) into v_columns, v_given from (values
    ${TERMS}) c (name, term) where p ->> c.name is not null;
  if (p ->> 'notRetried')::boolean then v_columns := v_columns || 'l.retriggered_as is null and l.former_key is null'::text; end if;
  if not v_is_own and v_jobs is not null and (p ->> 'scopedByJob')::boolean then v_by := 'job';
  else
    select r.range, r.no, r.runs into v_by, v_label, v_runs from fn.choose_range(p, v_jobs, v_statuses, v_keys, v_values,
      v_names, v_froms, v_is_own, v_columns <> '{}', v_all) r;
  end if;
  if v_by = 'few' then
    execute format('select array_agg(l.seq order by l.seq desc) from (%s) l', v_froms[v_label])
      into v_few using v_jobs, v_statuses, v_keys, v_values, p;
  end if;
  v_label := case when v_by ~ '^[0-9]' then v_by::int end;
  v_at := array_position(v_given, v_by); -- its runs meet this condition
  v_columns := v_columns[:v_at - 1] || v_columns[coalesce(v_at, 0) + 1:];
  v_check := array_to_string(v_columns, ' and ');

  -- What to check on each of them. A scope's conditions come first. A window has what meets the same condition in a part of
  -- the index.
  for i in 1 .. coalesce(cardinality(v_keys), 0) loop
    continue when i = v_label;
    -- A scalar subquery is never turned into a join, which might begin with all runs that have the label.
    v_term := format('(select true from {schema}.labels o where o.key = $3[%s] and o.value = $4[%s]
      and o.run_seq = l.seq) is not null', i, i);
    if v_own[i] then v_own_terms := v_own_terms || v_term; else v_terms := v_terms || v_term; end if;
    v_windows := v_windows || format('select o.run_seq as seq from {schema}.labels o
      where o.key = $3[%s] and o.value = $4[%s] and o.run_seq < $6 and o.run_seq >= $9', i, i);
  end loop;
  if v_jobs is not null and v_by <> 'job' then
    v_columns := v_columns || 'l.job = any($1)'::text;
    v_windows := v_windows || fn.window_of('job', 1, cardinality(v_jobs));
  end if;
  if v_statuses is not null and v_by <> 'status' then
    v_columns := v_columns || 'l.status = any($2)'::text;
    v_windows := v_windows || fn.window_of('status', 2, cardinality(v_statuses));
  end if;
  if p ->> 'parentRunId' is not null and v_by <> 'parentRunId' then
    v_columns := v_columns || 'l.parent_id = $5 ->> ''parentRunId'''::text;
    v_windows := v_windows || 'select q.seq from {schema}.runs q where (q.parent_id, q.seq) < ($5 ->> ''parentRunId'', $6)
      and (q.parent_id, q.seq) >= ($5 ->> ''parentRunId'', $9)'::text;
  end if;
  v_terms := v_columns || v_terms;
  v_rest := case when v_terms = '{}' then 'true' else array_to_string(v_terms, ' and ') end;
  if v_own_terms <> '{}' then
    v_rest := format('case when %s then %s else false end', array_to_string(v_own_terms, ' and '), v_rest);
  end if;
  -- The time of a scope's list must not depend on the runs of others.
  v_joins := v_by not in ('all', 'few') and v_windows <> '{}' and array_position(v_windows, null) is null
    and v_own_terms = '{}' and not v_is_own and not (p ->> 'scopedByJob')::boolean
    and (v_runs is null or v_runs * ${MIN_SHARE} > fn.count_runs(null, null));

  -- The newest runs of the range before $6, at most $7. Each order begins with the column by which the range is, and that
  -- column is compared by its order: so no other index can serve the statement.
  if v_columns <> '{}' then v_read := ', q.job, q.status, q.parent_id, q.retriggered_as${READ}'; end if;
  v_range := case v_by
    when v_label::text then format('select n.run_seq as seq from {schema}.labels n
      where n.key = $3[%1$s] and (n.value, n.run_seq) < ($4[%1$s], $6) and n.value >= $4[%1$s]
      order by n.value desc, n.run_seq desc limit $7', v_label)
    when 'held' then 'select h.run_seq as seq from {schema}.holds h
      where h.since is not null and h.run_seq < $6 order by h.run_seq desc limit $7'
    when 'few' then 'select n.seq from unnest($10) n (seq) where n.seq < $6 order by n.seq desc limit $7'
    when 'parentRunId' then 'select q.seq%s from {schema}.runs q
      where (q.parent_id, q.seq) < ($5 ->> ''parentRunId'', $6) and q.parent_id >= $5 ->> ''parentRunId''
      order by q.parent_id desc, q.seq desc limit $7'
    when 'failureKind' then 'select q.seq%s from {schema}.runs q where q.failure is not null
      and (${doubled(failureKind("q.failure"))}, q.seq) < ($5 ->> ''failureKind'', $6)
      and ${doubled(failureKind("q.failure"))} >= $5 ->> ''failureKind''
      order by ${doubled(failureKind("q.failure"))} desc, q.seq desc limit $7'
    when 'retried' then 'select q.seq%s from {schema}.runs q
      where q.completed_as is not null and q.seq < $6 order by q.seq desc limit $7'
    when 'all' then 'select q.seq%s from {schema}.runs q where q.seq < $6 order by q.seq desc limit $7'
    else format(case when cardinality(case v_by when 'job' then v_jobs else v_statuses end) > ${MAX_RANGES}
      then 'select q.seq%%s from {schema}.runs q where q.%1$s = any($%2$s) and q.seq < $6 order by q.seq desc limit $7'
      else 'select n.* from (select distinct v from unnest($%2$s) v) a cross join lateral (
        select q.seq%%s from {schema}.runs q where (q.%1$s, q.seq) < (a.v, $6) and q.%1$s >= a.v
        order by q.%1$s desc, q.seq desc limit $7) n order by n.seq desc limit $7' end,
      v_by, case v_by when 'job' then 1 else 2 end) end;
  v_seqs := 'select count(*), min(l.seq), array_agg(l.seq) from (' || format(v_range, '') || ') l';
  v_common := format('select array_agg(l.seq) from (select unnest($8) as seq %s) l', (
    select string_agg(format('intersect (%s)', w), ' ') from unnest(v_windows) w));
  v_check := 'select array_agg(l.seq order by l.seq desc) from unnest($1) n (seq)' || case v_check when '' then
    ' cross join lateral (select n.seq) l' else format(' cross join lateral (
      select q.seq%s from {schema}.runs q where q.seq = n.seq offset 0) l where %s', v_read, v_check) end;
  v_term := 'select count(*), min(l.seq), coalesce(array_agg(l.seq order by l.seq desc) filter (where %s), ''{}'') from (%s) l';
  -- The rows of such a slice are read in their order: that takes half as long as one after another.
  if v_read <> '' and (v_label is not null or v_by in ('held', 'few')) then
    v_near := format(v_term, v_rest, format('select q.seq%s from unnest($8) n (seq) join {schema}.runs q using (seq)
      where q.seq < $6 and q.seq >= $9 and q.status = any(''{${RUN_STATUSES}}'')', v_read)); -- the states of others do not matter
    v_range := 'select q.seq%s from {schema}.runs q where q.seq = any(array(select n.seq from (' || v_range || ') n order by n.seq))';
  end if;
  v_range := format(v_term, v_rest, format(v_range, v_read));

  v_size := case when v_rest = 'true' then greatest(1, v_offset + v_wanted) else ${FIRST_SLICE} end;
  loop
    if v_afters is not null then
      v_before := coalesce((select least(v_before, t.last + 1) from unnest(v_afters, v_lasts) t (after, last)
        where t.after + 1 < v_before order by t.after desc limit 1), 0);
    end if;
    v_last := null;
    if v_size >= ${MAX_SLICE} and (v_joins or v_near is not null) then
      execute v_seqs into v_entries, v_last, v_matches
        using v_jobs, v_statuses, v_keys, v_values, p, v_before, v_size, 0, 0, v_few;
    end if;
    if v_joins and v_size >= ${MAX_SLICE} then
      execute v_common into v_matches
        using v_jobs, v_statuses, v_keys, v_values, p, v_before, v_size, v_matches, v_last;
      execute v_check into v_matches using v_matches, 0, 0, 0, p;
      v_matches := coalesce(v_matches, '{}');
    else
      execute case when v_before - v_last <= ${NEAR} * v_entries then v_near else v_range end into v_entries, v_last, v_matches
        using v_jobs, v_statuses, v_keys, v_values, p, v_before, v_size, v_matches, v_last, v_few;
    end if;
    seqs := seqs || v_matches[greatest(0, v_offset - v_found) + 1 :
      greatest(0, v_offset - v_found) + v_wanted - cardinality(seqs)];
    v_found := v_found + cardinality(v_matches);
    v_examined := v_examined + v_entries;
    if v_known is not null then
      has_more := v_offset + cardinality(seqs) < v_known;
      exit when cardinality(seqs) = v_wanted or v_entries < v_size;
    else
      has_more := v_found > v_offset + cardinality(seqs);
      total := least(v_found, v_most);
      if v_found > v_most then
        counted_to := coalesce(v_matches[cardinality(v_matches) - v_found + v_most], v_before);
        exit;
      end if;
      exit when v_entries < v_size;
      if has_more and cardinality(seqs) = v_limit and v_examined >= ${MIN_EXAMINED}
        and clock_timestamp() - v_started >= '${MAX_COUNT_MS} ms'::interval
      then
        counted_to := v_last;
        exit;
      end if;
    end if;
    v_before := v_last;
    v_size := least(v_size * 4, greatest(case when v_joins then ${MAX_COMMON} else ${MAX_SLICE} end, v_size));
  end loop;
end $$;

-- The ids of the runs of a page. See Store.findRuns().
create or replace function fn.find_runs(p jsonb, p_now bigint) returns jsonb language plpgsql stable ${ENTRY} as $$
declare v record;
begin
  v := fn.list_runs(p);
  return jsonb_build_object('total', v.total, 'hasMore', v.has_more, 'countedTo', v.counted_to, 'seqs', to_jsonb(v.seqs),
    'ids', coalesce((
    select jsonb_agg(r.id order by r.seq desc) from {schema}.runs r where r.seq = any(v.seqs)), '[]'));
end $$;
`;
