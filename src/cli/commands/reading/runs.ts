import type { ClientRun } from "../../../client_run.ts";
import type { RunFilter } from "../../../run.ts";
import type { Command } from "../../command.ts";
import { countOf, describeInstant, describeSpan, statusCell } from "../../output/describe.ts";
import { FILTER_OPTIONS, readFilter, toQuery } from "../../run_filter.ts";
import { askApi } from "../../service/api.ts";
import type { Service } from "../../service/service.ts";

/** A run without its input and output. */
type RunSummary = Omit<ClientRun, "input" | "output">;

const DEFAULT_LIMIT = 20;
const PAGE = 1_000;

/** Lists runs. */
export const runs: Command = {
  name: "runs",
  usage: "[--job NAME] [--status STATUS] [--label KEY=VALUE] [--since TIME]",
  about: "list runs, newest first",
  arity: [0, 0],
  options: { ...FILTER_OPTIONS, limit: { value: "NUMBER", about: `how many (${DEFAULT_LIMIT})` } },
  async run({ args, service, output }) {
    const now = Date.now();
    const limit = args.integer("limit") ?? DEFAULT_LIMIT;
    const { runs, total } = await readRuns(service, readFilter(args, now), limit);
    output.list(runs, {
      columns: [
        { title: "STATUS" },
        { title: "ID" },
        { title: "JOB", isCut: true },
        { title: "TRIGGERED" },
        { title: "TOOK", isRight: true },
        { title: "ERROR", isCut: true },
      ],
      toRow: (run) => [
        statusCell(run.status),
        run.id,
        run.jobName,
        describeInstant(run.createdAt, now),
        describeSpan(run.startedAt, run.completedAt, now),
        run.error ?? run.held?.message ?? "",
      ],
      none: "No runs match",
    });
    if (total > runs.length) output.note(`${runs.length} of ${countOf(total, "run")}; --limit shows more`);
    return 0;
  },
};

/** Reads the newest runs that match, page by page. */
async function readRuns(
  service: Service,
  filter: RunFilter,
  limit: number,
): Promise<{ runs: RunSummary[]; total: number }> {
  const runs: RunSummary[] = [];
  let total = 0;
  while (true) {
    const before = runs.at(-1)?.id;
    const query = { ...toQuery(filter), fields: "summary", before, limit: Math.min(PAGE, limit - runs.length) };
    const page = await askApi<{ runs: RunSummary[]; total: number; hasMore: boolean }>(service, "GET", "/runs", {
      query,
    });
    if (before === undefined) total = page.total;
    runs.push(...page.runs);
    if (!page.hasMore || runs.length >= limit || page.runs.length === 0) return { runs, total };
  }
}
