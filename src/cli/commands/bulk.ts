import type { BulkSelection } from "../../engine/bulk/bulk_selection.ts";
import type { BulkResult } from "../../engine/bulk/perform_bulk.ts";
import { type BulkOperation, ENDED, isTerminal, type RunFilter, type RunStatus } from "../../model/run.ts";
import { type Command, type CommandCall, type ExitCode, type OptionSpecs, UsageError } from "../command.ts";
import { askApi, findRunId } from "../service/api.ts";
import { countOf } from "../output.ts";
import { FILTER_OPTIONS, readDuration, readFilter } from "../read_options.ts";

/** The options of a command that changes many runs. */
export const BULK_OPTIONS: OptionSpecs = {
  ...FILTER_OPTIONS,
  "dry-run": { value: null, about: "change nothing, and say how many runs are meant" },
  yes: { value: null, about: "do not ask" },
};

/** How the arguments of such a command are written. */
const BULK_USAGE =
  "RUN... | [--job NAME] [--status STATUS] [--label KEY=VALUE] [--held] [--since TIME] [--ended-since TIME]";

/** What is to be done with many runs. */
interface BulkPlan {
  /** The operation. */
  operation: BulkOperation;
  /** What is done, for messages: `cancel`, `cancelled`. */
  words: readonly [infinitive: string, participle: string];
  /** Whether it asks for a single run, too. Default: `false`. */
  asksAlways?: boolean;
}

const MAX_IDS = 1_000;

/**
 * The runs that the arguments select: some by their ids, or all that match the filter.
 *
 * @param defaults What the filter has unless an option says otherwise.
 * @throws {UsageError} Both are given, or none.
 */
async function readSelections(
  { args, service }: CommandCall,
  defaults?: RunFilter,
): Promise<BulkSelection[]> {
  const filter = readFilter(args, Date.now());
  const isFiltered = Object.keys(filter).length > 0;
  const { positionals } = args;
  if (isFiltered === positionals.length > 0) {
    throw new UsageError("Say which runs are meant: either by their ids, or by options such as --job and --status");
  }
  if (isFiltered) return [{ filter: { ...defaults, ...filter } }];
  const ids: string[] = [];
  for (const text of positionals) ids.push(await findRunId(service, text));
  const runIds = [...new Set(ids)];
  return Array.from({ length: Math.ceil(runIds.length / MAX_IDS) }, (_, at) => ({
    runIds: runIds.slice(at * MAX_IDS, (at + 1) * MAX_IDS),
  }));
}

/** Performs an operation on the selected runs: shows how many there are and asks, unless there is nothing to ask. */
async function performPlan(
  call: CommandCall,
  selections: readonly BulkSelection[],
  plan: BulkPlan,
): Promise<ExitCode> {
  const { args, output, terminal } = call;
  const [infinitive, participle] = plan.words;
  const isSingle = selections.length === 1 && selections[0]!.runIds?.length === 1;
  const isDry = args.has("dry-run");
  const asks = !isDry && !args.has("yes") && (plan.asksAlways || !isSingle);
  if (isDry || asks) {
    const tried = await performAll(call, selections, plan, true);
    const count = tried.matched - tried.skipped.length;
    if (isDry) return report(call, plan, tried, `${countOf(count, "run")} would be ${participle}`);
    if (count === 0) return report(call, plan, tried, `There is no run to ${infinitive}`);
    if (terminal.confirm === null) {
      throw new UsageError(`There is nobody to ask: give --yes to ${infinitive} the runs, or --dry-run to count them`);
    }
    if (!await terminal.confirm(`${infinitive[0]!.toUpperCase()}${infinitive.slice(1)} ${countOf(count, "run")}?`)) {
      output.note("Nothing was changed");
      return 1;
    }
  }
  const result = await performAll(call, selections, plan, false);
  return report(call, plan, result, `${countOf(result.done, "run")} ${participle}`);
}

/** Says what was done, and which runs were skipped. */
function report({ output }: CommandCall, { operation }: BulkPlan, result: BulkResult, text: string): ExitCode {
  output.object(result, () => output.line(text));
  const reasons: { readonly [code: string]: string } = {
    conflict: `its status does not allow it${operation === "retrigger" ? ", or it was retriggered before" : ""}`,
    not_found: "there is no such run, or the service does not have its job",
  };
  for (const { runId, code } of result.skipped) output.note(`${runId}: ${reasons[code] ?? code}`);
  return result.skipped.length > 0 ? 1 : 0;
}

/** Performs the operation to its end, call after call. */
async function performAll(
  { args, service }: CommandCall,
  selections: readonly BulkSelection[],
  { operation }: BulkPlan,
  dryRun: boolean,
): Promise<BulkResult> {
  const from = operation === "retrigger" ? { from: args.has("from-start") ? "start" : "failure" } : {};
  const sum: BulkResult = { matched: 0, done: 0, skipped: [], next: null };
  for (const selection of selections) {
    let cursor: string | undefined;
    do {
      const body = { ...selection, dryRun, cursor, ...from };
      const result = await askApi(service, `POST /runs/${operation}`, { body });
      sum.matched += result.matched;
      sum.done += result.done;
      sum.skipped.push(...result.skipped);
      cursor = result.next ?? undefined;
    } while (cursor !== undefined);
  }
  return sum;
}

/** A command that performs an operation on the runs that its arguments select. */
function bulkCommand(
  { name, about, usage = BULK_USAGE, options = {}, defaults, ...plan }:
    & Pick<Command, "name" | "about" | "options">
    & { usage?: string; defaults?: RunFilter }
    & BulkPlan,
): Command {
  return {
    name,
    usage,
    about,
    options: { ...BULK_OPTIONS, ...options },
    run: async (call) => await performPlan(call, await readSelections(call, defaults), plan),
  };
}

/** Cancels runs. */
export const cancel = bulkCommand({
  name: "cancel",
  about: "cancel runs",
  operation: "cancel",
  words: ["cancel", "cancelled"],
});

/** Retriggers runs that have ended. */
export const retrigger = bulkCommand({
  name: "retrigger",
  usage: `[--from-start] ${BULK_USAGE}`,
  about: "retrigger runs that have ended, from their failure",
  options: {
    status: { value: "STATUS", about: "completed, failed (default), cancelled", isList: true },
    "from-start": { value: null, about: "execute all steps again" },
  },
  defaults: { status: "failed" },
  operation: "retrigger",
  words: ["retrigger", "retriggered"],
});

/** Resumes held runs. */
export const resumeRuns = bulkCommand({
  name: "resume-runs",
  about: "resume held runs: --held for all of them",
  operation: "resume",
  words: ["resume", "resumed"],
});

const DELETE: BulkPlan = { operation: "delete", words: ["delete", "deleted"], asksAlways: true };

/** Deletes runs that have ended. */
export const deleteRuns = bulkCommand({ name: "delete", about: "delete runs that have ended", ...DELETE });

/** Deletes old runs. */
export const purge: Command = {
  name: "purge",
  usage: "--older-than DURATION [--status STATUS]",
  about: "delete runs that ended long ago",
  options: {
    "older-than": { value: "DURATION", about: "that ended so long ago: 30d" },
    status: { value: "STATUS", about: "completed, failed, cancelled (all)", isList: true },
    job: { value: "NAME", about: "of this job", isList: true },
    "dry-run": { value: null, about: "change nothing, and say how many runs are meant" },
    yes: { value: null, about: "do not ask" },
  },
  async run(call) {
    const { args, service } = call;
    const age = args.text("older-than");
    if (age === undefined) throw new UsageError("--older-than is missing: such as 30d");
    const ms = readDuration(age, "older-than");
    const statuses = args.list("status").map((status) => {
      if (isTerminal(status as RunStatus)) return status as RunStatus;
      throw new UsageError(`--status must be one of ${ENDED.join(", ")}, not "${status}"`);
    });
    // The clock of the store decides, not that of this machine: a wrong one would delete too much.
    const { at } = await askApi(service, "GET /stats");
    const jobs = args.list("job");
    const filter = {
      completedBefore: new Date(Date.parse(at) - ms).toISOString(),
      status: statuses.length === 0 ? ENDED : statuses,
      ...(jobs.length === 0 ? {} : { jobName: jobs }),
    };
    return await performPlan(call, [{ filter }], DELETE);
  },
};
