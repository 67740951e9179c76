import { BLOCKERS } from "./blockers.ts";
import { NUMBERS } from "./numbers.ts";
import { TRAILS } from "./trails.ts";
import { STATISTICS } from "./statistics.ts";

/** What operators read: workers, the numbers of jobs, statistics, and what is shown of runs. */
export const OPERATE: string = [NUMBERS, STATISTICS, BLOCKERS, TRAILS].join("\n");
