// Told to, triggers runs of "greet" with one idempotency key, all at once.
// Arguments: the database, the idempotency key, how many.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { heardLine, say } from "./parent.ts";

const [path, idempotencyKey, count] = Deno.args as [string, string, string];
const greet = defineJob({ name: "greet", input: anything(), run: () => {} });

await using store = await SqliteStore.open(path);
const engine = createEngine({ store, jobs: { greet } });
await engine.migrate();
say({ type: "ready" });
await heardLine();
const triggers = Array.from({ length: Number(count) }, () => engine.trigger(greet, {}, { idempotencyKey }));
const answers = (await Promise.all(triggers)).map(({ id, disposition }) => ({ id, disposition }));
say({ type: "triggered", answers });
