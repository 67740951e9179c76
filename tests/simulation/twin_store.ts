import assert from "node:assert/strict";
import type { DatabaseSync } from "node:sqlite";
import type { RunBlockers } from "../../src/store/blockers.ts";
import type { ClaimRequest, ClaimResult } from "../../src/store/claim.ts";
import type { RunHistory } from "../../src/store/hold_record.ts";
import type { JobList } from "../../src/store/operate.ts";
import type { FoundRuns, RunQuery } from "../../src/store/run_query.ts";
import type { Store } from "../../src/store/store.ts";
import { outcomeOf, StateComparison, withSortedRecords } from "../support/stores/compare_stores.ts";
import { readSqliteRows } from "../support/stores/run_rows.ts";

const OF_ONE = new Set([
  "getVersion",
  "getRunState",
  "readJournal",
  "findCursor",
  "findLastFact",
  "getRunIdentities",
  "readFactValues",
]);

// Calls that answer some turns later than other writes: they share no transaction.
const LATE = new Set(["claim", "signal", "send", "delete", "purge", "migrate", "close"]);

/** Two stores that are asked the same and have to answer the same. */
export class TwinStore {
  /** Stands for both; answers what the first one answers. */
  readonly store: Store;
  readonly #first: Store;
  readonly #second: Store;
  readonly #states: StateComparison;
  /** The row numbers of runs in the second store, by those in the first. */
  readonly #seqs = new Map<number, number>();
  #last = "nothing";
  #hasRates = false;
  /** The rates of each job, in all versions that have claimed. */
  readonly #rates = new Map<string, Set<string>>();
  #hasTurns = false;
  #latest = 0;
  #order = new CallOrder();

  /** @param database That of the second store. */
  constructor(first: Store, second: Store, database: DatabaseSync) {
    this.#first = first;
    this.#second = second;
    this.#states = new StateComparison(first, second, () => readSqliteRows(database));
    const makeOld = database.prepare(
      "UPDATE holdfast_workers SET seen_at = 0 WHERE id = ? AND claim_id <> ?",
    );
    this.store = new Proxy(first, {
      get: (_, method) => {
        if (typeof method === "symbol" || method === "then") return undefined;
        return (...parameters: unknown[]) =>
          this.#order.call(kindOf(method), async () => {
            // Positions and row numbers are a store's own.
            if (OF_ONE.has(method)) {
              return await (first[method as keyof Store] as (...p: unknown[]) => unknown)(...parameters);
            }
            // A claim that finds nothing is recorded only now and then, by which the liveness of workers would differ. A
            // repeated claim is not recorded at all.
            if (method === "claim") {
              const { workerId, claimId } = parameters[0] as ClaimRequest;
              makeOld.run(workerId, claimId);
            }
            return await this.#askBoth(method as keyof Store, parameters);
          });
      },
    });
  }

  async #askBoth(method: keyof Store, parameters: unknown[]): Promise<unknown> {
    this.#last = `${String(method)}(${JSON.stringify(parameters)})`;
    const ask = (store: Store, parameters: unknown[]) =>
      (store[method] as (...parameters: unknown[]) => Promise<unknown>)(...parameters);
    const askSecond = () =>
      ask(this.#second, method === "findRuns" ? parameters.map((one) => this.#toSecond(one)) : parameters);
    const answer = ask(this.#first, parameters);
    const left = await outcomeOf(answer);
    const right = await outcomeOf(askSecond());
    this.#hasRates ||= /"(key)?[rR]ate":\{/.test(this.#last);
    if (method === "claim") this.#noteRates(parameters[0] as ClaimRequest);
    if (method === "claim" && this.#hasRates) evenOut(left as Claimed, right as Claimed);
    if (method === "getBlockers") {
      evenOutVersions(left as Explained, right as Explained, this.#rates);
      evenOutBlockers(left as Explained, right as Explained);
      const { now = 0 } = (left as Explained).value ?? {};
      this.#latest = Math.max(this.#latest, now);
      if (now < this.#latest) evenOutRates(left as Explained, right as Explained);
    }
    this.#hasTurns ||= /"fairnessKey":"/.test(this.#last);
    if (method === "getJobs" && this.#hasTurns) evenOutJobs(left as Listed, right as Listed);
    if (method === "getHistory") sortHistories(left as Remembered, right as Remembered);
    if (method === "findRuns") this.#compareSeqs(left as Found, right as Found);
    assert.deepEqual(right, left, `different answers to ${this.#last}`);
    return await answer;
  }

  #noteRates({ jobs }: ClaimRequest): void {
    for (const { name, rate } of jobs) {
      const rates = this.#rates.get(name) ?? new Set();
      this.#rates.set(name, rates.add(JSON.stringify(rate)));
    }
  }

  /** A query of the first store, with the row number of the second. */
  #toSecond(query: unknown): unknown {
    const { before } = query as RunQuery;
    return before === undefined ? query : { ...query as RunQuery, before: this.#seqs.get(before) ?? before };
  }

  /** Notes which row numbers are those of the same runs, and leaves them out of the comparison. */
  #compareSeqs({ value: left }: Found, { value: right }: Found): void {
    if (left === undefined || right === undefined) return;
    for (const [at, seq] of left.seqs.entries()) this.#seqs.set(seq, right.seqs[at] ?? seq);
    right.seqs = left.seqs;
    if (left.countedTo === null || right.countedTo === null) return;
    this.#seqs.set(left.countedTo, right.countedTo);
    right.countedTo = left.countedTo;
  }

  /** Compares all that the two have kept, and counts what the first one has. */
  async countChanges(): Promise<number> {
    await this.#states.check(`different states after ${this.#last}`);
    return await this.#first.getVersion();
  }
}

type CallKind = "read" | "write" | "late";

function kindOf(method: string): CallKind {
  if (LATE.has(method)) return "late";
  return /^(get|read|find|has|search)/.test(method) ? "read" : "write";
}

/**
 * Lets calls begin one after another, as far as they could not be told apart from calls in another order: the first store
 * does at once what the second one commits some turns later, so a read between the two would find them different. Reads
 * are under way together, and so are writes, which then share a transaction.
 */
class CallOrder {
  #kind: CallKind = "read";
  #underWay: Promise<unknown>[] = [];
  #before: Promise<unknown> = Promise.resolve();

  call<T>(kind: CallKind, begin: () => Promise<T>): Promise<T> {
    if (kind !== this.#kind || kind === "late") {
      this.#before = Promise.allSettled([this.#before, ...this.#underWay]);
      this.#underWay = [];
      this.#kind = kind;
    }
    const answer = this.#before.then(begin);
    this.#underWay.push(answer);
    return answer;
  }
}

/** The second store does not keep since when a run waits that holds a key, but when it became due. */
function evenOutBlockers({ value: left }: Explained, { value: right }: Explained): void {
  for (const blocker of [...left?.blockers ?? [], ...right?.blockers ?? []]) {
    if (blocker.kind === "key" && blocker.holder?.status === "waiting") blocker.holder.since = 0;
  }
}

/** Where runs take turns, the second store says which run has the next turn; the first one, which comes first. */
function evenOutJobs({ value: left }: Listed, { value: right }: Listed): void {
  for (const job of [...left?.jobs ?? [], ...right?.jobs ?? []]) job.oldestDue = null;
}

/**
 * When the clock is set back, starts count again that the second store has removed: it keeps as many as the limit of the
 * version that has started last.
 */
function evenOutRates({ value: left }: Explained, { value: right }: Explained): void {
  if (!left || !right) return;
  const isRated = [...left.blockers, ...right.blockers].some((blocker) =>
    blocker.kind === "limit" && blocker.rate !== null
  );
  if (isRated) right.blockers = left.blockers;
}

/**
 * Of a job whose versions have different rates the second store keeps only the starts that count for the version that has
 * started last: another one may be allowed more than in the first store.
 */
function evenOutVersions(
  { value: left }: Explained,
  { value: right }: Explained,
  rates: ReadonlyMap<string, ReadonlySet<string>>,
): void {
  if (!left || !right || (rates.get(left.run.jobName)?.size ?? 0) < 2) return;
  const isLimited = [...left.blockers, ...right.blockers].some(({ kind }) => kind === "limit");
  if (isLimited) right.blockers = left.blockers;
}

/** The steps of a history come in any order. */
function sortHistories({ value: left }: Remembered, { value: right }: Remembered): void {
  for (const history of [left, right]) withSortedRecords(history ?? null);
}

type Remembered = { value?: RunHistory | null };
type Explained = { value?: RunBlockers | null };
type Listed = { value?: JobList };
type Found = { value?: FoundRuns };
type Claimed = { value?: ClaimResult };

/**
 * The second store may wake a worker too early: it looks at the rates of a few runs only, and also when there is more to do
 * at once.
 */
function evenOut({ value: left }: Claimed, { value: right }: Claimed): void {
  if (left === undefined || right === undefined) return;
  if ((right.nextTimerAt ?? Infinity) < (left.nextTimerAt ?? Infinity)) right.nextTimerAt = left.nextTimerAt;
}
