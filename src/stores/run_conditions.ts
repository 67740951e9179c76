import { type ConditionField, conditionsOf, meets, RUN_STATUSES } from "../model/run.ts";
import type { RunQuery } from "../store/run_query.ts";

/** The values of a condition of a filter, each once; `null`: it does not restrict. */
export function listOf(values: string | readonly string[] | undefined): readonly string[] | null {
  if (values === undefined) return null;
  return typeof values === "string" ? [values] : [...new Set(values)];
}

/** What a store has of each field that conditions are about. */
export type Columns<T> = Readonly<Record<ConditionField, T>>;

/** The operators of SQL. */
export const OPERATORS = { is: "=", from: ">=", until: "<", has: "=" };

/** The conditions of a filter on single fields, with instants in milliseconds. */
export function storedConditionsOf(query: RunQuery) {
  return conditionsOf(query).map(({ name, field, by, value: text }) => {
    const value = typeof text === "boolean" || by === "is" ? text : Date.parse(text);
    const isMetBy = (stored: string | number | object | null | undefined) => meets(stored ?? null, by, value);
    return { name, field, operator: OPERATORS[by], value, isMetBy };
  });
}

/** The statuses of a filter. A filter on the end of runs restricts them, too, so that fewer runs are examined. */
export function statusesOf(query: RunQuery): readonly string[] | null {
  const possible = conditionsOf(query)
    .flatMap(({ statuses, value }) => statuses === undefined || value === false ? [] : [statuses]);
  const statuses = listOf(query.status);
  if (possible.length === 0) return statuses;
  return RUN_STATUSES.filter((status) =>
    possible.every((ones) => ones.includes(status)) && (statuses?.includes(status) ?? true)
  );
}
