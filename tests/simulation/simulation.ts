import { isOrphan } from "./child_facts.ts";
import { LAST_CODE, SIGNALS_MS } from "./changes_plan.ts";
import { Clients } from "./clients.ts";
import { Facts, isAsleep, type RunFacts, Violation } from "./facts.ts";
import { Inspector } from "./inspector.ts";
import { Trace } from "./trace.ts";
import { Faults, type Selection } from "./faults.ts";
import type { Mutant } from "./mutants/mutant.ts";
import { Node } from "./node.ts";
import { makePlan, type Part, type Plan, type PlannedFault, PROCESS_NAMES, TROUBLE_MS } from "./plan.ts";
import { SimProcess } from "./sim_process.ts";
import type { Situation } from "./situations.ts";
import { makeStore, type SharedStore, type StoreKind } from "./stores.ts";
import type { ScheduleRecord } from "../../src/store/schedule_record.ts";
import { World } from "./world.ts";

/** What to simulate. */
export interface SimulationOptions {
  /** Decides everything. */
  seed: number;
  /** Over which store. */
  store: StoreKind;
  /** Which of the faults and requests of the seed to leave out, or to keep. Default: all happen. */
  selection?: Selection;
  /** How many of the last things that happened are told. Default 60. */
  keptLines?: number;
  /** What the plan has beside what all have. Default: what the seed says; with a mutant, what that says. */
  parts?: readonly Part[];
  /** A fault to be found. */
  mutant?: Mutant;
}

/** What came of a simulation. */
export interface Verdict {
  seed: number;
  /** The promise that was broken, or `null`. */
  violation: Violation | null;
  /** Stands for all that happened: two simulations of one seed have the same. */
  hash: string;
  /** The names of the faults and requests that happened. */
  happened: string[];
  situations: ReadonlyMap<Situation, number>;
  /** How many events happened, how many calls the store was sent, and how much time passed in the world. */
  events: number;
  calls: number;
  simulatedMs: number;
  /** The last things that happened. */
  lastLines: string[];
}

const KEPT_LINES = 60;
// How long it may take, when nothing goes wrong any more, until every run has ended, and until anything happens.
const DRAIN_MS = 300_000;
// Where jobs have rates, so much more for each run: the slowest rate starts one in 700 ms.
const DRAIN_MS_PER_RUN = 750;
const STALL_MS = 15_000;
// After so long without trouble whoever still sleeps does so because of the clock.
const RECOVERY_MS = 6_000;
const STOP_MS = 5_000;
// Until then a client may still repeat what it has asked for.
const LAST_REPEATS_MS = 600;
// After so long without trouble no answer is late any more.
const LATE_ANSWERS_MS = 2_000;
const TIDY_EVERY_MS = 100;
// How long a slot may be due, and after so long without trouble schedules end.
const LATE_SLOT_MS = 2_000;
const SCHEDULES_END_MS = 3_000;
// A process that was suspended has caught up after so long.
const AWAKE_MS = 500;
const OUTSIDE_PATIENCE_MS = 500;

/** Simulates one seed: some seconds of trouble, then peace, in which everything has to come to its end. */
export async function simulate(options: SimulationOptions): Promise<Verdict> {
  const world = new World();
  const planned = makePlan(options.seed, partsOf(options));
  const plan = options.mutant?.plan?.(planned) ?? planned;
  const restore = options.mutant?.code?.() ?? (() => {});
  const store = await makeStore(options.store, world, options.mutant, plan.journalLength);
  const simulation = new Simulation(options, plan, world, store);
  // A promise that was rejected and that nobody listens to would end a real process.
  const stray = (event: PromiseRejectionEvent) => {
    event.preventDefault();
    simulation.facts.violate("I20", `a promise was rejected that nobody hears: ${event.reason?.stack}`);
  };
  globalThis.addEventListener("unhandledrejection", stray);
  try {
    await simulation.run();
  } catch (error) {
    simulation.facts.violation ??= error instanceof Violation ? error : new Violation("error", (error as Error).stack!);
  } finally {
    globalThis.removeEventListener("unhandledrejection", stray);
    restore();
    await store.close();
  }
  return simulation.verdict;
}

/** A bug is looked for in plans that have what it is of, and nothing else beside what all have. */
function partsOf({ mutant, parts }: SimulationOptions): readonly Part[] | "some" {
  return parts ?? (mutant === undefined ? "some" : mutant.parts ?? []);
}

class Simulation {
  readonly facts: Facts;
  readonly #seed: number;
  readonly #plan: Plan;
  readonly #world: World;
  readonly #trace: Trace;
  readonly #faults: Faults;
  readonly #store: SharedStore;
  readonly #inspector: Inspector;
  readonly #nodes: Node[];
  readonly #clients: Clients;
  readonly #leasesSeenAt = new Map<string, number>();
  /** When all processes got the last code. */
  #lastDeployAt = Infinity;
  #strandedSince: number | null = null;
  readonly #heldSince = new Map<string, number>();
  readonly #orphansSince = new Map<string, number>();
  #outUntil = 0;
  #fullUntil = -1;
  #calmSince: number | null = null;

  constructor(
    { seed, keptLines = KEPT_LINES, selection, mutant }: SimulationOptions,
    plan: Plan,
    world: World,
    store: SharedStore,
  ) {
    const facts = new Facts(plan);
    this.facts = facts;
    const trace = new Trace(keptLines, () => world.now);
    const faults = new Faults(selection);
    const inspector = new Inspector(facts, world, trace, store);
    const way = {
      seed,
      reliability: plan.reliability,
      faults,
      facts,
      pageLength: plan.pageLength,
      isOut: () => this.#outUntil > world.now,
      isDiskFull: () => this.#fullUntil >= world.now,
      hasDisk: store.fillDisk !== undefined,
      committed: inspector.committed.bind(inspector),
    };
    this.#seed = seed;
    this.#plan = plan;
    this.#world = world;
    this.#trace = trace;
    this.#faults = faults;
    this.#store = store;
    this.#inspector = inspector;
    this.#nodes = PROCESS_NAMES.map((name, at) => {
      const isServerless = plan.hasServerless && at === PROCESS_NAMES.length - 1;
      const process = new SimProcess(name, world, seed);
      return new Node(process, isServerless, { seed, plan, facts, trace, store, mutant, way });
    });
    const { latency } = plan.reliability;
    const { history } = inspector;
    this.#clients = new Clients(this.#nodes, {
      seed,
      latency,
      world,
      facts,
      history,
      trace,
      faults,
      countsEvents: plan.countsEvents,
      maxStreamMs: plan.maxStreamMs,
      streamsEnd: () =>
        plan.maxStreamMs < Infinity || store.journalLength < Infinity || (store.trimsByAge && facts.jumps > 0),
    });
  }

  get verdict(): Verdict {
    return {
      seed: this.#seed,
      violation: this.facts.violation,
      hash: this.#trace.hash,
      happened: this.#faults.happened,
      situations: this.facts.situations,
      events: this.#world.steps,
      calls: this.#inspector.calls,
      simulatedMs: this.#world.now,
      lastLines: this.#trace.lastLines,
    };
  }

  async run(): Promise<void> {
    for (const node of this.#nodes) node.start();
    this.#plan.requests.forEach(({ at, process, request, manner }, no) => {
      this.#world.after(at, null, () => this.#clients.send(`request ${no}`, process, request, manner));
    });
    this.#plan.faults.forEach(({ at, fault }, no) => {
      this.#world.after(at, null, () => {
        if (this.#faults.happens(`fault ${no} ${fault.fault}`)) this.#strike(fault);
      });
    });
    this.#world.after(TROUBLE_MS, null, () => this.#calmDown());
    await this.#runUntil(() => this.#isAtRest());
    if (this.facts.violation !== null) return;
    this.#clients.leave();
    await this.#stopAll();
    await this.#inspector.lookAtAll();
  }

  #runUntil(isOver: () => boolean): Promise<void> {
    const incarnations = () =>
      this.#nodes.map(({ incarnation }) => incarnation).filter((incarnation) => incarnation !== null);
    return this.#world.run(
      () => this.facts.violation !== null || isOver(),
      () => this.#inspector.look(incarnations()),
    );
  }

  #isAtRest(): boolean {
    return this.#calmSince !== null && this.#lastDeployAt < Infinity &&
      this.#world.now - this.#calmSince > LAST_REPEATS_MS &&
      this.#clients.waiting === 0 && this.facts.open().length === 0 &&
      this.facts.schedules.records.every(({ pausedAt }) => pausedAt !== null) &&
      this.#nodes.every(({ isUp, process }) => isUp && this.#world.now - process.pausedUntil > AWAKE_MS);
  }

  #strike(fault: PlannedFault): void {
    this.#trace.note(JSON.stringify(fault));
    switch (fault.fault) {
      case "kill":
        return this.#nodes[fault.process]!.kill(fault.downMs);
      case "pause":
        if (fault.ms > this.#plan.worker.staleThreshold) {
          this.facts.notice("a process was paused for longer than a lease");
        }
        return this.#nodes[fault.process]!.process.pause(fault.ms);
      case "stop":
        return this.#stop(fault, fault.timeout > 100 ? OUTSIDE_PATIENCE_MS : 0);
      case "jump":
        return this.#jump(fault.ms);
      case "overtake":
        return this.#overtake(fault.patienceMs);
      case "outage":
        this.facts.notice("the store was out of reach for a while");
        this.#outUntil = Math.max(this.#outUntil, this.#world.now + fault.ms);
        return;
      case "full disk":
        this.#fullUntil = Math.max(this.#fullUntil, this.#world.now + fault.ms);
        this.#store.fillDisk?.(true);
        this.#world.after(fault.ms, null, () => this.#store.fillDisk?.(this.#fullUntil > this.#world.now));
    }
  }

  /** Stops a process; if it has time, at a moment in which a job does something outside of steps, if there is one soon. */
  #stop(fault: Extract<PlannedFault, { fault: "stop" }>, patienceMs: number): void {
    if (this.#calmSince !== null) return;
    const node = this.#nodes[fault.process]!;
    const isOutside = [...this.facts.outside].some((one) => one.label === node.process.label && one.isOutside());
    if (!isOutside && patienceMs > 0) {
      return void this.#world.after(5, null, () => this.#stop(fault, patienceMs - 5));
    }
    node.without = fault.without;
    node.version = fault.version;
    node.replace(fault.timeout, fault.downMs);
  }

  #jump(ms: number): void {
    if (this.facts.open().some(({ state }) => state?.run.status === "running")) {
      this.facts.notice(ms < 0 ? "a clock went back under a lease" : "a clock went forward over a lease");
    }
    this.facts.jumps += 1;
    if (ms > 0) this.facts.forwardJumps += 1;
    this.#world.jump(ms);
  }

  /**
   * Waits until a step is between two attempts, then sets the clock forward and stops its process for a moment: so that
   * another takes the run over and makes the next attempt first.
   */
  #overtake(patienceMs: number): void {
    if (this.#calmSince !== null || patienceMs <= 0) return;
    const run = this.facts.open().find(({ state, steps }) =>
      state?.run.status === "running" && [...steps.values()].some(({ isOver }) => !isOver)
    );
    if (run === undefined) return void this.#world.after(5, null, () => this.#overtake(patienceMs - 5));
    const owner = this.#nodes.find(({ process }) => run.state!.run.leaseOwner?.includes(process.label));
    owner?.process.pause(150);
    this.#jump(2 * this.#plan.worker.staleThreshold);
  }

  /** From now on nothing goes wrong; pauses that have begun end by themselves. */
  #calmDown(): void {
    this.#trace.note("nothing goes wrong any more");
    this.#calmSince = this.#world.now;
    this.facts.calmSince = this.#world.now;
    this.#faults.end();
    this.#outUntil = 0;
    this.#fullUntil = -1;
    this.#store.fillDisk?.(false);
    for (const node of this.#nodes) {
      node.workByItself();
      const isOld = node.without !== null && node.isUp;
      node.without = null;
      if (isOld) node.replace(100, 0);
      else node.start();
    }
    for (const { afterMs, request } of this.#plan.changes?.resumptions ?? []) {
      this.#world.after(afterMs, null, () => this.#clients.resume(request));
    }
    if (this.#plan.changes === null) this.#lastDeployAt = this.#world.now;
    else this.#world.after(this.#plan.changes.lastDeployMs, null, () => this.#deployLast());
    this.#tidyUp(this.#world.now);
  }

  /** From now on all processes have the last code. */
  #deployLast(): void {
    this.#lastDeployAt = this.#world.now;
    for (const node of this.#nodes) {
      node.version = LAST_CODE;
      node.replace(100, 0);
    }
  }

  /** Ends what only a client or a long time would end, and complains of what should have ended, again and again. */
  #tidyUp(since: number): void {
    this.#world.after(TIDY_EVERY_MS, null, () => this.#tidyUp(since));
    const calmMs = this.#world.now - since;
    const open = this.facts.open();
    if (calmMs > (this.#plan.changes?.signalsMs ?? SIGNALS_MS)) this.#clients.signalAll();
    if (calmMs > LATE_ANSWERS_MS) { for (const schedule of this.facts.schedules.records) this.#checkSlots(schedule); }
    if (calmMs > SCHEDULES_END_MS) this.#clients.pauseSchedules();
    this.#clients.resumeAll();
    this.#clients.resumeContinued();
    if (this.#world.now - this.#lastDeployAt > RECOVERY_MS) {
      this.#checkStranded();
      for (const run of open) this.#checkHeld(run);
    }
    if (calmMs > RECOVERY_MS) this.#skipToNextInstant(open);
    for (const run of open) this.#checkLease(run);
    if (calmMs > LATE_ANSWERS_MS) { for (const run of open) this.#checkDeadlines(run); }
    this.#clients.checkFollowings();
    if (calmMs > LATE_ANSWERS_MS) this.#checkWaking(open);
    if (calmMs > LATE_ANSWERS_MS) { for (const run of open) this.#checkOrphan(run); }
    const stalledMs = this.#world.now - Math.max(since, this.#inspector.changedAt);
    const drainMs = DRAIN_MS + (hasRates(this.#plan) ? DRAIN_MS_PER_RUN * this.facts.runs.size : 0);
    this.facts.expect(calmMs < drainMs && (stalledMs < STALL_MS || open.length === 0), "I9", () => {
      const left = `${open.length} runs have not ended and ${this.#clients.waiting} requests are not answered`;
      return `after ${calmMs} ms without trouble, and ${stalledMs} in which nothing happened, ${left}:\n${
        open.map(({ text }) => text).join("\n")
      }`;
    });
  }

  /** Without trouble, a lease that nobody renews is taken away soon. */
  #checkLease({ request: { id }, state }: RunFacts): void {
    if (state?.run.status !== "running") return;
    const lease = `${id} ${state.run.leaseGeneration} ${state.run.leaseExpiresAt}`;
    const seenAt = this.#leasesSeenAt.get(lease) ?? this.#world.now;
    this.#leasesSeenAt.set(lease, seenAt);
    const stuckMs = this.#world.now - seenAt;
    const mostMs = 3 * this.#plan.worker.staleThreshold + 1_500;
    this.facts.expect(stuckMs < mostMs, "I9", () => `for ${stuckMs} ms nobody renews lease ${lease}, or takes it`);
  }

  /** Without trouble, and on a clock that runs evenly, a run that is late fails soon. */
  #checkDeadlines({ request: { id }, startedAt, startBy, finishBy }: RunFacts): void {
    if (this.facts.jumps > 0) return;
    const lateMs = this.#world.wallNow - (startedAt === null ? startBy ?? Infinity : finishBy ?? Infinity);
    const mostMs = 3 * this.#plan.worker.staleThreshold + 1_500;
    this.facts.expect(lateMs < mostMs, "F8", () => `${id} is late for its start or its end by ${lateMs} ms`);
  }

  /** When all processes have the last code, its workers know all jobs and versions. */
  async #checkStranded(): Promise<void> {
    const stranded = await this.#store.truth.getStrandedJobs();
    // After a jump of the clock no worker is live until its next claim.
    this.#strandedSince = stranded.length === 0 ? null : this.#strandedSince ?? this.#world.now;
    const strandedMs = this.#world.now - (this.#strandedSince ?? this.#world.now);
    this.facts.expect(strandedMs < LATE_ANSWERS_MS, "I-D5", () => `no worker knows ${JSON.stringify(stranded)}`);
  }

  /** When all processes have the last code, nothing stays held. */
  #checkHeld({ request: { id }, changed, state }: RunFacts): void {
    if (changed.heldUnder === null) return;
    this.#heldSince.set(id, this.#heldSince.get(id) ?? this.#world.now);
    const heldMs = this.#world.now - this.#heldSince.get(id)!;
    this.facts.expect(heldMs < STALL_MS, "I-D5", () => `${id} is held by the last code: ${state?.run.held?.message}`);
  }

  /** Without trouble, a child whose parent has ended is cancelled soon. */
  #checkOrphan(run: RunFacts): void {
    if (!isOrphan(run)) return;
    const { request: { id }, parent } = run;
    const since = this.#orphansSince.get(id) ?? this.#world.now;
    this.#orphansSince.set(id, since);
    const leftMs = this.#world.now - since;
    const mostMs = 2 * this.#plan.worker.pollingInterval + 1_000;
    const parentId = parent!.run.request.id;
    this.facts.expect(
      leftMs < mostMs,
      "F7",
      () => `${id} is left for ${leftMs} ms, and its parent ${parentId} has ended`,
    );
  }

  /** Without trouble, and on a clock that runs evenly, a slot that is due is fired or skipped soon. */
  #checkSlots({ name, nextAt, pausedAt }: ScheduleRecord): void {
    if (pausedAt !== null || this.facts.jumps > 0) return;
    const lateMs = this.#world.wallNow - nextAt!;
    this.facts.expect(lateMs < LATE_SLOT_MS, "F6", () => `a slot of ${name} is due for ${lateMs} ms`);
  }

  /** Without trouble, and on a clock that runs evenly, whoever sleeps is woken when the next worker has looked. */
  #checkWaking(open: readonly RunFacts[]): void {
    const { worker: { pollingInterval }, reliability: { latency } } = this.#plan;
    if (this.facts.jumps > 0) return;
    const mostMs = 2 * pollingInterval + 6 * latency + TIDY_EVERY_MS;
    for (const run of open) {
      const { request: { id }, parking } = run;
      if (parking === null || parking.retryAt !== null) continue;
      if (!isAsleep(run)) continue; // it is awake, and may wait for its key
      const lateMs = this.#world.wallNow - Math.min(...parking.pauses.map(({ deadlineAt }) => deadlineAt ?? Infinity));
      this.facts.expect(lateMs < mostMs, "I9", () => `${id} sleeps for ${lateMs} ms too long`);
    }
  }

  /** When everybody sleeps the clock is set forward: nobody wants to sit that out. */
  #skipToNextInstant(open: readonly RunFacts[]): void {
    if (open.some(({ state }) => state!.run.status === "running")) return;
    const instants = open.flatMap((
      { state },
    ) => [state!.run.startAt, ...state!.pauses.map(({ deadlineAt }) => deadlineAt)])
      .filter((at) => at !== null).map((at) => Date.parse(at))
      .filter((at) => at > this.#world.wallNow); // other code may not know any more what was to be tried again by now
    // A run that is claimed alone is due within a lease after the last one, by the wall clock, which may be set back since.
    const alone = open.filter(({ isClaimedAlone }) => isClaimedAlone)
      .map(({ state }) => Date.parse(state!.run.updatedAt) + this.#plan.worker.staleThreshold)
      .filter((at) => at > this.#world.wallNow);
    const leftMs = Math.min(...instants, ...alone) - this.#world.wallNow;
    if (leftMs > 1_000 && leftMs < Infinity) this.#jump(leftMs);
  }

  /** Stops all engines: they have nothing to do, and leave nothing behind. */
  async #stopAll(): Promise<void> {
    const until = this.#world.now + STOP_MS;
    const stopping = new Set(this.#nodes);
    for (const node of this.#nodes) node.stop(500).then(() => stopping.delete(node));
    await this.#runUntil(() => stopping.size === 0 || this.#world.now > until);
    const slow = [...stopping].map(({ process }) => process.label);
    this.facts.expect(slow.length === 0, "I23", () => `${slow} do not stop`);
    let isQuiet = false;
    this.#world.after(2_000, null, () => isQuiet = true);
    await this.#runUntil(() => isQuiet);
    for (const { process } of this.#nodes) {
      const left = this.#world.countAhead(process);
      this.facts.expect(left === 0, "I23", () => `${process.label} has stopped and still has ${left} timers`);
    }
  }
}

/** Whether a job, or a key of one, starts only so many runs in a period. */
function hasRates({ flow }: Plan): boolean {
  const definitions = Object.values(flow?.jobs ?? {}).flat();
  return definitions.some(({ limits }) => limits?.rate !== undefined || limits?.perKey?.rate !== undefined);
}
