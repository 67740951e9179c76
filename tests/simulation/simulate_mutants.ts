import { parseArgs } from "node:util";
import { writeResults } from "../support/results.ts";
import { MUTANTS } from "./mutants/mutants.ts";
import { MOST_SEEDS, notice } from "./mutants/notice.ts";

// The command line of the mutants: `deno task simulate:mutants`. Several threads look for them side by side.

const HELP = `deno task simulate:mutants [options]

Simulates systems with one deliberate bug each, until the simulation finds it. Ends with status 1 if one is not found.

  --only NAME     the mutants whose names have this
  --threads N     how many at the same time (default: one for each core)
  --json FILE     write what was counted to a file`;

/** After how many seeds a thread has found a mutant; `null`: it has not. */
type Found = number | null;

if ("Window" in globalThis || !("postMessage" in globalThis)) await main();
else {
  const thread = globalThis as unknown as Worker;
  thread.onmessage = async ({ data }) => thread.postMessage(await find(data as string));
}

async function find(name: string): Promise<Found> {
  const found = await notice(MUTANTS.find((mutant) => mutant.name === name)!);
  // An error says that something broke, not what.
  return found === null || found.violation.invariant === "error" ? null : found.tried;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      only: { type: "string", default: "" },
      threads: { type: "string", default: String(navigator.hardwareConcurrency) },
      json: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const names = MUTANTS.map(({ name }) => name).filter((name) => name.includes(values.only));
  if (names.length === 0) throw new RangeError(`No mutant has "${values.only}" in its name`);
  const found = new Map<string, Found>();
  const left = names.values();
  const work = async () => {
    const thread = new Worker(import.meta.url, { type: "module" });
    for (const name of left) {
      const tried = await ask(thread, name);
      found.set(name, tried);
      console.log(`${found.size} of ${names.length}: ${tried === null ? "NOT FOUND" : `${tried} seeds`}: ${name}`);
    }
    thread.terminate();
  };
  await Promise.all(Array.from({ length: Number(values.threads) }, work));
  const tried = [...found.values()].filter((seeds) => seeds !== null);
  const counts = {
    "mutants": names.length,
    "found": tried.length,
    "found within 20 seeds": tried.filter((seeds) => seeds <= 20).length,
    "seeds simulated": tried.reduce((sum, seeds) => sum + seeds, 0) + MOST_SEEDS * (names.length - tried.length),
  };
  console.log(`${counts.found} of ${counts.mutants} mutants found, in ${counts["seeds simulated"]} seeds`);
  await writeResults(values.json, [{ name: "mutants", broken: names.length - tried.length, counts }]);
  if (tried.length < names.length) Deno.exit(1);
}

function ask(thread: Worker, name: string): Promise<Found> {
  return new Promise((resolve, reject) => {
    thread.onmessage = ({ data }) => resolve(data);
    thread.onerror = (event) => reject(new Error(event.message));
    thread.postMessage(name);
  });
}
