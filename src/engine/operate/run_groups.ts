import { withoutOccurrence } from "../../values/name.ts";
import { remedyOf } from "../../execution/replay/divergence_message.ts";
import { ValidationError } from "../../model/error.ts";
import type { HoldCode } from "../../model/hold.ts";
import { type Host, nextTurn } from "../../model/host.ts";
import type { RunText } from "../../model/run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import type { Store } from "../../store/store.ts";
import { readInstant } from "../../values/instant.ts";
import { isoTime } from "../../values/iso_time.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { checkRunFilter } from "../runs/run_filter.ts";

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

/** Which held runs to group. */
export interface HeldRunsQuery {
  /** Runs of this job, or of any of these. Default: of all jobs. */
  jobName?: string | readonly string[];
}

/** Runs of one job that are held for one reason. */
export interface HeldGroup {
  /** The job. */
  jobName: string;
  /** Why they are held. */
  code: HoldCode;
  /** Why, in words: that of the newest. Numbers and ids in it do not make another group. */
  message: string;
  /** What the message proposes to write, or to look at; `null`: nothing. */
  remedy: string | null;
  /** How many of the examined runs. */
  count: number;
  /** Since when the first of them is held: ISO 8601. */
  since: string;
  /** The newest three. */
  runIds: string[];
}

/** Why runs are held. */
export interface HeldGroups {
  /** The groups, the largest first. */
  groups: HeldGroup[];
  /** How many runs were examined: the newest 200 held ones. */
  examined: number;
}

/** Reads the newest runs of a filter that may be shown: {@linkcode readNewestRuns}. */
export type ReadNewest = (filter: RunQuery) => Promise<readonly RunText[]>;

const FAILURES_QUERY: Record<keyof FailuresQuery, true> = { jobName: true, since: true };
const HELD_QUERY: Record<keyof HeldRunsQuery, true> = { jobName: true };
const MAX_EXAMINED = 200;

/**
 * Groups the newest failed runs of a query.
 *
 * @throws {ValidationError} A field is not valid.
 */
export async function listFailures(query: FailuresQuery, read: ReadNewest): Promise<FailureGroups> {
  checkOptionNames(query, FAILURES_QUERY, "getFailures()");
  const { since, ...ofJobs } = query;
  if (since !== undefined && typeof since !== "string") {
    throw new ValidationError("since must be an instant as ISO 8601");
  }
  const filter = { ...ofJobs, status: "failed", retried: false, limit: MAX_EXAMINED } as const;
  const ended = since === undefined ? {} : { completedAfter: isoTime(readInstant(since, "since")) };
  const groups = new Groups<FailureGroup>();
  for (
    const { id, jobName, failedStepName, error, completedAt } of await read(checkRunFilter({ ...filter, ...ended }))
  ) {
    const [stepName, text] = [failedStepName && withoutOccurrence(failedStepName), blanked(error ?? "")];
    const at = completedAt ?? "";
    const none = { jobName, stepName, error: text, count: 0, firstAt: at, lastAt: at, runIds: [] };
    const group = groups.add(id, [jobName, stepName, text], none);
    if (at < group.firstAt) group.firstAt = at;
    if (at > group.lastAt) group.lastAt = at;
  }
  return groups.result();
}

/**
 * Groups the newest held runs of a query.
 *
 * @throws {ValidationError} A field is not valid.
 */
export async function listHeld(query: HeldRunsQuery, read: ReadNewest): Promise<HeldGroups> {
  checkOptionNames(query, HELD_QUERY, "getHeld()");
  const groups = new Groups<HeldGroup>();
  for (const { id, jobName, held } of await read(checkRunFilter({ ...query, held: true, limit: MAX_EXAMINED }))) {
    if (held === null) continue; // it was resumed meanwhile
    const { code, message, since } = held;
    const none = { jobName, code, message, remedy: remedyOf(message), count: 0, since, runIds: [] };
    const group = groups.add(id, [jobName, code, blanked(message)], none);
    if (since < group.since) group.since = since;
  }
  return groups.result();
}

// How many runs a group names.
const MAX_RUN_IDS = 3;

/** Counts runs, the newest first, by what they have in common. */
class Groups<G extends { count: number; runIds: string[] }> {
  readonly #groups = new Map<string, G>();
  #examined = 0;

  /** Adds a run to the group of a key, which is the given one if it is new. */
  add(runId: string, keys: readonly unknown[], given: G): G {
    const key = JSON.stringify(keys);
    const group = this.#groups.get(key) ?? given;
    this.#groups.set(key, group);
    this.#examined += 1;
    group.count += 1;
    if (group.runIds.length < MAX_RUN_IDS) group.runIds.push(runId);
    return group;
  }

  result(): { groups: G[]; examined: number } {
    const groups = [...this.#groups.values()].sort((one, other) => other.count - one.count);
    return { groups, examined: this.#examined };
  }
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

// How many characters of runs are read at once.
const PART_LENGTH = 262_144;
// How long runs are looked for that may be shown.
const MAX_MS = 100;

/** How to read runs. */
interface NewestRunsOptions {
  /** Where they are. */
  store: Pick<Store, "findRuns" | "readRuns">;
  /** Time. */
  host: Host;
  /** Whether a run may be shown; `null`: each may. Others do not count, and older ones are read in their place. */
  mayShow: ((runId: string) => Promise<boolean>) | null;
}

/** Reads the newest runs of a filter that may be shown, without their large values: up to 200, and for some 100 ms. */
export async function readNewestRuns(
  filter: RunQuery,
  { store, host, mayShow }: NewestRunsOptions,
): Promise<RunText[]> {
  const shown: RunText[] = [];
  const startedAt = host.monotonic();
  for (let query: RunQuery = { ...filter, countUpTo: 0 };;) {
    const { ids, seqs, hasMore } = await store.findRuns(query);
    for (const run of await readRunTexts(store, ids)) {
      if (mayShow === null || await mayShow(run.id)) shown.push(run);
      if (shown.length === MAX_EXAMINED) return shown;
    }
    if (!hasMore || mayShow === null || host.monotonic() - startedAt > MAX_MS) return shown;
    query = { ...query, before: seqs.at(-1)! }; // more follow after one
    await nextTurn(host);
  }
}

/** Reads runs without their large values, in the order of the ids. */
export async function readRunTexts(store: Pick<Store, "readRuns">, runIds: readonly string[]): Promise<RunText[]> {
  const runs: RunText[] = [];
  for (let read = 0; read < runIds.length;) {
    const part = await store.readRuns(runIds.slice(read), PART_LENGTH);
    read += part.length;
    runs.push(...part.filter((run) => run !== null));
  }
  return runs;
}
