import {
  generateText as generateText5,
  stepCountIs as stepCountIs5,
  streamText as streamText5,
  tool as tool5,
} from "ai5";
import { MockLanguageModelV2 } from "ai5/test";
import {
  generateText as generateText6,
  stepCountIs as stepCountIs6,
  streamText as streamText6,
  tool as tool6,
} from "ai6";
import { MockLanguageModelV3 } from "ai6/test";
import {
  generateText as generateText7,
  stepCountIs as stepCountIs7,
  streamText as streamText7,
  tool as tool7,
} from "ai";
import { MockLanguageModelV4 } from "ai/test";
import type { LanguageModelLike } from "../../src/ai/durable_model.ts";

/** A part of the content of an answer: the same in all versions of the interface. */
export type Content =
  | { type: "text"; text: string }
  | { type: "tool-call"; toolCallId: string; toolName: string; input: string };

/** What a scripted model answers to a call: content, or an error. */
export type Script = (call: number, prompt: readonly { role: string }[]) => Content[] | Error | Promise<Content[]>;

/** What is used of a version of the AI SDK. */
export interface Sdk {
  // deno-lint-ignore no-explicit-any -- the types of three versions
  generateText: (options: any) => Promise<{ text: string; response: { timestamp: Date } }>;
  // deno-lint-ignore no-explicit-any -- the types of three versions
  streamText: (options: any) => { text: PromiseLike<string>; textStream: AsyncIterable<string> };
  stepCountIs: (count: number) => unknown;
  // deno-lint-ignore no-explicit-any -- the types of three versions
  tool: (options: any) => unknown;
  /** A model whose answers are those of a script. */
  model: (script: Script) => LanguageModelLike;
}

const KEY = "sk-secret-of-the-provider";
const AT = new Date("2029-12-31T23:59:58.500Z");

/** A mock of one version: they differ in the usage, and in how an answer says why it ended. */
// deno-lint-ignore no-explicit-any -- the constructors of three versions
function mock(Mock: new (options: any) => LanguageModelLike, isFirst: boolean): Sdk["model"] {
  return (script) => {
    let calls = 0;
    const answer = async ({ prompt }: { prompt: { role: string }[] }) => {
      const content = await script(++calls, prompt);
      if (content instanceof Error) throw content;
      const reason = content.some(({ type }) => type === "tool-call") ? "tool-calls" : "stop";
      const response = { id: `response-${prompt.length}`, modelId: "mock", timestamp: AT };
      const usage = isFirst
        ? { inputTokens: 3, outputTokens: 2, totalTokens: 5 }
        : { inputTokens: { total: 3 }, outputTokens: { total: 2 } };
      return { content, finishReason: isFirst ? reason : { unified: reason, raw: reason }, usage, response };
    };
    return new Mock({
      doGenerate: async (options: { prompt: { role: string }[] }) => {
        const { response, ...rest } = await answer(options);
        const headers = { "set-cookie": KEY };
        return { ...rest, warnings: [], request: { body: options }, response: { ...response, headers, body: options } };
      },
      doStream: async (options: { prompt: { role: string }[] }) => {
        const { content, finishReason, usage, response } = await answer(options);
        const parts = content.flatMap((part, n): object[] =>
          part.type === "tool-call" ? [part] : [
            { type: "text-start", id: `${n}` },
            ...part.text.match(/.{1,4}/gs)!.map((delta) => ({ type: "text-delta", id: `${n}`, delta })),
            { type: "text-end", id: `${n}` },
          ]
        );
        const stream = ReadableStream.from([
          { type: "stream-start", warnings: [] },
          { type: "response-metadata", ...response },
          { type: "raw", rawValue: options },
          ...parts,
          { type: "finish", finishReason, usage },
        ]);
        return { stream, request: { body: options }, response: { headers: { "set-cookie": KEY } } };
      },
    });
  };
}

/** What no record may have: a key of the provider. */
export const SECRET = KEY;

/** The versions of the AI SDK. */
export const SDKS: Readonly<Record<string, Sdk>> = {
  "AI SDK 5": {
    generateText: generateText5,
    streamText: streamText5,
    stepCountIs: stepCountIs5,
    tool: tool5,
    model: mock(MockLanguageModelV2, true),
  },
  "AI SDK 6": {
    generateText: generateText6,
    streamText: streamText6,
    stepCountIs: stepCountIs6,
    tool: tool6,
    model: mock(MockLanguageModelV3, false),
  },
  "AI SDK 7": {
    generateText: generateText7,
    streamText: streamText7,
    stepCountIs: stepCountIs7,
    tool: tool7,
    model: mock(MockLanguageModelV4, false),
  },
};

/** An agent that looks two things up at once, asks a person, and then answers: what it does follows from the prompt. */
export const RESEARCH: Script = (_call, prompt) => {
  const results = prompt.filter(({ role }) => role === "tool").length;
  if (results === 0) {
    return ["one", "two"].map((words, n) => ({
      type: "tool-call",
      toolCallId: `call-${n}`,
      toolName: "search",
      input: JSON.stringify({ words }),
    }));
  }
  if (results === 1) {
    return [
      { type: "text", text: "May I publish?" },
      { type: "tool-call", toolCallId: "call-2", toolName: "publish", input: "{}" },
    ];
  }
  return [{ type: "text", text: "It is published." }];
};
