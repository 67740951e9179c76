import { NUMBERS } from "./numbers.ts";
import { STATISTICS } from "./statistics.ts";

/** What operators read: workers, the numbers of jobs, statistics. */
export const OPERATE: string = [NUMBERS, STATISTICS].join("\n");
