import type { ExportedHistory } from "../../model/exported_history.ts";
import type { Job } from "../../model/job.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { isTerminal } from "../../model/run.ts";
import { replayWith } from "../replay.ts";
import { isRefused, type ReplayReport } from "../replay_report.ts";
import { suggestChanges } from "../suggest_changes.ts";
import { type CommandOptions, describe, readOptions, UsageError } from "./command_options.ts";
import { readDatabase, readFiles } from "./read_histories.ts";
import { readJobs } from "./read_jobs.ts";
import { summarize } from "./summary.ts";
import { escapeLines } from "../../values/text.ts";

/** Where the command writes: each call gets one string. */
interface CommandOutput {
  /** Writes a result. */
  log(text: string): void;
  /** Writes why there is none, and notes. */
  error(text: string): void;
  /** How the command is called, for its help. */
  command: string;
}

// As an engine does, the command allows the code outside of steps a second. That costs little: many runs are replayed at
// the same time.
const LIMITS = { patience: 1_000, timeout: 30_000 };
const AT_ONCE = 200;

/** Does what the command is asked to do, and returns its exit code. */
export async function runCommand(args: readonly string[], output: CommandOutput): Promise<number> {
  try {
    const options = readOptions(args);
    if (options === null) {
      output.log(describe(output.command));
      return 0;
    }
    const jobs = await readJobs(options);
    const { reports, others } = await replayAll(readAll(options, jobs), jobs);
    const results = options.json ? [JSON.stringify(reports, null, 2)] : withEnds(jobs).flatMap((job) => {
      const own = reports.filter((report) => isOf(job, report));
      return own.length === 0 && job.endOf ? [] : [summarize(job, own)];
    });
    for (const result of results) output.log(result);
    for (const [name, count] of others) {
      output.error(
        `${name}  ${count} open ${count === 1 ? "run" : "runs"} of a job that ${options.jobs} does not export`,
      );
    }
    return reports.some(isRefused) ? 1 : 0;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    output.error(error.message);
    return 2;
  }
}

async function* readAll(
  { db, history, recent, job }: CommandOptions,
  jobs: JobCatalog,
): AsyncGenerator<ExportedHistory> {
  const open = job.length === 0 ? null : withEnds(jobs).flatMap(namesOf);
  if (db !== null) yield* readDatabase(db, { open, ended: [...jobs.newest.values()].map(namesOf), recent });
  for await (const found of readFiles(history)) {
    if (open === null || open.includes(found.jobName)) yield found;
  }
}

/** The newest version of each job, with the hidden job that cleans up after it. */
function withEnds({ newest }: JobCatalog): Job[] {
  return [...newest.values()].flatMap((job) => {
    const ends = [job, ...job.previous].flatMap(({ onEnd }) => onEnd?.job ?? []);
    return [job, ...ends.slice(0, 1)];
  });
}

/** Replays histories, many at the same time. Counts the open runs of jobs that are not known. */
async function replayAll(
  histories: AsyncGenerator<ExportedHistory>,
  jobs: JobCatalog,
): Promise<{ reports: ReplayReport[]; others: Map<string, number> }> {
  const reports: ReplayReport[] = [];
  const others = new Map<string, number>();
  const suggest = suggestOnce();
  const work = async () => {
    for await (const history of histories) {
      const { jobName, version, status } = history;
      if (jobs.executing(jobName, version) === undefined) {
        if (isTerminal(status)) continue; // nobody has to execute it
        if (jobs.find(jobName) === undefined) {
          others.set(jobName, (others.get(jobName) ?? 0) + 1);
          continue;
        }
      }
      reports.push(await replayWith(history, jobs, LIMITS, suggest(jobName)));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return { reports: reports.sort((one, other) => one.runId < other.runId ? -1 : 1), others };
}

/** Finds what to declare once for all runs of a job that would be held in the same place. */
function suggestOnce(): (jobName: string) => typeof suggestChanges {
  const found = new Map<string, ReturnType<typeof suggestChanges>>();
  return (jobName) => (hold, tryWith) => {
    const { code, isNew, unasked } = hold;
    const key = JSON.stringify([jobName, code, isNew, unasked]);
    const suggestion = found.get(key) ?? suggestChanges(hold, tryWith);
    found.set(key, suggestion);
    return suggestion;
  };
}

function isOf(job: Job, { jobName }: ReplayReport): boolean {
  return namesOf(job).includes(jobName);
}

function namesOf({ name, changes: { aliases } }: Job): string[] {
  return [name, ...aliases];
}

import process from "node:process";

/**
 * Does what the arguments of the process say, and ends it: a job may have left timers and connections behind.
 *
 * @param command How the command is called, for its help.
 */
export async function main(command = "deno run --allow-read jsr:@holdfast/jobs/replay"): Promise<void> {
  const [log, error] = [console.log.bind(console), console.error.bind(console)];
  // Names and values must not move the cursor or hide what is printed.
  const readable = (write: (text: string) => void) => (text: string) => write(escapeLines(text));
  const output = { log: readable(log), error: readable(error), command };
  // What jobs write does not mix with the result.
  for (const method of ["log", "info", "debug"] as const) console[method] = error;
  process.on("unhandledRejection", (reason) => output.error(`A job has left a rejected promise behind: ${reason}`));
  process.exit(await runCommand(process.argv.slice(2), output));
}
