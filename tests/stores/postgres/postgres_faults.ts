import type { Client } from "pg";
import { POSTGRES_CHECKS } from "../../../src/stores/postgres/checks.ts";

/**
 * Looks for what must never be in the tables of a schema.
 *
 * @returns What is wrong, or `null`.
 */
export async function findFault(client: Client, schema: string): Promise<string | null> {
  for (const { sql } of POSTGRES_CHECKS) {
    const { rows: [row] } = await client.query(sql.replaceAll("{schema}", schema));
    if (row !== undefined) return row.r;
  }
  return null;
}
