import pg from "pg";
import { findPrograms, freePort, makeServerFolder, runAsServer, runAsServerAsync } from "../server.ts";

/** A server and its asynchronous standby, which belong to one test. */
export interface Pair extends AsyncDisposable {
  /** The address of the database on the server that takes writes: after the failover that of the standby. */
  readonly url: string;
  /** The address of the database on the standby. */
  readonly standbyUrl: string;
  /** Lets the standby catch up, and cuts it off: it lacks what is committed from now on. */
  cut(): Promise<void>;
  /** Asks one statement of the server that takes writes. */
  ask(sql: string): Promise<Record<string, unknown>[]>;
  /** Lets commits wait for the standbys with a name from now on; for none, if it is empty. */
  waitForStandby(name: string): Promise<void>;
  /** Ends the server without a shutdown. */
  stop(): void;
  /** Makes the standby the server that takes writes. */
  promote(): Promise<void>;
  /** Ends the server without a shutdown, and promotes the standby. */
  failOver(): Promise<void>;
  /** Brings the server back that is down, as a standby of the other one, with a copy of it. */
  rejoin(): Promise<void>;
}

/** Whether there are the programs of a server. */
export const hasServer = findPrograms() !== null;

// Commits wait for the disk of the server, as in production, but not for the standby.
const SETTINGS = ["-c listen_addresses=127.0.0.1", "-c max_connections=100", "-c wal_receiver_status_interval=1"];

/** Starts a server, and a standby that streams from it. */
export async function startPair(): Promise<Pair> {
  const programs = findPrograms()!; // the test is ignored without them
  const folder = makeServerFolder();
  const [primary, standby] = ["primary", "standby"].map((name) => new Node(programs, `${folder}/${name}`)) as [
    Node,
    Node,
  ];
  const encoding = ["--locale=C", "-E", "UTF8"];
  runAsServer([`${programs}/initdb`, "-N", "-A", "trust", "-U", "holdfast", ...encoding, "-D", primary.data]);
  await primary.start();
  await standby.follow(primary);
  let [current, other] = [primary, standby];
  const promote = async () => {
    await other.promote();
    [current, other] = [other, current];
  };
  return {
    standbyUrl: standby.url,
    get url() {
      return current.url;
    },
    async cut() {
      const [{ lsn }] = await primary.ask("select pg_current_wal_flush_lsn()::text as lsn") as [{ lsn: string }];
      while (!(await standby.ask(`select pg_last_wal_replay_lsn() >= '${lsn}'::pg_lsn as done`))[0]!.done);
      // The receiver ends when it has no address.
      await standby.ask("alter system set primary_conninfo = ''");
      await standby.ask("select pg_reload_conf()");
      while ((await standby.ask("select from pg_stat_wal_receiver where status = 'streaming'")).length > 0);
    },
    ask: (sql) => current.ask(sql),
    async waitForStandby(name) {
      await current.ask(`alter system set synchronous_standby_names = '${name}'`);
      await current.ask("select pg_reload_conf()");
    },
    stop: () => current.stop(),
    promote,
    failOver() {
      current.stop();
      return promote();
    },
    rejoin: () => other.follow(current),
    [Symbol.asyncDispose]() {
      primary.stop();
      standby.stop();
      return Deno.remove(folder, { recursive: true });
    },
  };
}

/** One of the two servers. */
class Node {
  readonly port = freePort();
  readonly #programs: string;
  #isRunning = false;

  constructor(programs: string, readonly data: string) {
    this.#programs = programs;
  }

  get url(): string {
    return `postgres://holdfast@127.0.0.1:${this.port}/postgres`;
  }

  async start(): Promise<void> {
    const settings = [`-p ${this.port}`, `-k ${this.data}`, ...SETTINGS].join(" ");
    await runAsServerAsync([
      `${this.#programs}/pg_ctl`,
      ...["-D", this.data, "-l", `${this.data}/log`, "-w", "-o", settings, "start"],
    ]);
    this.#isRunning = true;
  }

  /** Begins as a standby of a server, with a copy of it. */
  async follow({ port }: Node): Promise<void> {
    await Deno.remove(this.data, { recursive: true }).catch(() => {}); // there is none yet
    const from = ["-h", "127.0.0.1", "-p", String(port), "-U", "holdfast"];
    await runAsServerAsync([
      `${this.#programs}/pg_basebackup`,
      ...[...from, "-D", this.data, "-R", "-X", "stream", "-c", "fast"],
    ]);
    await this.start();
  }

  promote(): Promise<void> {
    return runAsServerAsync([`${this.#programs}/pg_ctl`, "-D", this.data, "-w", "promote"]);
  }

  stop(): void {
    if (!this.#isRunning) return;
    this.#isRunning = false;
    runAsServer([`${this.#programs}/pg_ctl`, "-D", this.data, "-m", "immediate", "stop"]);
  }

  /** Asks one statement. */
  async ask(sql: string): Promise<Record<string, unknown>[]> {
    const client = new pg.Client({ connectionString: this.url });
    await client.connect();
    try {
      return (await client.query(sql)).rows;
    } finally {
      await client.end();
    }
  }
}
