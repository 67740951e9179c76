import { type Duration, readDuration } from "../../values/duration.ts";
import { ConflictError, RunCancelledError, RunFailedError, StoreError, TimeoutError } from "../../model/error.ts";
import type { ChangePoller } from "../../events/change_poller.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { isLastEvent, type RunEvent } from "../../model/event.ts";
import { isTerminal, parseRun, type Run, type RunText } from "../../model/run.ts";
import type { Soon } from "../../values/at_once.ts";
import type { Store } from "../../store/store.ts";
import { StoreClosedError } from "../../model/store_closed_error.ts";
import { hasWorker } from "../../store/reads.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import { within } from "../../model/host.ts";
import { readRun } from "./read_run.ts";
import type { RunReader } from "./run_reader.ts";
import { answerName } from "../../model/message.ts";
import { isLarge, type Json } from "../../values/json.ts";

/** How long to wait for a run. */
export interface WaitOptions {
  /** For how long. Default: no limit. */
  timeout?: Duration;
}

/** The dependencies of waiting for a run. */
type WaitForRunDeps = Pick<ExecutionDeps, "hub" | "host" | "store" | "warn"> & {
  changes: ChangePoller;
  reader: RunReader;
};

const OPTIONS: Record<keyof WaitOptions, true> = { timeout: true };

/** Does `Engine.waitForRun()`. */
export async function waitForRun(runId: string, options: WaitOptions, deps: WaitForRunDeps): Promise<Run> {
  checkOptionNames(options, OPTIONS, "waitForRun()");
  const timeout = readTimeout(options, "waitForRun()");
  const find = async (run: RunText) => {
    if (run.status !== "completed") return null;
    return parseRun(isLarge(run.payload) || isLarge(run.output) ? await readRun(deps.store, runId) : run);
  };
  return await untilFound(runId, { find, after: [], timeout, verb: "completed" }, deps);
}

/** Reads for how long a call waits; `undefined`: without limit. */
export function readTimeout({ timeout }: WaitOptions, call: string): number | undefined {
  return timeout === undefined ? undefined : readDuration(timeout, `The timeout of ${call}`);
}

/** What is awaited of a run. */
export interface Awaited<T> {
  /** Finds it, once the run was read; `null`: it is not there. */
  find: (run: RunText) => Soon<T | null>;
  /** After which events of the run, beside its end, it may be there. */
  after: readonly RunEvent["type"][];
  /** For how long to wait, in milliseconds; `undefined`: without limit. */
  timeout: number | undefined;
  /** What the run has not done in time, for the message: `completed`. */
  verb: string;
}

/**
 * Waits until something of a run is there.
 *
 * @throws {RunFailedError} The run has failed without it.
 * @throws {RunCancelledError} The run was cancelled without it.
 * @throws {TimeoutError} It took longer than `timeout`.
 * @throws {StoreError} The store is closed, or was out of reach for a minute or when the time was over.
 */
async function untilFound<T>(runId: string, awaited: Awaited<T>, deps: WaitForRunDeps): Promise<T> {
  const { find, after, timeout, verb } = awaited;
  const { hub, host, changes, reader } = deps;
  let look: () => void = () => {};
  let awaySince: number | null = null;
  const limit = timeout === undefined ? null : { ms: timeout, isOver: false };
  const stops = [
    hub.onRun(runId, (type) => (after.includes(type) || isLastEvent({ type })) && look()),
    changes.onThrottled(() => look()),
  ];
  if (limit !== null) {
    stops.push(host.schedule(limit.ms, () => {
      limit.isOver = true;
      look();
    }));
  }
  stops.push(host.schedule(UNKNOWN_JOB_MS, () => void warnOfUnknownJob(runId, deps).catch(() => {})));
  try {
    while (true) {
      // Subscribe before reading the run: an event between the two would otherwise be missed.
      const changed = new Promise<void>((resolve) => look = resolve);
      let run: RunText;
      try {
        run = await reader.read(runId);
        const found = await find(run);
        if (found !== null) return found;
        awaySince = null;
      } catch (error) {
        awaySince ??= host.monotonic();
        if (!isAway(error) || limit?.isOver || host.monotonic() - awaySince >= MAX_AWAY_MS) throw error;
        await within(host, READ_AGAIN_MS, changed);
        continue;
      }
      if (run.status === "failed") {
        const { jobName, failedStepName: stepName, failure } = run;
        throw new RunFailedError({ runId, jobName, stepName, failure: failure! }); // a failed run has one
      }
      if (run.status === "cancelled") throw new RunCancelledError(runId);
      if (limit?.isOver) {
        throw new TimeoutError(await explainTimeout(run, `has not ${verb} within ${limit.ms} ms`, deps.store));
      }
      await changed;
    }
  } finally {
    for (const stop of stops) stop();
  }
}

// Who waits does not notice that the store is out of reach for so long: a server restarts, or another one takes over.
const MAX_AWAY_MS = 60_000;
const READ_AGAIN_MS = 500;

function isAway(error: unknown): boolean {
  return error instanceof StoreError && error.code === "unavailable" && !(error instanceof StoreClosedError);
}

// A worker that starts at the same time has registered by then.
const UNKNOWN_JOB_MS = 2_000;

/** Warns if no worker can execute the run: it is waited for in vain. */
async function warnOfUnknownJob(runId: string, { store, warn }: WaitForRunDeps): Promise<void> {
  const { jobName, status, held } = await readRun(store, runId);
  if (isTerminal(status) || held !== null || await hasWorker(store, jobName)) return;
  warn(
    `A run of job "${jobName}" is waited for, and no live worker has this job: call start() on an engine that has it`,
  );
}

/** Explains why something has not happened in time; often no worker can execute it. */
async function explainTimeout(run: RunText, what: string, store: Pick<Store, "getWorkers">): Promise<string> {
  const { id, jobName, status, held } = run;
  if (held !== null) return `Run "${id}" ${what}. ${held.message}`;
  const isKnown = await hasWorker(store, jobName);
  return `Run "${id}" ${what}: it is ${status}` +
    (isKnown ? "" : `, and no live worker has job "${jobName}"; call start() on an engine that has this job`);
}

// An answer is saved with the end of a step. If that was not acknowledged, the next execution finds it recorded.
const ANSWERS: readonly RunEvent["type"][] = ["step:complete", "run:start"];

/** Waits until a run has answered a message: it is the output of a step. See `Engine.ask()`. */
export async function waitForAnswer(
  { runId, messageId }: { runId: string; messageId: string },
  timeout: number | undefined,
  deps: WaitForRunDeps,
): Promise<Json> {
  const find = async ({ status }: RunText) => {
    const answer = await readAnswer(deps.store, runId, messageId);
    if (answer !== null || status !== "completed") return answer;
    throw new ConflictError(`Run "${runId}" has completed without an answer to message "${messageId}"`);
  };
  return (await untilFound(runId, { find, after: ANSWERS, timeout, verb: `answered message "${messageId}"` }, deps))
    .answer;
}

/** Reads the answer to a message; `null`: there is none. */
async function readAnswer(
  store: Pick<Store, "readValue">,
  runId: string,
  messageId: string,
): Promise<{ answer: Json } | null> {
  const decoder = new TextDecoder();
  let text = "";
  for (let from: number | null = 0; from !== null;) {
    const place = { of: "step", runId, stepName: answerName(messageId), value: "output" } as const;
    const part = await store.readValue(place, from);
    if (part === null) return null;
    text += decoder.decode(part.bytes, { stream: true });
    from = part.next;
  }
  return { answer: JSON.parse(text) };
}
