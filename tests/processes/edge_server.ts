// Serves two organizations at every edge: MCP with the tools for operators, links, ticks, and a webhook at `/webhook`. It
// says where.
// Arguments: the database, the key of the links, the secret of the webhook.

import { createEngine, createHandler, defineJob, notFound, SqliteStore } from "../../mod.ts";
import { signedLinks } from "../../src/links/mod.ts";
import { mcp } from "../../src/http/mcp/mod.ts";
import { standardWebhook } from "../../src/webhooks/mod.ts";
import { anything } from "./anything.ts";
import { say } from "./parent.ts";
import { refund } from "./refund.ts";

const [path, key, secret] = Deno.args as [string, string, string];

const payment = defineJob({ name: "payment", input: anything<{ id: string }>(), run: (_step, { id }) => id });
const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { refund, payment },
  worker: { staleThreshold: 1_500, heartbeatInterval: 500, pollingInterval: 20 },
});

interface Org {
  org: string;
}

const checkOrg = ({ org }: Org, { labels }: { labels: Readonly<Record<string, string>> }) => {
  if (labels.org !== org) throw notFound();
};
const handler = createHandler<Org>(engine, {
  links: signedLinks({ keys: [key], url: "http://localhost" }),
  mcp: mcp<Org>({
    name: "edges",
    operate: true,
    callTimeout: 0,
    tools: [{ job: refund, description: "Refunds an order", options: (_input, { org }) => ({ labels: { org } }) }],
  }),
  auth: {
    authenticate: (request) => {
      const org = request.headers.get("x-org") ?? "";
      if (!/^[ab]$/.test(org)) throw new Response("Who are you?", { status: 401 });
      return { org };
    },
    onTrigger: checkOrg,
    onRunAccess: checkOrg,
    onSignal: () => {},
    scopeRuns: ({ org }, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
    onOperate: (_context, { operation }) => {
      if (operation !== "tick") throw new Response("No", { status: 403 });
    },
  },
});
const webhook = standardWebhook({
  secret,
  receive: ({ id }) => engine.jobs.payment.trigger({ id }, { idempotencyKey: `webhook/${id}` }),
});
await engine.start();
Deno.serve({
  port: 0,
  hostname: "127.0.0.1",
  onListen: ({ port }) => say({ type: "listening", port }),
}, (request) => URL.parse(request.url)?.pathname === "/webhook" ? webhook(request) : handler.fetch(request));
