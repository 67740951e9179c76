import type { Command } from "./command.ts";
import { jobs } from "./commands/jobs.ts";
import { runs } from "./commands/runs.ts";
import { show } from "./commands/show.ts";
import { stats } from "./commands/stats.ts";
import { waits } from "./commands/waits.ts";
import { why } from "./commands/why.ts";
import { workers } from "./commands/workers.ts";

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [runs, show, why, jobs, workers, waits, stats];
