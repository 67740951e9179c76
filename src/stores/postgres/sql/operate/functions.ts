import { BLOCKERS } from "./blockers.ts";
import { NUMBERS } from "./numbers.ts";
import { STATISTICS } from "./statistics.ts";

/** What operators read: workers, the numbers of jobs, statistics, and what holds up a run. */
export const OPERATE: string = [NUMBERS, STATISTICS, BLOCKERS].join("\n");
