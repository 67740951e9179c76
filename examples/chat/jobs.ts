// The job of the chat, and the names that the page needs, too.

import { defineJob, defineStream } from "@holdfast/jobs";
import { convertToModelMessages, streamText, type UIMessage, type UIMessageChunk } from "ai";
import { MockLanguageModelV4, simulateReadableStream } from "ai/test";
import { z } from "zod";

/** The parts of a message, as `useChat()` reads them. */
export const parts = defineStream<UIMessageChunk>("parts");

const answer = defineJob({
  name: "answer",
  input: z.object({ messages: z.array(z.unknown()) }),
  retry: { maxAttempts: 3, delay: 500 },
  run: (step, input) =>
    step.run("answer", async ({ stream, abortSignal }) => {
      const messages = input.messages as UIMessage[]; // what useChat() has sent
      const result = streamText({
        model: mockModel(), // or openai("…"), or any other
        maxRetries: 0, // the step is retried
        messages: await convertToModelMessages(messages),
        abortSignal,
      });
      await stream(parts).pipe(result.toUIMessageStream());
      return await result.text; // throws if the model has failed, so that the step is attempted again
    }),
});

/** The jobs of the chat. */
export const jobs = { answer };

const WORDS = 40;

/** A model that says which of its takes an answer is, in each of its sentences. */
function mockModel() {
  return new MockLanguageModelV4({
    doStream: ({ prompt }) => {
      const take = crypto.randomUUID().slice(0, 4);
      const question = prompt.filter(({ role }) => role === "user").length;
      const words = Array.from({ length: WORDS }, (_, n) => `Word ${n + 1} of answer ${question}, take ${take}. `);
      const finish = {
        type: "finish",
        finishReason: { unified: "stop", raw: "stop" },
        usage: { inputTokens: {}, outputTokens: {} } as never, // a mock counts nothing
      } as const;
      const chunks = [
        { type: "text-start", id: "1" } as const,
        ...words.map((delta) => ({ type: "text-delta", id: "1", delta }) as const),
        { type: "text-end", id: "1" } as const,
        finish,
      ];
      return Promise.resolve({ stream: simulateReadableStream({ chunks, chunkDelayInMs: 60 }) });
    },
  });
}
