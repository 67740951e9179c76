// A process of a measurement: `add COUNT` fills the database and ends; `work` executes from its first line of input on, ends
// with its standard input, and prints how much CPU time it has used, in microseconds. Arguments: the contender, the address, the concurrency, what to do.

import process from "node:process";
import { POSTGRES_CONTENDERS, type PostgresName } from "./contender.ts";

const [name, url, concurrency, what, count] = Deno.args as [PostgresName, string, string, "add" | "work", string];
const contender = await POSTGRES_CONTENDERS[name]();
const engine = await contender.open({ url, concurrency: Number(concurrency) });
if (what === "add") await engine.add(Number(count));
else {
  const lines = Deno.stdin.readable.getReader();
  console.log("ready");
  await lines.read();
  const before = process.cpuUsage();
  await engine.start();
  while (!(await lines.read()).done);
  const { user, system } = process.cpuUsage(before);
  console.log(user + system);
}
// A peer may leave timers behind.
await Promise.race([engine.close(), new Promise((resolve) => setTimeout(resolve, 2_000))]);
Deno.exit(0);
