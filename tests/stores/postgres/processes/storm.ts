import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { Chance } from "../../../support/chance.ts";
import type { Server } from "../server.ts";
import { drain } from "./drain.ts";
import { connect, LeaseSampler } from "./lease_sampler.ts";
import { FAULTS, Proxy } from "./proxy.ts";
import { findProblems, readStored } from "./storm_checks.ts";
import { StormClient } from "./storm_client.ts";
import { Tally } from "./tally.ts";
import { WORKER_KINDS } from "./worker_kinds.ts";
import { Workers } from "./workers.ts";

/** What a storm is like. */
export interface StormOptions {
  /** How long there are faults, in milliseconds. */
  ms: number;
  /** What decides which faults and requests. The processes are real: no two storms are the same. */
  seed: number;
  /** The mean time between two restarts of the server, in milliseconds. */
  restartEveryMs: number;
  /** Whether enough has happened. Until then it lasts longer, but at most four times as long. Default: it always has. */
  isEnough?: (tally: Tally) => boolean;
  /** Is called now and then with what has happened. */
  onProgress?: (told: string) => void;
}

/** What a storm came to. */
export interface StormResult {
  /** The promises that were broken. */
  problems: string[];
  tally: Tally;
  /** How long it took until all runs had ended, in milliseconds. */
  drainMs: number;
}

const HARM_EVERY_MS = 300;
const PROGRESS_EVERY_MS = 5_000;

/**
 * Lets workers execute runs on a server that is restarted without a shutdown, over connections that fail, while the workers
 * are killed and suspended and a client asks for more. Checks everything when all runs have ended.
 */
export async function storm(server: Server, options: StormOptions): Promise<StormResult> {
  const tally = new Tally();
  const schema = `storm_${crypto.randomUUID().replaceAll("-", "")}`;
  const logBefore = server.readLog().length;
  await using proxy = new Proxy({ hostname: "127.0.0.1", port: Number(new URL(server.url).port) });
  const address = new URL(server.url);
  address.port = String(proxy.port);
  await using store = await PostgresStore.open(address, { schema });
  await store.migrate();
  await using workers = await Workers.start(WORKER_KINDS, { url: address.href, schema, tally });
  const startedAt = performance.now();
  const isOver = () => {
    const ms = performance.now() - startedAt;
    return ms > 4 * options.ms || (ms > options.ms && (options.isEnough?.(tally) ?? true));
  };
  const chance = (what: string) => new Chance(options.seed, what);

  await using sampler = new LeaseSampler(server.url, schema);
  const client = new StormClient({
    store,
    chance: chance("client"),
    tally,
    isOver,
    unfinished: () => sampler.unfinished,
  });
  const drained = new AbortController();
  const asking = client.ask(drained.signal);
  const progress = setInterval(() => options.onProgress?.(tally.describe()), PROGRESS_EVERY_MS);
  await Promise.all([
    harm(chance("harm"), { proxy, workers, tally, isOver }),
    restart(server, chance("restart"), options.restartEveryMs, tally, isOver),
  ]);
  await client.pauseSchedule();
  const drainMs = await drain(server.url, schema).finally(() => {
    clearInterval(progress);
    drained.abort();
  });
  await asking;
  await client.leave();
  await sampler[Symbol.asyncDispose]();
  await workers.stop();

  const database = await connect(server.url);
  try {
    const stored = await readStored(database, schema);
    const lines = workers.ledger.read();
    const problems = await findProblems(stored, lines, client, database, schema);
    tally.add("runs", stored.runs.size);
    tally.add("slots fired", [...stored.runs.values()].filter(({ slot_at: at }) => at !== null).length);
    tally.add("steps recorded", [...stored.steps.values()].reduce((sum, { size }) => sum + size, 0));
    tally.add("steps acknowledged", lines.filter(([word]) => word === "ack").length);
    tally.add("steps started", lines.filter(([word]) => word === "start").length);
    tally.add("looks at leases", sampler.samples);
    problems.push(...sampler.problems, ...findInLog(server.readLog().slice(logBefore)));
    return { problems, tally, drainMs };
  } finally {
    await database.end();
  }
}

/** What must not be in the log of a server: a deadlock, and an error that is none of a connection or of a lock. */
function findInLog(log: string): string[] {
  const problems = log.split("\n").filter((line) => /\b(ERROR|PANIC|WARNING):/.test(line) && !EXPECTED.test(line));
  return [...new Set(problems.map((line) => `the log of the server has ${line.replace(/^[^A-Z]*/, "")}`))];
}

// A statement that waits too long for a lock is tried again. What a crash interrupts is told to who is connected.
const EXPECTED = /canceling statement due to lock timeout|terminating connection|server process|user request/;

interface Harmed {
  proxy: Proxy;
  workers: Workers;
  tally: Tally;
  isOver(): boolean;
}

async function harm(chance: Chance, { proxy, workers, tally, isOver }: Harmed): Promise<void> {
  while (!isOver()) {
    await pause(chance.next() * 2 * HARM_EVERY_MS);
    const what = chance.weighted<"connection" | "kill" | "suspend">([[6, "connection"], [1, "kill"], [2, "suspend"]]);
    if (what === "kill") await workers.kill(chance);
    else if (what === "suspend") workers.suspend(chance);
    else {
      const fault = chance.pick(FAULTS);
      if (proxy.fail(fault, chance.next())) tally.add(`connections: ${fault}`);
    }
  }
  workers.resumeAll();
}

async function restart(
  server: Server,
  chance: Chance,
  everyMs: number,
  tally: Tally,
  isOver: () => boolean,
): Promise<void> {
  while (true) {
    const at = performance.now() + everyMs * (0.5 + chance.next());
    while (performance.now() < at) {
      if (isOver()) return;
      await pause(50);
    }
    await server.restart();
    tally.add("restarts of the server");
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
