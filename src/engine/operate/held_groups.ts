import type { HoldCode } from "../../model/hold.ts";
import type { Run } from "../../model/run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { remedyOf } from "../../execution/replay/divergence_message.ts";
import { checkRunFilter } from "../runs/run_filter.ts";
import { blanked, MAX_RUN_IDS } from "./failure_groups.ts";
import { MAX_EXAMINED } from "./newest_runs.ts";

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

const QUERY: Record<keyof HeldRunsQuery, true> = { jobName: true };

/**
 * The filter of the held runs that a query is about.
 *
 * @throws {ValidationError} A field is not valid.
 */
export function heldRunsFilter(query: HeldRunsQuery): RunQuery {
  checkOptionNames(query, QUERY, "getHeld()");
  return checkRunFilter({ ...query, held: true, limit: MAX_EXAMINED });
}

/** Groups held runs, the newest first. */
export function groupHeld(runs: readonly Pick<Run, "id" | "jobName" | "held">[]): HeldGroups {
  const groups = new Map<string, HeldGroup>();
  let examined = 0;
  for (const { id, jobName, held } of runs) {
    if (held === null) continue; // it was resumed meanwhile
    const { code, message, since } = held;
    const key = JSON.stringify([jobName, code, blanked(message)]);
    const group = groups.get(key) ??
      { jobName, code, message, remedy: remedyOf(message), count: 0, since, runIds: [] };
    groups.set(key, group);
    examined += 1;
    group.count += 1;
    if (since < group.since) group.since = since;
    if (group.runIds.length < MAX_RUN_IDS) group.runIds.push(id);
  }
  return { groups: [...groups.values()].sort((one, other) => other.count - one.count), examined };
}
