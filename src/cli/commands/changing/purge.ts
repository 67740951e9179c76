import type { Stats } from "../../../engine/operate/operator.ts";
import { isTerminal, type RunStatus } from "../../../run.ts";
import type { Command } from "../../command.ts";
import { readDuration } from "../../read_time.ts";
import { askApi } from "../../service/api.ts";
import { UsageError } from "../../usage_error.ts";
import { performPlan } from "./bulk.ts";

const ENDED: readonly RunStatus[] = ["completed", "failed", "cancelled"];

/** Deletes old runs. */
export const purge: Command = {
  name: "purge",
  usage: "--older-than DURATION [--status STATUS]",
  about: "delete runs that ended long ago",
  arity: [0, 0],
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
    const { at } = await askApi<Stats>(service, "GET", "/stats");
    const jobs = args.list("job");
    const filter = {
      completedBefore: new Date(Date.parse(at) - ms).toISOString(),
      status: statuses.length === 0 ? ENDED : statuses,
      ...(jobs.length === 0 ? {} : { jobName: jobs }),
    };
    return await performPlan(call, [{ filter }], {
      operation: "delete",
      words: ["delete", "deleted"],
      asksAlways: true,
    });
  },
};
