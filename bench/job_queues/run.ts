// deno task bench:queues [--only CELL ...] [--systems holdfast,pgboss] [--seconds N] [--rounds N] [--json PATH]
//
// The cells of the neutral benchmark of job queues on PostgreSQL, without Docker: README.md says what they are. `--only`
// also takes `chaos`, `bloat` and `peak`. `--seconds` is how long the first clean phase takes, a minute in what was
// published; all phases are shortened with it. In the cells of `peak` pg-boss takes turns with ours, for so many rounds. The
// others have one round, without pg-boss unless `--systems` names it. The file of `--json` keeps what it has of cells that
// are not measured now.

import { execFileSync } from "node:child_process";
import os from "node:os";
import { parseArgs } from "node:util";
import { findPrograms } from "../../tests/stores/postgres/server.ts";
import { CELLS, PUBLISHED_SECONDS } from "./cells.ts";
import { measureCell } from "./measure_cell.ts";
import type { Outcome } from "./outcome.ts";
import { type QueueName, QUEUES } from "./queue.ts";
import { type Results, toMarkdown } from "./report.ts";

const { values } = parseArgs({
  options: {
    only: { type: "string", multiple: true },
    systems: { type: "string" },
    seconds: { type: "string", default: String(PUBLISHED_SECONDS) },
    rounds: { type: "string", default: "1" },
    json: { type: "string" },
  },
});
const only = values.only ?? Object.keys(CELLS);
const names = Object.keys(CELLS).filter((name) => only.includes(name) || only.includes(CELLS[name]!.kind));
const unknown = only.filter((one) => !names.some((name) => name === one || CELLS[name]!.kind === one));
if (unknown.length > 0) fail(`There is no cell ${unknown.join(", ")}. There are ${Object.keys(CELLS).join(", ")}`);
const seconds = Number(values.seconds);
if (!(seconds >= 4)) fail("--seconds must be at least 4: a phase has to have some samples");
const systems = values.systems?.split(",");
for (const system of systems ?? []) if (!(system in QUEUES)) fail(`There is no queue ${system}`);

const folder = await Deno.makeTempDir({ prefix: "job_queues_" });
console.error(`The processes write to ${folder}`);
const outcomes = values.json === undefined ? [] : await readOthers(values.json);
for (let round = 0; round < Number(values.rounds); round++) {
  for (const name of names) {
    const { kind } = CELLS[name]!; // one of its keys
    if (kind !== "peak" && round > 0) continue;
    const turns = (systems ?? (kind === "peak" ? ["holdfast", "pgboss"] : ["holdfast"])) as QueueName[];
    for (const system of round % 2 === 0 ? turns : turns.toReversed()) {
      const outcome = await measureCell(name, { system, seconds, folder });
      outcomes.push(outcome);
      say(outcome);
      if (values.json !== undefined) await Deno.writeTextFile(values.json, `${JSON.stringify(toResults(), null, 2)}\n`);
    }
  }
}
console.log(`\n${toMarkdown(outcomes)}`);

/** The outcomes of other cells in the file. */
async function readOthers(path: string): Promise<Outcome[]> {
  const text = await Deno.readTextFile(path).catch(() => null);
  if (text === null) return [];
  const earlier: Results = JSON.parse(text);
  return earlier.outcomes.filter(({ cell }) => !names.includes(cell));
}

function say({ cell, system, phases, ratio, jobsLost, recoveryTimeS, stopMs, problem }: Outcome): void {
  const rates = phases.map(({ label, completionRate }) => `${label} ${completionRate?.toFixed(0) ?? "–"}`).join(", ");
  const parts = [
    `${rates} jobs/s`,
    ratio === null ? null : `ratio ${ratio.toFixed(2)}`,
    jobsLost === null ? null : `${jobsLost.toFixed(0)} jobs open`,
    recoveryTimeS === null ? null : `recovered after ${recoveryTimeS.toFixed(1)} s`,
    stopMs === null ? null : `ended in ${(stopMs / 1_000).toFixed(1)} s`,
    problem === null ? null : `FAILED: ${problem}`,
  ];
  console.log(`${cell} ${system}: ${parts.filter((part) => part !== null).join("; ")}`);
}

function toResults(): Results {
  const server = new TextDecoder().decode(
    new Deno.Command(`${findPrograms()}/postgres`, { args: ["--version"] }).outputSync().stdout,
  );
  return {
    machine: {
      cores: os.cpus().length,
      processor: os.cpus()[0]?.model ?? "unknown",
      deno: Deno.version.deno,
      postgres: server.trim(),
    },
    commit: execFileSync("git", ["rev-parse", "HEAD"], { encoding: "utf8" }).trim(),
    at: new Date().toISOString(),
    outcomes,
  };
}

function fail(message: string): never {
  console.error(message);
  Deno.exit(2);
}
