import { summarize } from "../statistics.ts";
import type { Cell, PhaseType } from "./cells.ts";
import type { QueueName } from "./queue.ts";
import type { Sample } from "./records.ts";
import type { TableSample } from "./table_watch.ts";

/** A sample, with the phase in which it arrived. */
export type PhaseSample = Pick<Sample, "t" | "metric" | "value" | "window_s" | "instance_id"> & {
  phase: string;
  /** When it arrived, since the beginning. */
  elapsedS: number;
};

/** What came of one phase. Rates and latencies are medians; `null`: nothing was measured. */
export interface PhaseOutcome {
  label: string;
  type: PhaseType;
  seconds: number;
  completionRate: number | null;
  enqueueRate: number | null;
  queueDepth: number | null;
  pickupP99Ms: number | null;
  endToEndP99Ms: number | null;
  /** The most dead rows. */
  deadRows: number | null;
  /** The size of all tables and indexes in the end. */
  megabytes: number | null;
}

/** What came of a cell. */
export interface Outcome {
  cell: string;
  kind: Cell["kind"];
  system: QueueName;
  version: string;
  workers: number;
  processes: number;
  /** How long the first clean phase took. */
  seconds: number;
  /** Why the cell does not count as completed; `null`: it does. */
  problem: string | null;
  phases: PhaseOutcome[];
  /** The completion rate after (chaos) or during (bloat) the stress, divided by that before it. */
  ratio: number | null;
  /** Jobs that were added from the beginning of the stress on, and had not ended in the end, as the benchmark counts them. */
  jobsLost: number | null;
  /** How long after the stress the completion rate was 0.9 of that before it again. */
  recoveryTimeS: number | null;
  /** How often autovacuum has cleaned a table. */
  vacuums: number;
  /** The CPU time of a job, in microseconds; `null`: it was not measured. */
  cpu: { processes: number; server: number } | null;
  /** How long the processes took to end. */
  stopMs: number | null;
  /** The load of the machine when the cell began. */
  load: number;
}

/** What is measured by one cell. */
export interface Observed {
  samples: readonly PhaseSample[];
  tables: readonly TableSample[];
  /** The CPU time of the last phase, in microseconds; `null`: it was not measured. */
  cpu: { processes: number; server: number } | null;
}

/** Builds the outcome, by the definitions of the benchmark. */
export function toOutcome(
  about: Pick<Outcome, "cell" | "system" | "version" | "seconds" | "problem" | "stopMs" | "load">,
  { kind, phases, workers, processes }: Cell,
  { samples, tables, cpu }: Observed,
): Outcome {
  const counted = phases.filter(({ type }) => type !== "warmup");
  const outcomes = counted.map(({ label, type, seconds }): PhaseOutcome => {
    const middle = (metric: string, combine: Combine) => median(seriesOf(samples, label, metric, combine));
    const own = tables.filter(({ phase }) => phase === label);
    return {
      label,
      type,
      seconds,
      completionRate: middle("completion_rate", sum),
      enqueueRate: middle("enqueue_rate", sum),
      queueDepth: middle("queue_depth", most),
      pickupP99Ms: middle("claim_p99_ms", most),
      endToEndP99Ms: middle("end_to_end_p99_ms", most),
      deadRows: own.length === 0 ? null : most(own.map(({ deadRows }) => deadRows)),
      megabytes: own.length === 0 ? null : own.at(-1)!.bytes / 1e6, // it has one
    };
  });
  const [baseline, stressed] = outcomes;
  const compared = kind === "chaos" ? outcomes.at(-1) : stressed;
  return {
    ...about,
    kind,
    workers,
    processes,
    phases: outcomes,
    ratio: kind === "peak" ? null : ratioOf(compared?.completionRate, baseline?.completionRate),
    ...kind === "chaos" ? recoveryOf(counted.map(({ label }) => label), samples) : NOT_OF_CHAOS,
    vacuums: tables.at(-1)?.vacuums ?? 0,
    cpu: cpu === null ? null : perJob(cpu, countOf(samples, counted.at(-1)!.label, "completion_rate")), // each has one
  };
}

const NOT_OF_CHAOS = { jobsLost: null, recoveryTimeS: null };
const RECOVERED = 0.9;

type Combine = (values: number[]) => number;
const sum: Combine = (values) => values.reduce((total, value) => total + value, 0);
const most: Combine = (values) => values.reduce((one, other) => Math.max(one, other), -Infinity);

/** The numbers of all processes in a phase: the first of each together, the second of each, and so on. */
function seriesOf(samples: readonly PhaseSample[], phase: string, metric: string, combine: Combine): number[] {
  return together(samples.filter((sample) => sample.phase === phase && sample.metric === metric))
    .map((group) => combine(group.map(({ value }) => value)));
}

function together(samples: readonly PhaseSample[]): PhaseSample[][] {
  const byProcess = Map.groupBy(samples, ({ instance_id }) => instance_id);
  const groups: PhaseSample[][] = [];
  for (const own of byProcess.values()) {
    for (const [at, sample] of own.toSorted((one, other) => one.t < other.t ? -1 : 1).entries()) {
      (groups[at] ??= []).push(sample);
    }
  }
  return groups;
}

/** How many jobs a rate was: it is printed once in each window. */
function countOf(samples: readonly PhaseSample[], phase: string, metric: string): number {
  return sum(
    samples.filter((sample) => sample.phase === phase && sample.metric === metric)
      .map(({ value, window_s }) => value * window_s),
  );
}

function perJob({ processes, server }: { processes: number; server: number }, jobs: number): Outcome["cpu"] {
  return jobs === 0 ? null : { processes: processes / jobs, server: server / jobs };
}

function recoveryOf([baseline, ...span]: string[], samples: readonly PhaseSample[]) {
  const groups = (phases: string[], metric: string) =>
    together(samples.filter((sample) => phases.includes(sample.phase) && sample.metric === metric))
      .map((group) => ({
        at: Math.min(...group.map(({ elapsedS }) => elapsedS)),
        rate: sum(group.map(({ value }) => value)),
        windowS: most(group.map(({ window_s }) => window_s)),
      }));
  const count = (metric: string) => sum(groups(span, metric).map(({ rate, windowS }) => rate * windowS));
  const stress = span.slice(0, -1);
  const endOfStress = groups(stress, "completion_rate").at(-1)?.at;
  const before = median(groups([baseline!], "completion_rate").map(({ rate }) => rate)); // each cell has one
  const again = groups(span.slice(-1), "completion_rate").find(({ rate }) => rate >= RECOVERED * (before ?? Infinity));
  return {
    jobsLost: Math.max(0, count("enqueue_rate") - count("completion_rate")),
    recoveryTimeS: endOfStress === undefined || again === undefined ? null : again.at - endOfStress,
  };
}

function median(values: readonly number[]): number | null {
  return values.length === 0 ? null : summarize(values).median;
}

function ratioOf(one: number | null | undefined, other: number | null | undefined): number | null {
  return one == null || other == null || other === 0 ? null : one / other;
}
