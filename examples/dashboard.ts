// deno run -A examples/dashboard.ts [folder]    the invoices example, and its dashboard on a free port
//
// examples/invoices.ts runs in a process of its own and waits for your approval: give it on the page "Waits". This
// process has neither its code nor a worker: the dashboard needs only the database.

import { fileURLToPath } from "node:url";
import { createEngine, createHandler, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { dashboard } from "@holdfast/jobs/ui";

const [folder = "."] = Deno.args;
await Deno.mkdir(folder, { recursive: true });
await using store = await SqliteStore.open(`${folder}/jobs.db`);
await using engine = createEngine({ store, jobs: {} });
await engine.migrate();
const handler = createHandler(engine, {
  basePath: "/api/jobs",
  ui: dashboard({ title: "Invoices" }),
  allowedHosts: ["localhost", "127.0.0.1", "[::1]"], // a page of another site can point its own name at 127.0.0.1
  showFailures: true, // only this machine can reach it
});
const onListen = ({ port }: Deno.NetAddr) => console.log(`Open http://127.0.0.1:${port}/api/jobs/ui/`);
const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen }, handler.fetch);
const invoices = new Deno.Command(Deno.execPath(), {
  args: ["run", "-A", fileURLToPath(new URL("invoices.ts", import.meta.url)), "--ask", folder],
}).spawn();
await shutdownOnSignal(engine, { server });
try {
  invoices.kill("SIGTERM");
} catch {
  // It has ended.
}
