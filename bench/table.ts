import type { Result } from "./measure.ts";
import type { Summary } from "./statistics.ts";
import { type Contender, CONTENDERS, type Goal, type Workload } from "./workload.ts";

/** Writes results as text: a table for each workload, a line a figure. */
export function table(workloads: readonly Workload[], results: readonly Result[]): string {
  const sections = workloads.flatMap((workload) => {
    const own = results.filter((result) => result.workload === workload.name);
    return own.length === 0 ? [] : [`${workload.title}\n${workload.about}\n\n${section(own)}`];
  });
  return sections.join("\n\n");
}

function section(results: readonly Result[]): string {
  const contenders = CONTENDERS.filter((contender) => results.some(({ samples }) => samples[contender]));
  const baselines = (["raw", "empty"] as const).filter((baseline) => contenders.includes(baseline));
  const header = [
    "",
    "unit",
    ...contenders,
    ...baselines.map((baseline) => `ratio to ${baseline}`),
    "goal",
    "",
  ];
  const rows = results.map((result) => [
    [result.trial, result.figure.name].filter((name) => name !== "").join(", "),
    result.figure.unit,
    ...contenders.map((contender) => range(result.summaries[contender])),
    ...baselines.map((baseline) => result.ratios[baseline]?.toFixed(2) ?? "-"),
    result.figure.goals.map(describeGoal).join(", "),
    verdict(result),
  ]);
  return aligned([header, ...rows]);
}

/** Whether the goals are reached, or by how much they are missed. */
function verdict({ figure: { goals }, missed }: Result): string {
  if (goals.length === 0) return "";
  if (missed.length === 0) return "reached";
  return `missed: ${missed.map(({ factor }) => `${factor.toFixed(2)} times`).join(", ")}`;
}

/** A goal in words: `< 5`, or a part of a baseline's speed. */
export function describeGoal(goal: Goal): string {
  if ("below" in goal) return `< ${goal.below}`;
  return "above" in goal ? `> ${goal.above}` : `${goal.atLeast} of ${goal.of}`;
}

/** The median, and from where to where the rounds have gone. */
function range(summary: Summary | undefined): string {
  if (summary === undefined) return "-";
  const { median, minimum, maximum } = summary;
  if (minimum === maximum) return shortNumber(median);
  return `${shortNumber(median)} (${shortNumber(minimum)} to ${shortNumber(maximum)})`;
}

/** A number with about three digits that count. */
export function shortNumber(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 10 ? 1 : size >= 0.1 ? 2 : 3);
}

/** Columns of the same width: the first to the left, the others to the right. */
export function aligned(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]) =>
    row.map((cell, column) => column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)).join("  ");
  const rule = widths.map((width) => "-".repeat(width)).join("  ");
  return [line(rows[0]!), rule, ...rows.slice(1).map(line)].map((text) => text.trimEnd()).join("\n");
}

/** Who was measured in any of the results. */
export function measuredContenders(results: readonly Result[]): Contender[] {
  return CONTENDERS.filter((contender) => results.some(({ samples }) => samples[contender] !== undefined));
}
