import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import { ConflictError } from "../../src/model/error.ts";
import { type EndContext, undoName } from "../../src/model/end.ts";
import type { Job, StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { isTerminal, type Run, type TerminalStatus } from "../../src/model/run.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { Chance } from "../support/chance.ts";
import { FakeHost } from "../support/fake_host.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";

// Runs that end in every way, whose clean-ups throw, time out, ignore their abort signals, and are cancelled in the
// middle. Which functions do what follows from the seed. `FUZZ_RUNS` says how many seeds are tried.

const SEEDS = Number(Deno.env.get("FUZZ_RUNS") ?? 80);
const RUNS = 6;
const TROUBLE_MS = 4_000;
const STEP_MS = 25;
const CALM_MS = 120_000;
const NAMES = ["reserve", "charge", "ship"];

/** What a function of a step does. */
interface Behaviour {
  /** How long it takes. */
  ms: number;
  /** In how many attempts it throws. */
  failures: number;
  /** How many attempts it has. */
  attempts: number;
  /** How long until another attempt, in milliseconds. */
  delay: number;
  /** How long an attempt may take; `undefined`: without limit. */
  timeout: number | undefined;
  /** Whether it ends when its abort signal fires. */
  heeds: boolean;
}

function aBehaviour(chance: Chance): Behaviour {
  return {
    ms: chance.pick([0, 0, 20, 60, 300, 900]),
    failures: chance.happens(0.3) ? 1 + chance.int(3) : 0,
    attempts: 1 + chance.int(2),
    delay: chance.pick([0, 40, 1_100]),
    timeout: chance.happens(0.3) ? chance.pick([50, 200]) : undefined,
    heeds: chance.happens(0.5),
  };
}

/** Something that a function of a step does right now. */
interface Call {
  /** The run that it belongs to, or that its clean-up cleans up after. */
  family: string;
  /** Whether it is of the clean-up. */
  isUndo: boolean;
  /** Its concurrency key; `null`: it has none. */
  key: string | null;
  name: string;
  since: number;
  timeout: number | undefined;
}

/** A job that is executed under a seed, what it has done, and what is wrong with that. */
class Play {
  readonly host = new FakeHost();
  readonly faults: string[] = [];
  readonly counts = new Map<string, number>();
  /** After which ends a run is cleaned up after. */
  #statuses: readonly TerminalStatus[] = [];
  /** Whether all functions succeed at once. */
  #isCalm = false;
  readonly #seed: number;
  readonly #calls = new Set<Call>();
  /** How often the function of a step was called, by run and step. */
  readonly #called = new Map<string, number>();
  /** The keys that functions were given, and the values that they returned, by run and step. */
  readonly #keys = new Map<string, string>();
  readonly #returned = new Map<string, string[]>();
  /** Of which run a run is a retry. */
  readonly #retries = new Map<string, string>();
  /** The runs and retries, in their order. */
  readonly #triggered: string[] = [];
  #nextValue = 1;

  constructor(seed: number) {
    this.#seed = seed;
  }

  /** Plays to the end, and looks at all that has come of it. */
  async perform(store: Store): Promise<void> {
    const order = this.#order();
    await using engine: Engine = createEngine({ store, host: this.host, jobs: { order }, worker: { concurrency: 4 } });
    engine.on("worker:error", ({ error }) => void this.faults.push(`the worker has met ${error}`));
    await engine.start();
    const chance = new Chance(this.#seed, "actions");
    for (let n = 0; n < RUNS; n++) {
      const concurrencyKey = chance.pick([null, "one", "two"]);
      const { id } = await engine.trigger("order", { n, key: concurrencyKey }, {
        ...(concurrencyKey === null ? {} : { concurrencyKey }),
        ...(chance.happens(0.2) ? { finishWithin: chance.pick([100, 400, 1_500]) } : {}),
        ...(chance.happens(0.2) ? { delay: chance.int(500) } : {}),
      });
      this.#triggered.push(id);
    }
    for (let passed = 0; passed < TROUBLE_MS; passed += STEP_MS) {
      await this.#pass();
      if (chance.happens(0.15)) await this.#act(engine, chance);
    }
    this.#isCalm = true;
    await this.#untilEnded(engine);
    const runs = await this.#runs(engine);
    const isRetried = (runId: string | null) => runs.find(({ id }) => id === runId)?.retriggeredAs !== null;
    for (const run of runs) {
      if (run.endOf === null || run.status !== "failed" || isRetried(run.id) || isRetried(run.endOf)) continue;
      await this.#retrigger(engine, run, "failure");
    }
    await this.#untilEnded(engine);
    await this.#examine(engine);
  }

  /** All runs, in an order that follows from the seed: a clean-up comes after its run. */
  async #runs(engine: Engine): Promise<Run[]> {
    const { runs } = await engine.getRuns({ limit: 1_000 });
    const placeOf = ({ id, endOf }: Run): number => {
      const place = this.#triggered.indexOf(id);
      return place >= 0 ? place : this.#triggered.indexOf(endOf!) + 0.5;
    };
    return runs.sort((one, other) => placeOf(one) - placeOf(other));
  }

  #count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  async #pass(): Promise<void> {
    this.host.advance(STEP_MS);
    await this.host.settle();
  }

  async #untilEnded(engine: Engine): Promise<void> {
    for (let passed = 0; passed < CALM_MS; passed += STEP_MS) {
      const open = (await this.#runs(engine)).filter(({ status }) => !isTerminal(status));
      if (open.length === 0 && this.#calls.size === 0) return;
      for (const { id } of open) await this.#signal(engine, id);
      await this.#pass();
    }
    const open = (await this.#runs(engine)).filter(({ status }) => !isTerminal(status));
    throw new Error(`Seed ${this.#seed}: ${open.map(({ jobName, status }) => `${jobName} is ${status}`).join()}`);
  }

  /** Does what somebody may ask for at any time. */
  async #act(engine: Engine, chance: Chance): Promise<void> {
    const runs = await this.#runs(engine);
    const run = chance.pick(runs);
    const isCleanedUp = runs.some(({ endOf, status }) => endOf === run.id && !isTerminal(status));
    const action = chance.pick(["cancel", "cancel", "cancel end", "retry", "delete", "signal"] as const);
    switch (action) {
      case "cancel":
        if (isTerminal(run.status)) return;
        await engine.cancel(run.id);
        return this.#count(`a ${run.endOf === null ? "run" : "clean-up"} that was ${run.status} is cancelled`);
      case "cancel end": {
        const end = runs.find(({ endOf, status }) => endOf !== null && !isTerminal(status));
        if (end === undefined) return;
        const isExecuting = [...this.#calls].some(({ isUndo, family }) => isUndo && family === end.endOf);
        await engine.cancel(end.id);
        return this.#count(`a clean-up is cancelled ${isExecuting ? "in the middle" : "between its functions"}`);
      }
      case "retry":
      case "delete": {
        if (!isTerminal(run.status) || (action === "delete" && !isCleanedUp)) return;
        const asking = action === "delete"
          ? engine.deleteRun(run.id)
          : this.#retrigger(engine, run, chance.pick(["start", "failure"]));
        const refusal = await asking.then(() => null, (error) => error);
        if (refusal !== null && !(refusal instanceof ConflictError)) throw refusal;
        if (isCleanedUp && refusal === null) this.faults.push(`a run that is being cleaned up allows a ${action}`);
        return this.#count(`${action} of a run ${refusal === null ? "succeeds" : "is refused"}`);
      }
      case "signal":
        return await this.#signal(engine, run.id);
    }
  }

  async #retrigger(engine: Engine, run: Run, from: "start" | "failure"): Promise<void> {
    const retry = await engine.retrigger(run.id, { from: run.status === "completed" ? "start" : from });
    this.#retries.set(retry.id, run.id);
    this.#triggered.push(retry.id);
    if (run.endOf !== null) this.#count("a clean-up is retried");
  }

  async #signal(engine: Engine, runId: string): Promise<void> {
    for (const { id, status } of await engine.getWaits(runId)) {
      if (status === "pending") await engine.signal(id, { signalId: id, payload: null });
    }
  }

  #order(): Job {
    const seed = this.#seed;
    const chance = new Chance(seed, "job");
    const statuses = (["completed", "failed", "cancelled"] as const).filter(() => chance.happens(0.8));
    const finishWithin = chance.happens(0.3) ? chance.pick([300, 1_000]) : undefined;
    this.#statuses = statuses;
    return defineJob({
      name: "order",
      input: anything,
      onEnd: {
        statuses,
        ...(finishWithin === undefined ? {} : { finishWithin }),
        run: (step, end) => this.#cleanUp(step, end as EndContext<Input>),
      },
      run: (step, input: Input) => this.#run(step, input),
    });
  }

  async #run(step: StepContext, { n, key }: Input): Promise<unknown> {
    const chance = new Chance(this.#seed, "run", n);
    const { runId } = step;
    const perform = (name: string) => {
      const behaviour = aBehaviour(new Chance(this.#seed, "step", n, name));
      return step.run(name, ({ idempotencyKey, attempt, abortSignal }) => {
        this.#keys.set(`${runId}/${name}`, idempotencyKey);
        const call = { family: runId, isUndo: false, key, name };
        return this.#call(`${runId}/${name}`, call, behaviour, { attempt, abortSignal });
      }, optionsOf(behaviour));
    };
    if (chance.happens(0.3)) await Promise.all(NAMES.slice(0, 2).map(perform));
    else for (const name of NAMES.slice(0, 2)) await perform(name);
    if (chance.happens(0.3)) await step.sleep("a while", chance.pick([30, 400]));
    if (chance.happens(0.3)) await step.wait("paid", { timeout: 600 });
    await perform(NAMES[2]!);
    if (chance.happens(0.2) && !this.#isCalm) throw new Error("the run throws");
    return n;
  }

  async #cleanUp(step: StepContext, end: EndContext<Input>): Promise<unknown> {
    const { n, key } = end.input;
    const { runId: id } = step;
    this.#checkAlone({ family: end.runId, isUndo: true, key, name: "onEnd" });
    const chance = new Chance(this.#seed, "clean-up", n);
    const undo = async (name: string) => {
      const own = new Chance(this.#seed, "undo", n, name);
      if (own.happens(0.2)) return;
      const [always, behaviour] = [own.happens(0.3), aBehaviour(own)];
      await end.undo(name, (result, { stepKey, attempt, abortSignal }) => {
        this.#checkTold(end, { name, result, stepKey, always });
        const call = { family: end.runId, isUndo: true, key, name: undoName(name) };
        return this.#call(`${id}/${undoName(name)}`, call, behaviour, { attempt, abortSignal });
      }, { always, ...optionsOf(behaviour) });
    };
    const names = NAMES.toReversed();
    if (chance.happens(0.3)) await Promise.all(names.map(undo));
    else {
      for (const name of names) {
        await undo(name);
        if (chance.happens(0.15)) await step.sleep(`after ${name}`, 50);
        if (chance.happens(0.1)) await step.wait(`after ${name}`, { timeout: 300 });
      }
    }
    if (chance.happens(0.15) && !this.#isCalm) throw new Error("the clean-up throws");
    return end.status;
  }

  /** What a function of a step does. */
  async #call(
    step: string,
    call: Omit<Call, "since" | "timeout">,
    { ms, failures, timeout, heeds }: Behaviour,
    { attempt, abortSignal }: { attempt: number; abortSignal: AbortSignal },
  ): Promise<string> {
    this.#checkAlone(call);
    this.#called.set(step, (this.#called.get(step) ?? 0) + 1);
    const current = { ...call, since: this.host.monotonic(), timeout };
    this.#calls.add(current);
    const what = call.isUndo ? "an undo" : "a step";
    try {
      if (!this.#isCalm && ms > 0) await this.#elapse(ms, heeds ? abortSignal : null);
      if (!this.#isCalm && attempt <= failures) {
        this.#count(`${what} throws`);
        throw new Error(`${call.name} is down`);
      }
      const value = `value ${this.#nextValue++}`;
      this.#returned.set(step, [...this.#returned.get(step) ?? [], value]);
      return value;
    } finally {
      this.#calls.delete(current);
      if (abortSignal.aborted) this.#count(`${what} ${heeds ? "heeds" : "ignores"} its abort signal`);
    }
  }

  #elapse(ms: number, abortSignal: AbortSignal | null): Promise<void> {
    return new Promise((resolve, reject) => {
      const cancel = this.host.schedule(ms, resolve);
      abortSignal?.addEventListener("abort", () => {
        cancel();
        reject(abortSignal.reason);
      }, { once: true });
    });
  }

  /** A clean-up executes nothing while its run does, and of the runs of a key one is executed. */
  #checkAlone({ family, isUndo, key, name }: Omit<Call, "since" | "timeout">): void {
    for (const other of this.#calls) {
      const { since, timeout = Infinity } = other;
      if (this.host.monotonic() - since >= timeout) continue; // its attempt is over
      const isOfRun = isUndo && other.family === family && !other.isUndo;
      const hasKey = key !== null && other.key === key && other.family !== family;
      if (isOfRun || hasKey) {
        this.faults.push(`${name} of ${family} begins while ${other.name} of ${other.family} is executed`);
      }
    }
  }

  #checkTold(
    { runId, completed }: EndContext,
    { name, result, stepKey, always }: { name: string; result: unknown; stepKey: string; always: boolean },
  ): void {
    const isCompleted = completed.includes(name);
    if (!isCompleted && !always) this.faults.push(`${name} of ${runId} is undone, and did not complete`);
    if (!isCompleted) this.#count("a step is undone that may not have completed");
    const returned = this.#find(this.#returned, runId, name) ?? [];
    const isItsResult = isCompleted ? returned.includes(String(result)) : result === undefined;
    if (!isItsResult) this.faults.push(`the undo of ${name} of ${runId} is told ${result}, of ${returned}`);
    // A step that was undone before has another key, which no function was given before the retry executes it.
    const key = isCompleted ? this.#find(this.#keys, runId, name) : this.#keys.get(`${runId}/${name}`);
    if (key !== undefined && key !== stepKey) this.faults.push(`the undo of ${name} is given ${stepKey}, not ${key}`);
  }

  /** What is known of a step of a run, or of the run of which that is a retry. */
  #find<T>(known: ReadonlyMap<string, T>, runId: string, name: string): T | undefined {
    for (let id: string | undefined = runId; id !== undefined; id = this.#retries.get(id)) {
      const found = known.get(`${id}/${name}`);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  async #examine(engine: Engine): Promise<void> {
    const runs = await this.#runs(engine);
    for (const run of runs) {
      await this.#checkCalls(engine, run);
      if (run.endOf !== null) {
        this.#count(`a clean-up has ${run.status}${run.failureKind === "timeout" ? " late" : ""}`);
        continue;
      }
      const ends = runs.filter(({ endOf, retriggerOf }) => endOf === run.id && retriggerOf === null);
      const expected = this.#statuses.includes(run.status as TerminalStatus) ? 1 : 0;
      if (ends.length !== expected || (ends[0]?.id ?? null) !== run.endRunId) {
        this.faults.push(`a run that is ${run.status} has ${ends.length} clean-ups, of ${this.#statuses}`);
      }
      const last = runs.find(({ endOf, retriggeredAs }) => endOf === run.id && retriggeredAs === null);
      if (last?.status === "failed" && run.retriggeredAs === null) {
        this.faults.push(`the clean-up ${last.id} has failed`);
      }
      if (last?.status === "completed") await this.#checkUndone(engine, run, last);
    }
  }

  /** Each function was called once for each attempt that is recorded. */
  async #checkCalls(engine: Engine, { id, status }: Run): Promise<void> {
    for (const { name, attempts, status: stepStatus } of await engine.getSteps(id)) {
      const called = this.#called.get(`${id}/${name}`);
      if (called === undefined || stepStatus === "cancelled" || status === "cancelled") continue;
      // An attempt that was under way when its run ended is not recorded.
      if (called === attempts || (stepStatus !== "completed" && called === attempts + 1)) continue;
      this.faults.push(
        `${name} of ${id} (${status}) was called ${called} times: ${stepStatus} after ${attempts} attempts`,
      );
    }
  }

  /** A clean-up that has completed has undone what it was to undo, each once. */
  async #checkUndone(engine: Engine, run: Run, end: Run): Promise<void> {
    const { n } = run.input as unknown as Input;
    const completed = new Set(
      (await engine.getSteps(run.id)).filter(({ status }) => status === "completed").map(({ name }) => name),
    );
    const undone = (await engine.getSteps(end.id)).filter(({ status }) => status === "completed").map(({ name }) =>
      name
    );
    for (const name of NAMES) {
      const own = new Chance(this.#seed, "undo", n, name);
      const expected = !own.happens(0.2) && (own.happens(0.3) || completed.has(name)) ? 1 : 0;
      const found = undone.filter((one) => one === undoName(name)).length;
      if (found !== expected) this.faults.push(`${name} was undone ${found} times, not ${expected}`);
    }
  }
}

/** The input of a run: which one it is, and its concurrency key. */
interface Input {
  n: number;
  key: string | null;
}

const optionsOf = ({ attempts, delay, timeout }: Behaviour) => ({
  retry: { maxAttempts: attempts, delay, backoff: "fixed" as const, jitter: false },
  ...(timeout === undefined ? {} : { timeout }),
});

/** What has to happen often enough that the test means something. */
const SITUATIONS = [
  "a run that was running is cancelled",
  "a run that was waiting is cancelled",
  "a clean-up is cancelled in the middle",
  "a clean-up is retried",
  "a clean-up has completed",
  "a clean-up has failed",
  "a clean-up has failed late",
  "a clean-up has cancelled",
  "a step is undone that may not have completed",
  "an undo throws",
  "an undo heeds its abort signal",
  "an undo ignores its abort signal",
  "a step ignores its abort signal",
  "retry of a run succeeds",
  "retry of a run is refused",
  "delete of a run is refused",
];

const STORES = {
  MemoryStore: (host: FakeHost) => new MemoryStore({ host }),
  SqliteStore: (host: FakeHost) => SqliteStore.open(":memory:", { host }),
};

/** Bugs of a store that are found. */
const MUTANTS: { name: string; found: RegExp; of: (store: Store) => Partial<Store> }[] = [
  {
    name: "a clean-up that does not look whether its run is still executed",
    found: /^(onEnd|undo \w+) of \S+ begins while \w+ of \S+ is executed$/,
    of: () => ({ getLeases: () => Promise.resolve([]) }),
  },
  {
    name: "a late run that gives up its lease while its functions are executed",
    found: /begins while \w+ of \S+ is executed$/,
    of: (store) => ({
      finish: (lease, ending, reports) =>
        store.finish(lease, ending.status === "failed" ? { ...ending, stillExecuting: undefined } : ending, reports),
    }),
  },
  {
    name: "a clean-up that is told of one step less",
    found: /was undone 0 times, not 1$/,
    of: (store) => ({
      getHistory: async (runId) => {
        const history = await store.getHistory(runId);
        return history && { ...history, steps: history.steps.slice(1) };
      },
    }),
  },
  {
    name: "a run that is added without its clean-up",
    found: /^a run that is \w+ has 0 clean-ups/,
    of: (store) => ({
      enqueue: (runs) => store.enqueue(runs.map((run) => ({ ...run, onEnd: undefined }))),
    }),
  },
];

function mutated(store: Store, bug: Partial<Store>): Store {
  return new Proxy(store, {
    get(target, name) {
      const method = Reflect.get(Object.hasOwn(bug, name) ? bug : target, name);
      return typeof method === "function" ? method.bind(target) : method;
    },
  });
}

/** Plays seeds until one breaks a promise, and answers how often each thing has happened. */
async function playSeeds(
  open: (host: FakeHost) => Store | Promise<Store>,
  count: number,
): Promise<{ counts: Map<string, number>; faults: string[] }> {
  const counts = new Map<string, number>();
  for (let seed = 1; seed <= count; seed++) {
    const play = new Play(seed);
    await using store = await open(play.host);
    await store.migrate();
    await play.perform(store);
    if (play.faults.length > 0) return { counts, faults: [`seed ${seed}`, ...play.faults] };
    for (const [what, times] of play.counts) counts.set(what, (counts.get(what) ?? 0) + times);
  }
  return { counts, faults: [] };
}

for (const [name, open] of Object.entries(STORES)) {
  Deno.test(`${name}: however runs end, and whatever their clean-ups do, each is cleaned up after once`, async () => {
    const { counts, faults } = await playSeeds(open, SEEDS);

    if (Deno.env.has("FUZZ_RUNS")) console.log(counts);
    assert.deepEqual(faults, []);
    assert.deepEqual(SITUATIONS.filter((what) => (counts.get(what) ?? 0) === 0), []);
  });
}

for (const { name, found, of } of MUTANTS) {
  Deno.test(`the fuzz of ends finds ${name}`, async () => {
    const open = (host: FakeHost) => {
      const store = new MemoryStore({ host });
      return mutated(store, of(store));
    };

    const { faults } = await playSeeds(open, SEEDS);

    assert.ok(faults.some((fault) => found.test(fault)), JSON.stringify(faults));
  });
}
