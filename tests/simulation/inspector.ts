import { HoldfastError } from "../../src/model/error.ts";
import type { Lease } from "../../src/model/lease.ts";
import type { ClaimRequest, ClaimResult } from "../../src/store/claim.ts";
import { type Call, checkCall } from "./check_calls.ts";
import { checkKeys, checkLogs, checkRuns } from "./check_state.ts";
import type { Facts } from "./facts.ts";
import { History } from "./history.ts";
import { isReading } from "./is_reading.ts";
import { checkStreams } from "./stream_facts.ts";
import { checkInboxes } from "./message_facts.ts";
import type { Trace } from "./trace.ts";
import type { Incarnation } from "./incarnation.ts";
import type { SharedStore } from "./stores.ts";
import type { World } from "./world.ts";

/** Looks at each call when it is committed, and after each event at everything that it may have changed. */
export class Inspector {
  readonly #facts: Facts;
  readonly #world: World;
  readonly #trace: Trace;
  readonly #store: SharedStore;
  /** The journal as it has to be. */
  readonly history: History;
  /** Runs that a call of the current event has touched. */
  #touched = new Set<string>();
  /** Whether one has touched any runs that can change. */
  #isAnyTouched = false;
  #changes = 0;
  #changedAt = 0;
  #jumps = 0;
  #calls = 0;

  /** Begins with an empty store. */
  constructor(facts: Facts, world: World, trace: Trace, store: SharedStore) {
    this.#facts = facts;
    this.#world = world;
    this.#trace = trace;
    this.#store = store;
    this.history = new History(facts, store);
  }

  /** When something has changed last, on the clock that never jumps. */
  get changedAt(): number {
    return this.#changedAt;
  }

  /** How many calls were committed. */
  get calls(): number {
    return this.#calls;
  }

  /** A call was carried out or refused. */
  committed(call: Call, incarnation: Incarnation): void {
    this.#calls += 1;
    const { method, parameters, outcome } = call;
    this.history.note(call);
    if (isReading(method)) {
      incarnation.noteCommit(call);
      return this.#trace.count(method);
    }
    const text = "error" in outcome ? `refused: ${(outcome.error as Error).message}` : JSON.stringify(outcome.value);
    if (isIdleClaim(call)) incarnation.noteIdleClaim(this.#changedAt);
    if (method === "saveStep" && "value" in outcome) incarnation.checkInTime(parameters[0] as Lease);
    const line = `${incarnation.label} ${method} ${JSON.stringify(parameters)} -> ${text}`;
    if (isIdleClaim(call)) this.#trace.count(line);
    else this.#trace.note(line);
    if ("error" in outcome && !(outcome.error instanceof HoldfastError)) throw outcome.error;
    if (method === "release") incarnation.checkRelease(parameters[0] as Lease);
    incarnation.noteCommit(call);
    const touched = checkCall(this.#facts, call);
    if (touched === "any") this.#isAnyTouched = true;
    else for (const runId of touched) this.#touched.add(runId);
    for (const run of this.#touchedRuns()) run.isUnread = true;
  }

  /** Looks at what the last event may have changed, and whether everybody has told what they have to tell. */
  async look(incarnations: Iterable<Incarnation>): Promise<void> {
    await this.history.look(this.#world.now, this.#world.wallNow);
    for (const incarnation of incarnations) incarnation.checkTold();
    const { jumps } = this.#facts;
    const hasJumped = this.#jumps !== jumps;
    if (this.#touched.size === 0 && !this.#isAnyTouched && !hasJumped) return;
    this.#jumps = jumps;
    const changes = await this.#store.countChanges();
    if (changes !== this.#changes || hasJumped) {
      this.#changes = changes;
      this.#changedAt = this.#world.now;
      await this.#read();
    }
    for (const run of this.#touchedRuns()) run.isUnread = false;
    this.#touched = new Set();
    this.#isAnyTouched = false;
  }

  /** Looks at all runs, also those that must not change any more. */
  async lookAtAll(): Promise<void> {
    await checkRuns(this.#facts, this.#store.truth, this.#facts.runs.values(), this.#world.wallNow);
    await checkLogs(this.#facts, this.#store.truth);
  }

  async #read(): Promise<void> {
    const { truth } = this.#store;
    const { wallNow } = this.#world;
    await checkInboxes(this.#facts, truth, this.#touchedRuns());
    await checkRuns(this.#facts, truth, this.#touchedRuns(), wallNow);
    await checkStreams(this.#facts, truth, this.#touchedRuns());
    await checkKeys(this.#facts, truth, wallNow);
    const fault = await this.#store.findFault();
    this.#facts.expect(fault === null, "K", () => fault!);
  }

  #touchedRuns() {
    const runs = [...this.#touched].map((runId) => this.#facts.runs.get(runId)).filter((run) => run !== undefined);
    return this.#isAnyTouched ? new Set([...runs, ...this.#facts.changeable()]) : runs;
  }
}

/** Most claims find nothing, and would hide in the trace what does happen. */
function isIdleClaim({ method, parameters: [request], outcome }: Call): boolean {
  if (method !== "claim" || "error" in outcome || (request as ClaimRequest).isAlone) return false;
  const { claims, failed, cancelled } = outcome.value as ClaimResult;
  return claims.length + failed.length + cancelled.length === 0;
}
