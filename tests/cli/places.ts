import { createEngine } from "../../src/engine/create_engine.ts";
import { createHandler } from "../../src/http/handler.ts";
import type { Store } from "../../src/store/store.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { aJob } from "../support/jobs.ts";
import { POSTGRES_URL } from "../support/stores/postgres_store.ts";

/** A store, and the arguments by which a command finds it. */
export interface StorePlace extends AsyncDisposable {
  /** Is open, and migrated. */
  store: Store;
  /** `--store` with its value. */
  args: string[];
  /** The path of the file; `null`: it is none. */
  path: string | null;
}

/** A SQLite file of a test. */
export async function aFile(): Promise<StorePlace & { path: string }> {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/jobs.db`;
  const store = await SqliteStore.open(path);
  await store.migrate();
  return {
    store,
    args: ["--store", path],
    path,
    [Symbol.asyncDispose]: async () => {
      await store.close();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

/** A schema of a Postgres database; `null`: there is no server. */
export async function aSchema(): Promise<StorePlace | null> {
  if (POSTGRES_URL === undefined) return null;
  const schema = `test_${crypto.randomUUID().replaceAll("-", "")}`;
  const store = await PostgresStore.open(POSTGRES_URL, { schema, durability: "relaxed" });
  await store.migrate();
  const args = ["--store", POSTGRES_URL, "--schema", schema];
  return { store, args, path: null, [Symbol.asyncDispose]: () => store.close() };
}

/** A service over a store, on a port of this machine. */
export async function aServer(
  store: Store,
  { token, jobs = {} }: { token?: string; jobs?: Record<string, ReturnType<typeof aJob>> } = {},
): Promise<{ args: string[] } & AsyncDisposable> {
  const engine = createEngine({ store, jobs, logger: null });
  await engine.migrate();
  const handler = createHandler(engine, {
    basePath: "/api/jobs",
    showFailures: true,
    ...(token === undefined ? {} : {
      auth: {
        authenticate: (request: Request) => {
          if (request.headers.get("authorization") !== `Bearer ${token}`) throw new Response(null, { status: 401 });
          return {};
        },
        onTrigger: () => {},
        onRunAccess: () => {},
        onOperate: () => {},
        scopeRuns: (_context: unknown, filter: object) => filter,
      },
    }),
  });
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler.fetch);
  return {
    args: ["--store", `http://127.0.0.1:${server.addr.port}/api/jobs`],
    [Symbol.asyncDispose]: async () => {
      await engine.stop({ timeout: 0 });
      await server.shutdown();
    },
  };
}

/** The jobs of {@linkcode fill}. */
export const cliJobs = {
  importCsv: aJob(async (step, input: { bad?: boolean }) => {
    await step.run("download", () => "csv");
    return await step.run("write", () => {
      if (input.bad) throw new Error("ConnectionRefused: 10.0.3.7:5432");
      return { rows: 48 };
    });
  }, "import-csv"),
  approve: aJob((step) => step.wait("review", { timeout: 86_400_000, metadata: { changes: 3 } }), "approve"),
};

/** The ids of the runs that {@linkcode fill} has made. */
export interface Filled {
  completed: string;
  failed: string;
  waiting: string;
  first: string;
  second: string;
}

/** Puts a completed run, a failed one, a waiting one and two pending ones with one key into a store. */
export async function fill(store: Store): Promise<Filled> {
  await using engine = createEngine({ store, jobs: cliJobs, logger: null, worker: { name: "web-1" } });
  const trigger = async (job: string, input: unknown, options = {}) => (await engine.trigger(job, input, options)).id;
  const completed = await trigger("import-csv", {}, { labels: { org: "acme" } });
  const failed = await trigger("import-csv", { bad: true }, { labels: { org: "acme" } });
  const waiting = await trigger("approve", {});
  await engine.runUntilIdle();
  const first = await trigger("import-csv", {}, { concurrencyKey: "import:acme" });
  const second = await trigger("import-csv", {}, { concurrencyKey: "import:acme" });
  return { completed, failed, waiting, first, second };
}
