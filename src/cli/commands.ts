import type { Command } from "./command.ts";
import { backup, doctor, migrate } from "./commands/doctor.ts";
import { cancel, deleteRuns, purge, resumeRuns, retrigger } from "./commands/bulk.ts";
import { jobs, pause, resume, trigger } from "./commands/jobs.ts";
import { children, runs, show, timeline, why } from "./commands/runs.ts";
import { messages, send } from "./commands/messages.ts";
import { signal, waits } from "./commands/waits.ts";
import { stats, workers } from "./commands/numbers.ts";
import { stream } from "./commands/stream.ts";
import { tail } from "./commands/tail.ts";
import { ui } from "./commands/ui.ts";

const READING = [runs, show, timeline, children, why, jobs, workers, waits, messages, stats, tail, stream, doctor, ui];
const CHANGING = [
  trigger,
  signal,
  send,
  cancel,
  retrigger,
  resumeRuns,
  deleteRuns,
  pause,
  resume,
  purge,
  backup,
  migrate,
];

/** Every command, in the order of the help. */
export const COMMANDS: readonly Command[] = [...READING, ...CHANGING];
