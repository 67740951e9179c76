import type { StormProgress, StormResult } from "./storm.ts";
import { TALLIED } from "./tally.ts";

const WIDTH = 52;

/** The progress of a storm, in one line. */
export function describeProgress({ ms, tally, observations, sizes }: StormProgress): string {
  return `${(ms / 1_000).toFixed(0)} s: ${tally.get("kills")} kills, ${tally.get("suspensions")} suspensions, ` +
    `${tally.get("runs that ended")} runs ended, ${observations.unfinished} not yet, ` +
    `${tally.get("steps recorded")} steps, ${tally.get("requests")} requests, ` +
    `${tally.get("power losses")} power losses, ${tally.get("backups")} backups; ${sizes.describe()}`;
}

/** What was counted in a storm, by its name. */
export function countsOf({ ms, tally, drainMs, longestGap }: StormResult): Record<string, number> {
  return {
    ...Object.fromEntries(TALLIED.map((what) => [what, tally.get(what)])),
    "minutes": Math.round(ms / 6_000) / 10,
    "seconds until every run had ended": Math.round(drainMs / 100) / 10,
    "longest block of an event loop in ms": Math.round(longestGap.wallMs),
  };
}

/** Everything that was counted and measured in a storm, as a table. */
export function describeTotals(result: StormResult): string {
  const { ms, tally, sizes, latencies, violations, longestGap, drainMs, longestBackupMs, tornLines } = result;
  const started = tally.get("steps started");
  const percent = (100 * tally.get("steps started again") / Math.max(1, started)).toFixed(1);
  const lines: [string, string][] = [
    ...TALLIED.map((what): [string, string] => [what, tally.get(what).toLocaleString("en")]),
    ["kills a second", (tally.get("kills") / (ms / 1_000)).toFixed(2)],
    ["steps started again, of those started", `${percent} %`],
    ["ledger lines that were cut off", String(tornLines)],
    [
      "longest block of an event loop, not on purpose",
      `${longestGap.wallMs} ms (on a processor: ${longestGap.cpuMs} ms)`,
    ],
    ["longest backup", `${Math.round(longestBackupMs)} ms`],
    ...latencies.describe(),
    ["size of the file", sizes.describe()],
    ["time until every run had ended", `${(drainMs / 1_000).toFixed(1)} s`],
    ["VIOLATIONS", String(violations.found.length)],
  ];
  return lines.map(([what, value]) => `${what.padEnd(WIDTH)} ${value}`).join("\n");
}
