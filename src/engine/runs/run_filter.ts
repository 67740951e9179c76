import { ValidationError } from "../../model/error.ts";
import { readInstant } from "../../values/instant.ts";
import { checkInteger } from "../../values/integer.ts";
import { isoTime } from "../../values/iso_time.ts";
import { checkLabels, checkName } from "../../values/name.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { CONDITIONS, conditionsOf, isRunStatus, RUN_STATUSES, type RunFilter } from "../../model/run.ts";

/** The maximum limit of a list. */
export const MAX_RUN_LIMIT = 1_000;
/** The maximum offset of a list. */
export const MAX_RUN_OFFSET = 1_000_000;

const MAX_FILTER_LABELS = 16;
const MAX_FILTER_JOBS = 50;

/** The names of the fields of a filter, but for those of its page. */
export const FILTER_FIELDS = { jobName: true, status: true, labels: true, ...CONDITIONS } as const;

/**
 * Checks the filter of a list of runs.
 *
 * @returns The filter, with instants in UTC.
 * @throws {ValidationError} A field is not valid: an unknown status, a limit that is not 0 to 1,000, more than 50
 * jobs, more than 16 labels, ...
 * @throws {TypeError} `jobName` or `status` is neither a string nor an array.
 */
export function checkRunFilter(filter: RunFilter): RunFilter {
  const checked = checkFields(filter);
  checkSize(listOf(filter.jobName, "jobName").length, Object.keys(filter.labels ?? {}).length);
  return checked;
}

/**
 * Checks the size of a filter: each label is looked up for each examined run.
 *
 * @throws {ValidationError} More than 50 jobs, or more than 16 labels.
 */
export function checkSize(jobs: number, labels: number): void {
  if (jobs > MAX_FILTER_JOBS) {
    throw new ValidationError(`A list takes at most ${MAX_FILTER_JOBS} job names, not ${jobs}`);
  }
  if (labels > MAX_FILTER_LABELS) {
    throw new ValidationError(`A list takes at most ${MAX_FILTER_LABELS} labels, not ${labels}`);
  }
}

/**
 * Checks the fields of a filter, but not how many jobs and labels it has.
 *
 * @returns The filter, with instants in UTC.
 * @throws {ValidationError} A field is not valid.
 * @throws {TypeError} `jobName` or `status` is neither a string nor an array.
 */
export function checkFields(filter: RunFilter): RunFilter {
  const { jobName, status, labels, limit, offset } = filter;
  for (const name of listOf(jobName, "jobName")) checkName(name, "jobName");
  for (const one of listOf(status, "status")) {
    if (!isRunStatus(one)) throw new ValidationError(`status must be one of ${RUN_STATUSES.join(", ")}`);
  }
  if (labels !== undefined) checkLabels(labels);
  if (limit !== undefined) checkInteger(limit, "limit", 0, MAX_RUN_LIMIT);
  if (offset !== undefined) checkInteger(offset, "offset", 0, MAX_RUN_OFFSET);
  const instants = conditionsOf(filter).flatMap(({ name, by, values, value }) => {
    if (by === "has") {
      if (typeof value !== "boolean") throw new ValidationError(`${name} must be true or false`);
      return [];
    }
    if (by !== "is") return [[name, isoTime(readInstant(value, name))]];
    if (values === undefined) checkName(value, name);
    else if (!values.some((one) => one === value)) {
      throw new ValidationError(`${name} must be one of ${values.join(", ")}`);
    }
    return [];
  });
  return instants.length === 0 ? filter : { ...filter, ...Object.fromEntries(instants) };
}

function listOf(value: string | readonly string[] | undefined, name: string): readonly string[] {
  if (value === undefined) return [];
  if (typeof value === "string") return [value];
  if (!Array.isArray(value)) {
    throw new TypeError(`${name} must be a string or an array of strings, not ${kindOf(value)}`);
  }
  return value;
}
