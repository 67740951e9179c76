import type { Execution, ExecutionDeps } from "../execution.ts";

// After a quiet moment items are sent this soon, so that what is written together goes together.
const QUIET_MS = 5;
// The interval between two calls with items of the same run.
const REST_MS = 50;
// The interval between any two calls, for a few runs and for many.
const REST_OF_FEW_MS = 15;
const REST_OF_MANY_MS = 100;
const MANY_RUNS = 32;
// The delay after a failed call.
const RETRY_MS = 500;
// About how many bytes of items one call has, so that it does not block other writes.
const MAX_BYTES = 1_000_000;

/** Stores the items of all executions of a worker, with one call for all of them, one call at a time. */
export class ItemSender {
  readonly #deps: Pick<ExecutionDeps, "store" | "host" | "hub">;
  readonly #waiting = new Set<Execution>();
  /** When items of an execution were last sent, on the monotonic clock. */
  readonly #sentAt = new WeakMap<Execution, number>();
  #timer: { at: number; cancel: () => void } | null = null;
  #sending: Promise<void> | null = null;
  /** When the next call may be made. */
  #nextAt = -Infinity;

  constructor(deps: Pick<ExecutionDeps, "store" | "host" | "hub">) {
    this.#deps = deps;
  }

  /** Sends the items of an execution soon. */
  add(execution: Execution): void {
    if (this.#waiting.has(execution)) return;
    this.#waiting.add(execution);
    this.#sendSoon(execution);
  }

  /** Sends nothing more of an execution: it is over. */
  drop(execution: Execution): void {
    this.#waiting.delete(execution);
    if (this.#waiting.size > 0) return;
    this.#timer?.cancel();
    this.#timer = null;
  }

  /** Resolves when no call is under way. */
  async idle(): Promise<void> {
    await this.#sending;
  }

  /** Sends when that of an execution is due: with it goes what else waits. */
  #sendSoon(execution: Execution): void {
    if (this.#sending !== null) return;
    const now = this.#deps.host.monotonic();
    const at = Math.max(now + QUIET_MS, (this.#sentAt.get(execution) ?? -Infinity) + REST_MS, this.#nextAt);
    if (this.#timer !== null && this.#timer.at <= at) return;
    this.#timer?.cancel();
    const cancel = this.#deps.host.schedule(at - now, () => {
      this.#timer = null;
      this.#sending = this.#send().finally(() => {
        this.#sending = null;
        for (const waiting of this.#waiting) this.#sendSoon(waiting);
      });
    });
    this.#timer = { at, cancel };
  }

  async #send(): Promise<void> {
    const now = this.#deps.host.monotonic();
    this.#nextAt = now + (this.#waiting.size > MANY_RUNS ? REST_OF_MANY_MS : REST_OF_FEW_MS);
    const writes = this.#take();
    for (const { execution } of writes) this.#sentAt.set(execution, now);
    if (writes.length === 0) return;
    try {
      const held = await this.#deps.store.appendItems(
        writes.map(({ execution: { lease }, chunks }) => ({ lease, chunks })),
      );
      for (const [at, { execution, chunks }] of writes.entries()) {
        if (held[at]) execution.streams.noteStored(chunks);
        else noteRefused(execution);
      }
      this.#deps.hub.noteCommit();
    } catch (error) {
      this.#deps.hub.publishError(error);
      this.#nextAt = this.#deps.host.monotonic() + RETRY_MS;
    }
    for (const { execution } of writes) {
      if (execution.streams.hasItems && !execution.state.isInterrupted) this.#waiting.add(execution);
    }
  }

  /** What is sent with the next call: of those that have waited longest. */
  #take() {
    let left = MAX_BYTES;
    const writes = [];
    for (const execution of this.#waiting) {
      if (left <= 0) break;
      this.#waiting.delete(execution);
      if (execution.state.isInterrupted) continue;
      const { chunks, bytes } = execution.streams.take(left);
      if (chunks.length > 0) writes.push({ execution, chunks });
      left -= bytes;
    }
    return writes;
  }
}

/** Ends an execution whose lease is lost. One that has returned learns it from its end. */
function noteRefused({ streams, state }: Execution): void {
  streams.discard();
  if (!state.isOver) state.noteLostLease();
}
