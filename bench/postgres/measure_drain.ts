import { fileURLToPath } from "node:url";
import pg from "pg";
import { pause } from "../pause.ts";
import { POSTGRES_CONTENDERS, type PostgresName } from "./contender.ts";
import { newDatabase } from "./new_database.ts";

const PROCESS = fileURLToPath(new URL("process.ts", import.meta.url));

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
 * @returns How many runs a second they have completed.
 */
export async function measureDrain({ url, name, processes, concurrency, count }: DrainOptions): Promise<number> {
  const { unfinished } = await POSTGRES_CONTENDERS[name]();
  await using database = await newDatabase(url);
  const start = (...args: string[]) =>
    new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", PROCESS, name, database.url, String(concurrency), ...args],
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
  const startedAt = performance.now();
  await Promise.all(inputs.map((input) => input.write(new TextEncoder().encode("go\n"))));
  do await pause(5); while ((await client.query(unfinished)).rows.length > 0);
  const seconds = (performance.now() - startedAt) / 1_000;
  await Promise.all(inputs.map((input) => input.close()));
  await Promise.all(outputs.map(async (output) => {
    while (!(await output.read()).done);
  }));
  await Promise.all(workers.map(({ status }) => status));
  await client.end();
  return count / seconds;
}
