import { ValidationError } from "../../model/error.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Run } from "../../model/run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { readInstant } from "../../values/instant.ts";
import { isoTime } from "../../values/iso_time.ts";
import { checkRunFilter } from "../runs/run_filter.ts";
import { MAX_EXAMINED } from "./newest_runs.ts";

/** Which failures to group. */
export interface FailuresQuery {
  /** Runs of this job, or of any of these. Default: of all jobs. */
  jobName?: string | readonly string[];
  /** Runs that ended at this instant or later: ISO 8601. Default: whenever. */
  since?: string;
}

/** Failed runs of one job that failed at one step of one error. */
export interface FailureGroup {
  /** The job. */
  jobName: string;
  /** The step that made them fail; `null`: none did. */
  stepName: string | null;
  /** The error, without its numbers and ids. */
  error: string;
  /** How many of the examined runs. */
  count: number;
  /** When the first of them ended: ISO 8601. */
  firstAt: string;
  /** When the last of them ended: ISO 8601. */
  lastAt: string;
  /** The newest three. */
  runIds: string[];
}

/** What the newest failed runs failed of, but for those of which a retry has completed. */
export interface FailureGroups {
  /** The groups, the largest first. */
  groups: FailureGroup[];
  /** How many runs were examined: the newest 200 failed ones of which no retry has completed. */
  examined: number;
}

/** How many runs a group names. */
export const MAX_RUN_IDS = 3;

const QUERY: Record<keyof FailuresQuery, true> = { jobName: true, since: true };

/**
 * The filter of the failed runs that a query is about.
 *
 * @throws {ValidationError} A field is not valid.
 */
export function failedRunsFilter(query: FailuresQuery): RunQuery {
  checkOptionNames(query, QUERY, "getFailures()");
  if (query.since !== undefined && typeof query.since !== "string") {
    throw new ValidationError("since must be an instant as ISO 8601");
  }
  const { jobName, since } = query;
  return checkRunFilter({
    status: "failed",
    retried: false,
    limit: MAX_EXAMINED,
    ...(jobName === undefined ? {} : { jobName }),
    ...(since === undefined ? {} : { completedAfter: isoTime(readInstant(since, "since")) }),
  });
}

/** Groups failed runs, the newest first. */
export function groupFailures(
  runs: readonly Pick<Run, "id" | "jobName" | "failedStepName" | "error" | "completedAt">[],
): FailureGroups {
  const groups = new Map<string, FailureGroup>();
  for (const { id, jobName, failedStepName, error, completedAt } of runs) {
    const [stepName, text, at] = [
      failedStepName?.replace(/#\d+$/, "") ?? null,
      blanked(error ?? ""),
      completedAt ?? "",
    ];
    const key = JSON.stringify([jobName, stepName, text]);
    const group = groups.get(key) ??
      { jobName, stepName, error: text, count: 0, firstAt: at, lastAt: at, runIds: [] };
    group.count += 1;
    if (at < group.firstAt) group.firstAt = at;
    if (at > group.lastAt) group.lastAt = at;
    if (group.runIds.length < MAX_RUN_IDS) group.runIds.push(id);
    groups.set(key, group);
  }
  const ordered = [...groups.values()].sort((one, other) => other.count - one.count);
  return { groups: ordered, examined: runs.length };
}

// An id: a UUID, or eight or more hexadecimal digits with a digit among them.
const IDS = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b/gi;
const NUMBERS = /\d+(?:[.,]\d+)*/g;
const MAX_LENGTH = 300;

/** An error without what differs between runs: ids are `…`, numbers `#`. */
export function blanked(error: string): string {
  const text = error.length > MAX_LENGTH ? `${error.slice(0, MAX_LENGTH)}…` : error;
  return text.replace(IDS, "…").replace(NUMBERS, "#");
}
