import { createEngine, createHandler, defineJob, SqliteStore } from "@holdfast/jobs";
import { signedLinks } from "@holdfast/jobs/links";
import { mcp } from "@holdfast/jobs/mcp";
import { z } from "zod";
import { benchInput } from "../engines/holdfast.ts";
import type { Setting } from "../setting.ts";
import type { Slice } from "../slices.ts";
import { percentile } from "../statistics.ts";
import { type Cost, ratioOf, takeTurns } from "../take_turns.ts";
import type { Workload } from "../workload.ts";

const ROUNDS = 20;
const REQUESTS = 300;
const HOST = "http://localhost";

/** What pages of links and tasks of MCP cost, beside what is nearest to them. */
export const edges: Workload = {
  name: "edges",
  title: "Pages of links, and tasks of MCP",
  about:
    "Requests one after another to a handler in the same process, or to a server in it with its client; their making and " +
    "the reading of the answer are included. The page asks for four fields, or has two buttons; `/health/live` reads " +
    "nothing of the store. `tasks/get` is beside the GET of the same run. On SQLite; medians of 20 rounds in turn.",
  trials: [
    {
      name: "GET of a link",
      figures: [
        { name: "a form, CPU", unit: "µs", goals: [{ below: 150 }] },
        { name: "two buttons, CPU", unit: "µs", goals: [{ below: 150 }] },
        { name: "a forged one, CPU", unit: "µs", goals: [] },
        { name: "GET /run, CPU", unit: "µs", goals: [] },
        { name: "GET /health/live, CPU", unit: "µs", goals: [] },
      ],
      rounds: 1,
      contenders: { holdfast: measureLinks },
    },
    {
      name: "tasks/get",
      figures: [
        { name: "CPU", unit: "µs", goals: [] },
        { name: "CPU, of GET /run", unit: "times", goals: [] },
        { name: "over a socket", unit: "ms", goals: [] },
        { name: "over a socket, of GET /run", unit: "times", goals: [{ below: 1.1 }] },
        { name: "CPU over a socket, of GET /run", unit: "times", goals: [{ below: 1.1 }] },
      ],
      rounds: 1,
      contenders: { holdfast: measureTasks },
    },
  ],
};

type Send = () => Promise<Response>;

async function measureLinks({ folder, size }: Setting): Promise<number[]> {
  await using service = await open(`${folder}/links.db`);
  const { handler, runId, form, buttons } = service;
  const forged = `${form.slice(0, -4)}AAAA`;
  const costs = await compare(
    [form, buttons, forged, `${HOST}/run?runId=${runId}`, `${HOST}/health/live`].map((url) => () =>
      handler.fetch(new Request(url))
    ),
    [200, 200, 404, 200, 200],
    size,
  );
  return costs.map(({ cpu }) => cpu);
}

async function measureTasks({ folder, size }: Setting): Promise<number[]> {
  await using service = await open(`${folder}/tasks.db`);
  const { handler, runId } = service;
  const here = [ofRun(HOST, runId), ofTask(HOST, runId)].map((make) => () => handler.fetch(make()));
  const inProcess = await compare(here, [200, 200], size);
  await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler.fetch);
  const address = `http://127.0.0.1:${server.addr.port}`;
  const there = [ofRun(address, runId), ofTask(address, runId)].map((make) => () => fetch(make()));
  const overSocket = await compare(there, [200, 200], size);
  return [
    inProcess[1]!.cpu,
    1 / ratioOf(inProcess[0]!.costs, inProcess[1]!.costs, "work").median,
    overSocket[1]!.time / 1_000,
    1 / ratioOf(overSocket[0]!.costs, overSocket[1]!.costs, "time").median,
    1 / ratioOf(overSocket[0]!.costs, overSocket[1]!.costs, "work").median,
  ];
}

const ofRun = (address: string, runId: string) => () => new Request(`${address}/run?runId=${runId}`);

/** A request of the version of MCP without sessions. */
function ofTask(address: string, taskId: string): () => Request {
  const version = "2026-07-28";
  const headers = {
    "content-type": "application/json",
    "mcp-protocol-version": version,
    "mcp-method": "tasks/get",
    "mcp-name": taskId,
  };
  const _meta = {
    "io.modelcontextprotocol/protocolVersion": version,
    "io.modelcontextprotocol/clientCapabilities": { extensions: { "io.modelcontextprotocol/tasks": {} } },
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tasks/get", params: { taskId, _meta } });
  return () => new Request(`${address}/mcp`, { method: "POST", headers, body });
}

/** Sends requests in turn, and answers what each has cost, in microseconds. */
async function compare(
  sends: readonly Send[],
  expected: readonly number[],
  size: Setting["size"],
): Promise<{ cpu: number; time: number; costs: Cost[] }[]> {
  const count = size(REQUESTS, 3);
  const slices = sends.map((send, at): Slice => ({
    work: async () => {
      for (let n = 0; n < count; n++) {
        const response = await send();
        const text = await response.text();
        if (response.status !== expected[at] || text.includes('"error":')) {
          throw new Error(`A request was answered ${response.status}: ${text}`);
        }
      }
    },
    end: () => Promise.resolve(),
  }));
  const costs = await takeTurns(slices, size(ROUNDS, 2));
  const median = (of: Cost[], kind: keyof Cost) => percentile(of.map((cost) => 1_000 * cost[kind] / count), 0.5);
  return costs.map((of) => ({ cpu: median(of, "work"), time: median(of, "time"), costs: of }));
}

/** A service with two open questions that were sent as links, and with a run that has completed. */
async function open(path: string) {
  const store = await SqliteStore.open(path);
  const links = signedLinks({ keys: ["a key of the links of the benchmark"], url: HOST });
  const sent: string[] = [];
  const fields = z.object({
    approved: z.boolean(),
    cents: z.int(),
    reason: z.enum(["late", "damaged"]),
    note: z.string(),
  });
  const actions = [{ label: "Refund", payload: true }, { label: "Refuse", payload: false }];
  const ask = (name: string, metadata: object, waits: Record<string, typeof fields>) =>
    defineJob({
      name,
      input: benchInput,
      waits,
      async run(step) {
        const wait = await step.prepareWait("approve", { timeout: "1d", metadata });
        await step.run("send", async () => void sent.push(await links.toWait(wait, { for: "ada@example.com" })));
        await step.waitFor(wait);
      },
    });
  const jobs = {
    form: ask("form", { message: "Refund?" }, { approve: fields }),
    buttons: ask("buttons", { message: "Refund?", actions }, {}),
    sum: defineJob({ name: "sum", input: benchInput, run: (step, { n }) => step.run("add", () => ({ sum: n + 1 })) }),
  };
  const engine = createEngine({ store, jobs, logger: null });
  await engine.jobs.form.trigger({ n: 1 });
  await engine.runUntilIdle();
  await engine.jobs.buttons.trigger({ n: 1 });
  const { id: runId } = await engine.jobs.sum.trigger({ n: 1 });
  await engine.runUntilIdle();
  const tools = [{ job: jobs.sum, description: "Adds one" }];
  const handler = createHandler(engine, { links, mcp: mcp({ name: "bench", tools }) });
  const [form, buttons] = sent as [string, string];
  return {
    handler,
    runId,
    form,
    buttons,
    async [Symbol.asyncDispose]() {
      await engine.stop();
      await store.close();
    },
  };
}
