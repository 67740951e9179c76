import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import type { Host } from "../../../src/host.ts";

/** A server that belongs to one test file. */
export interface Server {
  /** The address of its database. */
  url: string;
  /** Opens a store in a schema that no other has. */
  open(host?: Host): Promise<PostgresStore>;
}

const FOLDERS = ["15", "16", "17", "18", "14"].map((version) => `/usr/lib/postgresql/${version}/bin`);

/**
 * Starts a server in a temporary folder; it stops with the process. `null`, with a printed reason, where there is none.
 * With `HOLDFAST_POSTGRES_URL` it uses that one.
 *
 * @param options.fsync Whether a commit waits for the disk.
 */
export function startServer({ fsync = false }: { fsync?: boolean } = {}): Server | null {
  const given = Deno.env.get("HOLDFAST_POSTGRES_URL");
  if (given !== undefined) return serverAt(given);
  const programs = FOLDERS.find((folder) => exists(`${folder}/initdb`));
  if (programs === undefined) {
    console.warn("The tests of PostgresStore are skipped: there is no server in /usr/lib/postgresql");
    return null;
  }
  const folder = Deno.makeTempDirSync({ prefix: "holdfast_postgres_" });
  const data = `${folder}/data`;
  if (isRoot()) run(["chown", "postgres", folder]);
  runAsServer([`${programs}/initdb`, "-N", "-A", "trust", "-U", "holdfast", "--locale=C", "-E", "UTF8", "-D", data]);
  const port = freePort();
  const settings = [`-p ${port}`, `-k ${folder}`, "-c listen_addresses=127.0.0.1", "-c max_connections=300"];
  if (!fsync) settings.push("-c fsync=off", "-c synchronous_commit=off", "-c full_page_writes=off");
  runAsServer([`${programs}/pg_ctl`, "-D", data, "-l", `${folder}/log`, "-w", "-o", settings.join(" "), "start"]);
  globalThis.addEventListener("unload", () => {
    runAsServer([`${programs}/pg_ctl`, "-D", data, "-m", "immediate", "stop"]);
    Deno.removeSync(folder, { recursive: true });
  });
  return serverAt(`postgres://holdfast@127.0.0.1:${port}/postgres`);
}

let schemas = 0;

function serverAt(url: string): Server {
  return {
    url,
    open: (host) => PostgresStore.open(url, { schema: `test_${Deno.pid}_${++schemas}`, durability: "relaxed", host }),
  };
}

function isRoot(): boolean {
  return Deno.uid() === 0;
}

/** The programs of the server refuse to run as root. */
function runAsServer(command: string[]): void {
  const user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
  run(isRoot() ? [...user, ...command] : command);
}

function run([program, ...args]: string[]): void {
  const { success, stdout, stderr } = new Deno.Command(program!, { args, cwd: "/tmp", stdin: "null" }).outputSync();
  if (success) return;
  const output = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("\n");
  throw new Error(`${program} ${args.join(" ")}: ${output}`);
}

function freePort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return (listener.addr as Deno.NetAddr).port; // it listens on TCP
}

function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}
