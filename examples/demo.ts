// deno run -A examples/demo.ts [--postgres URL], or deno task demo, which first installs what the tests need
// deno run -A examples/demo.ts --ui     another example, with its dashboard: see examples/dashboard.ts
//
// An import in 26 steps, whose worker is killed a third of the way. A second worker goes on where the first one was.
// In the end the run waits for a signal before it sums up. Its jobs are in a SQLite file, or in the schema
// `holdfast_demo` of a PostgreSQL database.

import process from "node:process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { createEngine, type Engine, type RunEvent } from "@holdfast/jobs";
import type { z } from "zod";
import { isAddress, openStore } from "./demo/open_store.ts";
import { bold, dim, green, ProgressBar, red } from "./demo/terminal.ts";
import { WorkerProcess } from "./demo/worker_process.ts";
import { importEarthquakes, ImportSummary } from "./import_earthquakes.ts";

const CSV = fileURLToPath(new URL("data/earthquakes.csv", import.meta.url));
const ROWS = 1_707;
const CHUNK_SIZE = 72;
const CHUNKS = Math.ceil(ROWS / CHUNK_SIZE);
const STEPS = CHUNKS + 2; // The first one counts the rows, the last one sums up.
const LAST_BEFORE_KILL = `chunk ${Math.floor(CHUNKS / 3)}`;
const PAUSE_MS = 120;
const PERSON_MS = 500;
const TIMEOUT_MS = 30_000;
const LABEL_WIDTH = 8;

if (Deno.args[0] === "--ui") await showDashboard();
else Deno.exit(await main());

/** Opens the dashboard of the invoices example, on a database that is removed at the end. */
async function showDashboard(): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "holdfast-demo-" });
  try {
    const { openDashboard } = await import("./dashboard.ts");
    await openDashboard(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Runs the demo, and leaves nothing behind. Answers the exit code. */
async function main(): Promise<number> {
  await using cleanup = new AsyncDisposableStack();
  const directory = await Deno.makeTempDir({ prefix: "holdfast-demo-" });
  cleanup.defer(() => Deno.remove(directory, { recursive: true }));
  const { promise: givenUp, resolve } = Promise.withResolvers<boolean>();
  const giveUp = (why: string) => {
    console.error(`\n  ${red("Given up")}: ${why}`);
    resolve(false);
  };
  setTimeout(() => giveUp(`it takes longer than ${TIMEOUT_MS / 1_000} seconds`), TIMEOUT_MS);
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => giveUp(signal));
  try {
    return await Promise.race([demo(directory, cleanup), givenUp]) ? 0 : 1;
  } catch (error) {
    console.error(error);
    return 1;
  }
}

/** Answers whether all checks have passed. What has to be closed or killed in the end goes to `cleanup`. */
async function demo(directory: string, cleanup: AsyncDisposableStack): Promise<boolean> {
  const startedAt = performance.now();
  const { postgres } = parseArgs({ options: { postgres: { type: "string" } } }).values;
  const jobs = postgres ?? `${directory}/jobs.db`;
  const target = `${directory}/earthquakes.db`;
  say(`\n  ${bold("Holdfast: an import that outlives its worker")}\n`);
  say(`  ${number(ROWS)} seismic events (USGS, one week) go from a CSV file into a SQLite table,`);
  say(`  in ${CHUNKS} chunks of one step each. A third of the way the worker is killed.\n`);

  const store = cleanup.use(await openStore(jobs));
  const engine = createEngine({ store, jobs: { importEarthquakes } }); // Not started: it executes nothing itself.
  const { id: runId } = await engine.jobs.importEarthquakes.trigger({
    path: CSV,
    database: target,
    chunkSize: CHUNK_SIZE,
    pauseMs: PAUSE_MS,
  });
  tell("trigger", `run ${runId}`);
  say("");

  const worker1 = cleanup.use(new WorkerProcess(jobs));
  const startedBy1 = await watch(worker1, "worker 1", (event) => {
    if (event.type === "run:start") {
      tell("worker 1", `process ${worker1.pid} takes the run: execution ${event.execution}`);
    }
    if (event.type === "step:complete" && event.stepName === LAST_BEFORE_KILL) {
      setTimeout(() => worker1.kill(), Math.random() * PAUSE_MS);
    }
  });
  say("");
  const killedAt = performance.now();
  // What counts is what was recorded: the process may have died before it could tell of its last step.
  const recordedBy1 = (await engine.getSteps(runId)).map(({ name }) => name);
  if (!recordedBy1.includes(LAST_BEFORE_KILL)) throw new Error("Worker 1 has ended before it was killed");
  const cutShort = startedBy1.find((name) => !recordedBy1.includes(name));
  tell(
    "SIGKILL",
    `process ${worker1.pid} is dead, ${cutShort ? `in the middle of "${cutShort}":` : "between two steps"}`,
    red,
  );
  if (cutShort) {
    const isImported = readTarget(target).chunks === recordedBy1.length; // "count rows" is no chunk
    tell("", `its rows are ${isImported ? "in the table, but" : "not in the table, and"} the step is not recorded`);
  }

  say("");
  const worker2 = cleanup.use(new WorkerProcess(jobs));
  tell("worker 2", `process ${worker2.pid} waits until the dead worker's lease expires`);
  let isTaken = false;
  const watching = watch(worker2, "worker 2", (event) => {
    if (event.type !== "run:start") return;
    const text = isTaken
      ? "claims the run again, as part of the same execution"
      : `takes the run ${seconds(killedAt)} after the kill: execution ${event.execution}`;
    tell("worker 2", text);
    isTaken = true;
  });
  const released = release(engine, runId);
  const endedEarly = watching.then<never>(() => {
    throw new Error("Worker 2 has ended before the run");
  });
  const run = await Promise.race([engine.waitForRun(runId), endedEarly]);
  await released;
  await worker2.stop();
  const startedBy2 = await watching;
  const steps = await engine.getSteps(runId);
  const replayed = recordedBy1.filter((name) => !startedBy2.includes(name));
  say("");
  tell("replayed", `${describe(replayed)}: recorded, so not called again`);
  tell("executed", `${describe(startedBy2)}, by worker 2`);

  await store.close();

  say(`\n  ${bold("Checks")}\n`);
  const { rows, ids, chunks } = readTarget(target);
  const names = new Set(steps.map(({ name }) => name));
  const calledAgain = recordedBy1.length - replayed.length;
  const files = [jobs, target].filter((database) => !isAddress(database));
  const integrity = files.map(checkIntegrity);
  const isAllWell = [
    check(rows === ROWS && ids === ROWS, `${number(rows)} rows in the table, ${number(ids)} different ids`),
    check(chunks === CHUNKS, `${chunks} chunks imported`),
    check(
      steps.length === STEPS && names.size === STEPS,
      `${steps.length} steps recorded, ${names.size} different names`,
    ),
    check(steps.every(({ status }) => status === "completed"), "all of them completed"),
    check(
      calledAgain === 0,
      `${recordedBy1.length} steps recorded by worker 1, ${calledAgain} of them called by worker 2`,
    ),
    check(
      integrity.every((answer) => answer === "ok"),
      `PRAGMA integrity_check of ${files.length === 2 ? "both databases" : "the table"}: ${integrity.join(", ")}`,
    ),
  ].every(Boolean);

  showStrongest(ImportSummary.parse(run.output));
  say(`\n  ${isAllWell ? green("Done") : red("Failed")} in ${seconds(startedAt)}.\n`);
  return isAllWell;
}

/** Answers the question that the run asks in the end, as a person would do by hand, hours later. */
async function release(engine: Engine, runId: string): Promise<void> {
  for await (const event of engine.subscribe(runId)) {
    if (event.type !== "run:waiting" || event.waitId === null) continue;
    say("");
    tell("waiting", `for a person's "${event.waitName}": the run holds no worker and no lease`);
    await new Promise((resolve) => setTimeout(resolve, PERSON_MS));
    const { disposition } = await engine.signal(event.waitId, { signalId: "demo", payload: { by: "the demo itself" } });
    tell("signal", `${disposition}: the run goes on`);
  }
}

/** Shows what a worker tells, until its process has ended. Answers the steps that it has called, in order. */
async function watch(worker: WorkerProcess, title: string, hear: (event: RunEvent) => void): Promise<string[]> {
  const started: string[] = [];
  const bar = new ProgressBar(title.padEnd(LABEL_WIDTH));
  for await (const event of worker.events()) {
    hear(event);
    if (event.type === "step:start") started.push(event.stepName);
    if (event.type === "run:progress") bar.show(event.progress);
  }
  bar.end();
  return started;
}

function showStrongest({ strong, strongest }: z.infer<typeof ImportSummary>): void {
  say(`\n  ${bold("The strongest of the week")} ${dim(`(${strong} had a magnitude of 4.5 or more)`)}\n`);
  for (const { mag, time, place } of strongest) {
    say(`  ${mag.toFixed(1)}  ${dim(`${time.slice(0, 10)} ${time.slice(11, 16)}`)}  ${place}`);
  }
}

function readTarget(path: string): { rows: number; ids: number; chunks: number } {
  using db = new DatabaseSync(path);
  const row = db.prepare(`
    SELECT count(*) AS rows, count(DISTINCT id) AS ids, (SELECT count(*) FROM imported_chunks) AS chunks
    FROM earthquakes
  `).get();
  return row as ReturnType<typeof readTarget>;
}

function checkIntegrity(path: string): string {
  using db = new DatabaseSync(path);
  return db.prepare("PRAGMA integrity_check").all().map((row) => row.integrity_check).join("; ");
}

function check(isTrue: boolean, text: string): boolean {
  say(`  ${isTrue ? green("ok    ") : red("FAILED")}  ${text}`);
  return isTrue;
}

function describe(steps: readonly string[]): string {
  return `${steps.length} steps, ${steps[0]} to ${steps.at(-1)}`;
}

function seconds(since: number): string {
  return `${((performance.now() - since) / 1_000).toFixed(1)} s`;
}

function number(value: number): string {
  return value.toLocaleString("en");
}

function tell(label: string, text: string, paint = bold): void {
  say(`  ${paint(label.padEnd(LABEL_WIDTH))}  ${text}`);
}

function say(text: string): void {
  console.log(text);
}
