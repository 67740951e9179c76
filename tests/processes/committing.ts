// Commits every few milliseconds, until it is ended. Argument: the database.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { say } from "./parent.ts";

const [path] = Deno.args as [string];
const greet = defineJob({ name: "greet", input: anything(), run: () => {} });
const engine = createEngine({ store: await SqliteStore.open(path), jobs: { greet } });

await engine.trigger(greet, {});
say({ type: "ready" });
while (true) {
  await engine.trigger(greet, {});
  await new Promise((resolve) => setTimeout(resolve, 5));
}
