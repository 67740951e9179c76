import assert from "node:assert/strict";
import { type Host, systemHost } from "../../src/model/host.ts";
import { isTerminal } from "../../src/model/run.ts";
import type { Claim, ClaimResult } from "../../src/store/claim.ts";
import type { NewPause, PauseResult } from "../../src/store/pause_request.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { Chance } from "../support/chance.ts";
import { type Outcome, outcomeOf, StateComparison } from "../support/stores/compare_stores.ts";
import { countingIds, openSqlite, type OpenSubject } from "./compare_histories.ts";
import { aClaimRequest, aFailure, aPause, aRun, aStep } from "../support/fixtures.ts";
import { getRun, getRuns } from "../../src/store/reads.ts";

const OPERATIONS = 150;
const JOBS = ["parent", "child"];

/** What has to happen in some history, or the test would say nothing about it. */
export const SITUATIONS = [
  "children were added",
  "a slice was repeated",
  "a child was taken over",
  "a child was retried from its failure",
  "a pause was copied",
  "a pause was resolved without parking",
  "a child of an ended run was cancelled",
  "a child of a child was cancelled",
  "a result was kept",
  "a result was lost",
  "a run resumed with its children",
];

/**
 * Plays a random history of parents and children to both stores for each seed, and compares what they answer and show.
 *
 * @param open Opens the store to compare; a `SqliteStore` unless it is given.
 * @returns The situations that have happened.
 */
export async function playChildHistories(
  seeds: readonly number[],
  open: OpenSubject = openSqlite,
): Promise<Set<string>> {
  const noticed = new Set<string>();
  for (const seed of seeds) {
    try {
      await new History(seed, noticed).run(open);
    } catch (error) {
      throw new Error(`Seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }
  return noticed;
}

/** A random history of a few parents, which is played to both stores. */
class History {
  #now = 1_700_000_000_000;
  readonly #chance: Chance;
  readonly #noticed: Set<string>;
  readonly #stores: Store[] = [];
  #states: StateComparison | undefined;
  readonly #calls: string[] = [];
  #held: Claim[] = [];
  #pauses: { id: string; parentId: string }[] = [];
  /** How many children the pauses of runs have. */
  readonly #added = new Map<string, number>();
  #ids = 0;

  constructor(seed: number, noticed: Set<string>) {
    this.#chance = new Chance(seed);
    this.#noticed = noticed;
  }

  async run(open: OpenSubject): Promise<void> {
    const host: Host = { ...systemHost, now: () => this.#now };
    const compared = await open(host);
    try {
      const memory = new MemoryStore({ host: countingIds(host) });
      this.#stores.push(memory, compared.store);
      this.#states = new StateComparison(memory, compared.store, compared.readRows);
      for (let n = 0; n < OPERATIONS; n++) await this.#operate();
      await this.#drain();
      await this.#states.checkAll("different states at the end");
    } finally {
      await compared.close();
    }
  }

  async #operate(): Promise<void> {
    this.#now += this.#chance.int(20);
    await this.#chance.weighted<() => Promise<unknown>>([
      [2, () => this.#enqueue(aRun({ id: this.#id(), jobName: "parent" }))],
      [6, () => this.#claim()],
      [8, () => this.#pause()],
      [6, () => this.#finish()],
      [1, () => this.#saveStep()],
      [2, () => this.#retrigger()],
      [1, () => this.#cancel()],
      [2, () => this.#delete()],
      [2, () => this.#read()],
      [0.5, () => Promise.resolve(this.#now += 2_000)],
    ])();
  }

  /** Makes a call to both stores, and checks that they answer the same and show the same. */
  async #both(name: string, call: (store: Store) => Promise<unknown>): Promise<Outcome> {
    this.#calls.push(name);
    const message = `after:\n${this.#calls.slice(-12).join("\n")}`;
    const [left, right] = [await outcomeOf(call(this.#stores[0]!)), await outcomeOf(call(this.#stores[1]!))];
    assert.deepEqual(right, left, `different answers ${message}`);
    await this.#states!.check(`different states ${message}`); // made with the stores
    return left;
  }

  #id(): string {
    return `run-${this.#ids++}`;
  }

  async #enqueue(run: NewRun): Promise<void> {
    await this.#both(`enqueue ${run.id} of ${run.retriggerOf?.runId ?? "none"}`, (store) => store.enqueue([run]));
  }

  /** Claims runs as a new worker; if a run is claimed alone, another one claims it. */
  async #claim(limit = 1 + this.#chance.int(3)): Promise<ClaimResult> {
    const result = await this.#claimAs(limit, false);
    if (result.aloneSince === null) return result;
    const alone = await this.#claimAs(1, true);
    return {
      ...alone,
      claims: [...result.claims, ...alone.claims],
      cancelled: [...result.cancelled, ...alone.cancelled],
    };
  }

  async #claimAs(limit: number, isAlone: boolean): Promise<ClaimResult> {
    const workerId = `w${this.#ids++}`;
    const request = aClaimRequest({ workerId, claimId: this.#id(), jobNames: JOBS, limit, isAlone });
    const outcome = await this.#both("claim", (store) => store.claim(request)) as { value: ClaimResult };
    const { claims, cancelled } = outcome.value;
    this.#held = [...this.#held.slice(-6), ...claims];
    if (cancelled.length > 0) this.#noticed.add("a child of an ended run was cancelled");
    for (const { run, pauses, execution, depth } of claims) {
      for (const { id, kind, name, childCount, resolution, createdAt } of pauses) {
        if (kind !== "children") continue;
        this.#added.set(`${run.id} ${name}`, childCount);
        if (!this.#pauses.some((known) => known.id === id)) {
          this.#pauses.push({ id, parentId: run.id });
          if (id.startsWith("copy")) this.#noticed.add("a pause was copied");
        }
        if (resolution !== null && createdAt < this.#now) this.#noticed.add("a run resumed with its children");
      }
      assert.ok(execution >= 1 && depth <= 6);
    }
    for (const { id } of cancelled) {
      const parent = await this.#parentOf(id);
      if (parent?.parentRunId) this.#noticed.add("a child of a child was cancelled");
    }
    return outcome.value;
  }

  async #parentOf(runId: string) {
    const run = await getRun(this.#stores[0]!, runId);
    return run?.parentRunId ? await getRun(this.#stores[0]!, run.parentRunId) : null;
  }

  async #pause(): Promise<void> {
    const held = this.#held.at(-1 - this.#chance.int(3));
    if (held === undefined || held.depth > 4) return;
    const total = 1 + this.#chance.int(3);
    const key = `${held.run.id} all-${total}`;
    const known = this.#added.get(key) ?? 0;
    const from = this.#chance.happens(0.3) ? 0 : Math.min(known, total - 1);
    const count = this.#chance.happens(0.7) ? total - from : 1;
    const runs = Array.from({ length: count }, (_, n) => this.#child(from + n));
    const pauses: NewPause[] = [
      { ...aPause({ id: this.#id(), kind: "children", name: `all-${total}` }), children: { total, from, runs } },
    ];
    if (this.#chance.happens(0.2)) pauses.push(aPause({ id: this.#id(), name: "review", deadline: { afterMs: 50 } }));
    // As an engine does, it adds all children before it parks.
    const park = from + count === total && this.#chance.happens(0.8);
    const request = { pauses, retryAt: null, park, reports: [] };
    const outcome = await this.#both(
      `pause ${held.run.id} on ${total} from ${from}: ${runs.map(({ id }) => id)}`,
      (store) => store.pause(held.lease, request),
    );
    if (!("value" in outcome)) return;
    const { parked, created, pauses: [pause] } = outcome.value as PauseResult;
    this.#pauses.push({ id: pause!.id, parentId: held.run.id });
    this.#added.set(key, pause!.childCount);
    if (created.length > 0) this.#noticed.add("children were added");
    if (created.length < runs.length && from < known) this.#noticed.add("a slice was repeated");
    if (created.some(({ retryOf }) => retryOf !== null)) this.#noticed.add("a child was retried from its failure");
    if (park && !parked && pause!.resolution !== null) this.#noticed.add("a pause was resolved without parking");
    if (pause!.childCount === from + count && created.length < count && from === known && known === 0) {
      this.#noticed.add("a child was taken over");
    }
  }

  /** A child whose input is usually the same for the same number. */
  #child(no: number): NewRun {
    const payload = this.#chance.happens(0.1) ? null : String(no);
    const concurrencyKey = this.#chance.happens(0.2) ? "key" : null;
    return aRun({ id: this.#id(), jobName: "child", payload, input: payload, concurrencyKey });
  }

  async #finish(): Promise<void> {
    const held = this.#held.at(-1 - this.#chance.int(4));
    if (held === undefined) return;
    const completes = this.#chance.happens(held.run.jobName === "child" ? 0.7 : 0.3);
    const ending = completes
      ? { status: "completed" as const, output: '"out"', durationMs: 1 }
      : { status: "failed" as const, failure: aFailure(), failedStepName: null };
    await this.#both(`finish ${held.run.id} ${ending.status}`, (store) => store.finish(held.lease, ending, []));
    this.#held = this.#held.filter((other) => other !== held);
  }

  async #saveStep(): Promise<void> {
    const held = this.#held.at(-1);
    if (held === undefined) return;
    const step = aStep({ name: `step-${this.#ids++}` });
    await this.#both(`saveStep ${held.run.id}`, (store) => store.saveStep(held.lease, step, []));
  }

  async #retrigger(): Promise<void> {
    const ended = this.#pauses.map(({ parentId }) => parentId);
    if (ended.length === 0) return;
    const runId = this.#chance.pick(ended.slice(-6));
    const old = await getRun(this.#stores[0]!, runId);
    if (old === null || !isTerminal(old.status)) return;
    await this.#enqueue(aRun({ id: this.#id(), jobName: old.jobName, retriggerOf: { runId, from: "failure" } }));
  }

  async #cancel(): Promise<void> {
    const run = await this.#anyRun();
    if (run !== null) await this.#both(`cancel ${run.id}`, (store) => store.cancel(run.id, "request", null));
  }

  async #delete(): Promise<void> {
    const run = await this.#anyRun();
    if (run === null) return;
    const parent = await this.#parentOf(run.id);
    const outcome = await this.#both(`delete ${run.id}`, (store) => store.delete(run.id));
    if (!("value" in outcome) || outcome.value === null || parent === null) return;
    this.#noticed.add(isTerminal(parent.status) ? "a result was lost" : "a result was kept");
  }

  async #anyRun() {
    const { runs } = await getRuns(this.#stores[0]!, { limit: 30 });
    return runs.length === 0 ? null : this.#chance.pick(runs);
  }

  async #read(): Promise<void> {
    if (this.#pauses.length === 0) return;
    const { id, parentId } = this.#chance.pick(this.#pauses);
    const [from, length] = [this.#chance.int(3), this.#chance.pick([1, 200, 10_000])];
    await this.#both(`readChildren ${id} ${from} ${length}`, (store) => store.readChildren(id, from, length));
    await this.#both(`getRuns of ${parentId}`, (store) => getRuns(store, { parentRunId: parentId }));
  }

  /** Ends everything that can be claimed. Nothing may be left: no parent waits for children that have all ended. */
  async #drain(): Promise<void> {
    for (let idle = 0; idle < 3;) {
      this.#now += 2_000;
      const { claims, cancelled } = await this.#claim(10);
      idle = claims.length + cancelled.length === 0 ? idle + 1 : 0;
      const ending = { status: "completed" as const, output: null, durationMs: 1 };
      for (const { lease } of claims) await this.#both("drain", (store) => store.finish(lease, ending, []));
    }
    const { runs } = await getRuns(this.#stores[0]!, { limit: 1_000 });
    const stranded = runs.filter(({ status }) => !isTerminal(status));
    assert.deepEqual(stranded.map(({ id, status }) => `${id} ${status}`), []);
  }
}
