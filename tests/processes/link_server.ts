// Serves links that answer a question, and says where. It executes the runs itself. With the word "dies" it is killed as
// soon as an answer is committed, before anybody is told so; else it triggers a run, and says which link it has sent.
// Arguments: the database, and a word: "asks", "dies" or "serves".

import { createEngine, createHandler, defineJob, SqliteStore } from "../../mod.ts";
import { signedLinks } from "../../src/links/mod.ts";
import { anything } from "./anything.ts";
import { say } from "./parent.ts";

const [path, word] = Deno.args as [string, string];

const links = signedLinks({ keys: ["a key of links that all processes have"], url: "http://localhost" });
const actions = [{ label: "Yes", payload: true }, { label: "No", payload: false }];
const ask = defineJob({
  name: "ask",
  input: anything(),
  async run(step) {
    const wait = await step.prepareWait("approve", { timeout: "1h", metadata: { actions } });
    await step.run("send", async () => say({ type: "sent", link: await links.toWait(wait, { for: "ada" }) }));
    return await step.waitFor(wait);
  },
});

const store = await SqliteStore.open(path);
const { signal } = store;
store.signal = async (...parameters) => {
  const outcome = await signal.apply(store, parameters);
  if (word === "dies") Deno.kill(Deno.pid, "SIGKILL");
  return outcome;
};
const engine = createEngine({
  store,
  jobs: { ask },
  worker: { staleThreshold: 1_500, heartbeatInterval: 500, pollingInterval: 20 },
});
await engine.start();
if (word === "asks") say({ type: "triggered", id: (await engine.jobs.ask.trigger(null)).id });
Deno.serve({
  port: 0,
  hostname: "127.0.0.1",
  onListen: ({ port }) => say({ type: "listening", url: `http://localhost:${port}` }),
}, createHandler(engine, { links }).fetch);
