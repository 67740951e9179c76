// bench/deno.json names the packages of other engines: they are loaded with `--peers` alone.
import { createDurably, defineJob } from "@coji/durably";
import { SqliteDialect } from "kysely";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import { Counter } from "../counter.ts";
import type { BenchEngine, BenchJob, OpenOptions } from "../engine.ts";
import { benchInput } from "./holdfast.ts";

// What makes it take up a run soon after its worker has died.
const SHORT_LEASE = { leaseMs: 1_000, leaseRenewIntervalMs: 200 };

/**
 * Opens durably on `node:sqlite`, with WAL and `synchronous=FULL` as ours.
 *
 * It cannot park a run. For a replay its worker dies, as far as others can see, and another engine takes the run
 * over when the lease has ended.
 */
export async function openDurably(options: OpenOptions): Promise<BenchEngine> {
  const completed = new Counter();
  const death = Promise.withResolvers<void>();
  const heir = makeEngine({ ...options, fastest: true }, completed, () => Promise.resolve());
  const engine = makeEngine(options, completed, () => {
    engine.storage.renewLease = () => Promise.resolve(true); // and does not do it
    heir.start();
    return death.promise;
  });
  await engine.migrate();
  const handle = (job: string) => engine.getJob(job as "job")!;
  return {
    trigger: (job, input) => handle(job).trigger(input),
    batchTrigger: (job, inputs) => handle(job).batchTrigger([...inputs]),
    triggerAndWait: (job, input) => handle(job).triggerAndWait(input),
    start: () => Promise.resolve(engine.start()),
    completed: (count) => completed.reached(count),
    claimedAt: null,
    list: async (filter) => (await engine.getRuns({ ...filter, limit: 50 })).length,
    async [Symbol.asyncDispose]() {
      death.reject(new Error("The worker has died"));
      await Promise.all([engine.stop(), heir.stop(), death.promise.catch(() => {})]);
      await Promise.all([engine.db.destroy(), heir.db.destroy()]);
    },
  };
}

function makeEngine(
  { path, jobs, concurrency, fastest = false }: OpenOptions,
  completed: Counter,
  replay: () => Promise<void>,
) {
  const durably = createDurably({
    dialect: new SqliteDialect({ database: () => Promise.resolve(openDatabase(path)) }),
    ...(concurrency === undefined ? {} : { maxConcurrentRuns: concurrency }),
    ...(fastest ? { pollingIntervalMs: 1 } : {}),
    ...("replayed" in jobs ? SHORT_LEASE : {}),
    jobs: Object.fromEntries(Object.entries(jobs).map(([name, job]) => [name, toJob(name, job, replay)])),
  });
  durably.on("run:complete", () => completed.add());
  return durably;
}

function toJob(name: string, job: BenchJob, replay: () => Promise<void>) {
  return defineJob({
    name,
    input: benchInput,
    run: async (step, input) => {
      await job({ step: (stepName, work) => step.run(stepName, work), replay }, input);
    },
  });
}

/** `node:sqlite` in the shape of `better-sqlite3`, which the dialect of Kysely asks for. */
function openDatabase(path: string) {
  const db = new DatabaseSync(path);
  db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 1000");
  return {
    close: () => db.close(),
    prepare(sql: string) {
      const statement = db.prepare(sql);
      return {
        reader: statement.columns().length > 0,
        all: (parameters: readonly unknown[]) => statement.all(...parameters as SQLInputValue[]),
        run: (parameters: readonly unknown[]) => statement.run(...parameters as SQLInputValue[]),
        iterate: (parameters: readonly unknown[]) => statement.iterate(...parameters as SQLInputValue[]),
      };
    },
  };
}
