import { tmpdir } from "node:os";
import type { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import type { Host } from "../../../src/model/host.ts";
import { ReusedSchemas } from "./reused_schemas.ts";

// Below the ports that systems give to connections: from 32,768 on Linux.
const FIRST_PORT = 20_000;
const PORTS = 12_000;

/** A server that belongs to one test file. */
export interface Server {
  /** The address of its database. */
  url: string;
  /** Opens a store in a schema that no other has meanwhile; its tables are made. */
  open(host?: Host): Promise<PostgresStore>;
  /**
   * Ends the server without a shutdown, as a crash does, and starts it again.
   *
   * @param options.downMs How long it is away, in milliseconds (default 0).
   * @param options.mode How it ends: `fast` is a shutdown.
   * @throws {Error} The server is that of `HOLDFAST_POSTGRES_URL`.
   */
  restart(options?: { downMs?: number; mode?: "immediate" | "fast" }): Promise<void>;
  /** What it has written to its log; nothing, if it is that of `HOLDFAST_POSTGRES_URL`. */
  readLog(): string;
  /** Ends it before the process ends, and removes its files; does nothing to that of `HOLDFAST_POSTGRES_URL`. */
  stop(): void;
}

/** Options of {@linkcode startServer}. */
interface ServerOptions {
  fsync?: boolean;
  isOwn?: boolean;
  settings?: readonly string[];
}

/** The folder of the programs of the server to test. */
const CHOSEN = Deno.env.get("HOLDFAST_POSTGRES_BIN");
const FOLDERS = CHOSEN !== undefined
  ? [CHOSEN]
  : ["15", "16", "17", "18", "14"].map((version) => `/usr/lib/postgresql/${version}/bin`);

/**
 * Starts a server in a temporary folder; it stops with the process. `null`, with a printed reason, where there is none.
 * With `HOLDFAST_POSTGRES_URL` it uses that one. With `HOLDFAST_POSTGRES=required` it throws where there is none. The
 * programs are those of `HOLDFAST_POSTGRES_BIN`, if that folder is given: so the tests run on another version.
 *
 * @param options.fsync Whether a commit waits for the disk.
 * @param options.isOwn Whether `HOLDFAST_POSTGRES_URL` does not count, since the server will be restarted.
 * @param options.settings Settings of the server beside these, such as `work_mem=8MB`.
 */
export function startServer({ fsync = false, isOwn = false, settings: given = [] }: ServerOptions = {}): Server | null {
  const url = isOwn ? undefined : Deno.env.get("HOLDFAST_POSTGRES_URL");
  if (url !== undefined) return serverAt(url);
  const programs = findPrograms();
  if (programs === null) {
    const reason = `there is no server in ${CHOSEN ?? "/usr/lib/postgresql"}`;
    if (Deno.env.get("HOLDFAST_POSTGRES") === "required") throw new Error(`HOLDFAST_POSTGRES=required, but ${reason}`);
    console.warn(`The tests of PostgresStore are skipped: ${reason}`);
    return null;
  }
  const folder = makeServerFolder();
  const data = `${folder}/data`;
  makeCluster(programs, data);
  const port = freePort();
  const settings = [`-p ${port}`, `-k ${folder}`, "-c listen_addresses=127.0.0.1", "-c max_connections=300"];
  if (!fsync) settings.push("-c fsync=off", "-c synchronous_commit=off", "-c full_page_writes=off");
  settings.push(...given.map((setting) => `-c ${setting}`));
  runAsServer([`${programs}/pg_ctl`, "-D", data, "-l", `${folder}/log`, "-w", "-o", settings.join(" "), "start"]);
  const stop = () => {
    globalThis.removeEventListener("unload", stop);
    runAsServer([`${programs}/pg_ctl`, "-D", data, "-m", "immediate", "stop"]);
    Deno.removeSync(folder, { recursive: true });
  };
  globalThis.addEventListener("unload", stop);
  const control = [`${programs}/pg_ctl`, "-D", data, "-l", `${folder}/log`, "-w"];
  return {
    ...serverAt(`postgres://holdfast@127.0.0.1:${port}/postgres`),
    restart: async ({ downMs = 0, mode = "immediate" } = {}) => {
      await runAsServerAsync([...control, "-m", mode, "stop"]);
      if (downMs > 0) await new Promise((resolve) => setTimeout(resolve, downMs));
      await runAsServerAsync([...control, "-o", settings.join(" "), "start"]);
    },
    readLog: () => Deno.readTextFileSync(`${folder}/log`),
    stop,
  };
}

/** The folder of the programs of a server; `null` where there are none. */
export function findPrograms(): string | null {
  return FOLDERS.find((folder) => exists(`${folder}/initdb`)) ?? null;
}

/**
 * Makes the files of a server without tables. The first time that takes a second of the CPU; since so many tests start a
 * server they are kept in an archive in the temporary folder, which is unpacked in a tenth of that.
 */
function makeCluster(programs: string, data: string): void {
  const archive = `${tmpdir()}/holdfast_cluster${programs.replaceAll("/", "_")}.tar`;
  if (exists(archive)) {
    runAsServer(["mkdir", "-m", "700", data]);
    return runAsServer(["tar", "-xf", archive, "-C", data]);
  }
  runAsServer([`${programs}/initdb`, "-N", "-A", "trust", "-U", "holdfast", "--locale=C", "-E", "UTF8", "-D", data]);
  const packed = `${data}.tar`;
  runAsServer(["tar", "-cf", packed, "-C", data, "."]);
  Deno.renameSync(packed, archive); // at once: others may be about to unpack it
}

function serverAt(url: string): Server {
  const schemas = new ReusedSchemas(url);
  return {
    url,
    restart: () => Promise.reject(new Error("Only a server of the test's own is restarted")),
    readLog: () => "",
    stop: () => {},
    open: (host) => schemas.open({ durability: "relaxed", listenUrl: null, host }),
  };
}

/** Whether this is the superuser: then the programs of the server are run as another user. */
export function isRoot(): boolean {
  return Deno.uid() === 0;
}

/** Makes a temporary folder for the user of the server. */
export function makeServerFolder(): string {
  const folder = Deno.makeTempDirSync({ prefix: "holdfast_postgres_" });
  if (isRoot()) run(["chown", "postgres", folder]);
  return folder;
}

/** Runs a program as the user of the server, and waits for it. */
export function runAsServer(command: string[]): void {
  run(asServer(command));
}

/** The programs of the server refuse to run as root. */
function asServer(command: string[]): string[] {
  const user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
  return isRoot() ? [...user, ...command] : command;
}

const IN_TMP = { cwd: "/tmp", stdin: "null" } as const;

function run(command: string[]): void {
  const [program, ...args] = command;
  check(command, new Deno.Command(program!, { args, ...IN_TMP }).outputSync());
}

/** The same without blocking the event loop, for a program that keeps its pipes open. */
export async function runAsServerAsync(command: string[]): Promise<void> {
  await runAsync(asServer(command));
}

async function runAsync(command: string[]): Promise<void> {
  const [program, ...args] = command;
  // A server that is started would keep pipes open.
  const { code, success } = await new Deno.Command(program!, { args, ...IN_TMP, stdout: "null", stderr: "null" })
    .spawn()
    .status;
  if (!success) throw new Error(`${command.join(" ")}: exit code ${code}`);
}

function check(command: string[], { success, stdout, stderr }: Deno.CommandOutput): void {
  if (success) return;
  const output = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("\n");
  throw new Error(`${command.join(" ")}: ${output}`);
}

/**
 * A port that nobody listens on, and that no connection is given as its own: while a server is down, a client that tries
 * again and again would otherwise take its port in the end, and the server could not come back.
 */
export function freePort(): number {
  while (true) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS);
    try {
      Deno.listen({ hostname: "127.0.0.1", port }).close();
      return port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    }
  }
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}
