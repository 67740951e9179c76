import type { Stats } from "../../engine/operate/operator.ts";
import type { Command } from "../command.ts";
import {
  countOf,
  describeBoth,
  describeInstant,
  describeLatency,
  describeShare,
  statusCell,
} from "../output/describe.ts";
import type { Output } from "../output/output.ts";
import { RUN_STATUSES } from "../../model/run.ts";
import { askApi } from "../service/api.ts";
import { pauseUnlessAborted } from "../service/follow_events.ts";

const WATCH_MS = 2_000;

/** Shows the numbers of the store. */
export const stats: Command = {
  name: "stats",
  usage: "[--watch]",
  about: "show how many runs there are, and how fast they end",
  arity: [0, 0],
  options: { watch: { value: null, about: "show them again every two seconds" } },
  async run({ args, service, output, terminal }) {
    do {
      output.object(await askApi(service, "GET /stats"), (value) => describeStats(value, output));
    } while (args.has("watch") && await pauseUnlessAborted(WATCH_MS, terminal.abortSignal));
    return 0;
  },
};

function describeStats({ at, total, byStatus, slots, windows, nextTimerAt }: Stats, output: Output): void {
  output.line(`${at}  ${countOf(total, "run")}, ${slots.busy} of ${countOf(slots.total, "slot")} busy`, "bold");
  const counted = RUN_STATUSES.filter((status) => byStatus[status] > 0);
  output.table(counted, [
    ["STATUS", statusCell],
    ["RUNS", (status) => byStatus[status].toLocaleString("en"), "right"],
  ]);
  output.line("");
  output.table([{ last: "5 min", ...windows["5m"] }, { last: "1 h", ...windows["1h"] }], [
    ["LAST", ({ last }) => last],
    ["TRIGGERED", ({ triggered }) => `${triggered}`, "right"],
    ["COMPLETED", ({ completed }) => `${completed}`, "right"],
    ["FAILED", ({ failed }) => `${failed}`, "right"],
    ["CANCELLED", ({ cancelled }) => `${cancelled}`, "right"],
    ["PER MIN", ({ perMinute }) => `${Math.round(perMinute * 10) / 10}`, "right"],
    ["FAILS", ({ failureRate }) => describeShare(failureRate), "right"],
    ["DELAY p50 / p95", ({ startDelay }) => describeLatency(startDelay)],
    ["TOOK p50 / p95", ({ duration }) => describeLatency(duration)],
  ]);
  const next = describeBoth(nextTimerAt, Date.parse(at));
  if (next !== null) output.line(`The next timer ends ${next}`);
}

/** Lists the workers. */
export const workers: Command = {
  name: "workers",
  usage: "",
  about: "list the workers with their jobs and their slots",
  arity: [0, 0],
  options: {},
  async run({ service, output }) {
    const now = Date.now();
    output.list(await askApi(service, "GET /workers"), {
      columns: [
        ["STATE", ({ state }) => statusCell(state)],
        ["WORKER", ({ name, id }) => name ?? id, "cut"],
        ["HOST", ({ hostname }) => hostname ?? "", "cut"],
        ["PID", ({ pid }) => `${pid ?? ""}`, "right"],
        ["BUSY", ({ leases, concurrency }) => `${leases} of ${concurrency}`, "right"],
        ["SEEN", ({ lastSeenAt }) => describeInstant(lastSeenAt, now)],
        ["STARTED", ({ startedAt }) => describeInstant(startedAt, now)],
        ["DEPLOYMENT", ({ deployment, version }) => deployment ?? version, "cut"],
        ["JOBS", ({ jobs }) => jobs.join(", "), "cut"],
      ],
      none: "There are no workers",
    });
    return 0;
  },
};
