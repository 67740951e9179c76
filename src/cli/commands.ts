import type { Command } from "./command.ts";
import { backup } from "./commands/backup.ts";
import { cancel } from "./commands/cancel.ts";
import { deleteRuns } from "./commands/delete.ts";
import { doctor } from "./commands/doctor.ts";
import { jobs } from "./commands/jobs.ts";
import { pause, resume } from "./commands/pauses.ts";
import { purge } from "./commands/purge.ts";
import { retry } from "./commands/retry.ts";
import { runs } from "./commands/runs.ts";
import { show } from "./commands/show.ts";
import { signal } from "./commands/signal.ts";
import { stats } from "./commands/stats.ts";
import { tail } from "./commands/tail.ts";
import { trigger } from "./commands/trigger.ts";
import { waits } from "./commands/waits.ts";
import { why } from "./commands/why.ts";
import { workers } from "./commands/workers.ts";

const READING = [runs, show, why, jobs, workers, waits, stats, tail, doctor];
const CHANGING = [trigger, signal, cancel, retry, deleteRuns, pause, resume, purge, backup];

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [...READING, ...CHANGING];
