// Told to, triggers runs of "greet" with one idempotency key, or retriggers one run, all at once.
// Arguments: the database, "trigger" or "retrigger", the idempotency key or the run's id, how many.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { heardLine, say } from "./parent.ts";

const [path, word, key, count] = Deno.args as [string, "trigger" | "retrigger", string, string];
const greet = defineJob({ name: "greet", input: anything(), run: () => {} });

await using store = await SqliteStore.open(path);
const engine = createEngine({ store, jobs: { greet } });
await engine.migrate();
say({ type: "ready" });
await heardLine();
const ask = () =>
  word === "trigger" ? engine.trigger(greet, {}, { idempotencyKey: key }) : engine.retrigger(key, { from: "failure" });
const answers = (await Promise.all(Array.from({ length: Number(count) }, ask))).map(({ id, disposition }) => ({
  id,
  disposition,
}));
say({ type: "triggered", answers });
