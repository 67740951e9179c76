// Executes runs of "approval", which wait for a signal between two steps. With the word "signal" it executes nothing:
// it sends a signal, says so, and lives on until it is killed.
// Arguments: the database, then nothing or: "signal", the wait's id, the payload.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { say } from "./parent.ts";

const [path, word, waitId, payload] = Deno.args as [string, string?, string?, string?];

const approval = defineJob({
  name: "approval",
  input: anything(),
  async run(step) {
    const asked = await step.run("ask", () => Deno.pid);
    const answer = await step.wait("answer");
    const seen = await step.run("note", () => answer);
    return { asked, answer, seen };
  },
});

const store = await SqliteStore.open(path);
const engine = createEngine({
  store,
  jobs: { approval },
  worker: { staleThreshold: 600, heartbeatInterval: 100, pollingInterval: 100 },
});
if (word === "signal") {
  const { disposition } = await engine.signal(waitId!, { signalId: "answer", payload: JSON.parse(payload!) });
  say({ type: "signalled", disposition });
  setInterval(() => {}, 1_000);
} else {
  engine.on("run:waiting", ({ runId, waitId }) => say({ type: "waiting", runId, waitId }));
  engine.on("step:start", ({ stepName }) => say({ type: "started", stepName }));
  await engine.start();
}
