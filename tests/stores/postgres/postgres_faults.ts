import { POSTGRES_CHECKS } from "../../../src/stores/postgres/checks.ts";

/** A connection of `pg` or PGlite. */
export interface Queryable {
  query(sql: string): Promise<{ rows: unknown[] }>;
}

/**
 * Looks for what must never be in the tables of a schema.
 *
 * @returns What is wrong, or `null`.
 */
export async function findFault(client: Queryable, schema: string): Promise<string | null> {
  for (const { sql } of POSTGRES_CHECKS) {
    const { rows: [row] } = await client.query(sql.replaceAll("{schema}", schema));
    if (row !== undefined) return (row as { r: string }).r; // the one column of a check
  }
  return null;
}
