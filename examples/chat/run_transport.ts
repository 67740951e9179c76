import type { Client } from "@holdfast/jobs/client";
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import type { jobs } from "./jobs.ts";

/** What has been shown of an answer does not count any more: call `resumeStream()`. */
export class AnswerReset extends Error {}

/** Lets `useChat()` answer by runs: each answer is a run of the job `answer` with the label `chat`. */
export class RunTransport implements ChatTransport<UIMessage> {
  readonly #client: Client<typeof jobs>;
  readonly #stream: string;
  /** The run of the newest answer; `null`: there is none. */
  runId: string | null;
  /** An answer that is resumed is read from its beginning. */
  readonly resumeStreamIsReplay = true;

  constructor(client: Client<typeof jobs>, stream: string, runId: string | null) {
    this.#client = client;
    this.#stream = stream;
    this.runId = runId;
  }

  async sendMessages(
    { chatId, messages, abortSignal }: Parameters<ChatTransport<UIMessage>["sendMessages"]>[0],
  ): Promise<ReadableStream<UIMessageChunk>> {
    // The same request is one run, also if it is sent twice. regenerate() comes after another answer: it is another run.
    const idempotencyKey = `${chatId} ${messages.at(-1)!.id} ${this.runId}`;
    const options = { labels: { chat: chatId }, idempotencyKey };
    const { runId } = await this.#client.trigger("answer", { messages }, options);
    this.runId = runId;
    if (abortSignal?.aborted) await this.#client.cancel(runId); // it was stopped before there was a run
    return streamOf(this.#read(runId, abortSignal));
  }

  reconnectToStream(
    { abortSignal }: Parameters<ChatTransport<UIMessage>["reconnectToStream"]>[0],
  ): Promise<ReadableStream<UIMessageChunk> | null> {
    const { runId } = this;
    return Promise.resolve(runId === null ? null : streamOf(this.#read(runId, abortSignal)));
  }

  async *#read(runId: string, abortSignal: AbortSignal | undefined): AsyncGenerator<UIMessageChunk> {
    let count = 0;
    const options = abortSignal === undefined ? {} : { abortSignal };
    for await (const { from, items } of this.#client.readStream(runId, this.#stream, options)) {
      if (from < count) throw new AnswerReset("The answer is written again");
      count += items.length;
      // The message has the id of the run, so that an answer that is written again replaces the one that was shown.
      for (const item of items as unknown as UIMessageChunk[]) {
        yield item.type === "start" ? { ...item, messageId: runId } : item;
      }
    }
    const run = await this.#client.run(runId, options);
    if (run?.status === "failed") throw new Error(run.error);
  }
}

/** A stream of what is generated. Not every browser has `ReadableStream.from()`. */
function streamOf<T>(generator: AsyncGenerator<T>): ReadableStream<T> {
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await generator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: async () => void await generator.return(undefined),
  });
}
