import { checkFields, MAX_RUN_LIMIT } from "../../engine/runs/run_filter.ts";
import { copyLabels, MAX_LABELS } from "../../values/name.ts";
import { isSameJson } from "../../values/json.ts";
import {
  CONDITIONS,
  conditionsOf,
  DEFAULT_RUN_LIMIT,
  type ListFilter,
  NO_RUN,
  type RunFilter,
} from "../../model/run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";

/** A copy of a filter for a hook, which may modify it. */
export function copyFilter({ jobName, status, labels, ...rest }: RunFilter): RunFilter {
  return {
    ...rest,
    ...withoutUndefined({ jobName: copyList(jobName), status: copyList(status), labels: labels && { ...labels } }),
  };
}

/**
 * Checks the filter that a scope hook returned, and copies it.
 *
 * @throws {TypeError} It is not an object, or has an unknown field: a missing `return`, or `label` for `labels`, must
 * not give access to all runs.
 * @throws {ValidationError} A field is not valid.
 */
export function readScope(answer: unknown): RunFilter {
  if (Object.prototype.toString.call(answer) !== "[object Object]") {
    throw new TypeError("A hook that scopes runs must return a filter: an object");
  }
  const { jobName, status, labels, limit, offset: _, ...others } = answer as RunFilter; // its fields are checked now
  const typo = Object.keys(others).find((name) => !Object.hasOwn(CONDITIONS, name));
  if (typo !== undefined) throw new TypeError(`A hook that scopes runs returned a filter with "${typo}"`);
  const scope = checkFields({
    ...withoutUndefined(others),
    jobName: copyList(jobName),
    status: copyList(status),
    // A limit above the maximum does not restrict.
    limit: typeof limit === "number" ? Math.min(limit, MAX_RUN_LIMIT) : limit,
  });
  // Any number of labels: the client's own labels may be among them.
  return labels === undefined ? scope : { ...scope, labels: copyLabels(labels) };
}

function copyList<T extends string>(values: T | readonly T[] | undefined): T | readonly T[] | undefined {
  if (values === undefined || typeof values === "string") return values;
  if (Array.isArray(values)) return [...values];
  throw new TypeError("The field of a filter must be a string, or an array of strings");
}

/**
 * What a hook has added to a filter. The store looks runs up by this first, so that the time reveals nothing about
 * other runs. `null`: nothing, or nothing beyond what the client asked for.
 */
export function addedBy(scope: RunFilter, filter: RunFilter): RunQuery["scope"] | null {
  const labels = Object.keys(scope.labels ?? {}).filter((key) => !Object.hasOwn(filter.labels ?? {}, key));
  const jobs = scope.jobName !== undefined && !isSameList(scope.jobName, filter.jobName);
  return labels.length > 0 || jobs ? { labels, jobs } : null;
}

/** Whether runs could be looked up by a filter. */
export function canBeLookedUp({ jobName, labels }: RunFilter): boolean {
  return jobName !== undefined || Object.keys(labels ?? {}).length > 0;
}

/** A client's filter without the fields by which runs could be looked up. */
export function withoutLookUps({ jobName: _, labels: __, ...filter }: RunFilter): RunFilter {
  return filter;
}

function isSameList(one: string | readonly string[], other: string | readonly string[] | undefined): boolean {
  return other !== undefined && isSameJson([...listOf(one)], [...listOf(other)]);
}

/** The runs that match both filters. The smaller limit applies; the offset is the client's. */
export function narrow(filter: RunFilter, scope: RunFilter): RunFilter {
  const limit = Math.min(filter.limit ?? DEFAULT_RUN_LIMIT, scope.limit ?? Infinity);
  return {
    ...filter,
    status: inBoth(filter.status, scope.status),
    ...Object.fromEntries(narrowerOf(filter, scope).map(({ name, value }) => [name, value])),
    limit,
    ...narrowList(filter, scope),
    ...(contradicts(filter, scope) ? NO_RUN : {}),
  };
}

/** The conditions of a scope that the filter lacks, or that are met by fewer instants than those of the filter. */
function narrowerOf(filter: RunFilter, scope: RunFilter) {
  return conditionsOf(scope).filter(({ name, by, value }) => {
    const asked = filter[name];
    return asked === undefined || (by === "from" ? asked < value : by === "until" && asked > value);
  });
}

/** Whether a field that has one value has another one in the scope. */
function contradicts(filter: RunFilter, scope: RunFilter): boolean {
  return conditionsOf(scope).some(({ name, by, value }) =>
    (by === "is" || by === "has") && (filter[name] ?? value) !== value
  );
}

/** The same for a stream of events. */
export function narrowList(filter: ListFilter, scope: ListFilter): ListFilter {
  const labels = { ...filter.labels, ...scope.labels };
  const isContradiction = Object.entries(filter.labels ?? {}).some(([key, value]) => labels[key] !== value);
  if (isContradiction || Object.keys(labels).length > MAX_LABELS) return NO_RUN;
  return withoutUndefined({ jobName: inBoth(filter.jobName, scope.jobName), labels });
}

function inBoth<T extends string>(
  one: T | readonly T[] | undefined,
  other: T | readonly T[] | undefined,
): T | readonly T[] | undefined {
  if (one === undefined || other === undefined) return one ?? other;
  const others = new Set(listOf(other));
  return listOf(one).filter((value) => others.has(value));
}

function listOf<T extends string>(values: T | readonly T[]): readonly T[] {
  return typeof values === "string" ? [values] : values;
}
