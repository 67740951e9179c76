import { errorMessage } from "../values/unknown_values.ts";
import { isRunStatus, RUN_STATUSES, type RunFilter } from "../model/run.ts";
import { type Arguments, type OptionSpecs, UsageError } from "./command.ts";
import type { Query } from "./service/api.ts";
import { isInstant, readInstant } from "../values/instant.ts";
import { toMs } from "../values/duration.ts";
import type { Json } from "../values/json.ts";
import type { Terminal } from "./terminal.ts";

/** The options that select runs. */
export const FILTER_OPTIONS: OptionSpecs = {
  job: { value: "NAME", about: "runs of this job", isList: true },
  status: { value: "STATUS", about: RUN_STATUSES.join(", "), isList: true },
  label: { value: "KEY=VALUE", about: "runs with this label", isList: true },
  since: { value: "TIME", about: "triggered since then: 1h, 2d, or an instant" },
  held: { value: null, about: "held runs: their code has changed, and does not fit" },
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
    ...(args.has("held") ? { held: true } : {}),
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

const MAX_MS = 3_155_760_000_000; // 100 years: the instant so long ago is a date

/**
 * Reads a duration such as `90s`, `15m`, `1h`, `1h30m`, `30d` or `2w`, in milliseconds.
 *
 * @throws {UsageError} It is none.
 */
export function readDuration(text: string, option: string): number {
  const ms = toMs(text);
  if (typeof ms === "number" && ms <= MAX_MS) return ms;
  throw new UsageError(
    `--${option} must be a duration such as 90s, 15m, 1h, 30d or 2w, of at most 100 years, not "${text}"`,
  );
}

/**
 * Reads an instant: ISO 8601, or a duration before now.
 *
 * @returns ISO 8601 in UTC.
 * @throws {UsageError} It is neither.
 */
export function readSince(text: string, option: string, now: number): string {
  if (isInstant(text)) return new Date(readInstant(text, option)).toISOString();
  const ms = toMs(text);
  if (typeof ms === "number" && ms <= MAX_MS) return new Date(now - ms).toISOString();
  throw new UsageError(
    `--${option} must be a duration of at most 100 years before now such as 90s, 1h or 2d, or an instant such as 2026-11-22T18:00:00Z, not "${text}"`,
  );
}

/**
 * Reads JSON of an argument; `-` is the standard input.
 *
 * @throws {UsageError} It is none.
 */
export async function readJsonArgument(text: string, terminal: Terminal): Promise<Json> {
  try {
    return JSON.parse(text === "-" ? await terminal.readInput() : text);
  } catch (error) {
    throw new UsageError(`This is no JSON: ${errorMessage(error)}`, { cause: error });
  }
}
