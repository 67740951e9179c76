import type { JobInfo } from "../../engine/operate/job_info.ts";
import type { Command } from "../command.ts";
import { countOf, describeInstant, describeLatency, describeShare } from "../output/describe.ts";
import type { Cell } from "../output/table.ts";
import { askApi } from "../service/api.ts";
import { UsageError } from "../arguments.ts";
import { readJsonArgument, readLabels } from "../read_options.ts";

/** Lists the jobs. */
export const jobs: Command = {
  name: "jobs",
  usage: "",
  about: "list the jobs with their runs, their workers and their pauses",
  arity: [0, 0],
  options: {},
  async run({ service, output }) {
    const now = Date.now();
    output.list(await askApi(service, "GET /jobs"), {
      columns: [
        ["JOB", ({ jobName }) => jobName, "cut"],
        ["STATE", stateOf, "cut"],
        ["PENDING", ({ byStatus }) => `${byStatus.pending}`, "right"],
        ["RUNNING", ({ byStatus: { running, leased } }) => `${running + leased}`, "right"],
        ["WAITING", ({ byStatus }) => `${byStatus.waiting}`, "right"],
        ["FAILED", ({ byStatus }) => `${byStatus.failed}`, "right"],
        ["DUE SINCE", ({ oldestDue }) => describeInstant(oldestDue?.dueSince, now)],
        ["PER MIN", ({ windows }) => describeRate(windows["1h"].perMinute), "right"],
        ["FAILS", ({ windows }) => describeShare(windows["1h"].failureRate), "right"],
        ["TOOK p50 / p95", ({ windows }) => describeLatency(windows["1h"].duration)],
      ],
      none: "There are no jobs",
    });
    return 0;
  },
};

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

/** Pauses a job. */
export const pause: Command = {
  name: "pause",
  usage: "JOB [--note TEXT]",
  about: "pause a job: no run of it is claimed any more",
  arity: [1, 1],
  options: { note: { value: "TEXT", about: "why" } },
  async run({ args, service, output }) {
    const [jobName, note] = [args.positionals[0]!, args.text("note")];
    const body = note === undefined ? {} : { note };
    const job = await askApi(service, "POST /jobs/pause", { query: { jobName }, body });
    output.object(job, ({ jobName, paused, byStatus: { running, leased } }) => {
      output.line(`${jobName} is paused since ${paused!.since}`); // it was just paused
      const executed = running + leased;
      if (executed > 0) {
        output.line(`${countOf(executed, "run")} of it ${executed === 1 ? "is" : "are"} still executed`);
      }
    });
    return 0;
  },
};

/** Ends the pause of a job. */
export const resume: Command = {
  name: "resume",
  usage: "JOB",
  about: "end the pause of a job",
  arity: [1, 1],
  options: {},
  async run({ args, service, output }) {
    const jobName = args.positionals[0]!;
    const job = await askApi(service, "POST /jobs/resume", { query: { jobName } });
    output.object(
      job,
      ({ jobName, byStatus: { pending } }) =>
        output.line(`${jobName} is resumed: ${countOf(pending, "run")} ${pending === 1 ? "is" : "are"} pending`),
    );
    return 0;
  },
};

/** Triggers a run. */
export const trigger: Command = {
  name: "trigger",
  usage: "JOB [JSON|-]",
  about: "trigger a run of a job, by a service: the input is JSON, or - for the standard input",
  arity: [1, 2],
  options: {
    "idempotency-key": { value: "KEY", about: "a run with this key is returned instead of a new one" },
    "idempotency-until": {
      value: "ended|failed|DURATION",
      about: "which runs with that key count: those that have not ended, not failed, or are as young",
    },
    "concurrency-key": { value: "KEY", about: "runs with this key are executed one after another" },
    label: { value: "KEY=VALUE", about: "a label of the run", isList: true },
  },
  async run({ args, service, output, terminal }) {
    if (service.kind === "http") {
      const [jobName, json] = args.positionals;
      const body = {
        jobName,
        input: json === undefined ? undefined : await readJsonArgument(json, terminal),
        labels: readLabels(args.list("label")),
        idempotencyKey: args.text("idempotency-key"),
        idempotencyUntil: args.text("idempotency-until"),
        concurrencyKey: args.text("concurrency-key"),
      };
      const answer = await askApi(service, "POST /trigger", { body });
      output.object(answer, ({ runId, disposition, status }) => output.line(`${runId}  ${disposition}, ${status}`));
      return 0;
    }
    throw new UsageError(
      "A database cannot check the input of a run, whose schema is in the code: trigger it by a service, http(s)://...",
    );
  },
};
