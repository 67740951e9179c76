import type { JobInfo } from "../../engine/operate/job_info.ts";
import { type Command, UsageError } from "../command.ts";
import {
  type Cell,
  countOf,
  describeBoth,
  describeInstant,
  describeLatency,
  describeShare,
  type Output,
  statusCell,
} from "../output.ts";
import { askApi } from "../service/api.ts";
import { readJsonArgument, readLabels } from "../read_options.ts";
import type { Stats } from "../../engine/operate/operator.ts";
import { RUN_STATUSES } from "../../model/run.ts";
import { pauseUnlessAborted } from "../service/follow_events.ts";

/** Lists the jobs. */
export const jobs: Command = {
  name: "jobs",
  usage: "",
  about: "list the jobs with their runs, their workers and their pauses",
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
  options: { note: { value: "TEXT", about: "why" } },
  async run({ args, service, output }) {
    const jobName = args.positionals[0]!;
    const body = { note: args.text("note") };
    const job = await askApi(service, "POST /jobs/pause", { query: { jobName }, body });
    output.object(job, ({ jobName, paused, byStatus: { running, leased } }) => {
      output.line(`${jobName} is paused since ${paused!.since}`); // it was just paused
      const executed = running + leased;
      if (executed > 0) {
        output.line(`${countOf(executed, "run")} of it ${executed === 1 ? "is" : "are"} still executed`);
      }
    });
  },
};

/** Ends the pause of a job. */
export const resume: Command = {
  name: "resume",
  usage: "JOB",
  about: "end the pause of a job",
  async run({ args, service, output }) {
    const jobName = args.positionals[0]!;
    const job = await askApi(service, "POST /jobs/resume", { query: { jobName } });
    output.object(
      job,
      ({ jobName, byStatus: { pending } }) =>
        output.line(`${jobName} is resumed: ${countOf(pending, "run")} ${pending === 1 ? "is" : "are"} pending`),
    );
  },
};

/** Triggers a run. */
export const trigger: Command = {
  name: "trigger",
  usage: "JOB [JSON|-]",
  about: "trigger a run of a job, by a service: the input is JSON, or - for the standard input",
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
    if (service.kind !== "http") {
      throw new UsageError(
        "A database cannot check the input of a run, whose schema is in the code: trigger it by a service, http(s)://...",
      );
    }
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
  },
};

const WATCH_MS = 2_000;

/** Shows the numbers of the store. */
export const stats: Command = {
  name: "stats",
  usage: "[--watch]",
  about: "show how many runs there are, and how fast they end",
  options: { watch: { value: null, about: "show them again every two seconds" } },
  async run({ args, service, output, terminal }) {
    do {
      output.object(await askApi(service, "GET /stats"), (value) => describeStats(value, output));
    } while (args.has("watch") && await pauseUnlessAborted(WATCH_MS, terminal.abortSignal));
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
  },
};
