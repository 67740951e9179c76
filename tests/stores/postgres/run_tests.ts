// deno task test:postgres [arguments of deno test]
//
// Starts a PostgreSQL server and runs all tests that have "PostgresStore" in their names over it, one schema for each
// test: those of the engine, of the execution, of the HTTP handler, and of the store itself. Without a server it says
// so and succeeds, unless HOLDFAST_POSTGRES=required is set.

import { startServer } from "./server.ts";

const FOLDERS = ["stores/postgres", "engine", "execution", "events", "http", "logger_test.ts"];

const server = startServer();
if (server === null) {
  const isRequired = Deno.env.get("HOLDFAST_POSTGRES") === "required";
  if (isRequired) console.error("HOLDFAST_POSTGRES=required, and there is no PostgreSQL server");
  Deno.exit(isRequired ? 1 : 0);
}
const args = Deno.args.length > 0 ? Deno.args : ["--parallel", ...FOLDERS.map((folder) => `tests/${folder}`)];
const tests = new Deno.Command(Deno.execPath(), {
  args: ["test", "-A", "--no-check", "--filter", "PostgresStore", ...args],
  env: { HOLDFAST_POSTGRES_URL: server.url },
}).spawn();
// The server is stopped when the tests have ended.
for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, () => tests.kill("SIGTERM"));
const { code } = await tests.status;
Deno.exit(code);
