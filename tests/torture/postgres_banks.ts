import { join } from "node:path";
import pg from "pg";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { startPooler } from "../stores/postgres/database/pooler.ts";
import { startPair } from "../stores/postgres/outages/standby.ts";
import { Proxy } from "../stores/postgres/processes/proxy.ts";
import type { Server } from "../stores/postgres/server.ts";
import { nap } from "./nap.ts";
import { type BankPlace, checkBank, describeBank, executeBank, openPostgresBank } from "./scenarios/bank.ts";
import type { Patience } from "./scenarios/patience.ts";

/** A bank on PostgreSQL, and what goes wrong there. */
export interface PostgresBank {
  name: string;
  /** @throws A promise was broken. Answers what has happened, in a line. */
  run(server: Server, options: { ms: number; patience: Patience }): Promise<string>;
}

const DEATHS = 0.02;
const TERMINATE_EVERY_MS = 250;
const RESTART_EVERY_MS = 8_000;
const FAIL_OVER_AFTER_MS = 1_500;

/** Banks on PostgreSQL: the database of the store, or another one beside a SQLite file. */
export const POSTGRES_BANKS: readonly PostgresBank[] = [
  aBank("bank, effects in PostgreSQL", { way: "apart" }),
  aBank("bank, effects in PostgreSQL, repeatable read, restarts", {
    way: "apart",
    isolation: "repeatable read",
    restarts: true,
  }),
  aBank("bank, effects in PostgreSQL through PgBouncer", { way: "apart", isPooled: true }),
  ...("dataSource" in PostgresStore.prototype
    ? [
      aBank("bank, joined PostgreSQL", { way: "joined" }),
      aBank("bank, joined PostgreSQL, repeatable read, restarts", {
        way: "joined",
        isolation: "repeatable read",
        restarts: true,
      }),
      aBank("bank, joined PostgreSQL through PgBouncer", { way: "joined", isPooled: true }),
    ]
    : []),
  aBank("bank, a commit of its own (the control)", { way: "own commit" }),
  {
    name: "bank, a failover to a synchronous standby",
    run: async (_server, options) => {
      await using pair = await startPair();
      await pair.waitForStandby("*");
      const hostAndPort = () => ({ hostname: "127.0.0.1", port: Number(new URL(pair.url).port) });
      await using proxy = new Proxy(hostAndPort());
      const url = Object.assign(new URL(pair.url), { port: String(proxy.port) }).href;
      const faults = async (signal: AbortSignal) => {
        await nap(FAIL_OVER_AFTER_MS, signal);
        await pair.failOver();
        proxy.server = hostAndPort();
        proxy.failAll("cut");
      };
      return await execute("a failover", { way: "apart", isolation: null, url }, options, faults);
    },
  },
];

interface Kind {
  way: BankPlace["way"];
  isolation?: BankPlace["isolation"];
  isPooled?: boolean;
  restarts?: boolean;
}

function aBank(name: string, { way, isolation = null, isPooled = false, restarts = false }: Kind): PostgresBank {
  return {
    name,
    run: async (server, options) => {
      const place = { ...server, url: await makeDatabase(server) };
      const url = isPooled ? await startPooler(place) : place.url;
      if (url === null) return `${name}: skipped: there is no PgBouncer`;
      let [terminated, restarted] = [0, 0];
      const faults = async (signal: AbortSignal) => {
        const client = () => new pg.Client({ connectionString: server.url });
        for (let last = performance.now(); !signal.aborted;) {
          await nap(TERMINATE_EVERY_MS * 2 * Math.random(), signal);
          const one = client();
          try {
            await one.connect();
            const { rows } = await one.query(
              "SELECT count(pg_terminate_backend(pid))::int AS n FROM (SELECT pid FROM pg_stat_activity " +
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) one",
            );
            terminated += rows[0].n;
          } catch {
            // The server restarts.
          } finally {
            await one.end().catch(() => {});
          }
          if (restarts && performance.now() - last > RESTART_EVERY_MS) {
            await server.restart();
            restarted += 1;
            last = performance.now();
          }
        }
      };
      const told = await execute(name, { way, isolation, url }, options, faults);
      return `${told}, ${terminated} backends terminated, ${restarted} restarts`;
    },
  };
}

let databases = 0;

/** Makes an empty database. Answers its address. */
async function makeDatabase({ url }: Server): Promise<string> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const name = `bank_${++databases}`;
  await client.query(`CREATE DATABASE ${name}`);
  await client.end();
  return Object.assign(new URL(url), { pathname: `/${name}` }).href;
}

async function execute(
  name: string,
  { way, isolation, url }: Pick<BankPlace, "way" | "isolation"> & { url: string },
  options: { ms: number; patience: Patience },
  faults: (signal: AbortSignal) => Promise<void>,
): Promise<string> {
  const folder = await Deno.makeTempDir({ prefix: "bank-" });
  try {
    const place = { way, isolation, bank: url, jobs: way === "joined" ? url : join(folder, "jobs.db"), deaths: DEATHS };
    const result = await executeBank(place, await openPostgresBank(url), { ...options, faults });
    return describeBank(name, checkBank(way, result));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}
