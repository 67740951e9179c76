// deno task bench:observed [--pairs N]
//
// What statistics, metrics and the OpenTelemetry plugin without an exporter cost: runs are executed in small slices, in
// turn with all of it, without any of it, and once more without any of it. The last one is the control: what differs there
// is noise. Each has a database of its own with `synchronous=FULL`, in one process. The time of the processor is the better
// measure on a machine that does other work, too. Ends with status 1 if more than 3 % are lost, with 95 % certainty.

import { parseArgs } from "node:util";
import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
import { otel } from "@holdfast/jobs/otel";
import { benchInput } from "./engines/holdfast.ts";
import type { Holdfast, Slice } from "./slices.ts";
import { type Ratio, ratioOf, takeTurns } from "./take_turns.ts";
import { loadUnobserved } from "./unobserved.ts";

const GOAL = 0.97;
const RUNS = 200;
const STEPS = 5;
const CONCURRENCIES = [100, 10];

const { values } = parseArgs({ options: { pairs: { type: "string", default: "200" } } });
const pairs = Number(values.pairs);
if (!Number.isInteger(pairs) || pairs < 1) {
  console.error("--pairs must be a number from 1");
  Deno.exit(2);
}

const steps = defineJob({
  name: "steps",
  input: benchInput,
  async run(step) {
    for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, () => n);
  },
});

/** Executes runs by a worker that polls. */
async function prepare(holdfast: Holdfast, path: string, { concurrency, isObserved }: Variant): Promise<Slice> {
  const store = await holdfast.SqliteStore.open(path);
  const engine = holdfast.createEngine({ store, jobs: { steps }, worker: { concurrency } });
  if (isObserved) engine.use(otel());
  let open = 0;
  let done = Promise.withResolvers<void>();
  engine.on("run:complete", () => void (--open === 0 && done.resolve()));
  await engine.start();
  return {
    work: async () => {
      open = RUNS;
      done = Promise.withResolvers();
      await engine.jobs.steps.batchTrigger(Array.from({ length: RUNS }, () => ({ input: { n: 1 } })));
      await done.promise;
    },
    end: async () => {
      await engine.stop();
      await store.close();
    },
  };
}

interface Variant {
  concurrency: number;
  isObserved: boolean;
}

const folder = await Deno.makeTempDir({ prefix: "holdfast_bench_" });
let isMissed = false;
try {
  const [plain, other] = await Promise.all(["plain", "other"].map((name) => loadUnobserved(`${folder}/${name}`)));
  const whole = { createEngine, SqliteStore } as Holdfast; // what prepare() uses
  console.log(`${pairs} pairs of slices with ${RUNS} runs of ${STEPS} steps; 1 is as fast as without all of it`);
  for (const concurrency of CONCURRENCIES) {
    const [off, control, on] = await takeTurns(
      await Promise.all([
        prepare(plain!, `${folder}/${concurrency}_off.db`, { concurrency, isObserved: false }),
        prepare(other!, `${folder}/${concurrency}_control.db`, { concurrency, isObserved: false }),
        prepare(whole, `${folder}/${concurrency}_on.db`, { concurrency, isObserved: true }),
      ]),
      pairs,
    );
    for (const [kind, name] of [["work", "processor"], ["time", "clock"]] as const) {
      const speed = ratioOf(off!, on!, kind);
      if (kind === "work") isMissed ||= speed.to < GOAL;
      console.log(
        `concurrency ${`${concurrency}`.padEnd(4)} ${name.padEnd(10)} ${text(speed)}   control ${
          text(ratioOf(off!, control!, kind))
        }`,
      );
    }
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
console.log(`goal: ${GOAL} of the processor's time${isMissed ? ", missed" : ""}`);
Deno.exit(isMissed ? 1 : 0);

function text({ from, median, to }: Ratio): string {
  return `${median.toFixed(3)} (${from.toFixed(3)} to ${to.toFixed(3)})`;
}
