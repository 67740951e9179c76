import { isDeepStrictEqual } from "node:util";
import type { Json } from "../../../src/values/json.ts";
import type { Action, ListQuery, TriggerBody } from "./action.ts";
import { REVIEW_MS } from "./jobs.ts";
import {
  hasEnded,
  isDue,
  isListed,
  type ModelRun,
  type ModelWait,
  showEvents,
  showLogs,
  showRun,
  showSteps,
  showWait,
} from "./model_run.ts";
import { type Naming, REFUSED_PAYLOAD, storedKey, type Tenant } from "./tenants.ts";

/** How long a dead worker holds a run, in milliseconds. */
export const LEASE_MS = 30_000;

/** A run that workers have abandoned so many times in a row is claimed alone, and later each time. */
const ALONE_FROM = 2;

/** How much later, in milliseconds. */
export const ALONE_DELAY_MS = LEASE_MS / 4;

/** What has to be answered: the body of a refusal has only its `code` here. */
export interface Expected {
  status: number;
  body: unknown;
}

/** Something that has to be told to those who watch lists. */
export interface ModelEvent {
  type: string;
  runId: string;
  jobName: string;
  labels: Record<string, string>;
}

/**
 * The service, as it would be if it were plain objects in memory and everything happened one after another: what the
 * contract says, and nothing of how it is done. Ids are told it as they become known.
 */
export class Model {
  #state: ModelState;

  /** An empty service. */
  constructor(now: number, naming: Naming) {
    this.#state = { now, naming, runs: [], runIds: [], waitIds: [], keptKeys: {}, events: [] };
  }

  /** The same once more. */
  clone(): Model {
    const model = new Model(0, this.#state.naming);
    model.#state = structuredClone(this.#state);
    return model;
  }

  /** The runs, oldest first. */
  get runs(): readonly ModelRun[] {
    return this.#state.runs;
  }

  /** The ids of all runs that there ever were, oldest first. */
  get runIds(): readonly string[] {
    return this.#state.runIds;
  }

  /** The waits that there ever were, oldest first, with their runs. */
  get waitIds(): readonly { runId: string; waitId: string }[] {
    return this.#state.waitIds;
  }

  /** What those who watch lists had to be told so far. */
  get events(): readonly ModelEvent[] {
    return this.#state.events;
  }

  /** Finds a run. */
  find(runId: string): ModelRun | undefined {
    return this.#state.runs.find((run) => run.id === runId);
  }

  /** Learns the id of the wait of a run. */
  nameWait(runId: string, waitId: string): void {
    this.find(runId)!.wait!.id = waitId;
    this.#state.waitIds.push({ runId, waitId });
  }

  /**
   * Does something.
   *
   * @param newRunId The id that a run is given if the action makes one.
   * @param claimedId The id of the run that was claimed, if the action claims one.
   */
  perform(action: Action, newRunId: string, claimedId: string | null = null): Expected {
    switch (action.kind) {
      case "trigger":
        return this.#trigger(action.body, action.by, newRunId);
      case "house":
        return this.#trigger(action.body, null, newRunId);
      case "runs":
        return this.#list(action.query, action.by);
      case "listen":
        return ok(null);
      case "work":
        return ok({ executed: this.#work() });
      case "crash":
        return this.#crash(claimedId);
      case "pass":
        this.#state.now += action.ms;
        return ok(null);
      default: {
        const run = this.find(action.runId);
        if (run === undefined) return refused(404, "not_found");
        if (run.labels.org !== action.by) return refused(404, "foreign_run");
        return this.#performOn(run, action, newRunId);
      }
    }
  }

  #performOn(run: ModelRun, action: Extract<Action, { runId: string }>, newRunId: string): Expected {
    switch (action.kind) {
      case "run":
        return ok(showRun(run));
      case "steps":
        return ok(showSteps(run));
      case "waits":
        return ok(run.wait === null ? [] : [showWait(run.id, run.wait)]);
      case "logs":
        return ok(showLogs(run));
      case "subscribe":
        return ok({ types: showEvents(run), isEnded: hasEnded(run) });
      case "cancel":
        return this.#cancel(run);
      case "delete":
        return this.#delete(run);
      case "retrigger":
        return this.#retrigger(run, action.from, newRunId);
      default: {
        const { wait } = run;
        if (wait === null || wait.id !== action.waitId) return refused(404, "not_found");
        return action.kind === "wait" ? ok(showWait(run.id, wait)) : this.#signal(run, wait, action);
      }
    }
  }

  #trigger(body: TriggerBody, by: Tenant | null, newRunId: string): Expected {
    const { jobName, input, labels = {}, coalesce } = body;
    const idempotencyKey = storedKey(this.#state.naming, by, body.idempotencyKey ?? null);
    const concurrencyKey = storedKey(this.#state.naming, by, body.concurrencyKey ?? null);
    if (coalesce !== undefined && concurrencyKey === null) return refused(400, "invalid_request");
    if (!["echo", "fail", "approval", "strict"].includes(jobName)) return refused(404, "not_found");
    const parsed = parseInput(jobName, input);
    if (parsed === null) return refused(400, "invalid_input");
    if (by !== null && labels.org !== by) return refused(403, "foreign_labels");

    const same = idempotencyKey === null
      ? undefined
      : this.runs.find((run) => run.jobName === jobName && run.idempotencyKey === idempotencyKey);
    const found = same ?? this.#findToJoin({ jobName, concurrencyKey, coalesce });
    if (found === undefined) {
      const fairnessKey = this.#state.naming === "nameless" ? null : by;
      const keys = { idempotencyKey, concurrencyKey, fairnessKey };
      this.#add({ ...aNewRun, id: newRunId, jobName, input, parsed, labels, ...keys });
      return ok({ runId: newRunId, disposition: "created", status: "pending" });
    }
    if (by !== null && found.labels.org !== by) return refused(409, "key_in_use");
    if (same === undefined) this.#tell("run:coalesced", found);
    const disposition = same === undefined ? "coalesced" : "idempotent";
    return ok({ runId: found.id, disposition, status: found.status });
  }

  /** Of several that are as good the oldest. */
  #findToJoin(
    { jobName, concurrencyKey, coalesce }: Pick<ModelRun, "jobName" | "concurrencyKey"> & Pick<TriggerBody, "coalesce">,
  ): ModelRun | undefined {
    if (coalesce === undefined) return undefined;
    const rivals = this.runs.filter((run) => run.jobName === jobName && run.concurrencyKey === concurrencyKey);
    const pending = rivals.find(({ status }) => status === "pending");
    if (pending !== undefined || coalesce !== "active") return pending;
    return rivals.find(({ leasedUntil }) => leasedUntil !== null && leasedUntil > this.#state.now) ??
      rivals.find(({ status }) => status === "waiting");
  }

  #add(run: Omit<ModelRun, "createdAt">): void {
    this.#state.runs.push({ ...run, steps: [...run.steps], createdAt: this.#state.now });
    this.#state.runIds.push(run.id);
    this.#tell("run:trigger", run);
  }

  #list({ jobName, status, labels, limit, offset }: ListQuery, by: Tenant): Expected {
    if (status.includes("unknown") || (limit ?? 0) > 1_000) return refused(400, "invalid_request");
    const own: [string, string][] = [...labels, ["org", by]];
    const matching = this.runs.filter((run) => isListed(run, { jobName, status, labels: own })).reverse();
    const from = offset ?? 0;
    const to = from + (limit ?? 50);
    const runs = matching.slice(from, to).map((run) => showRun(run));
    return ok({ runs, total: matching.length, hasMore: to < matching.length });
  }

  #cancel(run: ModelRun): Expected {
    if (hasEnded(run)) return refused(409, "conflict");
    const { wait, concurrencyKey, leasedUntil } = run;
    this.#noteDeadline(run);
    if (wait?.status === "pending") wait.status = "cancelled";
    // Its worker may be inside it until its lease ends.
    if (concurrencyKey !== null && (leasedUntil ?? 0) > this.#state.now) {
      this.#state.keptKeys[concurrencyKey] = leasedUntil!;
    }
    this.#end(run, { status: "cancelled" });
    this.#tell("run:cancel", run);
    return ok({ success: true });
  }

  #delete(run: ModelRun): Expected {
    if (!hasEnded(run)) return refused(409, "conflict");
    this.#state.runs = this.#state.runs.filter((other) => other !== run);
    this.#tell("run:delete", run);
    return ok({ success: true });
  }

  #retrigger(old: ModelRun, from: "start" | "failure" | null, newRunId: string): Expected {
    if (!hasEnded(old)) return refused(409, "conflict");
    const retry = old.retriggeredAs === null ? undefined : this.find(old.retriggeredAs);
    if (retry !== undefined && !hasEnded(retry)) return ok({ success: true, runId: retry.id, status: retry.status });
    const { jobName, input, parsed, labels, concurrencyKey } = old;
    const steps = from === "failure" ? structuredClone(old.steps) : [];
    // The end of a wait is the last thing that was recorded: it is asked for again.
    const copied = { steps, retriggerOf: old.id, fairnessKey: old.fairnessKey };
    this.#add({ ...aNewRun, id: newRunId, jobName, input, parsed, labels, concurrencyKey, ...copied });
    old.retriggeredAs = newRunId;
    this.#tell("run:retry", old);
    return ok({ success: true, runId: newRunId, status: "pending" });
  }

  #signal(run: ModelRun, wait: ModelWait, { signalId, payload }: { signalId: string; payload: Json }): Expected {
    if (wait.outcome === "signal" && wait.signalId === signalId && isDeepStrictEqual(wait.payload, payload)) {
      return ok({ wait: showWait(run.id, { ...wait, resumedAt: null }), disposition: "duplicate" });
    }
    if (payload === REFUSED_PAYLOAD) return refused(400, "refused_payload");
    this.#noteDeadline(run);
    if (wait.outcome === "timeout") return refused(410, "wait_expired");
    if (wait.status !== "pending") return refused(409, "conflict");
    Object.assign(wait, { status: "resolved", outcome: "signal", payload, signalId, resolvedAt: this.#state.now });
    return ok({ wait: showWait(run.id, wait), disposition: "accepted" });
  }

  #work(): number {
    this.#doWhatTimeBrought();
    const due = this.runs.filter((run) => isDue(run) && !this.#isKeyHeld(run));
    for (const run of due) {
      this.#take(run);
      this.#execute(run);
    }
    return due.length;
  }

  /**
   * A worker claims a run and dies: the first one of any tenant, since the model does not know whose turn it is. Runs
   * that are claimed alone come after all others, but keep their places in the lines of their keys.
   */
  #crash(claimedId: string | null): Expected {
    this.#doWhatTimeBrought();
    const due = this.runs.filter((run) => isDue(run) && !this.#isKeyHeld(run));
    const passed = firstOfEach(due, ({ concurrencyKey, id }) => concurrencyKey ?? id);
    const together = passed.filter(({ abandonments }) => abandonments < ALONE_FROM);
    const claimable = together.length > 0 ? together : passed;
    const heads = firstOfEach(claimable, ({ jobName, fairnessKey }) => `${jobName} ${fairnessKey}`);
    const run = heads.find(({ id }) => id === claimedId) ?? heads[0];
    if (run === undefined) return ok(null);
    this.#take(run);
    run.leasedUntil = this.#state.now + LEASE_MS;
    return ok(run.id);
  }

  #doWhatTimeBrought(): void {
    const { keptKeys, now } = this.#state;
    for (const run of this.runs) {
      this.#noteDeadline(run);
      if (run.claimableAt !== null && run.claimableAt <= now) run.claimableAt = null;
      if (run.leasedUntil === null || run.leasedUntil > now) continue;
      Object.assign(run, { status: "pending", leasedUntil: null });
      run.abandonments += 1;
      if (run.abandonments >= ALONE_FROM) run.claimableAt = now + (run.abandonments - 1) * ALONE_DELAY_MS;
    }
    for (const [key, until] of Object.entries(keptKeys)) if (until <= now) delete keptKeys[key];
  }

  #noteDeadline({ wait }: ModelRun): void {
    if (wait?.status !== "pending" || wait.deadlineAt > this.#state.now) return;
    Object.assign(wait, { status: "resolved", outcome: "timeout", resolvedAt: wait.deadlineAt });
  }

  #isKeyHeld({ concurrencyKey }: ModelRun): boolean {
    if (concurrencyKey === null) return false;
    return concurrencyKey in this.#state.keptKeys ||
      this.runs.some((run) => run.concurrencyKey === concurrencyKey && run.leasedUntil !== null);
  }

  #take(run: ModelRun): void {
    if (run.status === "waiting") run.wait!.resumedAt ??= this.#state.now;
    run.status = "running";
    run.startedAt ??= this.#state.now;
  }

  #execute(run: ModelRun): void {
    switch (run.jobName) {
      case "fail":
        this.#step(run, "read", ["row"]);
        return this.#end(run, { status: "failed", error: "broken" });
      case "approval": {
        this.#step(run, "prepare", run.parsed);
        if (run.wait === null) return this.#pause(run);
        const { outcome, payload, signalId } = run.wait;
        return this.#end(run, {
          status: "completed",
          output: outcome === "signal" ? { outcome, payload, signalId } : { outcome },
        });
      }
      default:
        return this.#end(run, { status: "completed", output: run.parsed });
    }
  }

  #step({ steps }: ModelRun, name: string, output: Json): void {
    if (steps.length === 0) steps.push({ name, output, at: this.#state.now });
  }

  #pause(run: ModelRun): void {
    const { now } = this.#state;
    Object.assign(run, { status: "waiting", abandonments: 0 });
    run.wait = { ...aNewWait, createdAt: now, deadlineAt: now + REVIEW_MS };
  }

  #end(run: ModelRun, ending: { status: string; output?: Json; error?: string }): void {
    Object.assign(run, ending, { completedAt: this.#state.now, leasedUntil: null });
    if (ending.status !== "completed") return;
    const find = (id: string | null) => id === null ? undefined : this.find(id);
    for (let old = find(run.retriggerOf); old?.completedAs === null; old = find(old.retriggerOf)) {
      old.completedAs = run.id;
    }
  }

  #tell(type: string, { id, jobName, labels }: Pick<ModelRun, "id" | "jobName" | "labels">): void {
    this.#state.events.push({ type, runId: id, jobName, labels });
  }
}

interface ModelState {
  now: number;
  naming: Naming;
  runs: ModelRun[];
  runIds: string[];
  waitIds: { runId: string; waitId: string }[];
  /** Until when keys are held whose runs were cancelled while somebody may have been executing them. */
  keptKeys: Record<string, number>;
  events: ModelEvent[];
}

/** The oldest run of each group. */
function firstOfEach(runs: readonly ModelRun[], groupOf: (run: ModelRun) => string): ModelRun[] {
  return runs.filter((run, at) => !runs.slice(0, at).some((other) => groupOf(other) === groupOf(run)));
}

const aNewRun = {
  status: "pending",
  output: null,
  error: null,
  idempotencyKey: null,
  startedAt: null,
  completedAt: null,
  leasedUntil: null,
  abandonments: 0,
  claimableAt: null,
  steps: [] as ModelRun["steps"],
  wait: null,
  retriggerOf: null,
  retriggeredAs: null,
  completedAs: null,
};

const aNewWait: Omit<ModelWait, "createdAt" | "deadlineAt"> = {
  id: null,
  status: "pending",
  outcome: null,
  payload: null,
  signalId: null,
  resolvedAt: null,
  resumedAt: null,
};

function ok(body: unknown): Expected {
  return { status: 200, body };
}

function refused(status: number, code: string): Expected {
  return { status, body: { code } };
}

/** What the job receives; `null` if its schema refuses the input. */
function parseInput(jobName: string, input: Json): Json | null {
  if (jobName !== "strict") return input;
  const { n = 7 } = input as { n?: Json };
  return typeof n === "number" ? { n } : null;
}
