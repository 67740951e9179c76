import { fileURLToPath } from "node:url";
import pg from "pg";
import { pause } from "../pause.ts";
import { POSTGRES_CONTENDERS, type PostgresName } from "./contender.ts";
import { newDatabase } from "./new_database.ts";
import { serverCpu } from "./server_cpu.ts";

const PROCESS = fileURLToPath(new URL("process.ts", import.meta.url));
// What starts a worker, which can be on another machine: "ssh worker-1 cd holdfast && deno". It gets the path on this one.
const WORKER = Deno.env.get("HOLDFAST_BENCH_WORKER")?.split(" ") ?? [Deno.execPath()];

/** What is measured. */
export interface DrainOptions {
  /** The address of the server. */
  url: string;
  /** Who works. */
  name: PostgresName;
  /** How many processes work. */
  processes: number;
  /** How many runs each executes at once. */
  concurrency: number;
  /** How many runs there are. */
  count: number;
}

/**
 * Lets processes that are ready work off runs that were added before, in a database of their own.
 *
 * @returns How many runs a second they have completed, and how much CPU time of the workers and of the server each of these
 * has taken, in microseconds; `null`: the server does not say it.
 */
export async function measureDrain(
  { url, name, processes, concurrency, count }: DrainOptions,
): Promise<[runsPerSecond: number, workerCpu: number, serverCpu: number | null]> {
  const { unfinished } = await POSTGRES_CONTENDERS[name]();
  await using database = await newDatabase(url);
  const start = (...args: string[]) =>
    new Deno.Command(WORKER[0]!, {
      args: [...WORKER.slice(1), "run", "-A", PROCESS, name, database.url, String(concurrency), ...args],
      stdin: "piped",
      stdout: "piped",
    }).spawn();
  await using adding = start("add", String(count));
  await adding.stdin.close();
  if (!(await adding.output()).success) throw new Error(`${name} could not add the runs`);
  const workers = Array.from({ length: processes }, () => start("work"));
  const outputs = workers.map(({ stdout }) => stdout.getReader());
  const inputs = workers.map(({ stdin }) => stdin.getWriter());
  await Promise.all(outputs.map((output) => output.read())); // each is ready
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  const cpuBefore = await serverCpu(client);
  const startedAt = performance.now();
  await Promise.all(inputs.map((input) => input.write(new TextEncoder().encode("go\n"))));
  do await pause(5); while ((await client.query(unfinished)).rows.length > 0);
  const seconds = (performance.now() - startedAt) / 1_000;
  const cpuAfter = await serverCpu(client);
  await Promise.all(inputs.map((input) => input.close()));
  const cpus = await Promise.all(outputs.map(async (output) => {
    let text = "";
    for (let part = await output.read(); !part.done; part = await output.read()) {
      text += new TextDecoder().decode(part.value, { stream: true });
    }
    return Number(text);
  }));
  await Promise.all(workers.map(({ status }) => status));
  await client.end();
  const workerCpu = cpus.reduce((sum, cpu) => sum + cpu, 0) / count;
  return [count / seconds, workerCpu, cpuBefore === null || cpuAfter === null ? null : (cpuAfter - cpuBefore) / count];
}
