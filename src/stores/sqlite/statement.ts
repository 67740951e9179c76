/** A value of a parameter or a column. */
export type SqliteValue = null | number | string;

/**
 * A statement. It is written as a template with its parameters in their places, which never become part of the text:
 * `` db.get`SELECT id FROM holdfast_runs WHERE seq = ${seq}` ``. Only a {@linkcode SqlPart} is text. A statement that is
 * executed most often can be a string with `?`, followed by the parameters: it is not composed anew each time.
 */
export type Statement = string | TemplateStringsArray;

/** A part of a statement, with the parameters in it. */
export interface SqlPart {
  /** The text, with `?` for each parameter. */
  readonly text: string;
  /** The parameters. */
  readonly parameters: readonly SqliteValue[];
}

/** What a template has between its strings. */
export type Value = SqliteValue | SqlPart;

// The text that each template had last, and mostly has again: composing and hashing it takes as long as reading a row.
const composed = new WeakMap<TemplateStringsArray, { parts: readonly string[]; text: string }>();

/** Composes a part of a statement, as a template. */
export function sql(template: TemplateStringsArray, ...values: readonly Value[]): SqlPart {
  const parameters: SqliteValue[] = [];
  const parts: string[] = [];
  for (const value of values) {
    if (isPart(value)) {
      parameters.push(...value.parameters);
      parts.push(value.text);
    } else {
      parameters.push(value);
      parts.push("?");
    }
  }
  const last = composed.get(template);
  if (last !== undefined && last.parts.every((part, at) => part === parts[at])) return { text: last.text, parameters };
  const text = String.raw({ raw: template }, ...parts).trimStart();
  composed.set(template, { parts, text });
  return { text, parameters };
}

/** Whether a value in a template is a part. */
export function isPart(value: Value): value is SqlPart {
  return typeof value === "object" && value !== null;
}

/** The text of a statement without parts. */
export function textOf(statement: Statement): string {
  return typeof statement === "string" ? statement : statement.join("?").trim();
}

/**
 * Text that is no parameter. With a parameter as its `LIMIT`, SQLite 3.53 plans a statement again for each execution:
 * 40 µs instead of 1.
 */
export function raw(text: string | number): SqlPart {
  return { text: String(text), parameters: [] };
}

/** Parts one after another, with text between them. */
export function joined(parts: readonly SqlPart[], between: string): SqlPart {
  return {
    text: parts.map(({ text }) => text).join(between),
    parameters: parts.flatMap(({ parameters }) => parameters),
  };
}

/** The condition that a column has one of some values. */
export function isAmong(column: string, values: readonly SqliteValue[]): SqlPart {
  return sql`${raw(column)} IN (SELECT value FROM json_each(${JSON.stringify(values)}))`;
}

/** A number of rows as part of a statement, rounded up to a power of two so that few texts are kept compiled. */
export function rowLimit(count: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, count)));
}
