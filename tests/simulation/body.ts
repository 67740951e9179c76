import { attemptName, writeSome } from "./stream_facts.ts";
import { type EndContext, undoName, type UndoTools } from "../../src/model/end.ts";
import { RunFailedError, TimeoutError } from "../../src/model/error.ts";
import type { StepContext } from "../../src/model/job.ts";
import type { ChildOutcome, StepTools } from "../../src/model/job/step_calls.ts";
import type { StepWrite } from "../../src/model/step.ts";
import { decode, type Json } from "../../src/values/json.ts";
import type { ReceivedMessage } from "../../src/model/message.ts";
import type { WaitResult } from "../../src/model/wait.ts";
import { checkCleanUp, stepKeyOf } from "./end_facts.ts";
import { endingOf } from "./child_facts.ts";
import { type AttemptFacts, attemptKey, type Executing, type Facts, type Outside, type RunFacts } from "./facts.ts";
import { type ChangingBody, checkStepName, recordedName, signalRule } from "./change_facts.ts";
import { type Code, identityOf } from "./changes_plan.ts";
import type { Undo } from "./ends_plan.ts";
import type { Incarnation } from "./incarnation.ts";
import { checkReceived } from "./message_facts.ts";
import type { BodyWitness, CallAction, CallResult, StepAction } from "./program.ts";

const RUNS_BETWEEN = /(Run \\"[^"]*\\" of job \\"[^"]*\\" failed: )+(?=Run )/g;
// From so many turns on, what a program does outside of steps takes time: so many milliseconds for each.
const LONG_TURNS = 2;
const OUTSIDE_MS = 50;

/** One execution of a job's function: what it is given is judged by what was committed. */
export class Body implements Omit<BodyWitness, "jobOf" | "crashes">, ChangingBody {
  readonly #facts: Facts;
  readonly #incarnation: Incarnation;
  readonly #run: RunFacts;
  readonly #generation: number;
  readonly #uses = new Map<string, number>();
  readonly #code: Code;
  readonly #saw: string[];
  /** The records that the program has asked for, as kind and name. */
  readonly asked = new Set<string>();
  /** The new steps that it has asked for while records were left. */
  readonly #waited = new Set<string>();
  /**
   * When it has asked for a step that has neither begun nor was answered, with the name, by the name before it was
   * renamed: one that had failed begins under that.
   */
  readonly #stepsAskedAt = new Map<string, { name: string; askedAt: number }>();
  #seen = 0;
  #hasBranches = false;
  /** How much it waits for that it has asked of its `step`. */
  #asking = 0;

  /** Begins when the function is entered, under a lease. */
  constructor(facts: Facts, incarnation: Incarnation, run: RunFacts, generation: number, code: Code) {
    this.#code = code;
    this.#facts = facts;
    this.#incarnation = incarnation;
    this.#run = run;
    this.#generation = generation;
    run.changed.bodies.set(generation, this);
    // Without changes of the code all programs stay the same.
    const program = facts.changes === null ? incarnation.version : code;
    const isKnown = run.saw.has(program);
    this.#saw = run.saw.get(program) ?? [];
    run.saw.set(program, this.#saw);
    if (!isKnown && run.saw.size > 1 && run.steps.size > 0) facts.notice("a run was continued by other code");
  }

  /** It cleans up after another run. */
  cleansUp(end: EndContext): void {
    checkCleanUp(this.#facts, this.#run, end, this.#incarnation.process.world.wallNow);
  }

  /** Notes what the function returned. */
  returned(output: Json): void {
    this.#run.returned.set(this.#generation, `completed ${JSON.stringify(output)}`);
  }

  /** Notes what the function threw. */
  threw(error: Error): void {
    this.#run.returned.set(this.#generation, `failed ${error.message}`);
  }

  /** The same `step`, of which it is known what the program waits for. */
  asking(step: StepContext): StepContext {
    const { id, schedule } = this.#run.request;
    const slotAt = schedule?.slotAt ?? null;
    for (const told of [step.slotAt, step.slot?.at ?? null]) {
      this.#facts.expect(told === slotAt, "F6", () => `${id} is told the slot ${told}, not ${slotAt}`);
    }
    const count = <P extends unknown[], T>(ask: (...parameters: P) => Promise<T>) => (...parameters: P): Promise<T> => {
      this.#asking += 1;
      return ask(...parameters).finally(() => this.#asking -= 1);
    };
    return {
      ...step,
      run: count(step.run) as StepContext["run"], // of any type that its function returns
      sleep: count(step.sleep),
      wait: count(step.wait) as StepContext["wait"],
      prepareWait: count(step.prepareWait),
      waitFor: count(step.waitFor) as StepContext["waitFor"],
      receive: count(step.receive as (...parameters: unknown[]) => Promise<never>), // of any names and options
      invoke: count(step.invoke) as StepContext["invoke"],
      invokeAll: count(step.invokeAll) as StepContext["invokeAll"],
      trigger: count(step.trigger) as StepContext["trigger"],
    };
  }

  asks(kind: "step" | "trigger" | "children", givenName: string): void {
    const { process: { world } } = this.#incarnation;
    const name = this.#use(kind === "children" ? "asks children" : "asks step", givenName);
    if (kind === "children") return void this.asked.add(`children ${name}`);
    const recorded = recordedName(this.#facts, this.#run, "step", name, this.#code);
    this.asked.add(`step ${recorded}`);
    const { claimed } = this.#run.changed;
    const names = claimed.get(this.#generation)?.names ?? new Set();
    if (!names.has(`step ${recorded}`) && [...names].some((key) => !this.asked.has(key))) this.#waited.add(recorded);
    if (kind === "step") this.#stepsAskedAt.set(identityOf(recorded), { name: recorded, askedAt: world.now });
  }

  patched(givenName: string, isNew: boolean): void {
    const name = this.#use("patch", givenName);
    const { changed, request: { id } } = this.#run;
    const before = changed.patches.get(name);
    changed.patches.set(name, isNew);
    this.#facts.notice(isNew ? "a patch was new" : "a patch was passed over by a run that had been further");
    this.#facts.expect(
      before === undefined || before === isNew,
      "I-D6",
      () => `patch ${name} of ${id} was ${before}, and is ${isNew}`,
    );
    this.#facts.expect(
      isNew || before === false || changed.recordedBy.has(1),
      "I-D6",
      () => `patch ${name} of ${id} is passed over, and no code without it has recorded anything`,
    );
  }

  stepsNotBegun(before: number): string[] {
    if (!this.#incarnation.isWorking) return [];
    const known = this.#run.changed.claimed.get(this.#generation)?.names;
    return [...this.#stepsAskedAt.values()]
      .filter(({ name, askedAt }) => askedAt < before && known?.has(`step ${name}`) !== true)
      .map(({ name }) => name);
  }

  remark(): string {
    return this.#incarnation.newValue();
  }

  branches(): void {
    this.#hasBranches = true;
  }

  async idles(turns: number): Promise<void> {
    for (let i = 0; i < turns; i++) await null;
    // Code that takes time outside of steps is only performed in the same order again where nothing runs beside it.
    if (turns < LONG_TURNS || this.#hasBranches) return;
    const { process, label } = this.#incarnation;
    const outside: Outside = {
      run: this.#run,
      generation: this.#generation,
      label,
      isOutside: () => process.label === label && this.#asking === 0,
    };
    this.#facts.outside.add(outside);
    await process.sleep(turns * OUTSIDE_MS);
    this.#facts.outside.delete(outside);
  }

  /** A clean-up undoes a step. */
  async undoes({ stepName, action }: Undo, result: Json | undefined, tools: UndoTools): Promise<string> {
    const { endOf, request: { id } } = this.#run;
    const recorded = endOf?.steps.get(stepName);
    const expected = recorded?.isOver === true ? JSON.parse(recorded.result) as StepWrite["result"] : null;
    const output = expected?.status === "completed" ? expected.output : undefined;
    this.#facts.expect(
      endOf !== null && tools.stepKey === stepKeyOf(endOf, stepName) && JSON.stringify(result) === output,
      "C2",
      () => `${id} undoes ${stepName} with ${tools.stepKey} and ${JSON.stringify(result)}, recorded is ${output}`,
    );
    this.#facts.notice(output === undefined ? "a step was undone that had not completed" : "a step was undone");
    return await this.attempts({ ...action, name: undoName(stepName) }, tools);
  }

  async attempts(
    action: StepAction,
    tools: Omit<UndoTools, "stepKey"> & Partial<Pick<StepTools, "stream">>,
  ): Promise<string> {
    const { idempotencyKey, attempt, abortSignal } = tools;
    const { process, label } = this.#incarnation;
    const run = this.#run;
    const { ms, timeout, attempts: maxAttempts } = action;
    const [, name] = idempotencyKey.split("/") as [string, string];
    const isUndone = run.undone.has(name);
    this.#facts.expect(
      idempotencyKey === stepKeyOf(run, name),
      isUndone ? "C3" : "I1",
      () => `a step of ${run.request.id} has the key ${idempotencyKey}, not ${stepKeyOf(run, name)}`,
    );
    if (isUndone) this.#facts.notice("a retry did again what was undone");
    this.#stepsAskedAt.delete(identityOf(name));
    if (this.#waited.delete(name)) this.#facts.notice("what was new waited for the rest of the replay");
    if (attempt > 1 && identityOf(action.name) !== action.name && !name.startsWith(action.name)) {
      this.#facts.notice("a step that was renamed between two attempts kept its name");
    }
    this.#checkAttempt(name, attempt, maxAttempts);
    const beganAt = process.world.now;
    const done: AttemptFacts = {
      ms,
      timeout,
      maxAttempts,
      delayMs: action.delay,
      lastedMs: () => process.world.now - beganAt,
      outcome: null,
      wasInterrupted: false,
    };
    run.attempts.set(attemptKey(this.#generation, name, attempt), done);
    const executing: Executing = {
      run,
      name,
      generation: this.#generation,
      label,
      abortSignal,
      hasTimedOut: () => timeout !== null && done.lastedMs() >= timeout,
      isAlive: () => process.label === label,
    };
    this.#facts.executing.add(executing);
    const value = this.#incarnation.newValue();
    const writeRest = writeSome(run, tools, attemptName(run.request.id, this.#generation, name, attempt));
    await (action.heeds ? Promise.race([process.sleep(ms), fired(abortSignal)]) : process.sleep(ms));
    this.#facts.executing.delete(executing);
    writeRest();
    const isAborted = action.heeds && abortSignal.aborted;
    if (!isAborted && attempt > action.failures) {
      done.outcome = { value };
      return value;
    }
    const thrown = isAborted ? `${name} is aborted` : `${name} fails`;
    done.outcome = { thrown };
    done.wasInterrupted = abortSignal.aborted && !(abortSignal.reason instanceof TimeoutError);
    throw new Error(thrown);
  }

  stepped(givenName: string, answer: { value: string } | { failure: string }): void {
    const { request: { id }, steps } = this.#run;
    const name = recordedName(this.#facts, this.#run, "step", this.#use("step", givenName), this.#code);
    this.#stepsAskedAt.delete(identityOf(name));
    const recorded = steps.get(name)?.result ?? null;
    const result = recorded === null ? null : JSON.parse(recorded);
    const isSame = "value" in answer
      ? result?.status === "completed" && result.output === JSON.stringify(answer.value)
      : result?.status === "failed" && result.failure.message === answer.failure;
    this.#facts.expect(
      isSame,
      "I1",
      () => `${this.#incarnation.label} gave ${id} ${JSON.stringify(answer)} for ${name}, recorded is ${recorded}`,
    );
  }

  sleeps(givenName: string, ms: number): void {
    const { sleepsUntil, source, pauses } = this.#run;
    const name = recordedName(this.#facts, this.#run, "sleep", this.#use("sleeps", givenName), this.#code);
    this.asked.add(`sleep ${name}`);
    this.#run.asked.set(`sleep ${name}`, ms);
    // The run of which this one is a retry has slept already.
    const isCopied = source !== null &&
      [...pauses.values()].some((pause) => pause.kind === "sleep" && pause.name === name && pause.resolution !== null);
    if (!sleepsUntil.has(name)) sleepsUntil.set(name, this.#incarnation.process.world.now + (isCopied ? 0 : ms));
  }

  waits(givenName: string, timeout: number | null): void {
    const name = recordedName(this.#facts, this.#run, "wait", this.#use("waits", givenName), this.#code);
    this.asked.add(`wait ${name}`);
    this.#run.asked.set(`wait ${name}`, timeout);
  }

  calls({ do: kind, name: givenName, jobName, items }: CallAction): void {
    const run = this.#run;
    const name = this.#use("calls", givenName);
    const { priority } = run.request.flow;
    const asked = items.map(({ program, options }) => {
      return { jobName, payload: JSON.stringify({ program }), options, priority, hasOtherFairness: true };
    });
    run.calls.set(name, asked);
    // A run that is executed again triggers the same run, and so does a retry from its failure.
    if (kind === "trigger") this.#facts.noteTrigger(run.originId, `${run.originId}/${name}`, asked[0]!);
  }

  called({ do: kind, name: givenName }: CallAction, result: CallResult): void {
    const name = this.#use("called", givenName);
    if (kind === "trigger" || ("outcomes" in result && result.outcomes.length === 0)) return;
    const { request: { id }, childPauses } = this.#run;
    const pause = childPauses.get(name);
    const told = "outcomes" in result ? result.outcomes : [toOutcome(pause?.members[0]?.run.request.id ?? "", result)];
    const expected = pause?.members.map(({ run }) => outcomeOf(run));
    this.#facts.expect(
      pause?.isOver === true && brief(told) === brief(expected),
      "F7",
      () =>
        `${this.#incarnation.label} gave ${id} for ${name} ${JSON.stringify(told)}, not ${JSON.stringify(expected)}`,
    );
    if (pause !== undefined && pause.total > 100) this.#facts.notice("children of several slices ended");
    if (told.some(({ status }) => status === "failed")) this.#facts.notice("a parent saw that a child had failed");
    if (told.some(({ status }) => status === "cancelled")) {
      this.#facts.notice("a parent saw that a child was cancelled");
    }
  }

  receives(givenName: string, timeout: number | null): void {
    const name = this.#use("receives", givenName);
    this.asked.add(`receive ${name}`);
    this.#run.asked.set(`receive ${name}`, timeout);
  }

  received(givenName: string, messages: ReceivedMessage | ReceivedMessage[] | null): void {
    checkReceived(this.#facts, this.#run, this.#use("received", givenName), messages);
  }

  slept(givenName: string): void {
    const { request: { id }, sleepsUntil } = this.#run;
    const name = recordedName(this.#facts, this.#run, "sleep", this.#use("slept", givenName), this.#code);
    const { now } = this.#incarnation.process.world;
    const until = sleepsUntil.get(name)!;
    // The wall clock counts whole milliseconds.
    const isEarly = this.#facts.jumps === 0 && now <= until - 1;
    this.#facts.expect(!isEarly, "I5", () => `${id} woke from ${name} ${until - now} ms too early`);
  }

  waited(wait: { id: string } | { name: string }, result: WaitResult): void {
    const { request: { id }, pauses } = this.#run;
    const name = "name" in wait
      ? recordedName(this.#facts, this.#run, "wait", this.#use("wait", wait.name), this.#code)
      : null;
    const pause = [...pauses.values()].find((pause) =>
      "id" in wait ? pause.id === wait.id : pause.kind === "wait" && pause.name === name
    );
    const accepted = pause === undefined ? undefined : this.#facts.waits.get(pause.id)?.accepted;
    const isTrue = result.outcome === "timeout"
      ? pause !== undefined && pause.deadlineAt !== null && !accepted
      : accepted?.signalId === result.signalId && accepted.payload === JSON.stringify(result.payload);
    this.#facts.expect(
      isTrue,
      signalRule(this.#run),
      () =>
        `${this.#incarnation.label} gave ${id} ${JSON.stringify(result)} for ${JSON.stringify(wait)}, which took ${
          JSON.stringify(accepted)
        }`,
    );
  }

  saw(what: string): void {
    const { id } = this.#run.request;
    const saw = this.#saw;
    const before = saw[this.#seen];
    this.#facts.expect(
      before === undefined || before === what,
      "I10",
      () =>
        `${id} saw\n${
          saw.slice(0, this.#seen + 1).join("\n")
        }\nin an execution, and then instead of the last in ${this.#incarnation.label}\n${what}`,
    );
    saw[this.#seen++] = what;
  }

  /** The name that a use of a name gets: from the second on with its number. */
  #use(kind: string, name: string): string {
    const uses = (this.#uses.get(`${kind} ${name}`) ?? 0) + 1;
    this.#uses.set(`${kind} ${name}`, uses);
    return uses === 1 ? name : `${name}#${uses}`;
  }

  #checkAttempt(name: string, attempt: number, maxAttempts: number): void {
    const facts = this.#facts;
    const run = this.#run;
    const { label } = this.#incarnation;
    const { id } = run.request;
    const generation = this.#generation;
    const recorded = run.steps.get(name);
    facts.expect(attempt <= maxAttempts, "I1", () => `${name} of ${id} begins attempt ${attempt} of ${maxAttempts}`);
    this.#incarnation.checkStart(run, generation, name, attempt);
    checkStepName(facts, run, generation, name);
    facts.expect(
      run.changed.heldUnder !== generation,
      "I-D3",
      () => `${label} begins ${name} of ${id} under lease ${generation}, under which it was held`,
    );
    const isStale = run.generation > generation;
    if (recorded?.isOver || (recorded?.attempts ?? 0) >= attempt) {
      facts.expect(
        isStale && recorded!.generation > generation,
        "I1",
        () =>
          `${label} begins attempt ${attempt} at ${name} of ${id} under lease ${generation}, recorded under ${
            recorded!.generation
          }: ${recorded!.result}`,
      );
      facts.notice("a former holder began a step that was over");
    } else if (!isStale) {
      facts.expect(
        attempt === (recorded?.attempts ?? 0) + 1,
        "I1",
        () => `${name} of ${id} begins attempt ${attempt} after ${recorded?.attempts ?? 0}`,
      );
    }
    // On clocks that run evenly, a lease that may be another's is noticed before anything begins under it.
    facts.expect(
      !isStale || facts.forwardJumps > 0 || run.hasEnded,
      "I16",
      () => `${label} begins ${name} of ${id} under lease ${generation}, while lease ${run.generation} is given out`,
    );
    const notBefore = recorded?.notBefore ?? null;
    const { now } = this.#incarnation.process.world;
    // The wall clock counts whole milliseconds.
    facts.expect(
      facts.forwardJumps > 0 || notBefore === null || notBefore < now + 1,
      "F9",
      () => `${name} of ${id} is tried again ${notBefore! - now} ms too early`,
    );
    this.#checkOthers();
  }

  /** On a clock that runs evenly no two runs of a key are inside of steps, as long as their leases last. */
  #checkOthers(): void {
    const { executing, jumps } = this.#facts;
    const { id, concurrencyKey: key } = this.#run.request;
    if (key === null || jumps > 0) return;
    const { process: { world }, label } = this.#incarnation;
    const inside = [...executing].filter((other) =>
      other.run !== this.#run && other.run.request.concurrencyKey === key && other.isAlive() &&
      other.generation === other.run.claimedGeneration && (other.run.leaseEndsAt ?? 0) > world.wallNow
    ).map(({ run }) => run);
    const runs = new Set([this.#run, ...inside]);
    const most = Math.max(...[...runs].map(({ request }) => request.flow.keyConcurrency));
    this.#facts.expect(
      runs.size <= most,
      "I7",
      () => `${label} begins a step of ${id} while ${[...runs].map(({ request }) => request.id)} use key ${key}`,
    );
  }
}

/** How a child ended, as `invokeAll()` tells it. */
function outcomeOf(run: RunFacts): ChildOutcome {
  const { status, output, error } = endingOf(run);
  const runId = run.request.id;
  if (status === "completed") return { runId, status, output: decode(output) };
  return { runId, status, error: status === "failed" ? error : `Run "${runId}" was cancelled` };
}

/** Outcomes as text. Of a chain of runs that have failed the message of an error names the first and the last. */
function brief(outcomes: readonly ChildOutcome[] | undefined): string | undefined {
  return JSON.stringify(outcomes)?.replace(RUNS_BETWEEN, "");
}

/** The same as `invoke()` tells it. */
function toOutcome(runId: string, result: { output: unknown } | { error: Error }): ChildOutcome {
  if (!("error" in result)) return { runId, status: "completed", output: result.output };
  const { error } = result;
  if (error instanceof RunFailedError) {
    return { runId: error.runId, status: "failed", error: error.message.slice(error.message.indexOf(": ") + 2) };
  }
  return { runId, status: "cancelled", error: error.message };
}

function fired(abortSignal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (abortSignal.aborted) resolve();
    else abortSignal.addEventListener("abort", () => resolve(), { once: true });
  });
}
