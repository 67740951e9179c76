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
  #pending: PendingDigest | null = null;
  #cancelTimer: () => void = () => {};

  /** @param intervalMs The interval in milliseconds. */
  constructor(intervalMs: number, host: Host, send: (digest: Message) => void) {
    this.#intervalMs = intervalMs;
    this.#host = host;
    this.#send = send;
  }

  /** Whether there are events that no summary was sent of. */
  get isPending(): boolean {
    return this.#pending !== null;
  }

  /** Adds an event to the next summary. */
  add(event: RunEvent): void {
    if (this.#pending === null) {
      this.#pending = new PendingDigest();
      this.#cancelTimer = this.#host.schedule(this.#intervalMs, () => this.flush());
    }
    this.#pending.add(event);
  }

  /** Sends the summary now, if there are events. */
  flush(): void {
    const pending = this.#pending;
    this.stop();
    if (pending === null) return;
    const data = JSON.stringify(pending.toDigest());
    this.#send({ bytes: encoder.encode(`data: ${data}\n\n`), subject: null });
  }

  /** Discards the events. */
  stop(): void {
    this.#cancelTimer();
    this.#pending = null;
  }
}

/** A summary that is still being made. Its size does not depend on the number of events. */
class PendingDigest {
  #count = 0;
  readonly #byJob = new Map<string, number>();
  /** The latest status of each run, up to one run more than is sent. */
  readonly #statuses = new Map<string, RunStatus | null>();

  add(event: RunEvent): void {
    const { runId, jobName } = event;
    this.#count += 1;
    this.#byJob.set(jobName, (this.#byJob.get(jobName) ?? 0) + 1);
    const status = statusAfter(event);
    if (status !== undefined && this.#statuses.size <= MAX_RUNS) this.#statuses.set(runId, status);
  }

  toDigest(): RunsDigest {
    const runs = [...this.#statuses].map(([id, status]) => ({ id, status }));
    return {
      type: "runs:digest",
      count: this.#count,
      byJob: Object.fromEntries(this.#byJob),
      runs: runs.length > MAX_RUNS ? null : runs,
    };
  }
}

/** The status that a run has after an event; `null`: it was deleted, `undefined`: the event says nothing about it. */
function statusAfter(event: RunEvent): RunStatus | null | undefined {
  switch (event.type) {
    case "run:trigger":
    case "run:hold":
    case "run:resume":
      return "pending";
    case "run:coalesced":
      return event.status;
    case "run:leased":
      return "leased";
    case "run:start":
    case "run:progress":
      return "running";
    case "run:waiting":
      return "waiting";
    case "run:complete":
      return "completed";
    case "run:fail":
      return "failed";
    case "run:cancel":
      return "cancelled";
    case "run:delete":
      return null;
    default:
      return undefined;
  }
}
