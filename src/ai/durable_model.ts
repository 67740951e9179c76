import { Buffer } from "node:buffer";
import { NonRetryableError, RetryAfterError } from "../model/error.ts";
import type { StepContext } from "../model/job.ts";
import type { StepOptions, StepTools } from "../model/job/step_calls.ts";
import type { Json } from "../values/json.ts";
import { checkOptionNames } from "../values/option_names.ts";
import { propertyOf } from "../values/unknown_values.ts";

/** What is used of a model of the AI SDK: of the versions v2, v3 and v4 of its interface. */
export interface LanguageModelLike {
  /** The version of the interface. */
  readonly specificationVersion: string;
  /** Makes a whole answer. */
  // deno-lint-ignore no-explicit-any -- the types are those of three versions of the interface
  doGenerate(options: any): PromiseLike<any>;
  /** Makes an answer as a stream of parts. */
  // deno-lint-ignore no-explicit-any -- the types are those of three versions of the interface
  doStream(options: any): PromiseLike<{ stream: ReadableStream<any> }>;
}

/** A part of a streamed answer of a model. */
export type StreamPartOf<Model extends LanguageModelLike> = Awaited<ReturnType<Model["doStream"]>>["stream"] extends
  ReadableStream<infer Part> ? Part : never;

/** Options of {@linkcode durableModel}. */
export interface DurableModelOptions<Part = unknown> extends StepOptions {
  /** The name of its steps. Models that are called at the same time need different names. Default `model`. */
  name?: string;
  /**
   * Gets each part of a streamed answer as it comes, in the step that makes the call; it is awaited. It is not called in
   * a replay, and again for each attempt.
   */
  onPart?: (part: Part, tools: StepTools) => unknown;
}

const OPTIONS: Record<keyof DurableModelOptions, true> = { name: true, retry: true, timeout: true, onPart: true };

/**
 * Makes a model of which each call is a step: after a crash or a pause, the recorded answer is returned. Give it to
 * `generateText()` or `streamText()`.
 *
 * Recorded are content, finish reason, usage, warnings, metadata of the provider, and id, model and time of the answer;
 * not the request, headers and raw parts. A stream is read to its end inside of the step, so what the job reads from it
 * comes all at once: `onPart` gets the parts as they come.
 *
 * @example
 * ```ts
 * import { createEngine, defineJob, MemoryStore } from "@holdfast/jobs";
 * import { durableModel } from "@holdfast/jobs/ai";
 * import { generateText } from "ai";
 * import { MockLanguageModelV4 } from "ai/test";
 * import { z } from "zod";
 *
 * const usage = { inputTokens: {}, outputTokens: {} } as never;
 * const model = new MockLanguageModelV4({ // in production, openai("…"), for example
 *   doGenerate: { content: [{ type: "text", text: "Hello!" }], finishReason: { unified: "stop", raw: "stop" }, usage, warnings: [] },
 * });
 * const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   async run(step, { name }) {
 *     return (await generateText({ model: durableModel(step, model), maxRetries: 0, prompt: `Greet ${name}` })).text;
 *   },
 * });
 * await using engine = createEngine({ store: new MemoryStore(), jobs: { greet } });
 * await engine.start();
 * console.log((await engine.jobs.greet.triggerAndWait({ name: "Ada" })).output); // Hello!
 * ```
 *
 * @throws {TypeError} The model is none, such as a string, or an option is unknown.
 */
export function durableModel<Model extends LanguageModelLike>(
  step: Pick<StepContext, "run">,
  model: Model,
  options: DurableModelOptions<StreamPartOf<Model>> = {},
): Model {
  checkOptionNames(options, OPTIONS, "durableModel()");
  if (
    typeof model !== "object" || typeof propertyOf(model, "doGenerate") !== "function" ||
    typeof propertyOf(model, "doStream") !== "function"
  ) throw new TypeError('durableModel() needs a model object, such as openai("…")');
  const { name = "model", onPart, ...stepOptions } = options;

  /** Calls the model in a step, and records what `read` makes of its answer. */
  const record = async (call: object, read: (call: object, tools: StepTools) => Promise<unknown>): Promise<unknown> =>
    await step.run(name, async (tools) => {
      const signals = [tools.abortSignal, propertyOf(call, "abortSignal") as AbortSignal | undefined];
      try {
        return toPlain(
          await read({ ...call, abortSignal: AbortSignal.any(signals.filter((one) => one != null)) }, tools),
        );
      } catch (error) {
        throw toStepError(error);
      }
    }, stepOptions);

  const generate = async (call: object) =>
    withDates(await record(call, async (call) => pick(await model.doGenerate(call))));

  const stream = async (call: object) => {
    const parts = await record(call, async (call, tools) => {
      const { stream } = await model.doStream(call);
      return await readParts(stream, async (part) => void await onPart?.(part, tools));
    }) as object[]; // what readParts() has returned
    return {
      stream: new ReadableStream({
        start(controller) {
          for (const part of parts) controller.enqueue(withDates(part));
          controller.close();
        },
      }),
    };
  };

  // Models are instances of classes with getters and private fields, of which a copy would have none.
  return new Proxy(Object.create(model) as Model, {
    get(_target, member) {
      if (member === "doGenerate") return generate;
      if (member === "doStream") return stream;
      const value = Reflect.get(model, member);
      return typeof value === "function" ? value.bind(model) : value;
    },
  });
}

const RECORDED = ["content", "structuredOutputText", "finishReason", "usage", "warnings", "providerMetadata"];
const RECORDED_OF_RESPONSE = ["id", "timestamp", "modelId"];

/** What is recorded of an answer. The rest has the prompt, and headers with keys and cookies. */
function pick(answer: object): object {
  const response = propertyOf(answer, "response");
  return {
    ...pickMembers(answer, RECORDED),
    ...(response == null ? {} : { response: pickMembers(response, RECORDED_OF_RESPONSE) }),
  };
}

function pickMembers(value: unknown, names: readonly string[]): object {
  return Object.fromEntries(names.map((name) => [name, propertyOf(value, name)]));
}

/** What is not recorded: the answer of the provider as it was, and signs of life. */
const NOT_RECORDED = ["raw", "ping"];

interface StreamPart {
  type: string;
  id?: string;
  delta?: string;
}

/**
 * Reads a stream to its end. The deltas of a block become one. A later block may have the id of one that has ended.
 *
 * @throws The error of a part that is one, or an `Error` if the stream ends before its last part.
 */
async function readParts(
  stream: ReadableStream<StreamPart>,
  onPart: (part: never) => Promise<void>,
): Promise<StreamPart[]> {
  const parts: (StreamPart & { texts?: string[] })[] = [];
  const open = new Map<string, StreamPart & { texts: string[] }>();
  for await (const part of stream) {
    if (part.type === "error") throw propertyOf(part, "error");
    await onPart(part as never); // of the type that the model says
    if (NOT_RECORDED.includes(part.type)) continue;
    if (part.delta === undefined) {
      parts.push(part);
      for (const [key, { id }] of open) if (id === part.id) open.delete(key); // a block begins, or ends
      continue;
    }
    const key = `${part.type} ${part.id}`;
    const known = open.get(key);
    if (known !== undefined) {
      Object.assign(known, part);
      known.texts.push(part.delta);
      continue;
    }
    const merged = { ...part, texts: [part.delta] };
    open.set(key, merged);
    parts.push(merged);
  }
  if (parts.at(-1)?.type !== "finish") throw new Error("The answer of the model was cut off");
  return parts.map(({ texts, ...part }) => texts === undefined ? part : { ...part, delta: texts.join("") });
}

/** A value as JSON has it: bytes as base64, which models take, too; what JSON cannot express is left out. */
function toPlain(value: unknown): Json {
  return JSON.parse(JSON.stringify(value, function (this: Record<string, unknown>, key, encoded) {
    const original = this[key]; // before toJSON(), which a Buffer has
    return original instanceof Uint8Array ? Buffer.from(original).toString("base64") : encoded;
  }));
}

/** Makes a date of the time of an answer, which JSON has as a string. */
function withDates(recorded: unknown): unknown {
  const answer = recorded as { type?: string; timestamp?: string; response?: { timestamp?: string } };
  if (answer.type === "response-metadata" && typeof answer.timestamp === "string") {
    return { ...answer, timestamp: new Date(answer.timestamp) };
  }
  const { response } = answer;
  if (typeof response?.timestamp !== "string") return answer;
  return { ...answer, response: { ...response, timestamp: new Date(response.timestamp) } };
}

/** What an error of a provider says about another attempt, in the words of steps. */
function toStepError(error: unknown): unknown {
  const message = String(propertyOf(error, "message") ?? error);
  if (propertyOf(error, "isRetryable") === false) return new NonRetryableError(message, { cause: error });
  const delay = propertyOf(propertyOf(error, "responseHeaders"), "retry-after");
  return typeof delay === "string" ? new RetryAfterError(delay, message, { cause: error }) : error;
}
