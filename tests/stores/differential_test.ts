import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { HoldfastError } from "../../src/error.ts";
import { type Host, systemHost } from "../../src/host.ts";
import type { Lease, SeenLease } from "../../src/lease.ts";
import type { Claim, ClaimResult, Store } from "../../src/store.ts";
import type { SqliteDriver } from "../../src/stores/sqlite_database.ts";
import { MemoryStore } from "../../src/stores/memory_store.ts";
import { SqliteStore } from "../../src/stores/sqlite_store.ts";

const SEEDS = 20;
const OPERATIONS = 250;

Deno.test("MemoryStore and SqliteStore answer the same to any operations, and K1 and K2 hold", async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    try {
      await compareStores(seed);
    } catch (error) {
      throw new Error(`Seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }
});

async function compareStores(seed: number): Promise<void> {
  const random = mulberry32(seed);
  let now = 1_700_000_000_000;
  const host: Host = { ...systemHost, now: () => now };
  const database = new DatabaseSync(":memory:");
  const memory = new MemoryStore({ host });
  const sqlite = await SqliteStore.from(database as unknown as SqliteDriver, { host });
  await sqlite.migrate();
  const makeOld = database.prepare("UPDATE holdfast_workers SET seen_at = seen_at - 1000 WHERE id = ?");
  const script = new Script(random, () => now, (ms) => now += ms);
  const history: string[] = [];
  for (let i = 0; i < OPERATIONS; i++) {
    const { text, call, newClaimBy } = script.next();
    history.push(text);
    const left = await outcomeOf(call(memory));
    // A claim that finds nothing is recorded only now and then, by which the liveness of workers would differ.
    if (newClaimBy !== undefined) makeOld.run(newClaimBy);
    const right = await outcomeOf(call(sqlite));
    assert.deepEqual(right, left, `different answers after:\n${history.slice(-12).join("\n")}`);
    script.learn(left);
    assert.deepEqual(
      await dump(sqlite),
      await dump(memory),
      `different states after:\n${history.slice(-12).join("\n")}`,
    );
    checkLines(database, history);
  }
  await sqlite.close();
  await memory.close();
  database.close();
}

type Outcome = { value: unknown } | { refusal: string };

async function outcomeOf(call: Promise<unknown>): Promise<Outcome> {
  try {
    return { value: normal(await call) };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return { refusal: error.code };
  }
}

/** Plain objects, and arrays whose order is not promised sorted. */
function normal(value: unknown): unknown {
  const plain = JSON.parse(
    JSON.stringify(value ?? null, (key, item) => key === "updatedAt" || key === "error" ? undefined : item),
  );
  if (Array.isArray(plain) && plain[0]?.expiresAt !== undefined) plain.sort(byRunId);
  for (const claim of (plain as ClaimResult | null)?.claims ?? []) sortHistory(claim);
  if (Array.isArray((plain as ClaimResult | null)?.failed)) {
    delete plain.hasMore; // only a hint
    plain.failed.sort((a: { run: { id: string } }, b: { run: { id: string } }) => a.run.id < b.run.id ? -1 : 1);
  }
  return plain;
}

function byRunId(left: Lease, right: Lease): number {
  return left.runId < right.runId ? -1 : 1;
}

function sortHistory(claim: Claim): void {
  claim.steps.sort((a, b) => a.recordedNo - b.recordedNo);
  claim.pauses.sort((a, b) => a.id < b.id ? -1 : 1);
}

async function dump(store: Store): Promise<unknown> {
  const { runs, total } = await store.getRuns({ limit: 1_000 });
  const details = [];
  for (const { id } of runs) {
    const state = (await store.getRunState(id))!;
    // A repeated call may count as an update of the run.
    details.push({ ...state, run: { ...state.run, updatedAt: null } }, await store.getWaits(id));
  }
  const leases = (await store.getLeases()).sort(byRunId);
  return normal({ order: runs.map(({ id }) => id), total, details, leases });
}

/** The invariants of `src/stores/sqlite_line.ts`, read from the tables. */
function checkLines(database: DatabaseSync, history: readonly string[]): void {
  const inLine = database.prepare(
    "SELECT id, job, concurrency_key AS key, place, seq FROM holdfast_runs WHERE concurrency_key IS NOT NULL AND place IS NOT NULL ORDER BY seq",
  ).all() as { id: string; job: string; key: string; place: string }[];
  const holders = new Map(
    database.prepare("SELECT concurrency_key AS key, run_id AS id FROM holdfast_keys").all().map((
      row,
    ) => [row.key, row.id]),
  );
  const firsts = new Set<string>();
  for (const { id, job, key, place } of inLine) {
    const holder = holders.get(key);
    const isFirst = !firsts.has(`${key} ${job}`);
    firsts.add(`${key} ${job}`);
    const expected = holder === undefined ? isFirst : holder === id;
    const rule = holder === undefined ? "K2" : "K1";
    assert.equal(place, expected ? "R" : "B", `${rule} is broken for ${id} after:\n${history.slice(-12).join("\n")}`);
  }
}

const WORKERS: [id: string, jobNames: string[]][] = [["w1", ["a", "b"]], ["w2", ["b", "c"]], ["w3", ["a", "b", "c"]]];

interface Operation {
  text: string;
  newClaimBy?: string;
  call(store: Store): Promise<unknown>;
}

/** Makes up operations, most of them about runs, waits and leases that exist. */
class Script {
  readonly #random: () => number;
  readonly #now: () => number;
  readonly #advance: (ms: number) => void;
  #runIds: string[] = [];
  #waitIds: string[] = [];
  #leases: Lease[] = [];
  #seen: SeenLease[] = [];
  #claimIds = new Map<string, string>();
  #stepNo = 0;
  #idNo = 100;
  #retried = new Map<string, { name: string; attempts: number }>();
  #lastEnqueue: Operation | null = null;
  #lastSave: Operation | null = null;

  constructor(random: () => number, now: () => number, advance: (ms: number) => void) {
    this.#random = random;
    this.#now = now;
    this.#advance = advance;
  }

  learn(outcome: Outcome): void {
    if (!("value" in outcome) || outcome.value === null) return;
    const { claims } = outcome.value as Partial<ClaimResult>;
    for (const { lease } of claims ?? []) this.#leases.push(lease);
    if (Array.isArray(outcome.value) && outcome.value[0]?.expiresAt !== undefined) this.#seen = outcome.value;
  }

  next(): Operation {
    if (this.#chance(0.3)) this.#advance(this.#int(60));
    if (this.#chance(0.05)) this.#advance(this.#int(400));
    if (this.#chance(0.02)) this.#advance(-this.#int(300));
    const makers = [
      ...Array(5).fill(() => this.#enqueue()),
      ...Array(6).fill(() => this.#claim()),
      ...Array(4).fill(() => this.#saveStep()),
      ...Array(5).fill(() => this.#pause()),
      ...Array(3).fill(() => this.#finish()),
      ...Array(3).fill(() => this.#signal()),
      () => this.#cancel(),
      () => this.#delete(),
      () => this.#renew(),
      () => this.#release(),
      () => operation("getLeases", [], (store) => store.getLeases()),
      () => operation("revoke", [this.#seen], (store) => store.revoke(this.#seen)),
      () => operation("purge", [], (store) => store.purge({ completed: 500, cancelled: 300 }, 3)),
    ] as (() => Operation)[];
    return this.#pick(makers)();
  }

  #enqueue(): Operation {
    if (this.#lastEnqueue !== null && this.#chance(0.1)) return this.#lastEnqueue;
    const concurrencyKey = this.#chance(0.7) ? `key-${this.#int(3)}` : null;
    const run = {
      id: this.#id(),
      jobName: this.#pick(["a", "b", "c"]),
      payload: `{"n":${this.#int(9)}}`,
      input: this.#chance(0.5) ? null : `{"n":0}`,
      labels: { org: this.#pick(["x", "y"]) },
      idempotencyKey: this.#chance(0.2) ? `same-${this.#int(3)}` : null,
      concurrencyKey,
      coalesce: concurrencyKey !== null && this.#chance(0.4) ? this.#pick(["active", "skip", "queue"] as const) : null,
      copyStepsOf: this.#chance(0.1) && this.#runIds.length > 0 ? this.#pick(this.#runIds) : null,
    };
    this.#runIds.push(run.id);
    this.#lastEnqueue = operation("enqueue", [run], (store) => store.enqueue([run]));
    return this.#lastEnqueue;
  }

  #claim(): Operation {
    const [workerId, jobNames] = this.#pick(WORKERS);
    const isRepeated = this.#chance(0.15);
    if (!isRepeated) this.#claimIds.set(workerId, this.#id());
    const request = {
      workerId,
      claimId: this.#claimIds.get(workerId) ?? "first",
      jobNames,
      holding: this.#chance(0.3) ? this.#leases.slice(-3) : [],
      limit: this.#int(4),
      leaseMs: 100,
      maxAbandonments: 3,
    };
    return {
      ...operation("claim", [request], (store) => store.claim(request)),
      ...(isRepeated ? {} : { newClaimBy: workerId }),
    };
  }

  #saveStep(): Operation {
    if (this.#lastSave !== null && this.#chance(0.15)) return this.#lastSave;
    const lease = this.#lease();
    const status = this.#pick(["completed", "failed", "retrying"] as const);
    const failure = { name: "Error", message: "no" };
    const result = status === "completed"
      ? { status, output: "1" }
      : status === "failed"
      ? { status, failure }
      : { status, failure, delayMs: this.#int(50) };
    const attempts = (this.#retried.get(lease.runId)?.attempts ?? 0) + 1;
    const name = this.#retried.get(lease.runId)?.name ?? `step-${this.#stepNo++}`;
    if (status === "retrying") this.#retried.set(lease.runId, { name, attempts });
    else this.#retried.delete(lease.runId);
    const step = { name, index: this.#stepNo, attempts, startedAt: this.#now(), result };
    const progress = this.#chance(0.2) ? `{"current":${this.#stepNo}}` : null;
    this.#lastSave = operation("saveStep", [lease, step], (store) => store.saveStep(lease, step, progress));
    return this.#lastSave;
  }

  #pause(): Operation {
    const lease = this.#lease();
    const pauses = Array.from({ length: 1 + this.#int(2) }, (_, i) => {
      const id = this.#id();
      const kind = this.#pick(["wait", "wait", "sleep"] as const);
      if (kind === "wait") this.#waitIds.push(id);
      const deadline = this.#pick([null, { afterMs: this.#int(120) }, { at: this.#now() + this.#int(200) - 50 }]);
      return { id, kind, name: `pause-${i}-${this.#int(4)}`, deadline, metadata: null };
    });
    const request = {
      pauses,
      retryAt: this.#chance(0.2) ? this.#now() + this.#int(100) : null,
      park: this.#chance(0.7),
      progress: null,
    };
    return operation("pause", [lease, request], (store) => store.pause(lease, request));
  }

  #finish(): Operation {
    const lease = this.#lease();
    const ending = this.#chance(0.7)
      ? { status: "completed" as const, output: "2" }
      : { status: "failed" as const, error: "no", failedStepName: null };
    return operation("finish", [lease, ending], (store) => store.finish(lease, ending, null));
  }

  #signal(): Operation {
    const waitId = this.#waitIds.length === 0 || this.#chance(0.05) ? "none" : this.#pick(this.#waitIds.slice(-8));
    const signal = { signalId: `signal-${this.#int(2)}`, payload: this.#int(2) };
    return operation("signal", [waitId, signal], (store) => store.signal(waitId, signal));
  }

  #cancel(): Operation {
    const [runId, requestId] = [this.#runId(), `request-${this.#int(30)}`];
    const executing = this.#chance(0.5) ? [{ name: "step-x", index: 90, attempts: 1, startedAt: this.#now() }] : [];
    return operation("cancel", [runId, requestId, executing], (store) => store.cancel(runId, requestId, executing));
  }

  #delete(): Operation {
    const runId = this.#runId();
    return operation("delete", [runId], (store) => store.delete(runId));
  }

  #renew(): Operation {
    const lease = this.#lease();
    return operation("renew", [lease], (store) => store.renew([{ lease, progress: null }], 100));
  }

  #release(): Operation {
    const lease = this.#lease();
    return operation("release", [lease], (store) => store.release(lease));
  }

  #lease(): Lease {
    if (this.#leases.length === 0) return { runId: "none", generation: 1, concurrencyKey: null };
    return this.#pick(this.#chance(0.8) ? this.#leases.slice(-5) : this.#leases);
  }

  #runId(): string {
    return this.#runIds.length === 0 ? "none" : this.#pick(this.#runIds.slice(-10));
  }

  #id(): string {
    return `id-${this.#idNo++}`;
  }

  #chance(probability: number): boolean {
    return this.#random() < probability;
  }

  #int(below: number): number {
    return Math.floor(this.#random() * below);
  }

  #pick<T>(items: readonly T[]): T {
    return items[this.#int(items.length)]!;
  }
}

function operation(name: string, parameters: unknown[], call: (store: Store) => Promise<unknown>): Operation {
  return { text: `${name}(${parameters.map((parameter) => JSON.stringify(parameter)).join(", ")})`, call };
}

function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6D2B79F5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
