import assert from "node:assert/strict";
import type { Host } from "../../src/model/host.ts";
import type { Run } from "../../src/model/run.ts";
import type { Store } from "../../src/store/store.ts";
import type { ClaimRequest, ClaimResult } from "../../src/store/claim.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { Chance } from "../support/chance.ts";
import { outcomeOf } from "../support/stores/compare_stores.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aClaimRequest, aKnownJob } from "../support/fixtures.ts";
import { JOB_RATE, Script } from "./operations.ts";
import { getPausedJobs, getRuns, getWaits } from "../../src/store/reads.ts";

const SEEDS = 40;
const OPERATIONS = 250;
const JOBS = ["a", "b", "c"];

Deno.test("MemoryStore: any operations keep what flow promises, and leave no run behind", () =>
  tryAll((host) => new MemoryStore({ host })));

Deno.test("SqliteStore: any operations keep what flow promises, and leave no run behind", () =>
  tryAll((host) => SqliteStore.open(":memory:", { host })));

async function tryAll(open: (host: Host) => Store | Promise<Store>): Promise<void> {
  for (let seed = 1; seed <= SEEDS; seed++) {
    try {
      const trial = new Trial(seed);
      await using store = await open(trial.host);
      await store.migrate();
      await trial.run(store);
    } catch (error) {
      throw new Error(`Seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }
}

/** A random history, and what is checked after each claim. */
class Trial {
  /** The latest instant that the clock has shown. */
  #latest = 0;
  #store!: Store; // `run` sets it
  readonly #script: Script;
  /** How many runs may hold the key of each run while that is executed. */
  readonly #keyConcurrency = new Map<string, number>();
  /** The starts of job b under its rate. */
  #starts: number[] = [];
  #claimNo = 0;

  /** The host of the store. */
  readonly host = new FakeHost();

  constructor(seed: number) {
    this.#script = new Script(new Chance(seed), () => this.host.now(), (ms) => this.host.jump(ms), { flow: true });
  }

  get #now(): number {
    return this.host.now();
  }

  async run(store: Store): Promise<void> {
    this.#store = store;
    for (let i = 0; i < OPERATIONS; i++) {
      const { call, request, added } = this.#script.next();
      this.#latest = Math.max(this.#latest, this.#now);
      if (added !== undefined) this.#keyConcurrency.set(added.id, added.flow.keyConcurrency);
      if (request !== undefined) {
        this.#script.learn({ value: await this.#claim({ ...request, claimId: `new-${i}` }) });
      } else this.#script.learn(await outcomeOf(call(this.#store)));
    }
    await this.#drain();
  }

  /** Claims, and checks what was claimed against the state before and after. */
  async #claim(request: ClaimRequest): Promise<ClaimResult> {
    const before = await this.#read();
    const result = await this.#store.claim(request);
    const taken = result.claims.map(({ run }) => before.get(run.id)!);
    const after = taken.length === 0 ? before : await this.#read();
    const paused = new Set((await getPausedJobs(this.#store)).map(({ jobName }) => jobName));
    this.#starts = this.#starts.map((start) => Math.min(start, this.#now));
    for (const run of taken) {
      assert.ok(!paused.has(run.jobName), `run ${run.id} of a paused job was claimed`);
      assert.ok(!isAfter(run.startAt, this.#latest), `run ${run.id} began before its start`);
      if (run.startedAt === null) this.#checkStart(run, request);
      assert.ok(run.finishBy === null || isAfter(run.finishBy, this.#now), `run ${run.id} resumed after its deadline`);
    }
    const running = [...after.values()].filter(({ status }) => status === "running");
    for (const { name, concurrency } of request.jobs) {
      if (concurrency === null || !taken.some(({ jobName }) => jobName === name)) continue;
      const inUse = running.filter(({ jobName }) => jobName === name).length;
      assert.ok(inUse <= concurrency, `${inUse} runs of job ${name} are executed, not ${concurrency}`);
    }
    for (const key of new Set(taken.map(({ concurrencyKey }) => concurrencyKey))) {
      if (key === null) continue;
      const ofKey = taken.filter((run) => run.concurrencyKey === key);
      // Runs that kept the key over a retry delay are among the waiting ones, which say nothing of their keys.
      if (ofKey.some(({ status }) => status === "waiting")) continue;
      const allowed = Math.max(...ofKey.map(({ id }) => this.#keyConcurrency.get(id)!));
      const holding = running.filter((run) => run.concurrencyKey === key).length;
      assert.ok(holding <= allowed, `${holding} runs hold the key ${key}, not ${allowed}`);
    }
    assert.ok(result.nextTimerAt === null || result.hasMore || result.nextTimerAt > this.#now, "a timer was left out");
    if (!result.hasMore) await this.#claimNothing(request);
    return result;
  }

  #checkStart(run: Run, request: ClaimRequest): void {
    assert.ok(run.startBy === null || isAfter(run.startBy, this.#now), `run ${run.id} started too late`);
    const rate = request.jobs.find(({ name }) => name === run.jobName)?.rate ?? null;
    if (rate === null) return;
    this.#starts.push(this.#now);
    const counting = this.#starts.filter((start) => start > this.#now - JOB_RATE.period).length;
    assert.ok(counting <= JOB_RATE.limit, `${counting} runs started within a period, not ${JOB_RATE.limit}`);
  }

  /** A claim that has left nothing to do leaves nothing to the next one either. */
  async #claimNothing(request: ClaimRequest): Promise<void> {
    const { workerId, worker, jobs, leaseMs, maxAbandonments, isAlone } = request;
    const claimId = `again-${this.#claimNo++}`;
    const again = await this.#store.claim({
      workerId,
      worker,
      claimId,
      jobs,
      leaseMs,
      maxAbandonments,
      holding: [],
      triesHeld: false,
      isAlone,
      limit: request.limit === 0 ? 0 : 10,
    });
    assert.deepEqual([again.claims, again.failed], [[], []], "the claim before has left something to do");
  }

  /** Executes what is left, and ends what waits for signals. */
  async #drain(): Promise<void> {
    for (const jobName of JOBS) await this.#store.resumeJob(jobName);
    const jobs = JOBS.map((name) => aKnownJob({ name, concurrency: 2, rate: name === "b" ? JOB_RATE : null }));
    let isAlone = false;
    let timers: number[] = [];
    for (let i = 0; i < 2_000; i++) {
      this.#latest = Math.max(this.#latest, this.#now);
      const request = { workerId: "drain", claimId: `drain-${i}`, jobs, leaseMs: 100, limit: 3, isAlone };
      const result = await this.#claim(aClaimRequest(request));
      for (const { lease } of result.claims) {
        await this.#store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
      }
      timers = [...(isAlone ? timers : []), ...(result.nextTimerAt === null ? [] : [result.nextTimerAt])];
      isAlone = !isAlone && result.aloneSince !== null;
      if (result.claims.length > 0 || result.hasMore || isAlone) continue;
      if (timers.length === 0) break;
      this.host.jump(Math.min(...timers) - this.#now);
    }
    for (const run of (await this.#read()).values()) {
      if (run.completedAt !== null) continue;
      assert.equal(run.status, "waiting", `run ${run.id} is stuck`);
      const { pauses } = (await this.#store.getRunState(run.id))!;
      const waits = await getWaits(this.#store, run.id);
      const awaited = waits.filter(({ id }) => pauses.some(({ waitId }) => waitId === id));
      assert.ok(pauses.some(({ deadlineAt }) => deadlineAt === null), `run ${run.id} has missed its time`);
      assert.ok(awaited.every(({ status }) => status === "pending"), `run ${run.id} has missed a signal`);
    }
  }

  async #read(): Promise<Map<string, Run>> {
    const { runs } = await getRuns(this.#store, { limit: 1_000 });
    return new Map(runs.map((run) => [run.id, run]));
  }
}

function isAfter(at: string | null, now: number): boolean {
  return at !== null && Date.parse(at) > now;
}
