// deno run -A examples/dashboard.ts [folder]    the invoices example, and its dashboard on a free port
//
// examples/invoices.ts executes the runs in a process of its own, until Ctrl+C. This process has the jobs, so that it
// can trigger and retry runs, but it starts no worker.

import { fileURLToPath } from "node:url";
import { createHandler, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { dashboard } from "@holdfast/jobs/ui";
import { invoicesEngine } from "./invoices.ts";

if (import.meta.main) await openDashboard(Deno.args[0] ?? ".");

/** Serves the dashboard until SIGINT or SIGTERM. `folder` has, or gets, the databases. */
export async function openDashboard(folder: string): Promise<void> {
  await Deno.mkdir(folder, { recursive: true });
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  await using engine = invoicesEngine(store);
  await engine.migrate();
  const handler = createHandler(engine, {
    basePath: "/api/jobs",
    ui: dashboard({ title: "Invoices" }),
    allowedHosts: ["localhost", "127.0.0.1", "[::1]"], // a page of another site can point its own name at 127.0.0.1
    showFailures: true, // only this machine can reach it
  });
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler.fetch);
  console.log(`Open http://127.0.0.1:${server.addr.port}/api/jobs/ui/ (Ctrl+C ends it)`);
  console.log("One document fails soon: find out why, and retry its run. Then approve a total on the page Waits.");
  const invoices = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", fileURLToPath(new URL("invoices.ts", import.meta.url)), "--ask", "--stay", folder],
    stdout: "null", // the dashboard shows what it does
  }).spawn();
  await shutdownOnSignal(engine, { server });
  try {
    invoices.kill("SIGTERM");
  } catch {
    // It has ended: Ctrl+C reaches it, too.
  }
  await invoices.status;
}
