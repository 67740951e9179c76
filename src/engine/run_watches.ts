import { NotFoundError, StoreError } from "../error.ts";
import { isLastEvent, type RunEvent } from "../event.ts";
import type { Host } from "../host.ts";
import type { JsonText } from "../json.ts";
import type { Lease } from "../lease.ts";
import type { Claim, RunState, Store } from "../store.ts";
import { type Heard, keepEarly } from "./early_events.ts";
import type { Hub } from "./hub.ts";
import { Lookout } from "./lookout.ts";
import { persist } from "./persist.ts";
import type { Pulse } from "./pulse.ts";
import { RunTeller } from "./run_teller.ts";

/** What {@linkcode RunWatches} and the feed of all runs work with. */
export interface WatchDeps {
  /** Makes sure that the store has its tables. */
  migrate(): Promise<void>;
  /** Knows how runs stand. */
  store: Store;
  /** Tells what happens in this process. */
  hub: Hub;
  /** Tells that another process may have done something. */
  pulse: Pulse;
  /** Time. */
  host: Host;
  /** The claim with which this process took a run up, while it executes it: then the hub tells everything. */
  claimHere(runId: string): Claim | null;
  /** The latest progress that a run has reported in this process, while it is executed here: the store may not have it. */
  progressHere(runId: string): JsonText | null;
}

/** Hears of a run. */
export interface Watcher {
  /** Hears an event: first those that tell how the run stands, then what happens to it, up to its last. */
  next(event: RunEvent): void;
  /** Hears that no more events come, and why, if the run could not be read. */
  end(error?: unknown): void;
}

// How many runs are looked at without a break.
const SLICE = 500;
// So many events wait for a run to be read.
const MAX_EARLY = 10_000;

/**
 * Watches runs, whichever process executes them. What happens here is told as it happens; what another process does is
 * read from the store when it has changed. However many watch one run, it is read and told once.
 */
export class RunWatches {
  readonly #deps: WatchDeps;
  readonly #watches = new Map<string, RunWatch>();
  readonly #lookout: Lookout;

  /** Watches nothing yet. */
  constructor(deps: WatchDeps) {
    this.#deps = deps;
    this.#lookout = new Lookout(() => this.#look(), deps);
  }

  /** Lets a watcher hear of a run, until its last event or until the returned function is called. */
  watch(runId: string, watcher: Watcher): () => void {
    const watch = this.#watches.get(runId) ?? this.#begin(runId);
    watch.add(watcher);
    return () => watch.remove(watcher);
  }

  /** The events that tell how a run stands that is being watched; none if it is not, or was not read yet. */
  standing(runId: string): RunEvent[] {
    return this.#watches.get(runId)?.standing ?? [];
  }

  /** Ends everything. */
  endAll(): void {
    for (const watch of [...this.#watches.values()]) watch.end();
  }

  #begin(runId: string): RunWatch {
    const watch = new RunWatch(runId, this.#deps, () => {
      if (this.#watches.get(runId) === watch) this.#watches.delete(runId);
      if (this.#watches.size === 0) this.#lookout.stop();
    });
    this.#watches.set(runId, watch);
    this.#lookout.start();
    return watch;
  }

  /** Reads the runs that have changed. */
  async #look(): Promise<void> {
    const { host, store } = this.#deps;
    const watches = [...this.#watches.values()].filter((watch) => watch.isReady);
    for (let from = 0; from < watches.length; from += SLICE) {
      if (from > 0) await new Promise<void>((resolve) => host.defer(resolve));
      const slice = watches.slice(from, from + SLICE);
      const marks = await store.getMarks(slice.map(({ runId }) => runId));
      for (const [at, watch] of slice.entries()) await watch.look(marks[at] ?? null);
    }
  }
}

interface HeardOfRun extends Heard {
  /** The claim that a `run:leased` tells of. */
  claim: Claim | null;
}

/** One run, and everybody who watches it. */
class RunWatch {
  readonly runId: string;
  readonly #deps: WatchDeps;
  readonly #onEnd: () => void;
  readonly #watchers = new Set<Watcher>();
  readonly #teller: RunTeller;
  readonly #stopHearing: () => void;
  /** Events that wait for the run to be read; `null` while none has to. */
  #early: HeardOfRun[] | null = [];
  /** Steps that another process has recorded, and of which nobody has heard here since the run was taken up. */
  #untold: ReadonlySet<string> = new Set();
  /** How the run stood when it was last read; `undefined` until it was read again. */
  #mark: string | null | undefined;
  readonly #ending = new AbortController();

  constructor(runId: string, deps: WatchDeps, onEnd: () => void) {
    this.runId = runId;
    this.#deps = deps;
    this.#onEnd = onEnd;
    this.#teller = new RunTeller(deps.hub, (event) => this.#tell(event));
    // Heard before the run is read: an event between the two would otherwise be missed.
    this.#stopHearing = deps.hub.onRun(runId, (event, lease) => this.#hear(event, lease));
    this.#begin();
  }

  get #isEnded(): boolean {
    return this.#ending.signal.aborted;
  }

  /** Whether the run was read, and is not executed here: then the hub tells everything. */
  get isReady(): boolean {
    return this.#early === null && !this.#isEnded && this.#deps.claimHere(this.runId) === null;
  }

  /** The events that tell how the run stands; none if it was not read yet. */
  get standing(): RunEvent[] {
    return this.#early === null ? this.#teller.standing : [];
  }

  add(watcher: Watcher): void {
    this.#watchers.add(watcher);
    for (const event of this.standing) watcher.next(event);
  }

  remove(watcher: Watcher): void {
    this.#watchers.delete(watcher);
    if (this.#watchers.size === 0) this.end();
  }

  end(error?: unknown): void {
    if (this.#isEnded) return;
    this.#ending.abort();
    this.#stopHearing();
    this.#onEnd();
    for (const watcher of this.#watchers) watcher.end(error);
  }

  /** Reads the run again if it has changed since the last time. */
  async look(mark: string | null): Promise<void> {
    if (mark === this.#mark || !this.isReady) return;
    const { heard } = this.#teller;
    const state = await this.#deps.store.getRunState(this.runId);
    if (!this.isReady) return;
    if (heard !== this.#teller.heard) return await this.look(mark); // what was read is older than what was told
    if (state === null) return this.end();
    this.#teller.see(state);
    this.#mark = mark;
  }

  async #begin(): Promise<void> {
    try {
      const state = await this.#read();
      if (this.#isEnded) return;
      this.#teller.begin(state);
      this.#tellEarly();
    } catch (error) {
      this.end(error);
    }
  }

  async #read(): Promise<RunState> {
    await this.#deps.migrate();
    const state = await this.#deps.store.getRunState(this.runId);
    if (state === null) throw new NotFoundError(`There is no run "${this.runId}"`);
    // Progress that was reported while the run was read follows as an event.
    const progress = this.#early?.some(({ event }) => event.type === "run:progress")
      ? null
      : this.#deps.progressHere(this.runId);
    return progress === null ? state : { ...state, run: { ...state.run, progress: JSON.parse(progress) } };
  }

  #hear(event: RunEvent, lease: Lease | null): void {
    const claim = event.type === "run:leased" ? this.#deps.claimHere(this.runId) : null;
    this.#take({ event, lease, claim });
  }

  #take(heard: HeardOfRun): void {
    if (this.#early !== null) return this.#keep(this.#early, heard);
    const { event, lease, claim } = heard;
    if (claim !== null) {
      this.#untold = new Set(claim.steps.filter((step) => !this.#teller.hasTold(step)).map(({ name }) => name));
    }
    // It may have been decided here, while another process was executing the run.
    if (event.type === "run:cancel" || event.type === "run:fail") this.#catchUp(heard);
    else if (this.#untold.size > 0) this.#catchUp(heard, this.#untold);
    else this.#teller.hear(event, lease);
  }

  #keep(early: HeardOfRun[], heard: HeardOfRun): void {
    keepEarly(early, heard);
    if (early.length > MAX_EARLY) this.end(new StoreError("The store could not be read for too long"));
  }

  /** Tells what was recorded elsewhere before it tells what happens here: all steps, or those of these names. */
  async #catchUp({ event, lease }: Heard, names?: ReadonlySet<string>): Promise<void> {
    this.#early = [];
    try {
      const read = () => this.#deps.store.getRunState(this.runId);
      const state = await persist(read, this.#deps, this.#ending.signal);
      if (state !== null) this.#teller.seeSteps(state, names);
    } catch (error) {
      return this.end(error);
    }
    this.#untold = new Set();
    this.#teller.hear(event, lease);
    this.#tellEarly();
  }

  #tellEarly(): void {
    const early = this.#early ?? [];
    this.#early = null;
    for (const heard of early) this.#take(heard);
  }

  #tell(event: RunEvent): void {
    if (this.#isEnded) return;
    for (const watcher of this.#watchers) watcher.next(event);
    if (isLastEvent(event)) this.end();
  }
}
