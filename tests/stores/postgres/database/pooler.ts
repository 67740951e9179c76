import { freePort, isRoot, type Server } from "../server.ts";

const PROGRAM = "/usr/sbin/pgbouncer";

/**
 * Starts PgBouncer in transaction mode in front of a server; it stops with the process. `null`, with a printed reason,
 * where it is not installed. With `HOLDFAST_PGBOUNCER=required` it throws there.
 *
 * @returns The address of the database through the pooler.
 */
export async function startPooler({ url }: Server): Promise<string | null> {
  if (!await exists(PROGRAM)) {
    if (Deno.env.get("HOLDFAST_PGBOUNCER") === "required") {
      throw new Error(`HOLDFAST_PGBOUNCER=required, but there is no ${PROGRAM}`);
    }
    console.warn(`The tests of PostgresStore through a pooler are skipped: there is no ${PROGRAM}`);
    return null;
  }
  const { hostname, port, username, pathname } = new URL(url);
  const folder = await Deno.makeTempDir({ prefix: "holdfast_pooler_" });
  const listenPort = freePort();
  // Sessions do not live long: one that has served many schemas, as those of the contract's cases, is slow.
  await Deno.writeTextFile(
    `${folder}/pgbouncer.ini`,
    `[databases]
* = host=${hostname} port=${port} dbname=${pathname.slice(1)} user=${username}
[pgbouncer]
pool_mode = transaction
listen_addr = 127.0.0.1
listen_port = ${listenPort}
auth_type = any
unix_socket_dir =
default_pool_size = 8
max_client_conn = 1000
server_lifetime = 5
logfile = ${folder}/log
`,
  );
  if (isRoot()) await new Deno.Command("chown", { args: ["-R", "postgres", folder] }).output();
  const args = isRoot() ? ["--user", "postgres", `${folder}/pgbouncer.ini`] : [`${folder}/pgbouncer.ini`];
  const pooler = new Deno.Command(PROGRAM, { args, stdin: "null", stdout: "null", stderr: "null" }).spawn();
  pooler.unref();
  globalThis.addEventListener("unload", () => {
    pooler.kill("SIGTERM");
    Deno.removeSync(folder, { recursive: true });
  });
  await untilItListens(listenPort);
  const address = new URL(url);
  address.port = String(listenPort);
  return address.href;
}

async function untilItListens(port: number): Promise<void> {
  const giveUpAt = performance.now() + 10_000;
  while (true) {
    try {
      (await Deno.connect({ port })).close();
      return;
    } catch (error) {
      if (performance.now() > giveUpAt) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

async function exists(path: string): Promise<boolean> {
  return await Deno.stat(path).then(() => true, () => false);
}
