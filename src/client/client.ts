import type { Children } from "../model/children.ts";
import type { RunStatus } from "../model/run.ts";
import type { ClientStep } from "../model/step.ts";
import type { Stream, StreamPart } from "../model/stream.ts";
import type { Duration } from "../values/duration.ts";
import type { Json, Jsonify } from "../values/json.ts";
import type { LogEntry } from "../model/log.ts";
import type { ClientMessage, SendResult } from "../model/message.ts";

import type { ClientSignalReceipt, ClientWait } from "../model/wait.ts";
import { ClientError, openService, type ServiceOptions } from "./service.ts";
import type {
  CallOptions,
  ChildrenOptions,
  ClientFilter,
  ClientJobs,
  ClientTriggerOptions,
  CompletedRunOf,
  EventOf,
  JobInput,
  JobName,
  ListSnapshot,
  PageOf,
  PageOptions,
  RunId,
  RunOf,
  RunSnapshot,
  Triggered,
} from "./client_types.ts";
import { follow, readItems, untilAnswered } from "./follow.ts";

/**
 * Calls a service of `createHandler()`. No call is repeated, except those of `watch`, `watchRuns` and `waitForRun`:
 * after an error with the code `network`, a write may have been carried out. Repeat a trigger with the same
 * `idempotencyKey`, a signal with the same `signalId`, and a message with the same `id`.
 *
 * Each call throws a {@linkcode ClientError} if it fails, the reason of its `abortSignal` if that fires, and a `TypeError`
 * if no request can say what it was given: what JSON would lose, or a filter without a value. Outputs have the types of
 * the jobs as they are now; nothing is checked.
 */
export interface Client<J extends ClientJobs> {
  /** Triggers a run of a job. */
  trigger<Name extends JobName<J>>(
    jobName: Name,
    input: JobInput<J, Name>,
    options?: ClientTriggerOptions,
  ): Promise<Triggered<Name>>;
  /** Reads a run. */
  run<Name extends JobName<J>>(runId: RunId<Name>, options?: CallOptions): Promise<RunOf<J, Name>>;
  /** Reads one page of a list, newest first. The runs are not counted. */
  page<Name extends JobName<J>>(
    filter: ClientFilter<Name> | undefined,
    options: PageOptions & { total: false },
  ): Promise<Pick<PageOf<RunOf<J, Name>>, "runs" | "hasMore">>;
  /** Reads one page of a list, newest first, and how many runs there are. */
  page<Name extends JobName<J>>(filter?: ClientFilter<Name>, options?: PageOptions): Promise<PageOf<RunOf<J, Name>>>;
  /**
   * Reads all runs of a list, newest first, page by page. Runs that are triggered meanwhile are left out.
   */
  runs<Name extends JobName<J>>(filter?: ClientFilter<Name>, options?: CallOptions): AsyncGenerator<RunOf<J, Name>>;
  /** Reads how many children a run has, and a page of them: first those that failed or are held. */
  children(runId: string, options?: ChildrenOptions): Promise<Children>;
  /** Reads the recorded steps of a run. */
  steps(runId: string, options?: CallOptions): Promise<ClientStep[]>;
  /** Reads the stored log lines of a run. */
  logs(runId: string, options?: CallOptions): Promise<LogEntry[]>;
  /** Reads the waits of a run. */
  waits(runId: string, options?: CallOptions): Promise<ClientWait[]>;
  /** Reads a wait. */
  wait(runId: string, waitId: string, options?: CallOptions): Promise<ClientWait>;
  /** Ends a wait. A repeated call with the same `signalId` and payload gets the same answer. */
  signal(
    runId: string,
    waitId: string,
    signal: { signalId: string; payload: unknown },
    options?: CallOptions,
  ): Promise<ClientSignalReceipt>;
  /** Reads the messages of a run. */
  messages(runId: string, options?: CallOptions): Promise<ClientMessage[]>;
  /**
   * Sends a message to a run: to the one of an id, or of a job and an idempotency key. A repeated call with the same `id`,
   * name and payload gets the same answer.
   */
  send(
    to: string | {
      jobName: string;
      key: string;
      start?: { input: unknown } & Omit<ClientTriggerOptions, "idempotencyKey">;
    },
    message: { name: string; payload: unknown; id?: string },
    options?: CallOptions,
  ): Promise<SendResult>;
  /**
   * Sends a message, as `send()` does, and waits for its answer: what the run gives to `step.respond()`. A repeated call
   * with the same `id` finds the answer. It waits without limit: `abortSignal: AbortSignal.timeout(30_000)` sets one.
   *
   * @throws {ClientError} The run failed (`run_failed`), was cancelled (`run_cancelled`) or deleted (`not_found`), or has
   * completed without an answer (`conflict`).
   */
  ask<Answer = Json>(
    to: Parameters<Client<J>["send"]>[0],
    message: Parameters<Client<J>["send"]>[1],
    options?: CallOptions,
  ): Promise<Answer>;
  /** Cancels a run that has not ended. */
  cancel(runId: string, options?: CallOptions): Promise<void>;
  /** Triggers a run that has ended again, from its start (default) or from its failure. */
  retrigger<Name extends string>(
    runId: RunId<Name>,
    options?: CallOptions & { from?: "start" | "failure" },
  ): Promise<{ runId: RunId<Name>; status: RunStatus }>;
  /** Deletes a run that has ended. */
  delete(runId: string, options?: CallOptions): Promise<void>;
  /**
   * Follows a run to its end: first a snapshot, then events, each of them once. It reconnects for as long as it takes;
   * if events were missed, another snapshot follows. Events can repeat what the snapshot before them has shown.
   */
  watch<Name extends JobName<J>>(
    runId: RunId<Name>,
    options?: CallOptions,
  ): AsyncGenerator<RunSnapshot<RunOf<J, Name>> | EventOf<J, Name>, void>;
  /** Follows all runs of a job, or with labels, in the same way. It ends when the caller leaves it. */
  watchRuns<Name extends JobName<J>>(
    filter?: Pick<ClientFilter<Name>, "jobName" | "labels">,
    options?: CallOptions,
  ): AsyncGenerator<ListSnapshot<RunOf<J, Name>> | EventOf<J, Name>, void>;
  /**
   * Reads a stream that the steps of a run write, from the beginning or after a position, through reconnects, to the end
   * of the run. Put `items` at index `from` of your list, and drop what was there and after it.
   */
  readStream<T = Json>(
    runId: string,
    stream: Stream<T> | string,
    options?: CallOptions & { after?: string },
  ): AsyncGenerator<StreamPart<Jsonify<T>>, void>;
  /**
   * Waits until a run has completed.
   *
   * @param options.timeout For how long. Default, and from 25 days on: without limit.
   * @throws {ClientError} It failed (`run_failed`), was cancelled (`run_cancelled`) or deleted (`not_found`), or has not
   * completed in time (`timeout`).
   */
  waitForRun<Name extends JobName<J>>(
    runId: RunId<Name>,
    options?: CallOptions & { timeout?: Duration },
  ): Promise<CompletedRunOf<J, Name>>;
}

/**
 * Creates a client. With the type of the server's jobs, names, inputs and outputs are checked.
 *
 * @example
 * ```ts
 * import { createClient } from "@holdfast/jobs/client";
 * import { defineJob } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   run: (_step, { name }) => ({ text: `Hello, ${name}!` }),
 * });
 * const jobs = { greet }; // on the server; a browser needs `import type { jobs }` alone
 *
 * const client = createClient<typeof jobs>({ url: "https://example.com/api/jobs" });
 * const greeting = async (name: string) => {
 *   const { runId } = await client.trigger("greet", { name });
 *   const { output } = await client.waitForRun(runId, { timeout: 60_000 });
 *   return output.text;
 * };
 * ```
 *
 * @throws {TypeError} The address is relative, and there is no page that it could be relative to.
 */
export function createClient<J extends ClientJobs>(options: ServiceOptions): Client<J> {
  const ask = openService(options);
  const askOfRun = (route: string) => (runId: string, options?: CallOptions) =>
    ask(route, { ...options, runId }, options);
  const readWaits = askOfRun("GET /waits");

  const client: Client<J> = {
    trigger: (jobName, input, options) =>
      ask("POST /trigger", {}, options, { jobName, input, ...options, abortSignal: undefined }),
    run: askOfRun("GET /run"),
    page: (filter?: ClientFilter, options?: PageOptions) =>
      matchesNothing(filter)
        ? Promise.resolve({ runs: [], total: 0, hasMore: false })
        : ask("GET /runs", { ...filter, ...options }, options),
    async *runs(filter, options) {
      for (const shown: string[] = [];;) {
        const page = await client.page(filter, { limit: 1_000, total: false, before: shown.at(-1), ...options }).catch(
          (error) => {
            // The last run was deleted meanwhile: what follows it also follows the run before it.
            if (error.code !== "not_found" || !shown.pop()) throw error;
          },
        );
        if (!page) continue;
        yield* page.runs;
        if (!page.hasMore) return;
        shown.push(...page.runs.map(({ id }) => id));
      }
    },
    children: askOfRun("GET /children"),
    steps: askOfRun("GET /steps"),
    logs: askOfRun("GET /logs"),
    waits: readWaits,
    wait: (runId, waitId, options) => ask("GET /wait", { runId, waitId }, options),
    signal: (runId, waitId, body, options) => ask("POST /signal", { runId, waitId }, options, body),
    messages: askOfRun("GET /messages"),
    send(to, message, options) {
      const keyed = typeof to === "object" && to;
      return ask("POST /send", { runId: keyed ? null : to }, options, { ...keyed, ...message });
    },
    async ask(to, message, options) {
      const { runId, messageId } = await client.send(to, message, options);
      const stepName = `respond:${messageId}`;
      for await (const event of client.watch(runId, options)) {
        if (event.type !== "snapshot" && (event as { stepName?: string }).stepName !== stepName) continue;
        for (const { name, output } of await untilAnswered(client.steps, runId, options)) {
          if (name === stepName) return output as never; // of the type that the caller expects
        }
      }
      await client.waitForRun(runId, options); // it says how the run has ended
      throw new ClientError(`Run "${runId}" has not answered message "${messageId}"`, "conflict");
    },
    cancel: askOfRun("POST /cancel"),
    retrigger: askOfRun("POST /retrigger"),
    delete: askOfRun("DELETE /run"),
    async *watch(runId, options) {
      const readSnapshot = async () => ({
        type: "snapshot" as const,
        run: await client.run(runId, options),
        waits: await readWaits(runId, options).catch((error) => {
          if (error.status === 403) return [];
          throw error;
        }),
      });
      for await (const event of follow(ask, "GET /subscribe", { runId }, readSnapshot, options)) {
        yield event;
        if (/^run:(com|f|ca|de)/.test(event.type)) return; // run:complete, run:fail, run:cancel, run:delete
      }
    },
    watchRuns: (filter, options) =>
      follow(
        ask,
        "GET /runs/subscribe",
        filter,
        async () => ({ type: "snapshot" as const, page: await client.page(filter, options) }),
        options,
      ),
    readStream: (runId, stream, options) => readItems(ask, runId, stream, options),
    async waitForRun(runId, { timeout, abortSignal } = {}) {
      const timing = new AbortController();
      const ms = toMs(timeout);
      // A longer timer would fire at once: 25 days are without limit.
      const timer = ms! < 2 ** 31
        ? setTimeout(
          () => timing.abort(new ClientError(`Run "${runId}" has not completed within ${ms} ms`, "timeout")),
          ms,
        )
        : 0;
      const options = { abortSignal: AbortSignal.any([timing.signal, abortSignal ?? timing.signal]) };
      try {
        for await (const _ of client.watch(runId, options));
        const run = await untilAnswered(client.run, runId, options);
        const { status, error } = run;
        if (status === "completed") return run as never; // it has its output
        throw new ClientError(`Run "${runId}" ended as ${status}${error ? `: ${error}` : ""}`, `run_${status}`);
      } finally {
        clearTimeout(timer);
      }
    },
  };
  return client;
}

/** Whether a filter has an empty list, which no query can say. */
function matchesNothing({ jobName, status }: ClientFilter = {}): boolean {
  return [jobName, status].some((list) => Array.isArray(list) && !list.length);
}

/** The milliseconds of a duration. The module of the server, which has better messages, would be too large here. */
function toMs(duration: Duration | undefined): number | undefined {
  if (duration === undefined || (typeof duration === "number" && duration >= 0)) return duration;
  if (!/^(\d+(\.\d+)? ?(ms|min|[smhdw]|(millisecond|second|minute|hour|day|week)s?) ?)+$/.test(duration as string)) {
    throw new TypeError(`timeout must be milliseconds or a duration such as "30s", not ${duration}`);
  }
  let ms = 0;
  for (const [, count, unit] of (duration as string).matchAll(/([\d.]+) ?(ms|mil|[smhdw])/g)) {
    ms += count as never * { ms: 1, mil: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 }[unit as "ms"];
  }
  return ms;
}
