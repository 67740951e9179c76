import { parseArgs } from "node:util";
import { INVARIANTS } from "../invariants.ts";
import { BANK_MUTANTS } from "./bank_mutants.ts";
import { BANK_WAYS, type BankVerdict, type BankWay, simulateBank } from "./bank_simulation.ts";

// The command line of the simulated bank: `deno task simulate:bank --seeds 1000`. Several threads simulate side by side.

const HELP = `deno task simulate:bank [options]

  --way WAY       effects (default): a MemoryStore, and the bank in a SQLite database of its own;
                  joined: the bank in the file of a SqliteStore
  --seeds N       how many seeds, beginning with --from (default 1,000)
  --from S        the first of them (default 1)
  --mutant NAME   with a bug that has to be found; part of its name is enough
  --threads N     how many at the same time (default: one for each core)`;

/** What a thread is asked for. */
interface Order {
  seed: number;
  way: BankWay;
  mutant: string | null;
}

if ("Window" in globalThis || !("postMessage" in globalThis)) await main();
else {
  const thread = globalThis as unknown as Worker;
  thread.onmessage = async ({ data }) => thread.postMessage(await carryOut(data as Order));
}

async function carryOut({ seed, way, mutant }: Order): Promise<BankVerdict> {
  const known = mutant === null ? undefined : BANK_MUTANTS.find(({ name }) => name.includes(mutant));
  return await simulateBank({ seed, way: known?.way ?? way, ...(known === undefined ? {} : { mutant: known }) });
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      way: { type: "string", default: "effects" },
      seeds: { type: "string", default: "1000" },
      from: { type: "string", default: "1" },
      mutant: { type: "string" },
      threads: { type: "string", default: String(navigator.hardwareConcurrency) },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const way = BANK_WAYS.find((one) => one === values.way);
  if (way === undefined) throw new RangeError(`--way must be one of ${BANK_WAYS.join(", ")}`);
  const [from, seeds] = [Number(values.from), Number(values.seeds)];
  const counts = new Map<string, number>();
  let next = from;
  let done = 0;
  let failed = 0;
  const work = async () => {
    const thread = new Worker(import.meta.url, { type: "module" });
    while (next < from + seeds && failed === 0) {
      const verdict = await ask(thread, { seed: next++, way, mutant: values.mutant ?? null });
      done += 1;
      for (const [what, count] of verdict.counts) counts.set(what, (counts.get(what) ?? 0) + count);
      if (verdict.violation === null) continue;
      failed += 1;
      const { message } = verdict.violation;
      const says = INVARIANTS[message.split(":", 1)[0] as keyof typeof INVARIANTS];
      console.log(`Seed ${verdict.seed}, ${way}: ${message}\n${says}\n${verdict.lastLines.join("\n")}`);
    }
    thread.terminate();
  };
  await Promise.all(Array.from({ length: Number(values.threads) }, work));
  console.log(`${done} seeds of a bank with ${way}, ${failed} failed`);
  for (const [what, count] of [...counts].sort()) console.log(`${String(count).padStart(10)}  ${what}`);
  if (failed > 0) Deno.exit(1);
}

function ask(thread: Worker, order: Order): Promise<BankVerdict> {
  return new Promise((resolve, reject) => {
    thread.onmessage = ({ data }) => resolve(data);
    thread.onerror = (event) => reject(new Error(event.message));
    thread.postMessage(order);
  });
}
