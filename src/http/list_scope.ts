import { checkFields, MAX_RUN_LIMIT } from "../engine/run_filter.ts";
import { copyLabels, MAX_LABELS } from "../name.ts";
import { isSameJson } from "../json.ts";
import { DEFAULT_RUN_LIMIT, type ListFilter, NO_RUN, type RunFilter } from "../run.ts";
import type { RunQuery } from "../store.ts";
import { withoutUndefined } from "./without_undefined.ts";

/** A copy of a filter for a hook, which may change it as it likes. */
export function copyFilter({ jobName, status, labels, ...rest }: RunFilter): RunFilter {
  return {
    ...rest,
    ...withoutUndefined({ jobName: copyList(jobName), status: copyList(status), labels: labels && { ...labels } }),
  };
}

/**
 * Reads what a hook answered that says which runs somebody may list: a copy of it, of which every field is in order.
 *
 * @throws {TypeError} It is no object, or one with other fields than a filter has: a hook that forgets to answer, or
 * answers `label` for `labels`, opens nothing.
 * @throws {ValidationError} A field has no such value.
 */
export function readScope(answer: unknown): RunFilter {
  if (Object.prototype.toString.call(answer) !== "[object Object]") {
    throw new TypeError("A hook that scopes runs must return a filter: an object");
  }
  const { jobName, status, labels, limit, offset: _, ...unknown } = answer as RunFilter;
  const [typo] = Object.keys(unknown);
  if (typo !== undefined) throw new TypeError(`A hook that scopes runs returned a filter with "${typo}"`);
  const scope = checkFields({
    jobName: copyList(jobName),
    status: copyList(status),
    // A limit beyond what a list can have is as good as none.
    limit: typeof limit === "number" ? Math.min(limit, MAX_RUN_LIMIT) : limit,
  });
  // However many labels: those of the client, which are allowed, may be among them.
  return labels === undefined ? scope : { ...scope, labels: copyLabels(labels) };
}

function copyList<T extends string>(values: T | readonly T[] | undefined): T | readonly T[] | undefined {
  if (values === undefined || typeof values === "string") return values;
  if (Array.isArray(values)) return [...values];
  throw new TypeError("A filter must name a text, or a list of texts");
}

/**
 * What a hook has added to a filter: by that a store looks runs up first, so that nothing of the runs of others can be
 * told from the time that it takes. `null`: nothing, or nothing that could be told from what the client asks for.
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

/** What a client asks for, without all by which runs could be looked up. */
export function withoutLookUps({ jobName: _, labels: __, ...filter }: RunFilter): RunFilter {
  return filter;
}

function isSameList(one: string | readonly string[], other: string | readonly string[] | undefined): boolean {
  return other !== undefined && isSameJson([...listOf(one)], [...listOf(other)]);
}

/** The runs that match both filters. Of the limits the smaller one counts; passing over is the client's business. */
export function narrow(filter: RunFilter, scope: RunFilter): RunFilter {
  const limit = Math.min(filter.limit ?? DEFAULT_RUN_LIMIT, scope.limit ?? Infinity);
  return {
    ...filter,
    status: inBoth(filter.status, scope.status),
    limit,
    ...narrowList(filter, scope),
  };
}

/** The same for those who watch runs. */
export function narrowList(filter: ListFilter, scope: ListFilter): ListFilter {
  const labels = { ...filter.labels, ...scope.labels };
  const isContradiction = Object.entries(filter.labels ?? {}).some(([key, value]) => labels[key] !== value);
  if (isContradiction || Object.keys(labels).length > MAX_LABELS) return NO_RUN;
  return { jobName: inBoth(filter.jobName, scope.jobName), labels };
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
