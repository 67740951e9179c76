import type { ClaimRequest } from "../../src/store/claim.ts";
import { MAX_TIMERS } from "../../src/stores/rules.ts";
import { isOrphan } from "./child_facts.ts";
import { type Facts, isDue, type RunFacts } from "./facts.ts";

// The numbers of triggers that a priority of one is worth, and the head start of a run that has kept its key.
const PRIORITY_PLACES = 100_000;
const KEPT_KEY_PLACES = 2 ** 52;
// That of a clean-up among the runs that wait for its key.
const END_PLACES = 2 ** 50;

/** Who can be claimed, worked out from the committed history, for one claim of one worker. */
export class Queue {
  readonly #facts: Facts;
  readonly #request: ClaimRequest;
  readonly #now: number;
  readonly #executing = new Set<RunFacts>();
  readonly #taken = new Set<RunFacts>();
  #due: RunFacts[] = [];
  /** Of each line, which runs the limits of live workers let pass when the claim begins: certainly, and perhaps. */
  readonly #passing = new Map<string, { certainly: Passing; perhaps: Passing }>();
  /** Whether some runs were not read since they have changed: nothing is certain then. */
  readonly isBlurred: boolean;

  /** @param failed The runs that the claim has failed before it claimed any. */
  constructor(facts: Facts, request: ClaimRequest, failed: ReadonlySet<string>, now: number) {
    this.#facts = facts;
    this.#request = request;
    this.#now = now;
    const open = facts.open().filter(({ request: { id } }) => !failed.has(id));
    // Nor which workers may take a held run that was offered to one, and when a run that is claimed alone becomes due and
    // precedes others in the line of its key; nor which others are late when a claim has failed as many as it may.
    this.isBlurred = request.isAlone || failed.size >= MAX_TIMERS ||
      open.some((run) =>
        run.isUnread || (request.triesHeld && run.changed.isOffered) || (run.isClaimedAlone && sharesKey(run, open))
      );
    for (const run of open) {
      if (run.changed.heldUnder !== null || run.isClaimedAlone) continue;
      const status = run.state?.run.status;
      const isExecuted = status === "running" && ((run.leaseEndsAt ?? 0) > now || isHeld(request, run));
      if (isExecuted) this.#executing.add(run);
      else if (status === "running" || (status === "pending" && !run.isDelayed)) this.#due.push(run);
      else if (status === "waiting" && (run.isWoken || isDue(facts, run, now))) this.#due.push(run);
    }
    this.#due.sort((left, right) => this.positionOf(left) - this.positionOf(right));
    for (const run of this.#due) {
      if (run.request.concurrencyKey === null || this.#passing.has(lineOf(run))) continue;
      this.#passing.set(lineOf(run), { certainly: this.#passingOf(run, true), perhaps: this.#passingOf(run, false) });
    }
  }

  /** Which runs of a line the limits of live workers let pass. */
  #passingOf(run: RunFacts, certainly: boolean): Passing {
    const { flow } = this.#facts;
    const { jobName } = run.request;
    const open = flow.jobsOf(lineOf(run), this.#now, certainly)
      .filter(({ concurrency }) => concurrency === null || this.countExecuted(jobName) < concurrency);
    const isUsedUp = ({ rate }: ClaimRequest["jobs"][number]) =>
      rate !== null && flow.countJobStarts(jobName, rate, this.#now, !certainly) >= rate.limit;
    return { begun: open.length > 0, all: open.some((job) => !isUsedUp(job)) };
  }

  /** The due runs, in their order. */
  get due(): readonly RunFacts[] {
    return this.#due;
  }

  /** The place of a run in the order: lower ones are first. */
  positionOf(run: RunFacts): number {
    const { order, endOf, request: { flow, concurrencyKey } } = run;
    const isFirst = endOf !== null && concurrencyKey !== null;
    return order - PRIORITY_PLACES * flow.priority - (keepsKey(run) ? KEPT_KEY_PLACES : 0) - (isFirst ? END_PLACES : 0);
  }

  /** The runs that can be claimed now. */
  candidates(): RunFacts[] {
    const groups = new Set<string>();
    return this.#due.filter((run) => {
      const { flow: { fairnessKey } } = run.request;
      if (this.obstacle(run, true) !== null) return false;
      if (fairnessKey === null) return true;
      const group = JSON.stringify([lineOf(run), fairnessKey]);
      if (groups.has(group)) return false;
      groups.add(group);
      return true;
    });
  }

  /**
   * What keeps a run from being claimed, or `null`.
   *
   * @param isStrict Whether everything counts that might: then `null` means that it certainly can be claimed.
   * @param hasRates Whether rates count.
   */
  obstacle(run: RunFacts, isStrict: boolean, hasRates = true): Obstacle | null {
    const { jobName, concurrencyKey: key } = run.request;
    const job = this.#jobOf(run);
    if (!this.#due.includes(run)) return "it is not due";
    if (job === undefined) return "its job is unknown";
    if (this.#facts.flow.paused.has(jobName)) return "its job is paused";
    if (isOrphan(run)) return "its parent has ended";
    if (job.concurrency !== null && this.countExecuted(jobName) >= job.concurrency) return "its job is full";
    if (hasRates && this.#isRateUsedUp(run, !isStrict)) return "the rate of its job is used up";
    if (key === null || keepsKey(run)) return null;
    if (this.countHolders(run) >= run.request.flow.keyConcurrency) return "its key is full";
    if (hasRates && this.#isKeyRateUsedUp(run, !isStrict)) return "the rate of its key is used up";
    if (this.#firstOf(key, lineOf(run)) !== run) return "it is not the first of its key";
    return this.#isBehindOtherJob(run, isStrict) ? "it is behind another job in the line of its key" : null;
  }

  /** Whether a run is through the gate of its key, as far as the runs of its job are concerned. */
  passesKey(run: RunFacts, isStrict: boolean): boolean {
    const { concurrencyKey: key, flow } = run.request;
    if (key === null || keepsKey(run)) return true;
    return this.#firstOf(key, lineOf(run)) === run && this.countHolders(run) < flow.keyConcurrency &&
      !this.#isKeyRateUsedUp(run, !isStrict);
  }

  /**
   * The first instant at which something expires that a worker has to look at: a lease, a deadline, a start, a pause, what
   * a cancelled run holds, or a rate that alone keeps a run from being claimed.
   */
  nextTimerAt(): number {
    const limited = new Set(
      this.#request.jobs.filter(({ concurrency }) => concurrency !== null).map(({ name }) => name),
    );
    const instants = [...this.#facts.runs.values()].flatMap((run) => {
      const { isGhost, isDelayed, isWoken, startAt, startBy, finishBy, startedAt, parking, leaseEndsAt, request } = run;
      if (isGhost) return request.concurrencyKey !== null || limited.has(request.jobName) ? [leaseEndsAt] : [];
      if (run.hasEnded || run.isDeleted) return [];
      if (this.#taken.has(run)) return []; // its lease ends last
      if (this.#executing.has(run)) return isHeld(this.#request, run) ? [] : [leaseEndsAt];
      return [
        isDelayed ? startAt : null,
        startedAt === null ? startBy : finishBy,
        ...(parking === null || isWoken || this.#due.includes(run)
          ? []
          : [parking.retryAt, ...parking.pauses.map(({ deadlineAt }) => deadlineAt)]),
      ];
    });
    const openings = this.#due.filter((run) => this.obstacle(run, true, false) === null).map((run) =>
      this.#opensAt(run)
    );
    return Math.min(...[...instants, ...openings].map((at) => at ?? Infinity).filter((at) => at > this.#now));
  }

  /** When the rates of a run have room. */
  #opensAt(run: RunFacts): number {
    const { startedAt, request: { jobName, concurrencyKey: key, flow: { keyRate } } } = run;
    if (startedAt !== null) return this.#now;
    const rate = this.#jobOf(run)?.rate ?? null;
    const { flow } = this.#facts;
    return Math.max(
      rate === null ? this.#now : flow.jobOpensAt(jobName, rate, this.#now),
      key === null || keyRate === null ? this.#now : flow.keyOpensAt(key, keyRate, this.#now),
    );
  }

  /** How many runs of a job are executed, or may still be after their cancel. */
  countExecuted(jobName: string): number {
    const ghosts = [...this.#facts.runs.values()].filter(({ isGhost }) => isGhost);
    return [...this.#executing, ...ghosts].filter(({ request }) => request.jobName === jobName).length;
  }

  /** How many other runs hold the key of a run. */
  countHolders(run: RunFacts): number {
    const key = run.request.concurrencyKey;
    return [...this.#facts.runs.values()].filter((other) => {
      if (other === run || other.request.concurrencyKey !== key) return false;
      return this.#executing.has(other) || other.isGhost || (!other.hasEnded && keepsKey(other));
    }).length;
  }

  /** The run is claimed. */
  take(run: RunFacts): void {
    this.#due = this.#due.filter((other) => other !== run);
    this.#executing.add(run);
    this.#taken.add(run);
    if (run.startedAt !== null) return;
    const { jobName, concurrencyKey: key, flow: { keyRate } } = run.request;
    this.#facts.flow.noteStart({
      at: this.#now,
      jobName,
      jobRate: this.#jobOf(run)?.rate ?? null,
      key,
      keyRate: key === null ? null : keyRate,
    });
    run.startedAt = this.#now;
  }

  /** Whether the rate of a job would hold back a run that starts. */
  isHeldBackByRate(run: RunFacts): boolean {
    const { jobName } = run.request;
    const rate = this.#jobOf(run)?.rate ?? null;
    return rate !== null && this.#facts.flow.countJobStarts(jobName, rate, this.#now, true) >= rate.limit;
  }

  #isRateUsedUp(run: RunFacts, sameRate: boolean): boolean {
    const { startedAt, request: { jobName } } = run;
    const rate = this.#jobOf(run)?.rate ?? null;
    return startedAt === null && rate !== null &&
      this.#facts.flow.countJobStarts(jobName, rate, this.#now, sameRate) >= rate.limit;
  }

  #isKeyRateUsedUp({ startedAt, request: { concurrencyKey: key, flow: { keyRate } } }: RunFacts, sameRate: boolean) {
    return startedAt === null && key !== null && keyRate !== null &&
      this.#facts.flow.countKeyStarts(key, keyRate, this.#now, sameRate) >= keyRate.limit;
  }

  /** What the worker says about the job of a run, in the version of the run. */
  #jobOf({ request: { jobName, version } }: RunFacts): ClaimRequest["jobs"][number] | undefined {
    return this.#request.jobs.find((job) => job.name === jobName && job.version === version);
  }

  #firstOf(key: string, line: string): RunFacts | undefined {
    return this.#due.find((run) => run.request.concurrencyKey === key && lineOf(run) === line);
  }

  /**
   * Whether a run of another job is in front: one that only other workers can claim, or one for which the key has no
   * room. A job that no live worker knows, or that is paused, holds up nobody.
   */
  #isBehindOtherJob(run: RunFacts, isStrict: boolean): boolean {
    const { concurrencyKey: key } = run.request;
    const others = new Set(this.#due.map(lineOf).filter((line) => line !== lineOf(run)));
    return [...others].some((line) => {
      const first = this.#firstOf(key!, line);
      if (first === undefined || this.positionOf(first) > this.positionOf(run)) return false;
      const { flow } = this.#facts;
      if (flow.paused.has(first.request.jobName) || !flow.isKnown(line, this.#now, !isStrict)) return false;
      const passing = this.#passing.get(line)?.[isStrict ? "perhaps" : "certainly"];
      const isHeldBack = passing !== undefined && !(first.startedAt === null ? passing.all : passing.begun);
      if (!this.passesKey(first, isStrict)) return true;
      if (this.#jobOf(first) !== undefined) return false;
      return !isHeldBack;
    });
  }
}

/** Whether limits let runs of a line pass that have begun, and all runs. */
interface Passing {
  begun: boolean;
  all: boolean;
}

/** The line of a run: the runs of each version are a job of their own. */
export function lineOf({ request: { jobName, version } }: Pick<RunFacts, "request">): string {
  return `${jobName} ${version}`;
}

function sharesKey(run: RunFacts, others: readonly RunFacts[]): boolean {
  const { concurrencyKey: key } = run.request;
  return key !== null && others.some((other) => other !== run && other.request.concurrencyKey === key);
}

/** What keeps a run from being claimed. */
export type Obstacle =
  | "it is not due"
  | "its job is unknown"
  | "its job is paused"
  | "its parent has ended"
  | "its job is full"
  | "the rate of its job is used up"
  | "its key is full"
  | "the rate of its key is used up"
  | "it is not the first of its key"
  | "it is behind another job in the line of its key";

/** Whether a run has kept its key for another attempt at a step. */
export function keepsKey({ request, parking }: RunFacts): boolean {
  return request.concurrencyKey !== null && parking !== null && parking.retryAt !== null;
}

/** Whether a worker holds a run, and says so. */
export function isHeld({ holding }: ClaimRequest, { request: { id }, generation }: RunFacts): boolean {
  return holding.some((lease) => lease.runId === id && lease.generation === generation);
}
