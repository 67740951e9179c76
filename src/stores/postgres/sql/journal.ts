import { FACTS_PER_ROW } from "./names.ts";

// The maximum size of the journal in bytes of facts, about, and the maximum age of a row.
const MAX_BYTES = 33_554_432;
const MAX_AGE_MS = 3_600_000;
// How many of the newest rows tell how long a row is.
const SAMPLE = 200;
// The maximum number of rows that are removed at once.
const MAX_TRIMMED = 10_000;

/** Keeps the journal short. */
export const JOURNAL = `
-- Removes the oldest rows of a journal that is too long or too old, so that facts of deleted runs do not stay for long in
-- an idle system. The newest row is never removed. It does nothing while another call does it.
create or replace function fn.trim_journal(p_now bigint) returns void language plpgsql as $$
declare v_oldest record; v_last bigint; v_kept bigint; v_to bigint; v_old bigint;
begin
  select j.position, j.at into v_oldest from {schema}.journal j order by j.position limit 1;
  if not found then return; end if;
  select max(o.position), ${MAX_BYTES} / greatest(1, avg(octet_length(o.facts)))::bigint into v_last, v_kept
    from (select j.position, j.facts from {schema}.journal j order by j.position desc limit ${SAMPLE}) o;
  -- Rows have equal distances, but for those that were never committed.
  v_kept := v_last - v_kept * ${FACTS_PER_ROW};
  if v_oldest.at > p_now - ${MAX_AGE_MS} and v_oldest.position > v_kept then return; end if;
  if not pg_try_advisory_xact_lock(hashtextextended('holdfast/trim/' || {literal}, 0)) then return; end if;
  v_to := least(v_kept, v_oldest.position + ${MAX_TRIMMED * FACTS_PER_ROW});
  -- The newest of the old rows stays: a reader that has read up to it has missed nothing.
  select max(o.position) into v_old from (
    select j.position, j.at from {schema}.journal j order by j.position limit ${MAX_TRIMMED}) o
    where o.at <= p_now - ${MAX_AGE_MS};
  select greatest(v_to, max(j.position)) into v_to from {schema}.journal j where j.position < v_old;
  if v_to is null or v_to < v_oldest.position or v_to >= v_last then return; end if;
  delete from {schema}.journal where position <= v_to;
  update {schema}.journal_start set trimmed_to = v_to;
end $$;
`;
