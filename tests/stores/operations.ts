import { endRunId } from "../../src/model/end.ts";
import { type Flow, type KnownJob, PLAIN_FLOW, type Rate } from "../../src/model/flow.ts";
import type { Report } from "../../src/model/execution_report.ts";
import type { Lease, SeenLease } from "../../src/model/lease.ts";
import type { Store } from "../../src/store/store.ts";
import type { ClaimRequest, ClaimResult } from "../../src/store/claim.ts";
import type { HeldQuery } from "../../src/store/hold_record.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import type { NewPause } from "../../src/store/pause_request.ts";
import type { RunQuery } from "../../src/store/run_query.ts";
import type { Chance } from "../support/chance.ts";
import { type Outcome, withSortedRecords } from "../support/stores/compare_stores.ts";
import { aFailure, aHold, aKnownJob, aLine, someDetails, unlimited } from "../support/fixtures.ts";
import { getPausedJobs, getRuns, hasWorker } from "../../src/store/reads.ts";

/** A call to a store. */
export interface Operation {
  /** The call, for messages. */
  text: string;
  /** The worker that claims, unless it repeats a claim. */
  newClaimBy?: string;
  /** The request of a claim. */
  request?: ClaimRequest;
  /** The run that is added, unless the call is repeated or finds another. */
  added?: NewRun;
  /** Calls a store. */
  call(store: Store): Promise<unknown>;
}

/** What a script makes use of. */
export interface ScriptOptions {
  /** Delays, priorities, deadlines, limits, rates, fairness keys and paused jobs. */
  flow: boolean;
  /** Runs that clean up after others, and idempotency keys that end. */
  ends?: boolean;
  /** Pauses on child runs. */
  children?: boolean;
  /** Two versions of each job, code with several prints, held runs, aliases, patches and inputs of other schemas. */
  evolution?: boolean;
}

/** The workers that claim, and the jobs that they know. */
export const WORKERS: [id: string, jobNames: string[]][] = [["w1", ["a", "b"]], ["w2", ["b", "c"]], ["w3", [
  "a",
  "b",
  "c",
]]];

// Each job and key has one rate: how many starts a store keeps of several is its own business.
/** The rate that workers have for the job b, if they have one. */
export const JOB_RATE: Rate = { limit: 3, period: 100 };
const KEY_RATE: Rate = { limit: 2, period: 80 };

const PRINTS = ["print-1", "print-2", "print-3"];
const HOLD_CODES = ["diverged", "ended_early", "input_refused"] as const;

type WithoutNumber<T> = T extends Report ? Omit<T, "no" | "at"> : never;
type Unnumbered = WithoutNumber<Report>;

/** Makes up operations, most of them about runs, waits and leases that exist. */
export class Script {
  readonly #chance: Chance;
  readonly #now: () => number;
  readonly #advance: (ms: number) => void;
  readonly #options: ScriptOptions;
  #runIds: string[] = [];
  #waitIds: string[] = [];
  #pauseIds: string[] = [];
  #parentIds: string[] = [];
  #heldIds: string[] = [];
  #leases: Lease[] = [];
  #seen: SeenLease[] = [];
  #claimIds = new Map<string, string>();
  #stepNo = 0;
  #idNo = 100;
  #retried = new Map<string, { name: string; attempts: number }>();
  #lastEnqueue: Operation | null = null;
  #lastSave: Operation | null = null;
  #lastHold: Operation | null = null;
  #said = new Map<string, Report[]>();

  constructor(chance: Chance, now: () => number, advance: (ms: number) => void, options: ScriptOptions) {
    this.#chance = chance;
    this.#now = now;
    this.#advance = advance;
    this.#options = options;
  }

  learn(outcome: Outcome): void {
    if (!("value" in outcome) || outcome.value === null) return;
    const { claims } = outcome.value as Partial<ClaimResult>;
    for (const { lease, pauses } of claims ?? []) {
      this.#leases.push(lease);
      for (const { id, kind } of pauses) {
        if (id.startsWith("copy")) (kind === "children" ? this.#pauseIds : this.#waitIds).push(id);
      }
    }
    if (Array.isArray(outcome.value) && outcome.value[0]?.expiresAt !== undefined) this.#seen = outcome.value;
  }

  /** Repeats no claim that was made until now. */
  forgetClaims(): void {
    this.#claimIds.clear();
  }

  next(): Operation {
    if (this.#chance.happens(0.3)) this.#advance(this.#chance.int(60));
    if (this.#chance.happens(0.05)) this.#advance(this.#chance.int(400));
    if (this.#chance.happens(0.02)) this.#advance(-this.#chance.int(300));
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
      () => this.#appendLogs(),
      () => this.#read(),
      () => this.#hasWorker(),
      () => operation("getLeases", [], (store) => store.getLeases()),
      () => operation("revoke", [this.#seen], (store) => store.revoke(this.#seen)),
      () => operation("purge", [], (store) => store.purge({ completed: 500, cancelled: 300 }, 3)),
      ...(this.#options.children
        ? [
          ...Array(2).fill(() => this.#readChildren()),
          () => this.#listChildren(),
          ...Array(3).fill(() => this.#retrigger()),
        ]
        : []),
      ...(this.#options.flow ? [() => this.#pauseJob(), () => this.#resumeJob(), () => this.#filter()] : []),
      ...(this.#options.evolution
        ? [
          ...Array(6).fill(() => this.#hold()),
          ...Array(2).fill(() => this.#resumeHeld()),
          () => this.#findHeld(),
          () => this.#readHistory(),
          () => this.#saveInput(),
          () => operation("getStrandedJobs", [], (store) => store.getStrandedJobs()),
        ]
        : []),
    ] as (() => Operation)[];
    return this.#chance.pick(makers)();
  }

  #enqueue(): Operation {
    if (this.#lastEnqueue !== null && this.#chance.happens(0.1)) return this.#lastEnqueue;
    const concurrencyKey = this.#chance.happens(0.7) ? `key-${this.#chance.int(3)}` : null;
    const run: NewRun = {
      id: this.#id(),
      jobName: this.#chance.pick(["a", "b", "c"]),
      ...this.#version(),
      payload: `{"n":${this.#chance.int(9)}}`,
      input: this.#chance.happens(0.5) ? null : `{"n":0}`,
      labels: { org: this.#chance.pick(["x", "y"]) },
      idempotencyKey: this.#chance.happens(0.2) ? `same-${this.#chance.int(3)}` : null,
      concurrencyKey,
      coalesce: concurrencyKey !== null && this.#chance.happens(0.4)
        ? this.#chance.pick(["active", "skip", "queue"] as const)
        : null,
      retriggerOf: this.#chance.happens(0.15) && this.#runIds.length > 0
        ? { runId: this.#runId(), from: this.#chance.pick(["start", "failure", "failure"] as const) }
        : null,
      flow: this.#flow(concurrencyKey),
      schedule: this.#chance.happens(0.1)
        ? this.#chance.pick([
          { name: "nightly", slotAt: null },
          { name: "nightly", slotAt: "2023-11-14T22:13:20.000Z", slot: "{}" },
        ])
        : null,
      trace: this.#trace(),
      ...this.#end(),
    };
    if (this.#options.ends && run.idempotencyKey !== null && this.#chance.happens(0.7)) {
      run.idempotencyUntil = this.#chance.pick(["ended", "failed", 50] as const);
    }
    this.#runIds.push(run.id);
    if (run.onEnd !== undefined) this.#runIds.push(endRunId(run.id));
    this.#lastEnqueue = { ...operation("enqueue", [run], (store) => store.enqueue([run])), added: run };
    return this.#lastEnqueue;
  }

  /** The end run is one of a usual job, so that workers claim it. */
  #end(): Pick<NewRun, "onEnd"> {
    if (!this.#options.ends || this.#chance.happens(0.4)) return {};
    const statuses = this.#chance.pick(
      [["completed", "failed", "cancelled"], ["failed", "cancelled"], ["completed"]] as const,
    );
    return {
      onEnd: { jobName: this.#chance.pick(["a", "b", "c"]), statuses, finishWithin: this.#chance.pick([null, 90]) },
    };
  }

  #trace(): NewRun["trace"] {
    return this.#chance.happens(0.3) ? `trace-${this.#chance.int(5)}` : null;
  }

  #version(): Pick<NewRun, "version" | "aliases" | "schemaPrint"> {
    if (!this.#options.evolution) return { version: 1, aliases: [], schemaPrint: null };
    return {
      version: this.#chance.pick([1, 1, 2]),
      aliases: this.#chance.pick([[], [], ["b"], ["c", "a"], ["old"]]),
      schemaPrint: this.#chance.pick([null, "schema-1"]),
    };
  }

  #flow(concurrencyKey: string | null): Flow {
    if (!this.#options.flow || this.#chance.happens(0.3)) return PLAIN_FLOW;
    const start = this.#chance.pick([null, null, null, { afterMs: this.#chance.int(150) }, {
      at: this.#now() + this.#chance.int(200) - 50,
    }]);
    return {
      start,
      priority: this.#chance.pick([-1, 0, 0, 0, 1, 2]),
      fairnessKey: this.#chance.pick([null, null, "x", "y", "z"]),
      startWithin: this.#chance.happens(0.15) ? 20 + this.#chance.int(200) : null,
      finishWithin: this.#chance.happens(0.15) ? 50 + this.#chance.int(300) : null,
      keyConcurrency: concurrencyKey === null ? 1 : this.#chance.pick([1, 1, 2, 3]),
      keyRate: concurrencyKey !== null && this.#chance.happens(0.3) ? KEY_RATE : null,
    };
  }

  #jobs(jobNames: readonly string[]): KnownJob[] {
    const jobs = this.#options.evolution ? this.#versions(jobNames) : unlimited(jobNames);
    if (!this.#options.flow) return jobs;
    return jobs.map((job) => ({
      ...job,
      concurrency: this.#chance.pick([null, null, 1, 2]),
      rate: job.name === "b" && this.#chance.happens(0.7) ? JOB_RATE : null,
    }));
  }

  #versions(jobNames: readonly string[]): KnownJob[] {
    const print = this.#chance.pick(PRINTS);
    return jobNames.flatMap((name) =>
      this.#chance.pick([[1], [2], [1, 2], [1, 2]])
        .map((version) => aKnownJob({ name, version, print: version === 1 ? print : this.#chance.pick(PRINTS) }))
    );
  }

  #claim(): Operation {
    const [workerId, jobNames] = this.#chance.pick(WORKERS);
    const isRepeated = this.#chance.happens(0.15);
    if (!isRepeated) this.#claimIds.set(workerId, this.#id());
    const triesHeld = this.#options.evolution === true && this.#chance.happens(0.6);
    const isAlone = !triesHeld && this.#chance.happens(0.2);
    const request = {
      workerId,
      worker: someDetails(),
      claimId: this.#claimIds.get(workerId) ?? "first",
      jobs: this.#jobs(jobNames),
      holding: this.#chance.happens(0.3) ? this.#leases.slice(-3) : [],
      limit: this.#chance.int(4),
      triesHeld,
      isAlone,
      leaseMs: 100,
      maxAbandonments: 3,
    };
    return {
      ...operation("claim", [request], (store) => store.claim(request)),
      request,
      ...(isRepeated ? {} : { newClaimBy: workerId }),
    };
  }

  #saveStep(): Operation {
    if (this.#lastSave !== null && this.#chance.happens(0.15)) return this.#lastSave;
    const lease = this.#lease();
    const status = this.#chance.pick(["completed", "failed", "retrying"] as const);
    const failure = aFailure();
    const result = status === "completed"
      ? { status, output: "1" }
      : status === "failed"
      ? { status, failure }
      : { status, failure, delayMs: this.#chance.int(50) };
    const attempts = (this.#retried.get(lease.runId)?.attempts ?? 0) + 1;
    const name = this.#retried.get(lease.runId)?.name ?? this.#stepName();
    if (status === "retrying") this.#retried.set(lease.runId, { name, attempts });
    else this.#retried.delete(lease.runId);
    const step = { name, index: this.#stepNo, attempts, startedAgoMs: this.#chance.int(30), result };
    const start = { kind: "start" as const, stepName: name, stepIndex: step.index, attempt: attempts };
    const reports = this.#reports(lease, this.#chance.happens(0.6) ? [start] : []);
    this.#lastSave = operation(
      "saveStep",
      [lease, step, reports],
      (store) => store.saveStep(lease, step, reports),
    );
    return this.#lastSave;
  }

  #pause(): Operation {
    const lease = this.#lease();
    const pauses = Array.from({ length: 1 + this.#chance.int(2) }, (_, i): NewPause => {
      const id = this.#id();
      const kind = this.#chance.pick(["wait", "wait", "sleep"] as const);
      if (kind === "wait") this.#waitIds.push(id);
      const deadline = this.#chance.pick([null, { afterMs: this.#chance.int(120) }, {
        at: this.#now() + this.#chance.int(200) - 50,
      }]);
      return {
        id,
        kind,
        name: `pause-${i}-${this.#chance.int(4)}`,
        deadline,
        metadata: null,
        children: null,
        prepared: this.#chance.happens(0.3),
      };
    });
    if (this.#options.children && this.#chance.happens(0.5)) {
      pauses.push(this.#onChildren());
      this.#parentIds.push(lease.runId);
    }
    if (this.#options.evolution && this.#chance.happens(0.3)) pauses.push(this.#patch());
    const request = {
      pauses,
      retryAt: this.#chance.happens(0.2) ? this.#now() + this.#chance.int(100) : null,
      park: this.#chance.happens(0.7),
      reports: this.#reports(lease),
    };
    return operation("pause", [lease, request], (store) => store.pause(lease, request));
  }

  #patch(): NewPause {
    return {
      id: this.#id(),
      kind: "patch",
      name: `pause-0-${this.#chance.int(4)}`,
      children: null,
      deadline: null,
      metadata: this.#chance.pick(["true", "false"]),
      prepared: true,
    };
  }

  /** A pause on up to two children, of which a part may be added now. */
  #onChildren(): NewPause {
    const total = 1 + this.#chance.int(2);
    const from = this.#chance.happens(0.2) ? this.#chance.int(total) : 0;
    const runs = Array.from({ length: this.#chance.happens(0.7) ? total - from : 1 }, () => this.#child());
    const id = this.#id();
    this.#pauseIds.push(id);
    const name = `children-${total}`;
    const children = { total, from, runs };
    return { id, kind: "children", name, children, deadline: null, metadata: null, prepared: false };
  }

  #child(): NewRun {
    const concurrencyKey = this.#chance.happens(0.3) ? `key-${this.#chance.int(3)}` : null;
    const id = this.#id();
    this.#runIds.push(id);
    return {
      id,
      jobName: this.#chance.pick(["a", "b"]),
      ...this.#version(),
      payload: this.#chance.happens(0.2) ? null : "1",
      input: null,
      labels: { org: "x" },
      idempotencyKey: null,
      concurrencyKey,
      coalesce: null,
      retriggerOf: null,
      schedule: null,
      trace: this.#trace(),
      flow: this.#flow(concurrencyKey),
    };
  }

  #readChildren(): Operation {
    const pauseId = this.#pauseIds.length === 0 ? "none" : this.#chance.pick(this.#pauseIds.slice(-8));
    const [from, length] = [this.#chance.int(3), this.#chance.pick([1, 200, 10_000])];
    return operation("readChildren", [pauseId, from, length], (store) => store.readChildren(pauseId, from, length));
  }

  #listChildren(): Operation {
    const parentRunId = this.#runId();
    return operation("getRuns", [parentRunId], (store) => getRuns(store, { parentRunId }));
  }

  #retrigger(): Operation {
    const runId = this.#parentIds.length === 0 ? "none" : this.#chance.pick(this.#parentIds.slice(-12));
    const run = { ...this.#child(), retriggerOf: { runId, from: "failure" as const } };
    return operation("enqueue", [run], (store) => store.enqueue([run]));
  }

  #stepName(): string {
    if (!this.#options.ends) return `step-${this.#stepNo++}`;
    return this.#chance.pick(["step", "step#2", "undo step", "undo step (2)", `step-${this.#stepNo++}`]);
  }

  #finish(): Operation {
    const lease = this.#lease();
    const isStill = this.#options.ends === true && this.#chance.happens(0.3);
    const ending = this.#chance.happens(0.7)
      ? { status: "completed" as const, output: "2", durationMs: this.#chance.int(100) }
      : {
        status: "failed" as const,
        failure: aFailure(),
        failedStepName: null,
        ...(isStill ? { stillExecuting: true as const } : {}),
      };
    const reports = this.#reports(lease);
    return operation("finish", [lease, ending, reports], (store) => store.finish(lease, ending, reports));
  }

  #signal(): Operation {
    const waitId = this.#waitIds.length === 0 || this.#chance.happens(0.05)
      ? "none"
      : this.#chance.pick(this.#waitIds.slice(-8));
    const signal = { signalId: `signal-${this.#chance.int(2)}`, payload: this.#chance.int(2) };
    const trace = this.#trace();
    return operation("signal", [waitId, signal, trace], (store) => store.signal(waitId, signal, trace));
  }

  #cancel(): Operation {
    const [runId, requestId] = [this.#runId(), `request-${this.#chance.int(30)}`];
    const lease = this.#leases.findLast((lease) => lease.runId === runId);
    const steps = [{ name: "step-x", index: 90, attempts: 1, startedAgoMs: this.#chance.int(30) }];
    const retried = this.#retried.get(runId);
    if (retried !== undefined) steps.push({ ...retried, index: 91, startedAgoMs: 0 });
    const execution = lease !== undefined && this.#chance.happens(0.5)
      ? { lease, steps, reports: this.#reports(lease) }
      : null;
    return operation("cancel", [runId, requestId, execution], (store) => store.cancel(runId, requestId, execution));
  }

  #delete(): Operation {
    const runId = this.#runId();
    return operation("delete", [runId], (store) => store.delete(runId));
  }

  #renew(): Operation {
    const lease = this.#lease();
    const reports = this.#reports(lease);
    return operation("renew", [lease, reports], (store) => store.renew([{ lease, reports }], 100));
  }

  #release(): Operation {
    const lease = this.#lease();
    const reports = this.#reports(lease);
    return operation("release", [lease, reports], (store) => store.release(lease, reports));
  }

  #hold(): Operation {
    if (this.#lastHold !== null && this.#chance.happens(0.15)) return this.#lastHold;
    const lease = this.#lease();
    this.#heldIds.push(lease.runId);
    const hold = aHold({ code: this.#chance.pick(HOLD_CODES), print: this.#chance.pick(PRINTS) });
    const reports = this.#reports(lease);
    this.#lastHold = operation("hold", [lease, hold, reports], (store) => store.hold(lease, hold, reports));
    return this.#lastHold;
  }

  #resumeHeld(): Operation {
    const isHeld = this.#heldIds.length > 0 && this.#chance.happens(0.8);
    const runId = isHeld ? this.#chance.pick(this.#heldIds.slice(-6)) : this.#runId();
    const continues = this.#chance.happens(0.3);
    return operation("resumeHeld", [runId, continues], (store) => store.resumeHeld(runId, continues));
  }

  #findHeld(): Operation {
    const query: HeldQuery = {
      ...this.#chance.pick([{}, {}, { jobNames: ["a", "c"] }, { jobNames: [] }]),
      ...this.#chance.pick([{}, {}, { code: this.#chance.pick(HOLD_CODES) }]),
      after: 0,
      limit: this.#chance.pick([1, 3, 100]),
    };
    return operation("findHeld", [query], async (store) => {
      const { ids, seqs } = await store.findHeld(query);
      const rest = await store.findHeld({ ...query, after: seqs[0] ?? 0 });
      return [ids, rest.ids];
    });
  }

  #readHistory(): Operation {
    const [runIds, schemaPrint] = [this.#runIds.slice(-15), `schema-${this.#chance.int(3)}`];
    return operation("getHistory", [runIds, schemaPrint], (store) =>
      Promise.all(runIds.map(async (runId) => [
        withSortedRecords(await store.getHistory(runId)),
        await store.getInput(runId, schemaPrint),
      ])));
  }

  #saveInput(): Operation {
    const [lease, schemaPrint] = [this.#lease(), `schema-${this.#chance.int(3)}`];
    const input = this.#chance.pick([null, "1", "2"]);
    return operation(
      "saveInput",
      [lease, schemaPrint, input],
      (store) => store.saveInput(lease, schemaPrint, input),
    );
  }

  #hasWorker(): Operation {
    const jobName = this.#chance.pick(["a", "b", "c"]);
    return operation("hasWorker", [jobName], (store) => hasWorker(store, jobName));
  }

  #appendLogs(): Operation {
    const lines = Array.from({ length: 1 + this.#chance.int(3) }, () => aLine(this.#runId(), { id: this.#id() }));
    return operation("appendLogs", lines, (store) => store.appendLogs(lines));
  }

  #pauseJob(): Operation {
    const jobName = this.#chance.pick(["a", "b", "c"]);
    const pause = { by: this.#chance.pick([null, "ann"]), note: null };
    return operation("pauseJob", [jobName, pause], (store) => store.pauseJob(jobName, pause));
  }

  #resumeJob(): Operation {
    const jobNames = this.#chance.happens(0.5) ? ["a", "b", "c"] : [this.#chance.pick(["a", "b", "c"])];
    return operation("resumeJob", jobNames, async (store) => [
      await getPausedJobs(store),
      await Promise.all(jobNames.map((name) => store.resumeJob(name))),
    ]);
  }

  #filter(): Operation {
    const [from, until] = [300, 100].map((ms) => new Date(this.#now() - this.#chance.int(ms)).toISOString());
    const filter = {
      ...this.#chance.pick([{}, {}, { jobName: "a" }, { status: "failed" as const }]),
      ...this.#chance.pick([{}, {
        failureKind: this.#chance.pick(["error", "timeout", "expired", "abandoned"] as const),
      }]),
      ...this.#chance.pick([{}, { completedAfter: from }, { completedBefore: until }]),
      ...this.#chance.pick([{}, { createdAfter: from, createdBefore: until }]),
      ...(this.#chance.happens(0.2) ? { retried: this.#chance.happens(0.5) } : {}),
      ...(this.#chance.happens(0.2) ? { held: this.#chance.happens(0.7) } : {}),
      ...(this.#chance.happens(0.1) ? { parentRunId: this.#runId() } : {}),
    };
    return operation("findRuns", [filter], async (store) => [
      await findIds(store, filter),
      await findIds(store, { ...filter, notRetried: true }),
      await findIds(store, { ...filter, countUpTo: 0, limit: 3 }),
    ]);
  }

  #read(): Operation {
    const [runId, maxLength] = [this.#runId(), this.#chance.pick([1, 500, 1_000, Infinity])];
    const after = this.#chance.pick([null, `step-${this.#stepNo - 2}`, this.#waitIds.at(-2) ?? null]);
    return operation("read", [runId, after, maxLength], async (store) => [
      await findIds(store, { jobName: "a", limit: 3 }),
      await store.readRuns(this.#runIds.slice(-5), maxLength),
      await store.readSteps(runId, after, maxLength),
      await store.readWaits(runId, after, maxLength),
      await store.readLogs(runId, after, maxLength),
    ]);
  }

  /** What an execution has said: some of it that may have been kept already, something new, and what comes last. */
  #reports(lease: Lease, last: Unnumbered[] = []): Report[] {
    const key = `${lease.runId} ${lease.generation}`;
    const said = this.#said.get(key) ?? [];
    this.#said.set(key, said);
    const repeated = this.#chance.happens(0.3) ? this.#chance.int(3) : 0;
    const from = Math.max(0, said.length - repeated);
    const add = (report: Unnumbered) => said.push({ ...report, no: said.length + 1, at: this.#now() });
    if (this.#chance.happens(0.2)) add({ kind: "progress", progress: { current: said.length } });
    if (this.#chance.happens(0.1)) {
      add({ kind: "log", stepName: null, level: "info", message: "hello", data: { n: said.length } });
    }
    for (const report of last) add(report);
    return said.slice(from);
  }

  #lease(): Lease {
    if (this.#leases.length === 0) {
      return { runId: "none", generation: 1, claimId: "none", recorded: 0, concurrencyKey: null };
    }
    return this.#chance.pick(this.#chance.happens(0.8) ? this.#leases.slice(-5) : this.#leases);
  }

  #runId(): string {
    return this.#runIds.length === 0 ? "none" : this.#chance.pick(this.#runIds.slice(-10));
  }

  #id(): string {
    return `id-${this.#idNo++}`;
  }
}

function operation(name: string, parameters: unknown[], call: (store: Store) => Promise<unknown>): Operation {
  return { text: `${name}(${parameters.map((parameter) => JSON.stringify(parameter)).join(", ")})`, call };
}

/** Finds runs, without their row numbers: each store numbers them in its own way. */
async function findIds(store: Store, query: RunQuery): Promise<object> {
  const { seqs: _, countedTo, ...found } = await store.findRuns(query);
  return { ...found, isCounted: countedTo === null };
}
