// deno run -A examples/agent.ts
//
// A research agent: it looks things up with two tools at once, asks a person before it publishes, and streams its words as
// they come, to a reader that could be a page. It is killed while it waits, and goes on; no call of the model is made again. The model is a mock, so it
// needs no keys: put openai("…") in its place, or any other model of the AI SDK.

import { createEngine, defineJob, defineStream, SqliteStore, type StepTools } from "@holdfast/jobs";
import { durableModel } from "@holdfast/jobs/ai";
import { stepCountIs, streamText, tool } from "ai";
import { MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { z } from "zod";

/** The words of the agent, for whoever reads along. */
const words = defineStream<string>("words");
let modelCalls = 0;

const research = defineJob({
  name: "research",
  input: z.object({ question: z.string() }),
  async run(step, { question }) {
    const onPart = async (part: { type: string; delta?: string }, { stream }: StepTools) => {
      if (part.type === "text-delta") await stream(words).write(part.delta!);
    };
    const answer = streamText({
      model: durableModel(step, model(), {
        retry: { maxAttempts: 5, delay: 1_000, backoff: "exponential" },
        onPart,
      }),
      maxRetries: 0, // the steps are retried
      prompt: question,
      stopWhen: stepCountIs(10),
      tools: {
        search: tool({
          description: "Searches the archive",
          inputSchema: z.object({ words: z.string() }),
          execute: ({ words }, { toolCallId }) =>
            step.run(`search ${toolCallId}`, () => {
              console.log(`The archive is searched for "${words}"`);
              return `Three letters about ${words}`;
            }),
        }),
        publish: tool({
          description: "Publishes the answer, once a person has approved it",
          inputSchema: z.object({ title: z.string() }),
          execute: async ({ title }) => {
            const review = await step.wait("review", { timeout: "7d", metadata: { title } });
            if (review.outcome === "timeout") return "Nobody has answered";
            return await step.run("publish", () => `Published as "${title}"`);
          },
        }),
      },
    });
    return await answer.text;
  },
});

const folder = await Deno.makeTempDir();
const runId = await execute("It starts", async (engine) => {
  const { id } = await engine.jobs.research.trigger({ question: "What did Ada write to Charles?" });
  return id;
});
await execute("Another process signals, and goes on", async (engine) => {
  const [wait] = await engine.getWaits(runId);
  console.log(`Ada approves ${JSON.stringify(wait!.metadata)}`);
  await engine.signal(wait!.id, { signalId: "ada", payload: true });
  return runId;
});
console.log(`The model was called ${modelCalls} times`);
await Deno.remove(folder, { recursive: true });

/** Does something with an engine, and works until nothing is left to do: what a process does between two kills. */
async function execute(title: string, act: (engine: ReturnType<typeof open>) => Promise<string>): Promise<string> {
  console.log(`\n${title}`);
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  await using engine = open(store);
  const id = await act(engine);
  await engine.runUntilIdle();
  const all: string[] = [];
  for await (const { from, items } of engine.readStream(id, words, { follow: false })) {
    all.splice(from, Infinity, ...items); // the one rule of readers
  }
  console.log(`A reader sees: ${all.join("")}`);
  const run = (await engine.getRun(id))!;
  console.log(`The run is ${run.status}`, run.output ?? "");
  return id;
}

function open(store: SqliteStore) {
  return createEngine({ store, jobs: { research } });
}

/** A model that says what a research agent would say: what, follows from how many results of tools it has. */
function model() {
  return new MockLanguageModelV4({
    doStream: ({ prompt }) => {
      modelCalls++;
      const results = prompt.filter(({ role }) => role === "tool").length;
      const call = (id: string, toolName: string, input: object) =>
        ({ type: "tool-call", toolCallId: id, toolName, input: JSON.stringify(input) }) as const;
      const text = (...words: string[]) => [
        { type: "text-start", id: "1" } as const,
        ...words.map((delta) => ({ type: "text-delta", id: "1", delta }) as const),
        { type: "text-end", id: "1" } as const,
      ];
      const answers = [
        [call("a", "search", { words: "engines" }), call("b", "search", { words: "notes" })],
        [...text("I have ", "six letters."), call("c", "publish", { title: "Letters of Ada" })],
        text("It is ", "published."),
      ];
      const usage = { inputTokens: {}, outputTokens: {} } as never; // a mock counts nothing
      const unified = results < 2 ? "tool-calls" as const : "stop" as const;
      const chunks = [...answers[results]!, {
        type: "finish" as const,
        finishReason: { unified, raw: unified },
        usage,
      }];
      return Promise.resolve({ stream: simulateReadableStream({ chunks }) });
    },
  });
}
