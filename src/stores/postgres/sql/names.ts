/**
 * The numbers of the facts of one row of the journal end with its position. So positions are this far apart, and a row has
 * no more facts than that.
 */
export const FACTS_PER_ROW = 64;

/** The version of the tables, and of the functions that know them. */
export const VERSION = 1;

/**
 * A statement with the names of a schema: `{schema}.runs` is a table, `fn.claim` a function. So no setting of the session
 * decides what they mean. Built-in names are not qualified: each function that the store calls looks them up among the
 * built-in ones alone (`SEARCH_PATH`), and so do the functions that it calls. A function has the version of the tables in its name: so the
 * processes of two versions work side by side during a deployment.
 */
export function toSql(text: string, schema: string): string {
  const quoted = `"${schema}"`;
  return text
    .replaceAll("{schema}", quoted)
    .replaceAll("{literal}", `'${schema}'`)
    .replaceAll(/\bfn\.(\w+)/g, (_, name) => `${quoted}.${name}_v${VERSION}`);
}

const SCHEMA = /^[a-z_][a-z0-9_]{0,49}$/;

/** Refuses the name of a schema that would have to be quoted. */
export function checkSchema(schema: string, subject: string): void {
  if (typeof schema === "string" && SCHEMA.test(schema)) return;
  throw new TypeError(
    `schema of ${subject} must have 1 to 50 lower-case letters, digits and underscores, and begin with no digit`,
  );
}

/**
 * The kind of a failure, as an expression over its column. Without its escapes: some of them are no valid characters for
 * the database.
 */
export function failureKind(column: string): string {
  return String.raw`(replace(replace(${column}, '\\', ''), '\u', 'u')::jsonb ->> 'kind')`;
}
