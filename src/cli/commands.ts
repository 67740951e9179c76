import type { Command } from "./command.ts";
import { backup } from "./commands/changing/backup.ts";
import { cancel } from "./commands/changing/cancel.ts";
import { deleteRuns } from "./commands/changing/delete.ts";
import { doctor } from "./commands/reading/doctor.ts";
import { jobs } from "./commands/reading/jobs.ts";
import { pause, resume } from "./commands/changing/pauses.ts";
import { purge } from "./commands/changing/purge.ts";
import { retrigger } from "./commands/changing/retrigger.ts";
import { runs } from "./commands/reading/runs.ts";
import { show } from "./commands/reading/show.ts";
import { signal } from "./commands/changing/signal.ts";
import { stats } from "./commands/reading/stats.ts";
import { tail } from "./commands/reading/tail.ts";
import { trigger } from "./commands/changing/trigger.ts";
import { ui } from "./commands/serving/ui.ts";
import { waits } from "./commands/reading/waits.ts";
import { why } from "./commands/reading/why.ts";
import { workers } from "./commands/reading/workers.ts";

const READING = [runs, show, why, jobs, workers, waits, stats, tail, doctor, ui];
const CHANGING = [trigger, signal, cancel, retrigger, deleteRuns, pause, resume, purge, backup];

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [...READING, ...CHANGING];
