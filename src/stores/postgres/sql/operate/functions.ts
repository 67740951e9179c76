import { BLOCKERS } from "./blockers.ts";

/** What operators ask about runs. */
export const RUN_TRAILS: string = [BLOCKERS].join("\n");
