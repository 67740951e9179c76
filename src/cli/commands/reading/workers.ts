import type { WorkerInfo } from "../../../engine/operate/worker_info.ts";
import type { Command } from "../../command.ts";
import { describeInstant, statusCell } from "../../output/describe.ts";
import { askApi } from "../../service/api.ts";

/** Lists the workers. */
export const workers: Command = {
  name: "workers",
  usage: "",
  about: "list the workers with their jobs and their slots",
  arity: [0, 0],
  options: {},
  async run({ service, output }) {
    const now = Date.now();
    output.list(await askApi<WorkerInfo[]>(service, "GET", "/workers"), {
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
