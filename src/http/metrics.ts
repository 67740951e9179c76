import { type JobInfo, startableRun, sumHeld } from "../engine/operate/job_info.ts";
import type { MetricsSource } from "../engine/operate/statistics/monitor.ts";
import { RUN_STATUSES } from "../model/run.ts";
import { JobMetrics, type ProcessMetrics, SECONDS, type SecondsHistogram } from "../statistics/process_metrics.ts";
import { runtimeName } from "../statistics/runtime_name.ts";
import { PACKAGE_VERSION } from "../model/version.ts";

/** The content type of the metrics: the text format of Prometheus, version 0.0.4. */
export const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** What metrics are made of, with the event streams of the handler. */
interface HandlerMetrics extends MetricsSource {
  /** How many streams are open. */
  streams: { run: number; list: number };
}

const OTHER = "other";

/**
 * Writes metrics. Gauges of the store are equal in every process; the other ones are those of this process.
 *
 * @param maxJobs How many jobs are shown by name; the others are added up as `other`.
 */
export function writeMetrics(source: HandlerMetrics, maxJobs: number): string {
  const nameOf = jobLabels(source, maxJobs);
  const text = new PrometheusText();
  writeStore(text, source, nameOf);
  writeProcess(text, source);
  writeJobs(text, source.process, nameOf);
  return text.toString();
}

/** The label of each job: its name, or `other` for those that were triggered least of too many. */
function jobLabels({ jobs, process }: HandlerMetrics, maxJobs: number): (jobName: string) => string {
  const triggered = new Map(jobs.map(({ jobName, windows }) => [jobName, windows["1h"].triggered]));
  for (const jobName of process.jobs.keys()) triggered.set(jobName, triggered.get(jobName) ?? 0);
  if (triggered.size <= maxJobs) return (jobName) => jobName;
  const order = [...triggered].sort(([, one], [, other]) => other - one);
  const named = new Set(order.slice(0, maxJobs).map(([jobName]) => jobName));
  return (jobName) => named.has(jobName) ? jobName : OTHER;
}

/** The gauges of the store. */
function writeStore(
  text: PrometheusText,
  { jobs, workers, info, now }: HandlerMetrics,
  nameOf: (jobName: string) => string,
): void {
  const groups = groupBy(jobs, ({ jobName }) => nameOf(jobName));
  text.begin("holdfast_runs", "gauge", "Runs by job and status.");
  for (const [job, infos] of groups) {
    for (const status of RUN_STATUSES) {
      text.add({ job, status }, infos.reduce((sum, { byStatus }) => sum + byStatus[status], 0));
    }
  }
  text.begin(
    "holdfast_oldest_due_seconds",
    "gauge",
    "How long the oldest due run of a job has been due; 0: none is due, or the job waits for its rate.",
  );
  for (const [job, infos] of groups) text.add({ job }, Math.max(...infos.map((info) => dueSeconds(info, now))));
  text.begin("holdfast_runs_held", "gauge", "Runs that are held, since no code fits them; 10,000 at most.");
  for (const [job, infos] of groups) text.add({ job }, sumHeld(infos)?.runs ?? 0);
  text.begin("holdfast_messages_unread", "gauge", "Messages that runs have not received yet; 10,000 at most.");
  for (const [job, infos] of groups) text.add({ job }, infos.reduce((sum, { unread }) => sum + unread, 0));
  text.begin("holdfast_job_paused", "gauge", "Whether a job is paused.");
  for (const [job, infos] of groups) text.add({ job }, infos.some(({ paused }) => paused !== null) ? 1 : 0);
  text.begin("holdfast_workers", "gauge", "Workers by state.");
  for (const state of ["live", "stopping", "lost"]) {
    text.add({ state }, workers.filter((worker) => worker.state === state).length);
  }
  text.begin(
    "holdfast_store_bytes",
    "gauge",
    "The size of the store: its data, the log beside it, and what is free in it.",
  );
  for (const [part, bytes] of Object.entries({ data: info.bytes, wal: info.walBytes, free: info.freeBytes })) {
    if (bytes !== null) text.add({ part }, bytes);
  }
  text.begin("holdfast_info", "gauge", "The version of Holdfast, the runtime and the kind of store; always 1.");
  text.add({ version: PACKAGE_VERSION, runtime: runtimeName(), store: info.kind }, 1);
}

function dueSeconds(info: JobInfo, now: number): number {
  const due = startableRun(info);
  return due === null ? 0 : Math.max(0, now - Date.parse(due.dueSince)) / 1_000;
}

/** What concerns the process as a whole. */
function writeProcess(text: PrometheusText, { process, slots, streams, stuckRows }: HandlerMetrics): void {
  text.begin("holdfast_worker_slots", "gauge", "The slots of the worker of this process.");
  for (const [state, count] of Object.entries(slots)) text.add({ state }, count);
  if (stuckRows.size > 0) text.begin("holdfast_outbox_rows", "gauge", "Rows of outboxes that need attention.");
  for (const [source, counts] of stuckRows) {
    for (const [state, count] of Object.entries(counts)) text.add({ source, state }, count);
  }
  text.begin("holdfast_streams", "gauge", "The open event streams of this process.");
  for (const [kind, count] of Object.entries(streams)) text.add({ kind }, count);
  text.begin("holdfast_store_errors_total", "counter", "Calls that the store could not answer, by code.");
  for (const [code, count] of process.storeErrors.values) text.add({ code }, count);
  text.begin("holdfast_leases_lost_total", "counter", "Executions that ended because their lease was lost.");
  text.add({}, process.leasesLost);
  text.begin("holdfast_event_loop_delay_seconds", "histogram", "How late a timer was that is due each second.");
  text.addHistogram({}, process.eventLoopDelay);
  text.begin("holdfast_store_call_seconds", "histogram", "How long calls to the store took.");
  for (const [call, histogram] of process.storeCalls) text.addHistogram({ call }, histogram);
}

const COUNTERS = [
  ["triggers", "holdfast_triggers_total", "disposition", "Triggers by disposition."],
  ["ended", "holdfast_runs_ended_total", "status", "Runs that ended, by status."],
  ["executions", "holdfast_executions_total", "outcome", "Executions of runs that ended, by outcome."],
  ["steps", "holdfast_steps_total", "outcome", "Attempts at steps that ended, by outcome."],
  ["waits", "holdfast_waits_resolved_total", "outcome", "Waits that ended, by outcome."],
] as const;

const STREAMED = [
  ["items", "holdfast_stream_items_total", "Items of streams that were stored."],
  ["bytes", "holdfast_stream_bytes_total", "Bytes of JSON of the items of streams that were stored."],
] as const;

const HISTOGRAMS = [
  ["startDelay", "holdfast_start_delay_seconds", "How long runs were due before they started."],
  ["duration", "holdfast_run_duration_seconds", "How long runs took from their first start on, pauses included."],
  ["stepDuration", "holdfast_step_duration_seconds", "How long attempts at steps took."],
] as const;

/** The counters and histograms of this process, by job. */
function writeJobs(text: PrometheusText, process: ProcessMetrics, nameOf: (jobName: string) => string): void {
  const groups = [...groupBy([...process.jobs], ([jobName]) => nameOf(jobName))].map(([job, members]) => {
    const sum = new JobMetrics();
    for (const [, metrics] of members) sum.addAll(metrics);
    return [job, sum] as const;
  });
  for (const [field, name, label, help] of COUNTERS) {
    text.begin(name, "counter", help);
    for (const [job, metrics] of groups) {
      for (const [value, count] of metrics[field].values) text.add({ job, [label]: value }, count);
    }
  }
  for (const [field, name, help] of STREAMED) {
    text.begin(name, "counter", help);
    for (const [job, { streamed }] of groups) if (streamed.items > 0) text.add({ job }, streamed[field]);
  }
  for (const [field, name, help] of HISTOGRAMS) {
    text.begin(name, "histogram", help);
    for (const [job, metrics] of groups) text.addHistogram({ job }, metrics[field]);
  }
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key) ?? [];
    groups.set(key, group);
    group.push(item);
  }
  return groups;
}

type Labels = { readonly [name: string]: string };

/** Writes metrics in the text format of Prometheus, version 0.0.4. */
class PrometheusText {
  readonly #lines: string[] = [];
  #name = "";

  /** Begins a metric; what is added next belongs to it. */
  begin(name: string, type: "gauge" | "counter" | "histogram", help: string): void {
    this.#name = name;
    this.#lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  }

  /** Adds a number. */
  add(labels: Labels, value: number): void {
    this.#add("", labels, value);
  }

  /** Adds a histogram: for each bound, how many durations were at most that long. */
  addHistogram(labels: Labels, { counts, sum }: SecondsHistogram): void {
    let below = 0;
    for (const [bucket, count] of counts.entries()) {
      below += count;
      const bound = SECONDS[bucket];
      this.#add("_bucket", { ...labels, le: bound === undefined ? "+Inf" : String(bound) }, below);
    }
    this.#add("_sum", labels, sum);
    this.#add("_count", labels, below);
  }

  /** The text. */
  toString(): string {
    return this.#lines.map((line) => `${line}\n`).join("");
  }

  #add(suffix: string, labels: Labels, value: number): void {
    const pairs = Object.entries(labels).map(([name, text]) => `${name}="${escape(text)}"`);
    this.#lines.push(`${this.#name}${suffix}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}`);
  }
}

/** The value of a label: a backslash, a quotation mark and the end of a line are escaped. */
function escape(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
