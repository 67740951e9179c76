// Delivers webhooks to a receiver, and says when it has started.
// Arguments: the database, the address of the receiver.

import { createEngine, SqliteStore } from "../../mod.ts";
import { webhookJob } from "../../src/webhooks/mod.ts";
import { say } from "./parent.ts";

const [path, url] = Deno.args as [string, string];
const deliver = webhookJob({
  name: "deliver",
  endpoint: () => ({ url, secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }),
  retry: { maxAttempts: 100, delay: 20 },
  allowPrivate: true,
});
const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { deliver },
  worker: { concurrency: 8, pollingInterval: 20, staleThreshold: 1_500, heartbeatInterval: 500, maxAbandonments: 20 },
});
await engine.start();
say({ type: "started" });
