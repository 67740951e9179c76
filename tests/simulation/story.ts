import type { RunEvent } from "../../src/event.ts";
import { isLastEvent } from "../../src/event.ts";
import type { Facts, RunFacts } from "./facts.ts";

/** What is told of the end of a run, by its status. */
export const LAST_EVENTS: Record<string, RunEvent["type"]> = {
  completed: "run:complete",
  failed: "run:fail",
  cancelled: "run:cancel",
};

/** What a stream tells of one run: each thing once, in an order that a run can have, and nothing that is not so. */
export class Story {
  readonly #facts: Facts;
  readonly #run: RunFacts;
  readonly #teller: string;
  readonly #told = new Map<string, number>();
  #last: RunEvent | null = null;
  #sequence = 0;
  #lastOfLease: string | null = null;
  /** The last attempt at each step that was told to have failed; `Infinity` for one that was completed. */
  readonly #attempts = new Map<string, number>();
  /** Steps that were over when the first thing was told: they may be old news. */
  #old: Set<string> | null = null;

  /** @param teller Which process tells it. */
  constructor(facts: Facts, run: RunFacts, teller: string) {
    this.#facts = facts;
    this.#run = run;
    this.#teller = teller;
  }

  /** The last event that was told. */
  get last(): RunEvent | null {
    return this.#last;
  }

  /** By now it was read how the run stands: whatever is recorded from now on has to be told. */
  begin(): void {
    this.#old ??= new Set(this.#stepsOver().keys());
  }

  /** Hears what comes next. */
  hear(event: RunEvent): void {
    this.begin();
    const { request, steps, claimIds, parks } = this.#run;
    const { type } = event;
    const isOwn = event.runId === request.id && event.jobName === request.jobName &&
      JSON.stringify(event.labels) === JSON.stringify(request.labels);
    this.#expect(isOwn, event, "of another run");
    this.#expect(this.#last === null || !isLastEvent(this.#last), event, `after ${this.#last?.type}`);
    // Progress may be held back while something else is told.
    const isRising = event.sequence > this.#sequence || type === "run:progress";
    this.#expect(isRising, event, `after number ${this.#sequence}`);
    this.#sequence = Math.max(this.#sequence, event.sequence);
    this.#last = event;
    switch (type) {
      case "run:trigger":
        return this.#expectTimes(event, type, 1);
      case "run:leased":
        this.#lastOfLease = type;
        return this.#expectTimes(event, type, claimIds.size);
      case "run:start":
        this.#expect(this.#lastOfLease === "run:leased", event, `after ${this.#lastOfLease}`);
        this.#lastOfLease = type;
        return this.#expectTimes(event, type, claimIds.size);
      case "run:waiting":
        this.#lastOfLease = type;
        return this.#expectTimes(event, `${type} ${event.waitId} ${event.waitName}`, parks);
      case "step:start":
        return this.#expect(this.#lastOfLease !== "run:waiting", event, "while the run waits");
      case "step:complete": {
        const recorded = JSON.parse(steps.get(event.stepName)?.result ?? "null");
        const isSo = recorded?.status === "completed" && recorded.output === JSON.stringify(event.output);
        this.#expect(isSo, event, `recorded as ${JSON.stringify(recorded)}`);
        this.#attempts.set(event.stepName, Infinity);
        return this.#expectTimes(event, `step ${event.stepName}`, 1);
      }
      case "step:fail": {
        const { stepName, attempt } = event;
        this.#expect((this.#attempts.get(stepName) ?? 0) < attempt, event, "after a later one");
        this.#attempts.set(stepName, attempt);
        this.#expect(attempt <= (steps.get(stepName)?.attempts ?? 0), event, "and was not recorded");
        return this.#expectTimes(event, `step ${stepName} ${attempt}`, 1);
      }
    }
  }

  /** The stream has ended by itself: it has told how the run ended, and each step that was recorded meanwhile. */
  end(): void {
    const isDeleted = this.#last?.type === "run:delete"; // with all that could be told of it
    if (isDeleted || this.#last === null || !isLastEvent(this.#last)) return;
    for (const [name, what] of this.#stepsOver()) {
      const isTold = this.#old!.has(name) || this.#told.has(what);
      this.#facts.expect(
        isTold,
        "I17",
        () => `the stream of ${this.#run.request.id} in ${this.#teller} ended without telling of step ${name}`,
      );
    }
  }

  /** The steps of the run that were completed or have failed, by name, and what has to be told of them. */
  #stepsOver(): Map<string, string> {
    const over = [...this.#run.steps].filter(([, { isOver }]) => isOver);
    return new Map(over.map(([name, { attempts, result }]) => [
      name,
      JSON.parse(result).status === "completed" ? `step ${name}` : `step ${name} ${attempts}`,
    ]));
  }

  #expectTimes(event: RunEvent, what: string, most: number): void {
    const times = (this.#told.get(what) ?? 0) + 1;
    this.#told.set(what, times);
    this.#expect(times <= most, event, `${times} times, and it happened ${most} times`);
  }

  #expect(holds: boolean, event: RunEvent, why: string): void {
    const tell = () => `a stream of ${this.#teller} tells ${JSON.stringify(event)} ${why}`;
    this.#facts.expect(holds, event.runId === this.#run.request.id ? "I17" : "I8", tell);
  }
}
