import { ACTIVITY_LASTS_MS } from "../activity.ts";
import { isToldToClients, type RunEvent } from "../event.ts";
import { isLeased } from "../run.ts";
import type { Activity, ActivityCursor } from "../store.ts";
import { type Heard, keepEarly } from "./early_events.ts";
import { Lookout } from "./lookout.ts";
import { RunTeller } from "./run_teller.ts";
import type { WatchDeps, Watcher } from "./run_watches.ts";

/**
 * Tells what happens to all runs, whichever process executes them, to those who watch lists. However many they are, a
 * run is read and told once.
 */
export class RunFeed {
  readonly #deps: WatchDeps;
  readonly #lookout: Lookout;
  readonly #watchers = new Set<Watcher>();
  /** Listens while somebody watches: whoever comes after a break is not told what happened in it. */
  #listening: Listening | null = null;

  /** Tells nothing yet. */
  constructor(deps: WatchDeps) {
    this.#deps = deps;
    this.#lookout = new Lookout(async () => await this.#listening?.look(), deps);
  }

  /** Lets a watcher hear the `run:` events of all runs, until the returned function is called. */
  watch(watcher: Watcher): () => void {
    this.#watchers.add(watcher);
    if (this.#listening === null) this.#listen();
    return () => this.#remove(watcher);
  }

  /** Ends everything. */
  endAll(): void {
    for (const watcher of [...this.#watchers]) {
      this.#remove(watcher);
      watcher.end();
    }
  }

  #listen(): void {
    this.#listening = new Listening(this.#deps, () => this.#lookout.look(), (event) => {
      for (const watcher of this.#watchers) watcher.next(event);
    });
    this.#lookout.start();
    // Not at the next change: what another process does from now on is news.
    this.#lookout.look();
  }

  #remove(watcher: Watcher): void {
    this.#watchers.delete(watcher);
    if (this.#watchers.size > 0) return;
    this.#lookout.stop();
    this.#listening?.stop();
    this.#listening = null;
  }
}

interface Told {
  teller: RunTeller;
  /** How the run stood when it was last read. */
  mark: string | null;
  /** In which look it was first heard of. */
  since: number;
  /** When something was last heard or read of it, on the monotonic clock. */
  touchedAt: number;
  /** Events of a run that is unknown: the next look shows whether it was triggered elsewhere. `null` from then on. */
  early: Heard[] | null;
}

// How many runs are read without a break.
const SLICE = 50;
// What was told of a run is known for so long after: a store may list it as news again, since clocks jump.
const KNOWN_MS = 2 * ACTIVITY_LASTS_MS;

/** What is known of all runs from one moment on: of those of which more may have to be told. */
class Listening {
  readonly #deps: WatchDeps;
  readonly #lookSoon: () => void;
  readonly #tellOn: (event: RunEvent) => void;
  readonly #told = new Map<string, Told>();
  readonly #stopHearing: () => void;
  #cursor: ActivityCursor | null = null;
  /** The sequence of the last event that was told. */
  #sequence = 0;
  #looks = 0;
  #read = 0;
  #isStopped = false;

  constructor(deps: WatchDeps, lookSoon: () => void, tellOn: (event: RunEvent) => void) {
    this.#deps = deps;
    this.#lookSoon = lookSoon;
    this.#tellOn = tellOn;
    this.#stopHearing = deps.hub.onRuns((event, lease) => {
      if (isOfList(event)) this.#hear({ event, lease });
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#stopHearing();
  }

  #hear({ event, lease }: Heard): void {
    const isKnown = this.#told.has(event.runId);
    const told = this.#toldOf(event.runId);
    if (!isKnown && event.type !== "run:trigger") {
      told.early = [];
      this.#lookSoon();
    }
    told.touchedAt = this.#deps.host.monotonic();
    if (told.early === null) told.teller.hear(event, lease);
    else keepEarly(told.early, { event, lease });
  }

  /** Reads the runs that have changed elsewhere. */
  async look(): Promise<void> {
    await this.#deps.migrate();
    const look = this.#looks++;
    await this.#lookAtAll(look);
    for (const told of this.#told.values()) if (told.since <= look) tellEarly(told);
  }

  async #lookAtAll(look: number): Promise<void> {
    const active = new Set<string>();
    let hasMore = true;
    while (hasMore && !this.#isStopped) {
      const activity = await this.#deps.store.getActivity(this.#cursor);
      await this.#seeAll(activity.runs, { isFirst: this.#cursor === null });
      for (const { id } of activity.runs) active.add(id);
      // After everything was read: what a store that fails did not answer is asked for again.
      this.#cursor = activity.next;
      hasMore = activity.hasMore;
    }
    await this.#seeAll(await this.#findLeft(active), { isFirst: false });
    this.#forget(active, look);
  }

  /** Runs that were executed at the last look, and are not any more. */
  async #findLeft(active: ReadonlySet<string>): Promise<Activity["runs"]> {
    const ids = [...this.#told].flatMap(([id, { teller }]) => isLeased(teller.status) && !active.has(id) ? [id] : []);
    const marks = ids.length === 0 ? [] : await this.#deps.store.getMarks(ids);
    return ids.flatMap((id, at) => {
      const mark = marks[at] ?? null;
      if (mark !== null) return [{ id, mark, isNew: false }];
      const told = this.#toldOf(id);
      told.touchedAt = this.#deps.host.monotonic();
      told.teller.seeGone();
      return [];
    });
  }

  async #seeAll(runs: Activity["runs"], options: { isFirst: boolean }): Promise<void> {
    for (const run of runs) {
      if (this.#isStopped) return;
      if (++this.#read % SLICE === 0) await new Promise<void>((resolve) => this.#deps.host.defer(resolve));
      await this.#see(run, options);
    }
  }

  async #see({ id, mark, isNew }: Activity["runs"][number], { isFirst }: { isFirst: boolean }): Promise<void> {
    const { store, claimHere } = this.#deps;
    const early = this.#told.get(id)?.early?.[0];
    if (early !== undefined) {
      const { jobName, labels } = early.event;
      if (isNew) this.#toldOf(id).teller.seeTrigger({ id, jobName, labels });
      return;
    }
    if (claimHere(id) !== null || this.#told.get(id)?.mark === mark) return;
    const heard = this.#told.get(id)?.teller.heard;
    const state = await store.getRunState(id);
    if (state === null) return;
    // What is not executed any more may have ended or paused since it was listed: that is news.
    const isAsListed = isFirst && (isLeased(state.run.status) || (await store.getMarks([id]))[0] === mark);
    if (claimHere(id) !== null) {
      if (isNew) this.#toldOf(id).teller.seeTrigger(state.run); // and taken up here while it was read
      return;
    }
    // What was read is older than what was told.
    if (this.#told.get(id)?.teller.heard !== heard) return await this.#see({ id, mark, isNew }, { isFirst });
    const isOld = isAsListed && !this.#told.has(id);
    const told = this.#toldOf(id);
    told.mark = mark;
    told.touchedAt = this.#deps.host.monotonic();
    if (isOld) return told.teller.beginSilently(state);
    if (isNew) told.teller.seeTrigger(state.run);
    told.teller.seeRun(state);
  }

  #toldOf(runId: string): Told {
    let told = this.#told.get(runId);
    if (told === undefined) {
      const teller = new RunTeller(this.#deps.hub, (event) => this.#tell(event));
      told = { teller, mark: null, since: this.#looks, touchedAt: this.#deps.host.monotonic(), early: null };
      this.#told.set(runId, told);
    }
    return told;
  }

  #tell(event: RunEvent): void {
    if (this.#isStopped) return;
    const next = this.#deps.hub.numberedAfter(this.#sequence, event);
    this.#sequence = next.sequence;
    this.#tellOn(next);
  }

  /** What is over, or asleep, is seen again when something happens to it. */
  #forget(active: ReadonlySet<string>, look: number): void {
    const oldest = this.#deps.host.monotonic() - KNOWN_MS;
    for (const [id, { teller, since, touchedAt }] of this.#told) {
      const isOver = since < look && !active.has(id) && !isLeased(teller.status);
      if (isOver && touchedAt < oldest) this.#told.delete(id);
    }
  }
}

/** Whether an event is told to those who watch lists of runs. */
function isOfList(event: RunEvent): boolean {
  return event.type.startsWith("run:") && isToldToClients(event);
}

function tellEarly(told: Told): void {
  const early = told.early ?? [];
  told.early = null;
  for (const { event, lease } of early) told.teller.hear(event, lease);
}
