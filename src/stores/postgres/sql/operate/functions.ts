import { BLOCKERS } from "./blockers.ts";
import { NUMBERS } from "./numbers.ts";
import { OPERATOR_READS } from "./operator_reads.ts";
import { STATISTICS } from "./statistics.ts";

/** What operators read: workers, the numbers of jobs, statistics, and what is shown of runs. */
export const OPERATE: string = [NUMBERS, STATISTICS, BLOCKERS, OPERATOR_READS].join("\n");
