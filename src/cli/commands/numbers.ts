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
  output.table(
    [{ title: "STATUS" }, { title: "RUNS", isRight: true }],
    counted.map((status) => [statusCell(status), byStatus[status].toLocaleString("en")]),
  );
  output.line("");
  output.table(
    [
      { title: "LAST" },
      ...["TRIGGERED", "COMPLETED", "FAILED", "CANCELLED", "PER MIN", "FAILS"].map((title) => ({
        title,
        isRight: true,
      })),
      { title: "DELAY p50 / p95" },
      { title: "TOOK p50 / p95" },
    ],
    (["5m", "1h"] as const).map((window) => {
      const rates = windows[window];
      return [
        window === "5m" ? "5 min" : "1 h",
        `${rates.triggered}`,
        `${rates.completed}`,
        `${rates.failed}`,
        `${rates.cancelled}`,
        `${Math.round(rates.perMinute * 10) / 10}`,
        describeShare(rates.failureRate),
        describeLatency(rates.startDelay),
        describeLatency(rates.duration),
      ];
    }),
  );
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
        { title: "STATE" },
        { title: "WORKER", isCut: true },
        { title: "HOST", isCut: true },
        { title: "PID", isRight: true },
        { title: "BUSY", isRight: true },
        { title: "SEEN" },
        { title: "STARTED" },
        { title: "DEPLOYMENT", isCut: true },
        { title: "JOBS", isCut: true },
      ],
      toRow: (worker) => [
        statusCell(worker.state),
        worker.name ?? worker.id,
        worker.hostname ?? "",
        `${worker.pid ?? ""}`,
        `${worker.leases} of ${worker.concurrency}`,
        describeInstant(worker.lastSeenAt, now),
        describeInstant(worker.startedAt, now),
        worker.deployment ?? worker.version,
        worker.jobs.join(", "),
      ],
      none: "There are no workers",
    });
    return 0;
  },
};
