// deno run -A tests/stores/postgres/run_tests.ts [arguments of deno test]
//
// Starts a PostgreSQL server and runs the tests of the engine, of the execution, of the HTTP handler and of the command line over
// it, one schema for each test. Where there is no server it says so and succeeds, unless HOLDFAST_POSTGRES=required is set.

import { startServer } from "./server.ts";

const PLACES = [
  "cli",
  "engine",
  "execution",
  "events",
  "http",
  "logger_test.ts",
];

const server = startServer();
if (server === null) Deno.exit(0);
const args = Deno.args.length > 0 ? Deno.args : ["--parallel", ...PLACES.map((place) => `tests/${place}`)];
const tests = new Deno.Command(Deno.execPath(), {
  args: ["test", "-A", "--no-check", "--filter", "PostgresStore", ...args],
  env: { HOLDFAST_POSTGRES_URL: server.url },
}).spawn();
// The server is stopped when the tests have ended.
for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, () => tests.kill("SIGTERM"));
const { code } = await tests.status;
Deno.exit(code);
