import { parseArgs } from "node:util";
import { writeResults } from "../support/results.ts";
import { MUTANTS } from "./mutants/mutants.ts";
import { type Part, PARTS } from "./plan.ts";
import { shrink } from "./shrink.ts";
import { simulate, type SimulationOptions, type Verdict } from "./simulation.ts";
import { STORE_KINDS, type StoreKind } from "./stores.ts";
import { toFailure, Totals } from "./totals.ts";

// The command line of the simulation: `deno task simulate --seeds 1000`. Several threads simulate side by side.

const HELP = `deno task simulate [options]

  --seeds N       how many seeds, beginning with --from (default 1,000)
  --from S        the first of them (default 1)
  --seed S        this seed alone, twice: both have to go the same way
  --store KIND    memory (default), sqlite, twin: both, compared after each call; or postgres: PGlite, which takes
                  500 MB for each thread and 10 s for each seed
  --only NAMES    with these faults and requests alone, as a failure has named them
  --parts NAMES   with these parts of PARTS in plan.ts, or with none, instead of those that each seed has
  --mutant NAME   with a bug that has to be found (see mutants/); part of its name is enough
  --threads N     how many at the same time (default: one for each core)
  --no-shrink     do not look for a smaller case of what was found
  --json FILE     write what was counted to a file (not with --seed)`;

const PROGRESS_EVERY_MS = 1_000;
const MAX_TOLD = 5;
const ENOUGH_SEEDS = 200;

/** What a thread is asked for. */
interface Order {
  seed: number;
  store: StoreKind;
  mutant: string | null;
  only: string[] | null;
  parts: Part[] | null;
}

if ("Window" in globalThis || !("postMessage" in globalThis)) await main();
else {
  const thread = globalThis as unknown as Worker;
  thread.onmessage = async ({ data }) => thread.postMessage(await carryOut(data as Order));
}

async function carryOut(order: Order): Promise<Verdict> {
  return await simulate(optionsOf(order));
}

function optionsOf({ seed, store, mutant, only, parts }: Order): SimulationOptions {
  const known = mutant === null ? undefined : MUTANTS.find(({ name }) => name.includes(mutant));
  const selection = { only: only === null ? null : new Set(only) };
  return {
    seed,
    store,
    selection,
    ...(known === undefined ? {} : { mutant: known }),
    ...(parts === null ? {} : { parts }),
  };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      seeds: { type: "string", default: "1000" },
      from: { type: "string", default: "1" },
      seed: { type: "string" },
      store: { type: "string", default: "memory" },
      only: { type: "string" },
      parts: { type: "string" },
      mutant: { type: "string" },
      threads: { type: "string", default: String(navigator.hardwareConcurrency) },
      "no-shrink": { type: "boolean", default: false },
      json: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const store = STORE_KINDS.find((kind) => kind === values.store);
  if (store === undefined) throw new RangeError(`--store must be one of ${STORE_KINDS.join(", ")}`);
  const mutant = values.mutant ?? null;
  if (mutant !== null && !MUTANTS.some(({ name }) => name.includes(mutant))) {
    throw new RangeError(`--mutant must be part of one of:\n  ${MUTANTS.map(({ name }) => name).join("\n  ")}`);
  }
  const shrinks = !values["no-shrink"];
  const order = { store, mutant, only: values.only?.split(",") ?? null, parts: partsOf(values.parts) };
  const isOk = values.seed === undefined
    ? await simulateMany(whole(values.seeds), whole(values.from), whole(values.threads), order, shrinks, values.json)
    : await simulateOne({ ...order, seed: whole(values.seed) }, shrinks);
  if (!isOk) Deno.exit(1);
}

function partsOf(names: string | undefined): Part[] | null {
  if (names === undefined) return null;
  return names === "none" ? [] : names.split(",").map((name) => {
    if (!(name in PARTS)) throw new RangeError(`--parts must be none, or some of ${Object.keys(PARTS).join(",")}`);
    return name as Part;
  });
}

function whole(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new RangeError(`${text} is no positive integer`);
  return value;
}

async function simulateOne(order: Order, shrinks: boolean): Promise<boolean> {
  const first = await carryOut(order);
  const second = await carryOut(order);
  console.log(`seed ${order.seed} over ${order.store}: ${first.events} events, ${first.calls} calls to the store`);
  console.log(`history ${first.hash}, and ${second.hash} when it is repeated`);
  if (first.violation !== null) await tell(order, shrinks);
  if (first.hash !== second.hash) console.log("THE TWO WENT DIFFERENT WAYS");
  return first.violation === null && first.hash === second.hash;
}

async function simulateMany(
  seeds: number,
  from: number,
  threads: number,
  order: Omit<Order, "seed">,
  shrinks: boolean,
  json: string | undefined,
): Promise<boolean> {
  const { store } = order;
  const startedAt = performance.now();
  const totals = new Totals();
  const report = () => {
    const seconds = (performance.now() - startedAt) / 1_000;
    const speed = Math.round(totals.simulatedMs / 1_000 / seconds);
    return `${totals.seeds.toLocaleString("en")} of ${seeds.toLocaleString("en")} seeds over ${store}, ` +
      `${totals.failed.length} failed; ${(totals.events / 1e6).toFixed(1)} million events, ` +
      `${(totals.calls / 1e6).toFixed(2)} million calls; ${seconds.toFixed(0)} s at ${speed} times real time`;
  };
  const progress = setInterval(() => console.log(report()), PROGRESS_EVERY_MS);
  let next = from;
  const work = async () => {
    const thread = new Worker(import.meta.url, { type: "module" });
    while (next < from + seeds && totals.failed.length < MAX_TOLD) {
      const verdict = await ask(thread, { ...order, seed: next++ });
      totals.add(verdict);
      if (verdict.violation !== null) {
        console.log(`seed ${verdict.seed} failed: ${verdict.violation.message.slice(0, 200)}`);
      }
    }
    thread.terminate();
  };
  await Promise.all(Array.from({ length: threads }, work));
  clearInterval(progress);
  console.log(report());
  await writeResults(json, [{ name: store, broken: totals.failed.length, counts: totals.toCounts() }]);
  for (const { seed } of totals.failed) await tell({ ...order, seed }, shrinks);
  return isComplete(totals);
}

function ask(thread: Worker, order: Order): Promise<Verdict> {
  return new Promise((resolve, reject) => {
    thread.onmessage = ({ data }) => resolve(data);
    thread.onerror = (event) => reject(new Error(event.message));
    thread.postMessage(order);
  });
}

/** Whether nothing was broken and everything that has to happen has happened, if there was time enough for it. */
function isComplete(totals: Totals): boolean {
  const counts = [...totals.situations].sort(([, left], [, right]) => left - right);
  for (const [situation, count] of counts) console.log(`${String(count).padStart(10)}  ${situation}`);
  const missing = totals.missing();
  if (missing.length > 0) console.log(`NEVER HAPPENED: ${missing.join("; ")}`);
  return totals.failed.length === 0 && (missing.length === 0 || totals.seeds < ENOUGH_SEEDS);
}

async function tell(order: Order, shrinks: boolean): Promise<void> {
  const options = optionsOf(order);
  const failed = await simulate(options); // once more: what a thread sends is no error any more
  if (failed.violation === null) return console.log(`\nSeed ${order.seed} failed, and does not when it is repeated`);
  const smallest = shrinks ? await shrink(failed, options) : failed;
  const mutant = order.mutant === null ? "" : ` --mutant "${order.mutant}"`;
  const parts = order.parts === null ? "" : ` --parts ${order.parts.join(",") || "none"}`;
  const command = `deno task simulate --store ${order.store} --seed ${order.seed}${parts}${mutant}`;
  console.log(`\nSeed ${order.seed} over ${order.store}\n${toFailure(smallest, command)}`);
}
