// Opens each database that it is told, makes its tables and triggers a run.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { heardLines, say } from "./parent.ts";

const greet = defineJob({ name: "greet", input: anything(), run: () => {} });

await import("node:sqlite"); // so that nothing but the opening is left to do
say({ type: "ready" });
for await (const path of heardLines()) {
  try {
    await using store = await SqliteStore.open(path);
    const { id } = await createEngine({ store, jobs: { greet } }).trigger(greet, {});
    say({ type: "triggered", runId: id, error: null });
  } catch (error) {
    say({ type: "triggered", runId: null, error: String(error) });
  }
}
