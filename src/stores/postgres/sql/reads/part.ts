import { LARGE_VALUE_BYTES } from "../../../part_builder.ts";

/**
 * An expression for the rows of a list whose sizes before them are less than `v_max`, and whether there are more.
 *
 * @param row The expression for a row `x`.
 * @param rows A statement that finds the rows, with `no`, their order, `size`, and what `row` needs.
 */
export function part(row: string, rows: string): string {
  return `(select jsonb_build_object(
      'rows', coalesce(jsonb_agg(${row} order by x.no) filter (where x.before < v_max), '[]'),
      'hasMore', coalesce(bool_or(x.before >= v_max), false))
    from (select l.*, sum(l.size) over (order by l.no) - l.size as before from (${rows}) l) x)`;
}

/** How many characters some columns take at most that are read with their record. */
export function sizeOf(...columns: string[]): string {
  return columns.map((column) => `least(coalesce(octet_length(${column}), 0), ${LARGE_VALUE_BYTES})`).join(" + ");
}
