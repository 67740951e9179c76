import { JOB_PAUSES } from "./job_pauses.ts";
import { QUEUES } from "./queues.ts";
import { RATES } from "./rates.ts";
import { TURNS } from "./turns.ts";

/** The functions of flow control. */
export const FLOW: string = [RATES, TURNS, QUEUES, JOB_PAUSES].join("\n");
