import type { Lease } from "../../../model/lease.ts";

/** The holder of a concurrency key. */
interface KeyHolder {
  /** The run. */
  runId: string;
  /** The generation of the lease under which it took the key. */
  generation: number;
}

/** A run that was cancelled under a lease: until that lease would have expired, its worker may still execute it. */
export interface Ghost extends Pick<Lease, "runId" | "generation" | "concurrencyKey"> {
  /** The claim that gave the lease. */
  claimId: string;
  /** The name of its job. */
  jobName: string;
  /** When its lease would have expired. */
  expiresAt: number;
}

/** The holders of concurrency keys, and the cancelled runs that still hold a key and a place under a job's limit. */
export class MemoryKeys {
  readonly #holders = new Map<string, KeyHolder[]>();
  readonly #ghosts = new Map<string, Ghost>();

  /** The cancelled runs that a worker may still execute. */
  get ghosts(): Ghost[] {
    return [...this.#ghosts.values()];
  }

  /** The other holders of the key of a run, by their ids. */
  othersOf({ id, concurrencyKey }: { id: string; concurrencyKey: string | null }): KeyHolder[] {
    const others = this.#holdersOf(concurrencyKey).filter(({ runId }) => runId !== id);
    return others.sort((one, other) => one.runId < other.runId ? -1 : 1);
  }

  /** How many runs hold a key, one of them left out. */
  countOthers({ id, concurrencyKey }: { id: string; concurrencyKey: string | null }): number {
    return this.#holdersOf(concurrencyKey).filter(({ runId }) => runId !== id).length;
  }

  /** Whether a run holds its key. */
  isHeldBy({ id, concurrencyKey }: { id: string; concurrencyKey: string | null }): boolean {
    return concurrencyKey !== null && this.#holdersOf(concurrencyKey).some(({ runId }) => runId === id);
  }

  /** Gives a key to a run under a new lease. */
  take(key: string, holder: KeyHolder): void {
    const others = this.#holdersOf(key).filter(({ runId }) => runId !== holder.runId);
    this.#holders.set(key, [...others, holder]);
  }

  /** Takes the key away from a run that holds it. */
  release({ id, concurrencyKey }: { id: string; concurrencyKey: string | null }): void {
    if (concurrencyKey === null) return;
    const others = this.#holdersOf(concurrencyKey).filter(({ runId }) => runId !== id);
    if (others.length === 0) this.#holders.delete(concurrencyKey);
    else this.#holders.set(concurrencyKey, others);
  }

  /** Keeps what a run holds that was cancelled under a lease. */
  keep(ghost: Ghost): void {
    this.#ghosts.set(ghost.runId, ghost);
  }

  /** The run of this id, if it was cancelled under a lease, and a worker may still execute it. */
  getGhost(runId: string): Ghost | undefined {
    return this.#ghosts.get(runId);
  }

  /** Finds a run that was cancelled under this lease, and that a worker may still execute. */
  findGhost({ runId, generation }: Pick<Lease, "runId" | "generation">): Ghost | undefined {
    const ghost = this.#ghosts.get(runId);
    return ghost?.generation === generation ? ghost : undefined;
  }

  /** Releases what a cancelled run holds. */
  releaseGhost({ runId, concurrencyKey }: Ghost): void {
    this.#ghosts.delete(runId);
    this.release({ id: runId, concurrencyKey });
  }

  #holdersOf(key: string | null): readonly KeyHolder[] {
    return (key === null ? undefined : this.#holders.get(key)) ?? [];
  }
}
