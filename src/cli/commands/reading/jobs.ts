import type { JobInfo } from "../../../engine/operate/job_info.ts";
import type { Command } from "../../command.ts";
import { describeInstant, describeLatency, describeShare } from "../../output/describe.ts";
import type { Cell } from "../../output/table.ts";
import { askApi } from "../../service/api.ts";

const NUMBERS = ["PENDING", "RUNNING", "WAITING", "FAILED"] as const;

/** Lists the jobs. */
export const jobs: Command = {
  name: "jobs",
  usage: "",
  about: "list the jobs with their runs, their workers and their pauses",
  arity: [0, 0],
  options: {},
  async run({ service, output }) {
    const now = Date.now();
    output.list(await askApi<JobInfo[]>(service, "GET", "/jobs"), {
      columns: [
        { title: "JOB", isCut: true },
        { title: "STATE", isCut: true },
        ...NUMBERS.map((title) => ({ title, isRight: true })),
        { title: "DUE SINCE" },
        { title: "PER MIN", isRight: true },
        { title: "FAILS", isRight: true },
        { title: "TOOK p50 / p95" },
      ],
      toRow: (job) => toRow(job, now),
      none: "There are no jobs",
    });
    return 0;
  },
};

function toRow(job: JobInfo, now: number): Cell[] {
  const { pending, running, leased, waiting, failed } = job.byStatus;
  const hour = job.windows["1h"];
  return [
    job.jobName,
    stateOf(job),
    `${pending}`,
    `${running + leased}`,
    `${waiting}`,
    `${failed}`,
    describeInstant(job.oldestDue?.dueSince, now),
    describeRate(hour.perMinute),
    describeShare(hour.failureRate),
    describeLatency(hour.duration),
  ];
}

function describeRate(perMinute: number): string {
  if (perMinute === 0) return "";
  return perMinute < 0.1 ? "< 0.1" : `${Math.round(perMinute * 10) / 10}`;
}

function stateOf({ paused, liveWorkers, byStatus: { pending, waiting } }: JobInfo): Cell {
  if (paused !== null) {
    const { by, note } = paused;
    const why = note === null || note === "" ? "" : `: ${note}`;
    return { text: `‖ paused${by === null ? "" : ` by ${by}`}${why}`, color: "yellow" };
  }
  if (liveWorkers === 0) return { text: "no worker", color: pending + waiting > 0 ? "red" : "grey" };
  return liveWorkers === 1 ? "1 worker" : `${liveWorkers} workers`;
}
