import { summarize } from "../statistics.ts";
import type { Outcome } from "./outcome.ts";
import { PUBLISHED, PUBLISHED_SYSTEMS } from "./published.ts";
import type { QueueName } from "./queue.ts";

/** What `results.json` has. */
export interface Results {
  /** Where and of what it was measured. */
  machine: { cores: number; processor: string; deno: string; postgres: string };
  /** The revision of this project. */
  commit: string;
  /** When the last cell had ended. */
  at: string;
  /** In the order in which they were measured. */
  outcomes: Outcome[];
}

/** The tables of the documentation, as Markdown. */
export function toMarkdown(outcomes: readonly Outcome[]): string {
  return [ratioTable(outcomes), bloatTable(outcomes), peakTable(outcomes)].filter((text) => text !== null).join("\n\n");
}

/** Recovery and stress, in percent, beside what was published. */
function ratioTable(outcomes: readonly Outcome[]): string | null {
  const cells = Object.keys(PUBLISHED).filter((cell) => outcomes.some((outcome) => outcome.cell === cell));
  if (cells.length === 0) return null;
  const systems = systemsOf(outcomes.filter(({ kind }) => kind !== "peak"));
  const rows = cells.map((cell) => [
    `\`${cell}\``,
    ...systems.map((system) => showCell(outcomes.filter((one) => one.cell === cell && one.system === system))),
    ...PUBLISHED[cell]!.map((percent) => percent === null ? "–" : `${percent} %`), // it is one of its keys
  ]);
  return toTable(["cell", ...systems.map(nameHere), ...PUBLISHED_SYSTEMS], rows);
}

/** Dead rows, and the growth of the tables. */
function bloatTable(outcomes: readonly Outcome[]): string | null {
  const cells = outcomes.filter(({ kind }) => kind === "bloat");
  if (cells.length === 0) return null;
  const rows = cells.map(({ cell, system, phases: [clean, stress, recovery], vacuums }) => [
    `\`${cell}\``,
    nameHere(system),
    ...[clean, stress, recovery].map((phase) => showNumber(phase?.deadRows)),
    ...[clean, stress, recovery].map((phase) => showNumber(phase?.megabytes)),
    String(vacuums),
  ]);
  const parts = ["before", "under stress", "after"];
  return toTable(
    ["cell", "queue", ...parts.map((part) => `dead rows ${part}`), ...parts.map((part) => `MB ${part}`), "vacuums"],
    rows,
  );
}

/** Jobs a second, and the ratio to pg-boss: of all pairs of rounds. */
function peakTable(outcomes: readonly Outcome[]): string | null {
  const cells = [...new Set(outcomes.filter(({ kind }) => kind === "peak").map(({ cell }) => cell))];
  if (cells.length === 0) return null;
  const rows = cells.map((cell) => {
    const rates = (system: QueueName) => peakRates(outcomes.filter((one) => one.cell === cell), system);
    const [ours, theirs] = [rates("holdfast"), rates("pgboss")];
    const pairs = ours.flatMap((rate, round) => theirs[round] === undefined ? [] : [rate / theirs[round]]);
    const show = (values: number[]) => values.length === 0 ? "–" : showNumber(summarize(values).median);
    const cpu = (system: QueueName, of: "processes" | "server") =>
      show(
        outcomes.flatMap((one) => one.cell === cell && one.system === system && one.cpu !== null ? [one.cpu[of]] : []),
      );
    return [
      `\`${cell}\``,
      ...[show(ours), show(theirs), pairs.length === 0 ? "–" : summarize(pairs).median.toFixed(2)],
      ...(["processes", "server"] as const).map((of) => `${cpu("holdfast", of)}, ${cpu("pgboss", of)}`),
    ];
  });
  const cpuOf = (what: string) => `CPU of ${what}, µs a job: Holdfast, pg-boss`;
  return toTable(
    ["cell", "Holdfast, jobs a second", "pg-boss", "ratio", cpuOf("the process"), cpuOf("the server")],
    rows,
  );
}

/** The rates of a queue, in the order of the rounds. */
export function peakRates(outcomes: readonly Outcome[], system: QueueName): number[] {
  return outcomes.filter((one) => one.kind === "peak" && one.system === system && one.problem === null)
    .map(({ phases }) => phases[0]?.completionRate ?? null).filter((rate) => rate !== null);
}

function showCell(outcomes: readonly Outcome[]): string {
  if (outcomes.length === 0) return "";
  const ratios = outcomes.map(({ ratio, problem }) => problem === null ? ratio : null).filter((one) => one !== null);
  return ratios.length < outcomes.length ? "–" : `${Math.round(summarize(ratios).median * 100)} %`;
}

function systemsOf(outcomes: readonly Outcome[]): QueueName[] {
  return [...new Set(outcomes.map(({ system }) => system))];
}

function nameHere(system: QueueName): string {
  return { holdfast: "**Holdfast, here**", pgboss: "pg-boss, here" }[system];
}

function showNumber(value: number | null | undefined): string {
  return value == null ? "–" : Math.round(value).toLocaleString("en-US");
}

function toTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (columns: readonly string[]) => `| ${columns.join(" | ")} |`;
  return [line(head), line(head.map((_, at) => at === 0 ? "---" : "--:")), ...rows.map(line)].join("\n");
}
