import { z } from "zod";
import { createEngine, createHandler, defineJob, type HandlerOptions, MemoryStore } from "../../mod.ts";
import { createClient, type ServiceOptions } from "../../src/client/mod.ts";

/** The jobs of the service. */
export const jobs = {
  greeting: defineJob({
    name: "greet",
    input: z.object({ name: z.string(), times: z.number().default(1) }),
    run: async (step, { name, times }) => ({ text: await step.run("compose", () => `Hello, ${name}! `.repeat(times)) }),
  }),
  approval: defineJob({
    name: "approve",
    input: z.object({}),
    run: async (step) => {
      const result = await step.wait("review", { metadata: { for: "ana" } });
      return { isApproved: result.outcome === "signal", at: new Date(0) };
    },
  }),
  chat: defineJob({
    name: "chat",
    input: z.object({}),
    messages: { text: z.string(), shush: z.null(), stop: z.null() },
    run: async (step) => {
      while (true) {
        const got = await step.receive("next", { names: ["text", "shush", "stop"] });
        if (got === null || got.name === "stop") return null;
        if (got.name === "text") await step.respond(got, { heard: got.payload });
      }
    },
  }),
  failing: defineJob({
    name: "fail",
    input: z.object({}),
    run: (): { never: true } => {
      throw new Error("boom");
    },
  }),
};

/** Sends a request into the service. */
export type SendRequest = (request: Request) => Promise<Response>;

/** A service on a port of its own, and a client whose requests a test can watch, answer or break. */
export async function aService(
  { between = (request, send) => send(request), handler: handlerOptions, ...options }:
    & { between?: (request: Request, send: SendRequest) => Promise<Response>; handler?: HandlerOptions }
    & Partial<ServiceOptions> = {},
) {
  const store = new MemoryStore();
  const engine = createEngine({ store, jobs, logger: null });
  await engine.start();
  const handler = createHandler(engine, { basePath: "/api", ...handlerOptions });
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler.fetch);
  const client = createClient<typeof jobs>({
    url: `http://127.0.0.1:${server.addr.port}/api/`,
    fetch: async (url, init) => await between(new Request(url as URL, init), fetch),
    ...options,
  });
  return {
    client,
    engine,
    handler,
    async [Symbol.asyncDispose]() {
      await engine.stop({ timeout: 0 });
      await server.shutdown();
      await store.close();
    },
  };
}
