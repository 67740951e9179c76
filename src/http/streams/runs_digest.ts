import type { RunEvent } from "../../model/event.ts";
import type { Host } from "../../model/host.ts";
import type { RunStatus } from "../../model/run.ts";
import type { Message } from "./event_stream.ts";

/** The summary of several events that a stream of several runs sends with `digestMs`. */
export interface RunsDigest {
  /** The message's name. */
  type: "runs:digest";
  /** How many events it stands for. */
  count: number;
  /** How many of them belong to which job. */
  byJob: Record<string, number>;
  /**
   * The runs that have a new status, each with its latest one; `null` as a status: it was deleted. `null` instead of
   * the list: there are more than 200, so a client reads its list again.
   */
  runs: { id: string; status: RunStatus | null }[] | null;
}

const MAX_RUNS = 200;
const encoder = new TextEncoder();

/** Collects events, and sends one summary of them after an interval that begins with the first event. */
export class DigestTimer {
  readonly #intervalMs: number;
  readonly #host: Host;
  readonly #send: (digest: Message) => void;
  #count = 0;
  #byJob = new Map<string, number>();
  /** The latest status of each run, up to one run more than is sent: the size does not depend on the number of events. */
  #statuses = new Map<string, RunStatus | null>();
  #cancelTimer: () => void = () => {};

  /** @param intervalMs The interval in milliseconds. */
  constructor(intervalMs: number, host: Host, send: (digest: Message) => void) {
    this.#intervalMs = intervalMs;
    this.#host = host;
    this.#send = send;
  }

  /** Whether there are events that no summary was sent of. */
  get isPending(): boolean {
    return this.#count > 0;
  }

  /** Adds an event to the next summary. */
  add(event: RunEvent): void {
    const { runId, jobName } = event;
    if (this.#count === 0) this.#cancelTimer = this.#host.schedule(this.#intervalMs, () => this.flush());
    this.#count += 1;
    this.#byJob.set(jobName, (this.#byJob.get(jobName) ?? 0) + 1);
    const status = event.type === "run:coalesced" ? event.status : STATUS_AFTER[event.type];
    if (status !== undefined && this.#statuses.size <= MAX_RUNS) this.#statuses.set(runId, status);
  }

  /** Sends the summary now, if there are events. */
  flush(): void {
    const runs = Array.from(this.#statuses, ([id, status]) => ({ id, status }));
    const digest: RunsDigest = {
      type: "runs:digest",
      count: this.#count,
      byJob: Object.fromEntries(this.#byJob),
      runs: runs.length > MAX_RUNS ? null : runs,
    };
    this.stop();
    if (digest.count === 0) return;
    this.#send({ bytes: encoder.encode(`data: ${JSON.stringify(digest)}\n\n`), subject: null });
  }

  /** Discards the events. */
  stop(): void {
    this.#cancelTimer();
    this.#count = 0;
    this.#byJob = new Map();
    this.#statuses = new Map();
  }
}

/** The status that a run has after an event; `null`: it was deleted. Other events say nothing about it. */
const STATUS_AFTER: { readonly [type in RunEvent["type"]]?: RunStatus | null } = {
  "run:trigger": "pending",
  "run:hold": "pending",
  "run:resume": "pending",
  "run:leased": "leased",
  "run:start": "running",
  "run:progress": "running",
  "run:waiting": "waiting",
  "run:complete": "completed",
  "run:fail": "failed",
  "run:cancel": "cancelled",
  "run:delete": null,
};
