import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
import { benchInput } from "../engines/holdfast.ts";
import { pause } from "../pause.ts";
import type { Setting } from "../setting.ts";
import type { Workload } from "../workload.ts";

// So many that it counts little that each process compiles its JavaScript first.
const RUNS = 24_000;
const STEPS = 5;
const CONCURRENCY = 100;

/** What more worker processes on one file gain, or cost. */
export const processes: Workload = {
  name: "processes",
  title: "Several worker processes on one file",
  about:
    `${RUNS} runs of ${STEPS} steps that were triggered before; each process executes ${CONCURRENCY} at once. SQLite ` +
    "has one writer at a time, so more processes can only share the work that is no writing.",
  trials: [{
    name: "",
    figures: [
      { name: "one", unit: "per second", goals: [] },
      { name: "one, CPU of a run", unit: "µs", goals: [] },
      { name: "two", unit: "of the first", goals: [{ above: 1 }] },
      { name: "two, CPU of a run", unit: "µs", goals: [] },
      { name: "four", unit: "of the first", goals: [{ above: 1.2 }] },
      { name: "four, CPU of a run", unit: "µs", goals: [] },
    ],
    rounds: 3,
    contenders: {
      holdfast: async (setting) => {
        const one = await measureDrain(setting, 1);
        const two = await measureDrain(setting, 2);
        const four = await measureDrain(setting, 4);
        return [one.speed, one.cpuUs, two.speed / one.speed, two.cpuUs, four.speed / one.speed, four.cpuUs];
      },
    },
  }],
};

const steps = defineJob({
  name: "steps",
  input: benchInput,
  async run(step) {
    for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, () => n);
  },
});

/** Returns how many runs a second several processes complete that are ready when the clock starts, and their CPU time. */
async function measureDrain({ folder, size }: Setting, count: number): Promise<{ speed: number; cpuUs: number }> {
  const path = `${folder}/${count}.db`;
  const runs = size(RUNS, 100);
  {
    await using store = await SqliteStore.open(path);
    await using engine = createEngine({ store, jobs: { steps } });
    for (let n = 0; n < runs; n += 100) {
      await engine.jobs.steps.batchTrigger(Array.from({ length: 100 }, (_, n) => ({ input: { n } })));
    }
  }
  const workers = Array.from({ length: count }, () =>
    new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", import.meta.filename!, path],
      stdin: "piped",
      stdout: "piped",
    }).spawn());
  const outputs = workers.map(({ stdout }) => stdout.getReader());
  const inputs = workers.map(({ stdin }) => stdin.getWriter());
  await Promise.all(outputs.map((output) => output.read())); // each is ready
  using database = new DatabaseSync(path, { readOnly: true });
  const left = database.prepare("SELECT 1 FROM holdfast_runs WHERE status <> 'completed' LIMIT 1");
  const startedAt = performance.now();
  await Promise.all(inputs.map((input) => input.write(new TextEncoder().encode("go\n"))));
  while (left.get() !== undefined) await pause(5);
  const seconds = (performance.now() - startedAt) / 1_000;
  await Promise.all(inputs.map((input) => input.close()));
  const used = await Promise.all(outputs.map((output) => output.read()));
  await Promise.all(outputs.map((output) => output.cancel()));
  await Promise.all(workers.map(({ status }) => status));
  const cpuUs = used.reduce((sum, { value }) => sum + Number(new TextDecoder().decode(value)), 0) / runs;
  return { speed: runs / seconds, cpuUs };
}

/** What each of the processes does, until its standard input ends. */
async function work(path: string): Promise<void> {
  await using store = await SqliteStore.open(path);
  await using engine = createEngine({ store, jobs: { steps }, worker: { concurrency: CONCURRENCY } });
  await engine.migrate();
  const lines = Deno.stdin.readable.getReader();
  console.log("ready");
  await lines.read();
  const before = process.cpuUsage();
  await engine.start();
  while (!(await lines.read()).done);
  const { user, system } = process.cpuUsage(before);
  console.log(user + system);
}

if (import.meta.main) await work(Deno.args[0]!);
