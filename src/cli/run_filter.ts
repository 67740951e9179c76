import { isRunStatus, RUN_STATUSES, type RunFilter } from "../run.ts";
import type { Arguments } from "./arguments.ts";
import type { OptionSpecs } from "./option_spec.ts";
import { readSince } from "./read_time.ts";
import type { Query } from "./service/api.ts";
import { UsageError } from "./usage_error.ts";

/** The options that select runs. */
export const FILTER_OPTIONS: OptionSpecs = {
  job: { value: "NAME", about: "runs of this job", isList: true },
  status: { value: "STATUS", about: RUN_STATUSES.join(", "), isList: true },
  label: { value: "KEY=VALUE", about: "runs with this label", isList: true },
  since: { value: "TIME", about: "triggered since then: 1h, 2d, or an instant" },
  "ended-since": { value: "TIME", about: "ended since then" },
};

/**
 * The filter that the options say.
 *
 * @throws {UsageError} An option is not valid.
 */
export function readFilter(args: Arguments, now: number): RunFilter {
  const [jobs, statuses, labels] = [args.list("job"), args.list("status"), args.list("label")];
  const [since, endedSince] = [args.text("since"), args.text("ended-since")];
  for (const status of statuses) {
    if (!isRunStatus(status)) {
      throw new UsageError(`--status must be one of ${RUN_STATUSES.join(", ")}, not "${status}"`);
    }
  }
  return {
    ...(jobs.length === 0 ? {} : { jobName: jobs }),
    ...(statuses.length === 0 ? {} : { status: statuses.filter(isRunStatus) }),
    ...(labels.length === 0 ? {} : { labels: readLabels(labels) }),
    ...(since === undefined ? {} : { createdAfter: readSince(since, "since", now) }),
    ...(endedSince === undefined ? {} : { completedAfter: readSince(endedSince, "ended-since", now) }),
  };
}

/**
 * Reads labels: `key=value`.
 *
 * @throws {UsageError} One is none, or a key has two values.
 */
export function readLabels(texts: readonly string[]): { [key: string]: string } {
  const labels = new Map<string, string>();
  for (const text of texts) {
    const at = text.indexOf("=");
    if (at < 1) throw new UsageError(`--label must be KEY=VALUE, not "${text}"`);
    const key = text.slice(0, at);
    if (labels.has(key)) throw new UsageError(`--label has two values for "${key}"`);
    labels.set(key, text.slice(at + 1));
  }
  return Object.fromEntries(labels);
}

/** A filter as parameters of a route. */
export function toQuery({ labels = {}, ...filter }: RunFilter): Query {
  const byLabel = Object.entries(labels).map(([key, value]) => [`label.${key}`, value] as const);
  return { ...filter, ...Object.fromEntries(byLabel) };
}
