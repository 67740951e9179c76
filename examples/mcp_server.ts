// deno run -A examples/mcp_server.ts            starts a server, and a client that uses it
// deno run -A examples/mcp_server.ts serve      the server alone: http://localhost:8000/api/jobs/mcp
//
// A job as a tool for agents: the call is a run, the long run is a task, and the wait is a question to the user.

import { createEngine, createHandler, defineJob, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { mcp } from "@holdfast/jobs/mcp";
import { z } from "zod";

const refund = defineJob({
  name: "refund",
  input: z.object({ order: z.string().describe("The number of an order, such as o-17"), cents: z.int().positive() }),
  async run(step, { order, cents }) {
    const answer = await step.wait("approve", {
      timeout: "7d",
      metadata: { message: `Refund ${cents / 100} EUR of ${order}?` },
      schema: z.object({ approved: z.boolean(), reason: z.enum(["damaged", "late"]).optional() }),
    });
    if (answer.outcome === "timeout" || !answer.payload.approved) return { order, refunded: 0 };
    return await step.run("pay", () => ({ order, refunded: cents }));
  },
});

await using store = await SqliteStore.open(":memory:");
await using engine = createEngine({ store, jobs: { refund } });
await engine.start();
const handler = createHandler(engine, {
  basePath: "/api/jobs",
  allowedHosts: ["localhost", "127.0.0.1"],
  mcp: mcp({
    name: "shop",
    tools: [{
      job: refund,
      description: "Refunds an order, once a person has approved it",
      options: (input) => ({ idempotencyKey: `refund/${(input as { order: string }).order}` }), // no second run
    }],
    operate: true,
  }),
});

if (Deno.args[0] === "serve") {
  const server = Deno.serve({ port: 8000, hostname: "127.0.0.1" }, handler.fetch);
  await shutdownOnSignal(engine, { server });
} else {
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, handler.fetch);
  await useTools(`http://localhost:${server.addr.port}/api/jobs/mcp`);
  await server.shutdown();
}

/** What an agent does with the server, in the version of MCP without sessions. */
async function useTools(url: string): Promise<void> {
  const { tools } = await ask(url, "tools/list");
  console.log("Tools:", tools.map(({ name }: { name: string }) => name).join(", "));
  const called = await ask(url, "tools/call", { name: "refund", arguments: { order: "o-17", cents: 1_250 } });
  const { taskId } = called;
  console.log(`The call is a ${called.resultType}`);
  const asked = await until(url, taskId, "input_required");
  const [[key, question]] = Object.entries<{ params: { message: string } }>(asked.inputRequests) as [[string, {
    params: { message: string };
  }]];
  console.log(`The user is asked: ${question.params.message}`);
  const inputResponses = { [key]: { action: "accept", content: { approved: true, reason: "damaged" } } };
  await ask(url, "tasks/update", { taskId, inputResponses });
  const done = await until(url, taskId, "completed");
  console.log("The result is", done.result.structuredContent);
}

/** Polls a task until it has a status. */
async function until(url: string, taskId: string, status: string) {
  while (true) {
    const task = await ask(url, "tasks/get", { taskId });
    if (task.status === status) return task;
    await new Promise((resolve) => setTimeout(resolve, 100)); // task.pollIntervalMs, in an agent
  }
}

async function ask(url: string, method: string, params: Record<string, unknown> = {}) {
  const version = "2026-07-28";
  const name = params.name ?? params.taskId;
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": version,
    "io.modelcontextprotocol/clientCapabilities": {
      elicitation: {},
      extensions: { "io.modelcontextprotocol/tasks": {} },
    },
  };
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "mcp-protocol-version": version,
      "mcp-method": method,
      ...(name === undefined ? {} : { "mcp-name": String(name) }),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: { ...params, _meta } }),
  });
  const { result, error } = await response.json();
  if (error !== undefined) throw new Error(error.message);
  return result;
}
