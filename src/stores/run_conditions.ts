import { type ConditionField, conditionsOf, DEFAULT_RUN_LIMIT, meets, RUN_STATUSES } from "../model/run.ts";
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

/**
 * When the runs of a filter were added, in milliseconds: from, and before, these times. No run ends before it was added.
 * `null`: the filter does not say.
 */
export function timesOf(query: RunQuery): { from: number; until: number } | null {
  const times = storedConditionsOf(query).filter(({ name }) => name === "createdAfter" || name.endsWith("Before"));
  if (times.length === 0) return null;
  const bounds = (operator: string) => times.flatMap((one) => one.operator === operator ? [Number(one.value)] : []);
  return { from: Math.max(0, ...bounds(OPERATORS.from)), until: Math.min(NO_TIME, ...bounds(OPERATORS.until)) };
}
const NO_TIME = Number.MAX_SAFE_INTEGER;

/** So many runs, in their order, have one row that says when they were added. */
export const TIMED_RUNS = 5_000;
/** The number of such rows that are added at once, at most. */
export const MAX_TIMED = 10;

/** Where the count of a list ends, unless the page ends later or a query says otherwise. */
const MAX_COUNTED = 10_000;
/** When it ends, in milliseconds after the start of the search, if the page is full and so many runs were examined. */
export const MAX_COUNT_MS = 50;
/** So many runs are always examined: among few, the count does not depend on how busy the machine is. */
export const MIN_EXAMINED = 5_000;

/** How many matching runs are looked for: one more says that the count has not ended. */
export function mostCounted({ limit = DEFAULT_RUN_LIMIT, offset = 0, countUpTo = MAX_COUNTED }: RunQuery): number {
  return Math.max(countUpTo, offset + limit);
}

/** Whether a filter restricts only jobs and statuses, whose runs are counted by each change, and a total is wanted. */
export function isCountedInFull({ labels = {}, before, notRetried, countUpTo, ...query }: RunQuery): boolean {
  return countUpTo !== 0 && before === undefined && notRetried !== true && Object.keys(labels).length === 0 &&
    conditionsOf(query).length === 0;
}

/**
 * How many entries of an index are counted to find the range with the fewest: at first so many, and each time twice as
 * many, until one has ended. Of ranges with more than the largest number, any.
 */
export const MIN_PROBED = 1_000;
/** See {@linkcode MIN_PROBED}. */
export const MAX_PROBED = 128_000;
/** Up to so many entries are read at once, and sorted, from an index in another order than the list. */
export const MAX_SORTED = 32_000;
