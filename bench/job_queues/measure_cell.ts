import pg from "pg";
import { newDatabase } from "../postgres/new_database.ts";
import { startServer } from "../../tests/stores/postgres/server.ts";
import { pause } from "../pause.ts";
import { serverCpu } from "../postgres/server_cpu.ts";
import { type Cell, CELLS, PUBLISHED_SECONDS, SERVER_SETTINGS } from "./cells.ts";
import { type Outcome, type PhaseSample, toOutcome } from "./outcome.ts";
import type { QueueName } from "./queue.ts";
import { Replicas } from "./replicas.ts";
import { beginStress } from "./stress.ts";
import { TableWatch } from "./table_watch.ts";

const LOOK_EVERY_MS = 500;

/** How a cell is measured. */
export interface CellOptions {
  /** Which queue. */
  system: QueueName;
  /** How long the first clean phase takes. All others are as much shorter as it is. */
  seconds: number;
  /** A folder for the logs of the processes. */
  folder: string;
}

/** Runs a cell on a new server, and in a new database. */
export async function measureCell(name: string, { system, seconds, folder }: CellOptions): Promise<Outcome> {
  const cell = shorten(CELLS[name]!, seconds / PUBLISHED_SECONDS); // the command has checked it
  const server = startServer({ fsync: true, isOwn: true, settings: SERVER_SETTINGS });
  if (server === null) throw new Error("There is no PostgreSQL server in /usr/lib/postgresql");
  try {
    await using database = await newDatabase(server.url);
    return await measureWith(name, cell, { system, seconds, folder, server, url: database.url });
  } finally {
    server.stop();
  }
}

interface Measurement extends CellOptions {
  server: NonNullable<ReturnType<typeof startServer>>;
  url: string;
}

async function measureWith(name: string, cell: Cell, options: Measurement): Promise<Outcome> {
  const { system, seconds, folder, server, url } = options;
  const load = Deno.loadavg()[0]!;
  const sampleEveryS = Math.max(1, Math.round(5 * seconds / PUBLISHED_SECONDS));
  const rateFile = `${folder}/rate`;
  await Deno.writeTextFile(rateFile, String(cell.rate));
  let phase = cell.phases[0]!.label;
  const samples: PhaseSample[] = [];
  const startedAt = performance.now();
  const env = environmentOf(cell, { url, rateFile, sampleEveryS });
  const replicas = new Replicas(system, env, `${folder}/${name}.${system}.log`, (sample) => {
    samples.push({ ...sample, phase, elapsedS: (performance.now() - startedAt) / 1_000 });
  });
  let version = "";
  let table = "";
  for (let instance = 0; instance < cell.processes; instance++) {
    const descriptor = await replicas.start(instance);
    version = descriptor.version;
    table = descriptor.event_tables[0]!; // each queue has one
  }
  const tables = new TableWatch(url, sampleEveryS * 1_000, () => phase);
  let problem: string | null = null;
  let cpu: CpuTimes | null = null;
  for (const { label, type, seconds: phaseSeconds } of cell.phases) {
    phase = label;
    const ms = phaseSeconds * 1_000;
    const minuteMs = seconds * 1_000;
    try {
      const before = cell.kind === "peak" ? await readCpu(server.url, replicas) : null;
      const end = await beginStress(type, { url, server, replicas, rateFile, rate: cell.rate, table, ms, minuteMs });
      const until = performance.now() + ms;
      while (performance.now() < until && problem === null) {
        await pause(Math.min(LOOK_EVERY_MS, until - performance.now()));
        problem = replicas.findCrash();
      }
      await end();
      cpu = before === null ? null : difference(await readCpu(server.url, replicas), before);
      if (type === "repeated-kill" && !replicas.isWanted(0)) await replicas.start(0);
    } catch (error) {
      problem ??= error instanceof Error ? error.message : String(error);
    }
    if (problem !== null) break;
  }
  const stopMs = await replicas.stop();
  if (stopMs === null) problem ??= "a process did not end within 10 seconds";
  await tables.stop();
  const about = { cell: name, system, version, seconds, problem, stopMs, load };
  return toOutcome(about, cell, { samples, tables: tables.samples, cpu });
}

interface CpuTimes {
  processes: number;
  server: number;
}

/** How much CPU time was used so far, in microseconds; `null`: this is not Linux. */
async function readCpu(url: string, replicas: Replicas): Promise<CpuTimes | null> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const [processes, server] = [replicas.readCpu(), await serverCpu(client)];
  await client.end();
  return processes === null || server === null ? null : { processes, server };
}

function difference(after: CpuTimes | null, before: CpuTimes): CpuTimes | null {
  if (after === null) return null;
  return { processes: after.processes - before.processes, server: after.server - before.server };
}

/** What the benchmark tells its adapters. They keep the rates themselves, since its own pacer does not know of high loads. */
function environmentOf(
  { rate, depth, workers }: Cell,
  { url, rateFile, sampleEveryS }: { url: string; rateFile: string; sampleEveryS: number },
): Record<string, string> {
  return {
    DATABASE_URL: url,
    SCENARIO: "long_horizon",
    PRODUCER_MODE: depth === undefined ? "fixed" : "depth-target",
    PRODUCER_PACING: "adapter",
    PRODUCER_RATE: String(rate),
    PRODUCER_RATE_CONTROL_FILE: rateFile,
    TARGET_DEPTH: String(depth ?? 0),
    WORKER_COUNT: String(workers),
    JOB_PAYLOAD_BYTES: "256",
    JOB_WORK_MS: "1",
    SAMPLE_EVERY_S: String(sampleEveryS),
  };
}

function shorten(cell: Cell, factor: number): Cell {
  return { ...cell, phases: cell.phases.map((phase) => ({ ...phase, seconds: phase.seconds * factor })) };
}
