// Executes an agent whose model writes down each call. If it is told to, its second call never ends.
// Arguments: the database, the ledger, and "hang" or nothing.

import { z } from "zod";
import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { durableModel } from "../../src/ai/mod.ts";
import { SDKS } from "../ai/agents.ts";
import { anything } from "./anything.ts";
import { Ledger } from "./ledger.ts";
import { say } from "./parent.ts";

const [path, ledgerPath, mode] = Deno.args as [string, string, string | undefined];
const ledger = new Ledger(ledgerPath);
const sdk = SDKS["AI SDK 7"]!;

const agent = defineJob({
  name: "agent",
  input: anything<null>(),
  async run(step) {
    const model = sdk.model((_call, prompt) => {
      const call = prompt.filter(({ role }) => role === "tool").length + 1;
      ledger.write("model", call);
      if (call === 2 && mode === "hang") {
        say({ type: "calling" });
        return new Promise(() => {});
      }
      return call === 3
        ? [{ type: "text", text: "Done" }]
        : [{ type: "tool-call", toolCallId: `call-${call}`, toolName: "search", input: "{}" }];
    });
    const { text } = await sdk.generateText({
      model: durableModel(step, model),
      maxRetries: 0,
      prompt: "Search twice",
      stopWhen: sdk.stepCountIs(5),
      tools: {
        search: sdk.tool({
          inputSchema: z.object({}),
          execute: (_input: unknown, { toolCallId }: { toolCallId: string }) =>
            step.run(`search ${toolCallId}`, () => ledger.write("search", toolCallId)),
        }),
      },
    });
    return text;
  },
});
const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { agent },
  worker: { staleThreshold: 1_500, heartbeatInterval: 500, pollingInterval: 50 },
});
await engine.start();
