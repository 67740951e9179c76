import type { OpenWait } from "../../engine/operate/open_waits.ts";
import type { Command } from "../command.ts";
import { describeInstant } from "../output/describe.ts";
import { readJsonArgument, readLabels } from "../read_options.ts";
import { askApi } from "../service/api.ts";
import { createHash } from "node:crypto";
import { NotFoundError } from "../../model/error.ts";

const DEFAULT_LIMIT = 20;
const PAGE = 1_000;

/** Lists the waits that nobody has signalled. */
export const waits: Command = {
  name: "waits",
  usage: "[--job NAME] [--label KEY=VALUE]",
  about: "list the waits that nobody has signalled yet, soonest deadline first",
  arity: [0, 0],
  options: {
    job: { value: "NAME", about: "of runs of this job", isList: true },
    label: { value: "KEY=VALUE", about: "of runs with this label", isList: true },
    limit: { value: "NUMBER", about: `how many (${DEFAULT_LIMIT})` },
  },
  async run({ args, service, output }) {
    const now = Date.now();
    const limit = args.integer("limit") ?? DEFAULT_LIMIT;
    const labels = Object.entries(readLabels(args.list("label"))).map(([key, value]) =>
      [`label.${key}`, value] as const
    );
    const filter = { jobName: args.list("job"), ...Object.fromEntries(labels) };
    const waits: Omit<OpenWait, "signalledBy">[] = [];
    let cursor: string | undefined;
    let hasMore = true;
    while (hasMore && waits.length < limit) {
      const query = { ...filter, cursor, limit: Math.min(PAGE, limit - waits.length) };
      const page = await askApi(service, "GET /waits/open", { query });
      waits.push(...page.waits);
      hasMore = page.next !== null;
      cursor = page.next ?? undefined;
    }
    output.list(waits, {
      columns: [
        ["WAIT", ({ id }) => id],
        ["NAME", ({ name }) => name, "cut"],
        ["JOB", ({ jobName }) => jobName, "cut"],
        ["RUN", ({ runId }) => runId],
        ["WAITS SINCE", ({ suspendedAt, createdAt }) => describeInstant(suspendedAt ?? createdAt, now)],
        ["DEADLINE", ({ deadlineAt }) => deadlineAt === null ? "none" : describeInstant(deadlineAt, now)],
      ],
      none: "No run waits for a signal",
    });
    if (hasMore) output.note("There are more; --limit shows them");
    return 0;
  },
};

/** Ends a wait. */
export const signal: Command = {
  name: "signal",
  usage: "WAIT JSON|-",
  about: "end a wait by a signal with this payload",
  arity: [2, 2],
  options: { "signal-id": { value: "ID", about: "identifies a repeated signal (made of the wait and the payload)" } },
  async run({ args, service, output, terminal }) {
    const [waitId, json] = [args.positionals[0]!, args.positionals[1]!];
    const payload = await readJsonArgument(json, terminal);
    const found = await askApi(service, "GET /find", { query: { q: waitId } });
    const run = found.find(({ by }) => by === "waitId")?.run;
    if (run === undefined) throw new NotFoundError(`There is no wait "${waitId}": \`holdfast waits\` lists them`);
    // The same command again is the same signal.
    const hash = createHash("sha256").update(JSON.stringify(payload)).digest("hex").slice(0, 16);
    const signalId = args.text("signal-id") ?? `cli-${waitId}-${hash}`;
    const query = { runId: run.id, waitId };
    const receipt = await askApi(service, "POST /signal", { query, body: { signalId, payload } });
    output.object(receipt, ({ disposition }) => output.line(`The signal is ${disposition}; run ${run.id} resumes`));
    return 0;
  },
};
