import { QUEUES } from "./queues.ts";
import { RATES } from "./rates.ts";
import { TURNS } from "./turns.ts";

/** The functions of flow control. */
export const FLOW: string = [RATES, TURNS, QUEUES].join("\n");
