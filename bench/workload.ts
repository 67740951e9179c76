import type { Setting } from "./setting.ts";

/** Something that is measured: a file in `bench/workloads/`, under this name. */
export interface Workload {
  /** What it is asked for by: the name of its file. */
  readonly name: string;
  /** What it is about, for a headline. */
  readonly title: string;
  /** What has to be known to read its numbers: what raw SQLite does, and which settings the peers have. */
  readonly about: string;
  /** What is done, in one variant after another. */
  readonly trials: readonly Trial[];
}

/** One variant of a workload: everybody who does it answers the same figures. */
export interface Trial {
  /** Which variant. */
  readonly name: string;
  /** What is measured. */
  readonly figures: readonly Figure[];
  /** How often it is measured, unless the command says otherwise. */
  readonly rounds: number;
  /** How often the peers are measured, which take longer. */
  readonly peerRounds?: number;
  /** Who does it. Each measures once, with files of its own, and answers the figures in their order. */
  readonly contenders: { readonly [contender in Contender]?: Measure };
}

/** Measures once and answers the figures of its trial in their order; `null` for one that it does not have. */
export type Measure = (setting: Setting) => Promise<readonly (number | null)[]>;

/** A number to find out. */
export interface Figure {
  /** Of what, within the trial; "" if the trial's name says it. */
  readonly name: string;
  /** In what it is counted. */
  readonly unit: Unit;
  /** What it has to reach, all of it; none if it is only shown. */
  readonly goals: readonly Goal[];
}

/** In what something is counted. */
export type Unit = keyof typeof UNITS;

/** The units, and whether more or less of each is better. */
export const UNITS = {
  "per second": "more",
  "of the first": "more",
  ms: "less",
  µs: "less",
  MB: "less",
  kB: "less",
  B: "less",
  "% of a core": "less",
  "statements/s": "less",
  times: "less",
} as const satisfies Record<string, "more" | "less">;

/** A goal: such a part of another contender's speed, or a bound in the unit of the figure. */
export type Goal =
  | { readonly atLeast: number; readonly of: Baseline }
  | { readonly above: number }
  | { readonly below: number };

/**
 * Who is measured.
 *
 * - `raw`: the least SQL that does the same work, prepared once, on one `node:sqlite` connection with our pragmas
 * - `empty`: ours on a database with nothing else in it, where the trial is about a full one
 * - `holdfast`: ours
 * - `durably`, `openworkflow`: the peers, on SQLite or on PostgreSQL
 * - `dbos`, `pg-boss`: the peers on PostgreSQL
 */
export type Contender = typeof CONTENDERS[number];

/** All of them, in the order of the columns. */
export const CONTENDERS = ["raw", "empty", "holdfast", "durably", "openworkflow", "dbos", "pg-boss"] as const;

/** Those that ours is compared with. */
export type Baseline = "raw" | "empty";

/** Whether a contender is somebody else's, and measured only with `--peers`. */
export function isPeer(contender: Contender): boolean {
  return !["raw", "empty", "holdfast"].includes(contender);
}
