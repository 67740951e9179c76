import type { Fact } from "../../src/model/fact.ts";
import type { AwaitedPause, RunState } from "../../src/store/run_query.ts";
import type { Step, StepStatus } from "../../src/model/step.ts";
import { isoTime } from "../../src/values/iso_time.ts";
import type { RunStatus } from "../../src/model/run.ts";
import type { Facts, RunFacts, StepFacts } from "./facts.ts";

/** A run as its facts show it, one after another. */
export interface Folded {
  status: RunStatus;
  generation: number;
  owner: string | null;
  execution: number;
  /** As JSON. */
  progress: string;
  pauses: AwaitedPause[];
  steps: Map<string, { index: number; attempts: number; status: StepStatus | "retrying" }>;
  held: { code: string; message: string } | null;
  retriggeredAs: string | null;
  isDeleted: boolean;
}

/** A run that nothing is said of; `copied`: the steps that it begins with. */
export function newFolded(copied: Iterable<readonly [string, StepFacts]>): Folded {
  return {
    status: "pending",
    generation: 0,
    owner: null,
    execution: 1,
    progress: "null",
    pauses: [],
    steps: new Map([...copied].map(([name, { index, attempts }]) => [name, { index, attempts, status: "completed" }])),
    held: null,
    retriggeredAs: null,
    isDeleted: false,
  };
}

/** Adds what a fact says. */
export function foldIn(folded: Folded, fact: Fact): void {
  const { steps } = folded;
  switch (fact[1]) {
    case "claimed":
      folded.status = "running";
      [, , folded.generation, folded.owner, , folded.execution] = fact;
      return;
    case "progressed":
      folded.progress = JSON.stringify(fact[3]);
      return;
    case "step_completed":
    case "step_failed": {
      const [, kind, name, index, attempts] = fact;
      const status = kind === "step_completed" ? "completed" : fact[6] === null ? "failed" : "retrying";
      steps.set(name, { index: steps.get(name)?.index ?? index, attempts, status });
      return;
    }
    case "step_cancelled": {
      const [, , name, index] = fact;
      // An attempt that was being made counts only if none had ended before.
      steps.set(name, { ...(steps.get(name) ?? { index, attempts: 0 }), status: "cancelled" });
      return;
    }
    case "waiting":
      if (folded.status !== "waiting") folded.pauses = [];
      folded.status = "waiting";
      folded.pauses.push({ waitId: fact[2], name: fact[3], deadlineAt: isoTime(fact[4]) });
      return;
    case "held":
      folded.status = "pending";
      folded.held = { code: fact[2], message: fact[3] };
      return;
    case "resumed":
      folded.held = null;
      return;
    case "cancelled":
      folded.held = null;
      for (const step of steps.values()) if (step.status === "retrying") step.status = "cancelled";
      folded.status = "cancelled";
      return;
    case "completed":
    case "failed":
      folded.held = null;
      folded.status = fact[1];
      return;
    case "retried":
      folded.retriggeredAs = fact[2];
      return;
    case "deleted":
      folded.isDeleted = true;
  }
}

/** The state of a run at a place is what the facts up to there show, but for a return to pending, which no fact tells of. */
export function checkFolded(
  facts: Facts,
  { seq }: Pick<RunFacts, "seq">,
  folded: Folded,
  state: RunState,
  steps: readonly Step[] | null,
): void {
  facts.expect(state.seq === seq, "J3", () => `${state.run.id} has the row number ${state.seq}, not ${seq}`);
  const { run, execution } = state;
  const isReturned = run.status === "pending" && folded.status === "running";
  // Before it was cancelled, or failed other than by its function, it may have returned to pending.
  const mayHaveReturned = run.status === "cancelled" || (run.failureKind !== null && run.failureKind !== "error");
  const wasReturned = isReturned || (mayHaveReturned && execution === folded.execution + 1);
  const shown = {
    ...folded,
    status: isReturned ? "pending" : folded.status,
    execution: wasReturned ? folded.execution + 1 : folded.execution,
    generation: folded.status === "running" && !isReturned ? folded.generation : null,
    owner: folded.status === "running" && !isReturned ? folded.owner : null,
    pauses: folded.status === "waiting" ? sorted(folded.pauses) : [],
    steps: null,
  };
  const kept: typeof shown = {
    status: run.status,
    generation: run.status === "running" ? run.leaseGeneration : null,
    owner: run.leaseOwner,
    execution,
    progress: JSON.stringify(run.progress),
    pauses: sorted(state.pauses),
    steps: null,
    held: run.held === null ? null : { code: run.held.code, message: run.held.message },
    retriggeredAs: run.retriggeredAs,
    isDeleted: false,
  };
  const isSame = JSON.stringify(shown) === JSON.stringify(kept) && (steps === null || hasSteps(folded, steps));
  facts.expect(isSame, "J3", () => {
    const told = JSON.stringify({ ...shown, steps: [...folded.steps] });
    return `up to ${state.place.position} the journal shows ${run.id} as ${told}\nand its state is ${
      JSON.stringify({ ...kept, steps })
    }`;
  });
}

function hasSteps(folded: Folded, steps: readonly Step[]): boolean {
  return folded.steps.size === steps.length && steps.every(({ name, index, attempts, status, completedAt }) => {
    const known = folded.steps.get(name);
    if (known === undefined || known.index !== index) return false;
    if (known.status === "cancelled") {
      return status === "cancelled" && (known.attempts === 0 || known.attempts === attempts);
    }
    return known.attempts === attempts && known.status === (completedAt === null ? "retrying" : status);
  });
}

function sorted(pauses: readonly AwaitedPause[]): AwaitedPause[] {
  const keyOf = ({ waitId, name, deadlineAt }: AwaitedPause) => JSON.stringify([name, waitId, deadlineAt]);
  return pauses.map(({ waitId, name, deadlineAt }) => ({ waitId, name, deadlineAt }))
    .sort((left, right) => keyOf(left) < keyOf(right) ? -1 : 1);
}
