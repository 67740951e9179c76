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

const prepared = new WeakMap<Queryable, Set<string>>();

/** The same for one connection that asks again and again: all checks are one statement, which is planned once. */
export async function findFaultAgain(client: Queryable, schema: string): Promise<string | null> {
  const name = `faults_of_${schema}`;
  const names = prepared.get(client) ?? new Set();
  prepared.set(client, names);
  if (!names.has(name)) {
    const checks = POSTGRES_CHECKS.map(({ sql }) => `(${sql.replaceAll("{schema}", schema)})`);
    await client.query(`prepare ${name} as ${checks.join("\nunion all\n")} limit 1`);
    names.add(name);
  }
  const { rows: [row] } = await client.query(`execute ${name}`);
  return (row as { r: string } | undefined)?.r ?? null; // the one column of a check
}
