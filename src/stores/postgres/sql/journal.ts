// The maximum size of the journal in bytes of facts, and the maximum age of a row.
const MAX_BYTES = 33_554_432;
const MAX_AGE_MS = 3_600_000;
// The maximum number of rows that are removed at once.
const MAX_TRIMMED = 10_000;

/** Keeps the journal short. */
export const JOURNAL = `
-- Removes the oldest rows of a journal that is too long or too old, so that facts of deleted runs do not stay for long in
-- an idle system. The newest row is never removed. It does nothing while another call does it.
create or replace function fn.trim_journal(p_now bigint) returns void language plpgsql as $$
declare v_last bigint; v_to bigint;
begin
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast/trim/' || {literal}, 0)) then return; end if;
  select max(position) into v_last from {schema}.journal;
  select max(o.position) into v_to from (
    select j.position, j.at from {schema}.journal j order by j.position limit ${MAX_TRIMMED}) o
    where o.at <= p_now - ${MAX_AGE_MS};
  -- The newest of the old rows stays: a reader that has read up to it has missed nothing.
  if v_to is not null then
    select max(position) into v_to from {schema}.journal where position < v_to;
  end if;
  if v_to is null and pg_relation_size('{schema}.journal'::regclass) > ${2 * MAX_BYTES} then
    select max(o.position) into v_to from (
      select j.position, sum(length(j.facts)) over (order by j.position desc) as after from {schema}.journal j) o
      where o.after > ${MAX_BYTES};
  end if;
  if v_to is null or v_to >= v_last then return; end if;
  delete from {schema}.journal where position <= v_to;
  update {schema}.journal_start set trimmed_to = v_to;
end $$;
`;
