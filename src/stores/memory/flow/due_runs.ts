import { positionOf } from "../../../model/flow.ts";
import { END_LEAD, HEAD_START } from "../../rules.ts";
import type { MemoryKeys } from "./concurrency_keys.ts";
import { keyScope, type MemoryRates } from "./rates.ts";
import { type KeptRun, queueOf } from "../records.ts";
import type { MemoryRuns } from "../runs.ts";

/** The due runs in their order, with the lines of their concurrency keys. */
export class DueRuns {
  readonly #inOrder: KeptRun[];
  readonly #removed = new Set<KeptRun>();
  /** The due runs of each concurrency key and queue, in their order. */
  readonly #lines = new Map<string, Map<string, KeptRun[]>>();
  /** How many runs stand in the lines: those of a key are needed only when one of them is looked at. */
  #lined = 0;
  readonly #keys: MemoryKeys;
  readonly #rates: MemoryRates;

  constructor(runs: MemoryRuns, rates: MemoryRates) {
    this.#keys = runs.keys;
    this.#rates = rates;
    const due = runs.open.filter(isDue);
    // Those that use nothing are in their order already.
    const isSorted = due.every((run) =>
      run.flow.priority === 0 && run.offeredTo === null && run.endOf === null && !this.#keys.isHeldBy(run)
    );
    this.#inOrder = isSorted ? due : due.sort((left, right) => this.positionOf(left) - this.positionOf(right));
  }

  /** The due runs in their order, those that were removed included. */
  get inOrder(): readonly KeptRun[] {
    return this.#inOrder;
  }

  /** Removes a run that is to be claimed or to fail. */
  remove(run: KeptRun): void {
    this.#removed.add(run);
    const line = this.#lineOf(run);
    const index = line?.indexOf(run) ?? -1;
    if (index !== -1) line!.splice(index, 1);
  }

  /** Whether a run was removed. */
  isRemoved(run: KeptRun): boolean {
    return this.#removed.has(run);
  }

  /** The runs that come before a run in the line of its key and are each the first of another queue. */
  firstsBefore(run: KeptRun): KeptRun[] {
    const { concurrencyKey: key } = run;
    if (key === null || this.#keys.isHeldBy(run)) return [];
    this.#lineUpTo(run);
    return [...this.#lines.get(key)?.values() ?? []]
      .flatMap(([first]) => first ?? [])
      .filter((first) => queueOf(first) !== queueOf(run) && this.positionOf(first) < this.positionOf(run));
  }

  /** The runs in the line of the key of a run: of each queue, in their order. */
  lineOfKey({ concurrencyKey: key }: KeptRun): ReadonlyMap<string, readonly KeptRun[]> {
    if (this.#inOrder.length > 0) this.#lineUpTo(this.#inOrder.at(-1)!);
    return (key === null ? undefined : this.#lines.get(key)) ?? new Map();
  }

  /**
   * When a run can have its concurrency key, as far as the runs of its queue are concerned: an instant that has passed if
   * it can have it now; `Infinity` while it is not the first, or the key has no room.
   */
  keyOpensAt(run: KeptRun): number {
    const { concurrencyKey: key, flow: { keyConcurrency, keyRate } } = run;
    if (key === null || this.#keys.isHeldBy(run)) return -Infinity;
    this.#lineUpTo(run);
    if (this.#lineOf(run)![0] !== run || this.#keys.countOthers(run) >= keyConcurrency) return Infinity;
    return keyRate === null || run.startedAt !== null ? -Infinity : this.#rates.opensAt(keyScope(key), keyRate);
  }

  #lineUpTo(run: KeptRun): void {
    const position = this.positionOf(run);
    for (; this.#lined < this.#inOrder.length; this.#lined++) {
      const next = this.#inOrder[this.#lined]!;
      if (this.positionOf(next) > position) return;
      if (!this.#removed.has(next)) this.#lineOf(next)?.push(next);
    }
  }

  /** The place of a run in the order of claims. */
  positionOf(run: KeptRun): number {
    const headStart = (this.#keys.isHeldBy(run) ? HEAD_START : 0) +
      (run.endOf !== null && run.concurrencyKey !== null ? END_LEAD : 0);
    return positionOf(run.seq, run.flow.priority) - headStart + (run.offeredTo === null ? 0 : HEAD_START);
  }

  #lineOf(run: KeptRun): KeptRun[] | undefined {
    const { concurrencyKey: key } = run;
    if (key === null) return undefined;
    const queues = this.#lines.get(key) ?? new Map<string, KeptRun[]>();
    this.#lines.set(key, queues);
    const line = queues.get(queueOf(run)) ?? [];
    queues.set(queueOf(run), line);
    return line;
  }
}

function isDue({ status, dueAt, parking, hold, offeredTo }: KeptRun): boolean {
  if (hold !== null && offeredTo === null) return false;
  return status === "pending" ? dueAt === null : parking?.isWoken === true;
}
