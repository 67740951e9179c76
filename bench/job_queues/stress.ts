import pg from "pg";
import type { Server } from "../../tests/stores/postgres/server.ts";
import { pause } from "../pause.ts";
import type { PhaseType } from "./cells.ts";
import type { Replicas } from "./replicas.ts";

/** What a phase acts on. */
export interface StressTarget {
  /** The address of the queue's database. */
  url: string;
  /** Its server. */
  server: Server;
  /** The processes of the queue. */
  replicas: Replicas;
  /** The file with the number of jobs that each process adds a second. */
  rateFile: string;
  /** What is in the file. */
  rate: number;
  /** The table that readers count. */
  table: string;
  /** How long the phase takes, in milliseconds. */
  ms: number;
  /** How long a minute of the published phases takes here, in milliseconds. */
  minuteMs: number;
}

/** Ends what a phase has begun. */
type End = () => Promise<void>;

const HIGH_LOAD = 1.5;
const READERS = 4;
const READ_EVERY_MS = 100;
const KILLS_A_SECOND = 2;
const IDLE_CONNECTIONS = 300;
// A third of a minute, and never so short that a kill meets a process that is still starting.
const KILL_EVERY = 1 / 3;
const MIN_KILL_EVERY_MS = 5_000;
const REST_AFTER_KILL_MS = 1_000;

/** Begins what happens in a phase. What is returned ends it, and throws what has failed meanwhile. */
export async function beginStress(type: PhaseType, target: StressTarget): Promise<End> {
  const begin = STRESS[type];
  return begin === undefined ? async () => {} : await begin(target);
}

const STRESS: { readonly [type in PhaseType]?: (target: StressTarget) => Promise<End> | End } = {
  "high-load": highLoad,
  "idle-in-tx": idleInTransaction,
  "active-readers": activeReaders,
  "kill-worker": async ({ replicas }) => {
    await replicas.kill(0);
    return async () => {};
  },
  "start-worker": async ({ replicas }) => {
    await replicas.start(0);
    return async () => {};
  },
  "repeated-kill": ({ replicas, minuteMs }) =>
    repeat(async (stopping) => {
      await pauseUnless(stopping, Math.max(MIN_KILL_EVERY_MS, minuteMs * KILL_EVERY));
      if (stopping.aborted) return;
      await replicas.kill(0);
      await pause(REST_AFTER_KILL_MS);
      await replicas.start(0);
    }),
  "postgres-restart": ({ server, ms }) => {
    // Down for the first half of the phase.
    const restart = server.restart({ downMs: ms / 2, mode: "fast" });
    restart.catch(() => {}); // thrown at the end of the phase
    return () => restart;
  },
  "pg-backend-kill": backendKills,
  "pool-exhaustion": poolExhaustion,
};

async function highLoad({ rateFile, rate }: StressTarget): Promise<End> {
  await Deno.writeTextFile(rateFile, String(rate * HIGH_LOAD));
  return () => Deno.writeTextFile(rateFile, String(rate));
}

/** A transaction that has written, and stays open: vacuum removes nothing that dies meanwhile. */
async function idleInTransaction({ url }: StressTarget): Promise<End> {
  const client = await connect(url);
  await client.query("begin");
  await client.query("select txid_current()");
  return () => client.end();
}

/** Snapshots that stay open, whose transactions count the jobs ten times a second. */
async function activeReaders({ url, table }: StressTarget): Promise<End> {
  const readers = await Promise.all(Array.from({ length: READERS }, async () => {
    const client = await connect(url);
    await client.query("begin isolation level repeatable read");
    const end = repeat(async () => {
      await client.query(`select count(*) from ${table}`);
      await pause(READ_EVERY_MS);
    });
    return async () => {
      await end();
      await client.end();
    };
  }));
  return async () => void await Promise.all(readers.map((end) => end()));
}

async function backendKills({ url, server }: StressTarget): Promise<End> {
  const client = await connect(server.url);
  const end = repeat(async () => {
    await client.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where datname = $1 and pid <> pg_backend_pid() and state in ('active', 'idle in transaction')`,
      [new URL(url).pathname.slice(1)],
    );
    await pause(1_000 / KILLS_A_SECOND);
  });
  return async () => {
    await end();
    await client.end();
  };
}

/** Idle connections, until the server refuses more. */
async function poolExhaustion({ url }: StressTarget): Promise<End> {
  const clients: pg.Client[] = [];
  while (clients.length < IDLE_CONNECTIONS) {
    const client = await connect(url).catch(() => null);
    if (client === null) break;
    clients.push(client);
  }
  if (clients.length === 0) throw new Error("No connection could be opened");
  return async () => void await Promise.all(clients.map((client) => client.end()));
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {}); // its next statement fails
  await client.connect();
  return client;
}

/** Does something again and again, until the returned function is called, which throws what has failed. */
function repeat(round: (stopping: AbortSignal) => Promise<void>): End {
  const stopping = new AbortController();
  const ended = (async () => {
    while (!stopping.signal.aborted) await round(stopping.signal);
  })();
  ended.catch(() => {}); // thrown at the end of the phase
  return () => {
    stopping.abort();
    return ended;
  };
}

async function pauseUnless(stopping: AbortSignal, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  stopping.addEventListener("abort", () => resolve(), { once: true });
  await promise;
  clearTimeout(timer);
}
