import assert from "node:assert/strict";
import { z } from "zod";
import { durableModel, type DurableModelOptions, type LanguageModelLike } from "../../src/ai/durable_model.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { crashAtEveryCheckpoint } from "../../src/testing/crashes/crash_at_every_checkpoint.ts";
import { createTestEngine } from "../../src/testing/create_test_engine.ts";
import { type Content, RESEARCH, type Script, type Sdk, SDKS, SECRET } from "./agents.ts";

const PROMPT = "a prompt that only the provider may see";

/** What an agent does outside: its calls of the model and of tools. */
interface World {
  model(): void;
  search(words: string): string;
}

/** A job that is an agent: two tools at once, a question to a person, an answer. */
function anAgent(sdk: Sdk, isStreamed: boolean, world: World) {
  return defineJob({
    name: "agent",
    input: z.object({}),
    async run(step) {
      const options = {
        model: durableModel(
          step,
          sdk.model((call, prompt) => {
            world.model();
            return RESEARCH(call, prompt);
          }),
        ),
        maxRetries: 0,
        prompt: PROMPT,
        stopWhen: sdk.stepCountIs(5),
        tools: {
          search: sdk.tool({
            inputSchema: z.object({ words: z.string() }),
            execute: ({ words }: { words: string }, { toolCallId }: { toolCallId: string }) =>
              step.run(`search ${toolCallId}`, () => world.search(words)),
          }),
          publish: sdk.tool({
            inputSchema: z.object({}),
            execute: async () => {
              const answer = await step.wait("publish");
              return answer.outcome === "signal" ? answer.payload : null;
            },
          }),
        },
      };
      return isStreamed ? await sdk.streamText(options).text : (await sdk.generateText(options)).text;
    },
  });
}

for (const [name, sdk] of Object.entries(SDKS)) {
  for (const isStreamed of [false, true]) {
    const how = `${isStreamed ? "streamText()" : "generateText()"} of ${name}`;

    Deno.test(`durableModel() makes no call of the model or of a tool again over pauses and crashes: ${how}`, async () => {
      const calls: string[] = [];
      const world = { model: () => void calls.push("model"), search: (words: string) => (calls.push(words), words) };
      const agent = anAgent(sdk, isStreamed, world);
      await using t = createTestEngine({ jobs: { agent } });

      const run = await t.trigger(agent, {});
      await t.expectRun(run).waitsFor("publish");
      await t.crash();
      await t.signal(run, "publish", { approved: true });

      await t.expectRun(run).completed("It is published.");
      await t.expectRun(run).steps(["model", "search call-0", "search call-1", "model#2", "model#3"]);
      assert.deepEqual(calls.toSorted(), ["model", "model", "model", "one", "two"]);
      const stored = JSON.stringify([await t.exportHistory(run), t.events]);
      assert.ok(stored.includes("May I publish?"));
      assert.ok(!stored.includes(PROMPT) && !stored.includes(SECRET));
    });

    Deno.test(`durableModel() survives a crash at every checkpoint: ${how}`, async () => {
      const report = await crashAtEveryCheckpoint((kit) => {
        const found = new Set<string>();
        const world = kit.world({ model: () => {}, search: (words: string) => (found.add(words), words) });
        const job = anAgent(sdk, isStreamed, world);
        return { job, input: {}, signals: { publish: { approved: true } }, observe: () => [...found] };
      });

      assert.deepEqual(report.findings, []);
      assert.ok(report.executions > 40, `${report.executions}`);
    });
  }
}

const SDK = SDKS["AI SDK 7"]!;
const TEXT: Content[] = [{ type: "text", text: "Four words of text" }];

/** A job that calls a model once, with these options of the step. */
function aCall(script: Script, options: DurableModelOptions = {}, isStreamed = false) {
  const calls = { count: 0 };
  const job = defineJob({
    name: "call",
    input: z.object({}),
    async run(step) {
      const model = durableModel(step, SDK.model((_call, prompt) => script(++calls.count, prompt)), options);
      const request = { model, maxRetries: 0, prompt: PROMPT };
      if (isStreamed) {
        const pieces = await Array.fromAsync(SDK.streamText({ ...request, onError: () => {} }).textStream);
        return { pieces };
      }
      const { text, response } = await SDK.generateText(request);
      return { text, isDate: response.timestamp instanceof Date, timestamp: response.timestamp };
    },
  });
  return { job, calls };
}

Deno.test("durableModel() returns the time of an answer as a date", async () => {
  const { job } = aCall(() => TEXT);
  await using t = createTestEngine({ jobs: { job } });

  const run = await t.trigger(job, {});

  const output = { text: "Four words of text", isDate: true, timestamp: "2029-12-31T23:59:58.500Z" };
  await t.expectRun(run).completed(output);
});

Deno.test("durableModel() passes on the parts of a stream as they come, and records them merged", async () => {
  const seen: string[] = [];
  const onPart = (part: { type: string; delta?: string }) => void seen.push(part.delta ?? part.type);
  const { job } = aCall(() => TEXT, { onPart: onPart as DurableModelOptions["onPart"] }, true);
  await using t = createTestEngine({ jobs: { job } });

  const run = await t.trigger(job, {});

  await t.expectRun(run).completed({ pieces: ["Four words of text"] });
  assert.deepEqual(seen, [
    "stream-start",
    "response-metadata",
    "raw",
    "text-start",
    "Four",
    " wor",
    "ds o",
    "f te",
    "xt",
    "text-end",
    "finish",
  ]);
});

Deno.test("onPart writes what comes to a stream of the run, of which readers see nothing of an attempt that failed", async () => {
  const onPart: DurableModelOptions["onPart"] = async (part, { stream }) => {
    const { type, delta } = part as { type: string; delta?: string };
    if (type === "text-delta") await stream("tokens").write(delta!);
  };
  let calls = 0;
  const job = defineJob({
    name: "call",
    input: z.object({}),
    async run(step) {
      const model = SDK.model(() => TEXT);
      const { doStream } = model;
      model.doStream = async (options) => {
        const { stream, ...rest } = await doStream.call(model, options);
        return ++calls > 1 ? { stream, ...rest } : { stream: cutOff(stream), ...rest };
      };
      return await SDK.streamText({
        model: durableModel(step, model, { onPart, retry: { maxAttempts: 2 } }),
        prompt: PROMPT,
      }).text;
    },
  });
  await using t = createTestEngine({ jobs: { job } });

  const run = await t.trigger(job, {});
  await t.drain();

  await t.expectRun(run).completed("Four words of text");
  const all: unknown[] = [];
  for await (const { from, items } of t.engine.readStream(run.id, "tokens")) all.splice(from, Infinity, ...items);
  assert.deepEqual([calls, all.join("")], [2, "Four words of text"]);
});

/** A stream that ends after six parts. */
function cutOff(stream: ReadableStream<unknown>): ReadableStream<unknown> {
  let left = 6;
  return stream.pipeThrough(
    new TransformStream({
      transform: (part, controller) => left-- > 0 ? controller.enqueue(part) : controller.terminate(),
    }),
  );
}

const failure = (members: object) => Object.assign(new Error("The provider refuses"), members);

Deno.test("durableModel() retries what can be retried, after the delay that the provider asks for", async () => {
  const { job, calls } = aCall(
    (call) => call < 3 ? failure({ isRetryable: true, responseHeaders: { "retry-after": "90" } }) : TEXT,
    { retry: { maxAttempts: 3, delay: 1_000 } },
  );
  await using t = createTestEngine({ jobs: { job } });
  const begin = t.now.getTime();

  const run = await t.trigger(job, {});
  await t.drain();

  await t.expectRun(run).completed();
  assert.deepEqual([calls.count, t.now.getTime() - begin], [3, 180_000]);
});

Deno.test("durableModel() does not retry what the provider refuses for good", async () => {
  const { job, calls } = aCall(() => failure({ isRetryable: false, statusCode: 401 }), { retry: { maxAttempts: 5 } });
  await using t = createTestEngine({ jobs: { job } });

  const run = await t.trigger(job, {});
  await t.drain();

  await t.expectRun(run).failed("The provider refuses", { step: "model" });
  assert.equal(calls.count, 1);
});

Deno.test("durableModel() is not called again by the retries of the SDK", async () => {
  const { calls } = aCall(() => TEXT);
  const job = defineJob({
    name: "call",
    input: z.object({}),
    async run(step) {
      const model = durableModel(step, SDK.model(() => (calls.count++, failure({ isRetryable: true }))));
      return (await SDK.generateText({ model, maxRetries: 5, prompt: PROMPT })).text;
    },
  });
  await using t = createTestEngine({ jobs: { job } });

  const run = await t.trigger(job, {});

  await t.expectRun(run).failed("The provider refuses", { step: "model" });
  assert.equal(calls.count, 1);
});

/** A model that answers with the parts of a stream. */
function streaming(parts: () => readonly unknown[]) {
  return {
    specificationVersion: "v4",
    provider: "mock",
    modelId: "mock",
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error("not called")),
    doStream: () => Promise.resolve({ stream: ReadableStream.from<unknown>(parts()) }),
  };
}

for (
  const [what, end] of [
    ["is cut off", []],
    ["has a part that is an error", [{ type: "error", error: new Error("The provider is overloaded") }]],
  ] as const
) {
  Deno.test(`durableModel() makes a call again whose stream ${what}`, async () => {
    let calls = 0;
    const model = streaming(() => {
      const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
      const whole = [{ type: "text-end", id: "1" }, { type: "finish", finishReason: { unified: "stop" }, usage }];
      const parts = [{ type: "text-start", id: "1" }, { type: "text-delta", id: "1", delta: "Hello" }];
      return [...parts, ...(++calls === 1 ? end : whole)];
    });
    const job = defineJob({
      name: "call",
      input: z.object({}),
      run: async (step) => {
        const retried = durableModel(step, model, { retry: { maxAttempts: 2 } });
        return await SDK.streamText({ model: retried, prompt: PROMPT }).text;
      },
    });
    await using t = createTestEngine({ jobs: { job } });

    const run = await t.trigger(job, {});
    await t.drain();

    await t.expectRun(run).completed("Hello");
    assert.equal(calls, 2);
  });
}

Deno.test("durableModel() keeps the order of blocks that have the same id one after another", async () => {
  const block = (kind: string, text: string) => [
    { type: `${kind}-start`, id: "0" },
    ...[...text].map((delta) => ({ type: `${kind}-delta`, id: "0", delta })),
    { type: `${kind}-end`, id: "0" },
  ];
  const parts = [
    ...[block("reasoning", "why"), block("text", "one "), block("reasoning", "how"), block("text", "two")].flat(),
    { type: "finish", finishReason: { unified: "stop" }, usage: { inputTokens: {}, outputTokens: {} } },
  ];
  const model = streaming(() => parts);
  const job = defineJob({
    name: "call",
    input: z.object({}),
    run: async (step) => {
      const answer = SDK.streamText({ model: durableModel(step, model), prompt: PROMPT }) as unknown as {
        content: PromiseLike<{ type: string; text?: string }[]>;
      };
      return (await answer.content).map(({ type, text }) => `${type}: ${text}`);
    },
  });
  await using t = createTestEngine({ jobs: { job } });

  const run = await t.trigger(job, {});
  await t.drain();

  await t.expectRun(run).completed(["reasoning: why", "text: one ", "reasoning: how", "text: two"]);
});

Deno.test("durableModel() records bytes as base64, and leaves out what JSON cannot express", async () => {
  const model = {
    specificationVersion: "v4",
    doStream: () => Promise.reject(new Error("not called")),
    doGenerate: () =>
      Promise.resolve({
        content: [{ type: "file", mediaType: "image/png", data: new Uint8Array([1, 2, 3]) }],
        usage: { total: NaN, none: undefined },
        response: { id: "1", headers: { cookie: "c" } },
      }),
  };
  const job = defineJob({
    name: "call",
    input: z.object({}),
    run: (step) => (durableModel(step, model) as LanguageModelLike).doGenerate({}) as Promise<unknown>,
  });
  await using t = createTestEngine({ jobs: { job } });

  const run = await t.trigger(job, {});

  await t.expectRun(run).completed({
    content: [{ type: "file", mediaType: "image/png", data: "AQID" }],
    usage: { total: null },
    response: { id: "1" },
  });
});

Deno.test("durableModel() is otherwise the model: its getters and private fields work", () => {
  class Model {
    #id = "gpt";
    readonly specificationVersion = "v4";
    get modelId() {
      return this.#id;
    }
    describe() {
      return `model ${this.#id}`;
    }
    doGenerate = () => Promise.resolve({});
    doStream = () => Promise.resolve({ stream: new ReadableStream() });
  }

  const model = durableModel({ run: () => Promise.reject(new Error()) }, Object.freeze(new Model()));

  assert.deepEqual([model.modelId, model.specificationVersion, model.describe()], ["gpt", "v4", "model gpt"]);
  assert.ok("modelId" in model && model instanceof Model);
});

Deno.test("durableModel() refuses what is no model, and options that are none", () => {
  const step = { run: () => Promise.reject(new Error()) };
  for (const model of ["openai/gpt-5", null, undefined, {}, () => {}]) {
    assert.throws(
      () => durableModel(step, model as never),
      new TypeError('durableModel() needs a model object, such as openai("…")'),
    );
  }
  assert.throws(() => durableModel(step, SDK.model(() => TEXT), { retries: 3 } as never), /no option "retries"/);
});
