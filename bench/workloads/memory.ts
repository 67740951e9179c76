import type { BenchEngine, BenchJob } from "../engine.ts";
import { openHoldfast } from "../engines/holdfast.ts";
import { pause } from "../pause.ts";
import { openPeer } from "../peers.ts";
import { RawDatabase } from "../raw_database.ts";
import type { Contender, Figure, Goal, Measure, Workload } from "../workload.ts";

const MANY = 100_000;
const FEW = 10_000;
const SETTLE_MS = 1_500;
const BELOW: readonly Goal[] = [{ below: 5 }];

/** How much memory runs take that are not being executed. */
export const memory: Workload = {
  name: "memory",
  title: "Memory for runs that are not executed",
  about:
    "What they add to the heap (with what it refers to outside) and to the resident set of a process with a started " +
    "engine, after they were triggered there, 100 at a time; each measurement has a process of its own. Half as many " +
    "before bring the process to its working size, which is shown, too; garbage is collected after every 1,000. Pending " +
    "runs stand behind those that the worker executes. Raw only inserts rows.",
  trials: [
    {
      name: "100,000 pending",
      figures: figures(BELOW),
      rounds: 1,
      contenders: { raw: child("raw", "pending", MANY), holdfast: child("holdfast", "pending", MANY) },
    },
    {
      name: "100,000 waiting",
      figures: figures(BELOW),
      rounds: 1,
      contenders: { holdfast: child("holdfast", "waiting", MANY) },
    },
    {
      name: "10,000 pending",
      figures: figures([]),
      rounds: 1,
      contenders: {
        raw: child("raw", "pending", FEW),
        holdfast: child("holdfast", "pending", FEW),
        durably: child("durably", "pending", FEW),
        openworkflow: child("openworkflow", "pending", FEW),
      },
    },
  ],
};

function figures(goals: readonly Goal[]): Figure[] {
  return [
    { name: "heap", unit: "MB", goals },
    { name: "resident", unit: "MB", goals },
    { name: "resident, half as many before", unit: "MB", goals: [] },
  ];
}

type Kind = "pending" | "waiting";

function child(contender: Contender, kind: Kind, runs: number): Measure {
  return async ({ folder, size }) => {
    const { success, stdout } = await new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-A",
        "--v8-flags=--expose-gc",
        import.meta.url,
        contender,
        kind,
        String(size(runs, 200)),
        folder,
        String(size(SETTLE_MS, 50)),
      ],
      stderr: "inherit",
    }).output();
    if (!success) throw new Error("The process that measures memory has failed");
    return JSON.parse(new TextDecoder().decode(stdout));
  };
}

/** What the other process does. */
async function grow([contender, kind, count, folder, settleMs]: readonly string[]): Promise<void> {
  const add = contender === "raw"
    ? addRaw(`${folder}/raw.db`)
    : await addTo(contender as Contender, kind as Kind, folder!);
  await add(100);
  const used = () => usedAfter(Number(settleMs));
  const begun = await used();
  await add(Number(count) / 2);
  const grown = await used();
  await add(Number(count));
  const full = await used();
  console.log(JSON.stringify([
    full.heap - grown.heap,
    full.resident - grown.resident,
    grown.resident - begun.resident,
  ]));
  Deno.exit();
}

function addRaw(path: string): (count: number) => Promise<void> {
  const raw = new RawDatabase(path);
  return (count) => {
    for (let done = 0; done < count; done += 100) {
      raw.transaction(() => {
        for (let n = 0; n < 100; n++) raw.insertRun("busy", '{"n":1}');
      });
      if (done % 1_000 === 0) collectGarbage();
    }
    return Promise.resolve();
  };
}

async function addTo(contender: Contender, kind: Kind, folder: string): Promise<(count: number) => Promise<void>> {
  let waiting = 0;
  const busy: BenchJob = () => new Promise(() => {});
  const asleep: BenchJob = async ({ sleep }) => {
    waiting += 1;
    await sleep!("long", 3_600_000);
  };
  const open = contender === "holdfast" ? openHoldfast : openPeer(contender as "durably" | "openworkflow");
  const job = kind === "pending" ? busy : asleep;
  const engine: BenchEngine = await open({ path: `${folder}/jobs.db`, jobs: { job } });
  await engine.start();
  let added = 0;
  return async (count) => {
    for (let done = 0; done < count; done += 100) {
      await Promise.all(Array.from({ length: 100 }, () => engine.trigger("job", { n: 1 })));
      added += 100;
      if (done % 1_000 !== 0) continue;
      while (kind === "waiting" && waiting < added) await pause(5);
      collectGarbage();
    }
  };
}

async function usedAfter(settleMs: number): Promise<{ heap: number; resident: number }> {
  await pause(settleMs);
  for (let n = 0; n < 3; n++) collectGarbage();
  await pause(100);
  const { heapUsed, external, rss } = Deno.memoryUsage();
  return { heap: (heapUsed + external) / 2 ** 20, resident: rss / 2 ** 20 };
}

// Often, so that the process never grows for garbage that nobody has collected yet.
function collectGarbage(): void {
  (globalThis as { gc?: () => void }).gc?.();
}

if (import.meta.main) await grow(Deno.args);
