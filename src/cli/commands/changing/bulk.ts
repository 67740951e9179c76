import type { BulkSelection } from "../../../engine/bulk/bulk_selection.ts";
import type { BulkResult, SkippedRun } from "../../../engine/bulk/perform_bulk.ts";
import type { BulkOperation, RetriggerFrom, RunFilter } from "../../../run.ts";
import type { CommandCall, ExitCode } from "../../command.ts";
import { findRunId } from "../../find_run.ts";
import type { OptionSpecs } from "../../option_spec.ts";
import { countOf } from "../../output/describe.ts";
import { FILTER_OPTIONS, readFilter } from "../../run_filter.ts";
import { askApi } from "../../service/api.ts";
import type { Service } from "../../service/service.ts";
import { UsageError } from "../../usage_error.ts";

/** The options of a command that changes many runs. */
export const BULK_OPTIONS: OptionSpecs = {
  ...FILTER_OPTIONS,
  "dry-run": { value: null, about: "change nothing, and say how many runs are meant" },
  yes: { value: null, about: "do not ask" },
};

/** How the arguments of such a command are written. */
export const BULK_USAGE = "RUN... | [--job NAME] [--status STATUS] [--label KEY=VALUE] [--since TIME]";

/** What is to be done with many runs. */
export interface BulkPlan {
  /** The operation. */
  operation: BulkOperation;
  /** What is done, for messages: `cancel`, `cancelled`. */
  words: readonly [infinitive: string, participle: string];
  /** Whether it asks for a single run, too. */
  asksAlways: boolean;
  /** Where a retry begins. */
  from?: RetriggerFrom;
}

const MAX_IDS = 1_000;

/**
 * The runs that the arguments select: some by their ids, or all that match the filter.
 *
 * @param defaults What the filter has unless an option says otherwise.
 * @throws {UsageError} Both are given, or none.
 */
export async function readSelections(
  { args, service }: CommandCall,
  defaults: RunFilter = {},
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
export async function performPlan(
  call: CommandCall,
  selections: readonly BulkSelection[],
  plan: BulkPlan,
): Promise<ExitCode> {
  const { args, service, output, terminal } = call;
  const [infinitive, participle] = plan.words;
  const isSingle = selections.length === 1 && selections[0]!.runIds?.length === 1;
  const isDry = args.has("dry-run");
  const asks = !isDry && !args.has("yes") && (plan.asksAlways || !isSingle);
  if (asks && terminal.confirm === null) {
    throw new UsageError(`There is nobody to ask: give --yes to ${infinitive} the runs, or --dry-run to count them`);
  }
  if (isDry || asks) {
    const tried = await performAll(service, selections, plan, true);
    const count = tried.matched - tried.skipped.length;
    if (isDry) {
      output.object(tried, () => output.line(`${countOf(count, "run")} would be ${participle}`));
      noteSkipped(call, tried.skipped);
      return tried.skipped.length > 0 ? 1 : 0;
    }
    if (count === 0) {
      output.object(tried, () => output.line(`There is no run to ${infinitive}`));
      noteSkipped(call, tried.skipped);
      return tried.skipped.length > 0 ? 1 : 0;
    }
    if (!await terminal.confirm!(`${infinitive[0]!.toUpperCase()}${infinitive.slice(1)} ${countOf(count, "run")}?`)) {
      output.note("Nothing was changed");
      return 1;
    }
  }
  const result = await performAll(service, selections, plan, false);
  output.object(result, () => output.line(`${countOf(result.done, "run")} ${participle}`));
  noteSkipped(call, result.skipped);
  return result.skipped.length > 0 ? 1 : 0;
}

function noteSkipped({ output }: CommandCall, skipped: readonly SkippedRun[]): void {
  for (const { runId, code } of skipped) output.note(`${runId}: ${REASONS[code] ?? code}`);
}

const REASONS: { readonly [code: string]: string } = {
  conflict: "its status does not allow it, or it was retriggered before",
  not_found: "there is no such run, or the service does not have its job",
};

/** Performs the operation to its end, call after call. */
async function performAll(
  service: Service,
  selections: readonly BulkSelection[],
  { operation, from }: BulkPlan,
  dryRun: boolean,
): Promise<BulkResult> {
  const sum: BulkResult = { matched: 0, done: 0, skipped: [], next: null };
  for (const selection of selections) {
    let cursor: string | undefined;
    do {
      const options = { dryRun, ...(cursor === undefined ? {} : { cursor }), ...(from === undefined ? {} : { from }) };
      const body = { ...selection, ...options };
      const result = await askApi<BulkResult>(service, "POST", `/runs/${operation}`, { body });
      sum.matched += result.matched;
      sum.done += result.done;
      sum.skipped.push(...result.skipped);
      cursor = result.next ?? undefined;
    } while (cursor !== undefined);
  }
  return sum;
}
