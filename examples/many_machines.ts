// deno run -A examples/many_machines.ts postgres://user:password@host/database
//
// Workers on several machines share a PostgreSQL database. Here each machine is a process: three of them render pages
// of books, at most one page of a book at a time. One is killed in the middle, and the others execute its runs again.

import process from "node:process";
import { fileURLToPath } from "node:url";
import { createEngine, defineJob, shutdownOnSignal } from "@holdfast/jobs";
import { PostgresStore } from "@holdfast/jobs/postgres";
import { z } from "zod";

const MACHINES = ["amsterdam", "berlin", "cairo"];
const BOOKS = ["Emma", "Kim", "Nana", "Dracula"];
const PAGES = 5;

const [url, machine] = process.argv.slice(2);
if (url === undefined) throw new TypeError("Which database? Give its address as an argument");

const render = defineJob({
  name: "render",
  input: z.object({ book: z.string(), page: z.number() }),
  async run(step, { book, page }) {
    const renderedOn = await step.run("render", async () => {
      await new Promise((resolve) => setTimeout(resolve, 150));
      return machine ?? "here";
    });
    return { book, page, renderedOn };
  },
});

await using store = await PostgresStore.open(url, { schema: "holdfast_machines" });
await using engine = createEngine({
  store,
  jobs: { render },
  // A short lease: the runs of a machine that was killed are claimed again after two seconds.
  worker: { concurrency: 2, heartbeatInterval: 500, staleThreshold: 2_000 },
});

if (machine === undefined) await coordinate();
else await work();

/** Executes runs until a signal, or until the process that has started it ends. */
async function work(): Promise<void> {
  await engine.start();
  const stopped = new AbortController();
  shutdownOnSignal(engine).then(() => stopped.abort());
  await Deno.stdin.readable.pipeTo(new WritableStream(), { signal: stopped.signal }).catch(() => {});
}

/** Starts the machines, triggers the runs, and kills a machine. This process executes nothing: it is not started. */
async function coordinate(): Promise<void> {
  await engine.migrate();
  const machines = MACHINES.map((name) =>
    new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", fileURLToPath(import.meta.url), url!, name],
      stdin: "piped",
    }).spawn()
  );
  const pages = BOOKS.flatMap((book) => Array.from({ length: PAGES }, (_, n) => ({ book, page: n + 1 })));
  const runs = await engine.jobs.render.batchTrigger(
    pages.map((input) => ({ input, concurrencyKey: input.book })),
  );
  console.log(`${runs.length} pages of ${BOOKS.length} books, on ${MACHINES.join(", ")}`);

  // The machine that has rendered the first page has others in work.
  const first = await engine.waitForRun(runs[0]!.id);
  const { renderedOn } = first.output as { renderedOn: string };
  machines[MACHINES.indexOf(renderedOn)]!.kill("SIGKILL");
  console.log(`${renderedOn} is killed after page 1 of ${BOOKS[0]}`);
  const ended = await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));

  for (const name of MACHINES) {
    const rendered = ended.filter(({ output }) => (output as { renderedOn: string }).renderedOn === name);
    console.log(`${name.padEnd(9)} ${String(rendered.length).padStart(2)} pages`);
  }
  for (const { status, leaseGeneration, payload } of ended) {
    if (status !== "completed") throw new Error(`A run is ${status}`);
    if (leaseGeneration > 1) {
      const { book, page } = payload as { book: string; page: number };
      console.log(`page ${page} of ${book} was claimed again after the machine had died`);
    }
  }
  // A worker stops when its standard input ends.
  await Promise.all(machines.map((child) => child.stdin.close().catch(() => {})));
  await Promise.all(machines.map((child) => child.status));
}
