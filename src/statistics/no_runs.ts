import { RUN_STATUSES } from "../model/run.ts";
import type { Counts } from "../store/operate.ts";

/** The numbers of a job without runs. */
export function noRuns(): Counts {
  return Object.fromEntries(RUN_STATUSES.map((status) => [status, 0])) as Counts; // one for each status
}
