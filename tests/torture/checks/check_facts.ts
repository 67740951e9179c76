import type { Fact } from "../../../src/model/fact.ts";
import { isOver, type RunRows } from "../rows.ts";

const ENDS: Partial<Record<Fact[1], string>> = { completed: "completed", failed: "failed", cancelled: "cancelled" };

/**
 * Compares what the journal tells of a run with its rows, both read at one moment: nothing is told that is not recorded,
 * and nothing is recorded that is not told.
 *
 * @param facts All facts of the run, in their order.
 * @returns What is wrong.
 */
export function checkFacts(run: RunRows, facts: readonly Fact[]): string[] {
  const problems: string[] = [];
  const triggers = facts.filter(([, kind]) => kind === "triggered").length;
  if (triggers !== 1 || facts[0]?.[1] !== "triggered") problems.push(`it was triggered ${triggers} times`);
  const ends = facts.flatMap(([, kind]) => ENDS[kind] ?? []);
  const expected = isOver(run.status) ? [run.status] : [];
  if (ends.join() !== expected.join()) problems.push(`it is ${run.status}, and its ends are ${ends.join(", ")}`);
  const afterEnd = facts.slice(facts.findIndex(([, kind]) => kind in ENDS) + 1);
  const isLate = ([, kind]: Fact) => kind !== "retried" && kind !== "deleted";
  if (ends.length > 0 && afterEnd.some(isLate)) problems.push(`something came after its end`);
  problems.push(...checkClaims(run, facts), ...checkSteps(run, facts));
  return problems.map((problem) => `run ${run.id}: the journal differs: ${problem}: ${JSON.stringify(facts)}`);
}

function checkClaims({ generation }: RunRows, facts: readonly Fact[]): string[] {
  const generations = facts.flatMap((fact) => fact[1] === "claimed" ? [fact[2]] : []);
  const isRising = generations.every((one, at) => at === 0 || generations[at - 1]! < one);
  return isRising && (generations.at(-1) ?? 0) <= generation
    ? []
    : [`it was claimed under ${generations.join(", ")}, its lease is number ${generation}`];
}

function isTold(told: string, name: string): boolean {
  return told === `${name} cancelled` || told.startsWith(`${name} retrying after `);
}

function checkSteps({ steps }: RunRows, facts: readonly Fact[]): string[] {
  const told = facts.flatMap((fact) => {
    if (fact[1] === "step_completed") return [`${fact[2]} completed after ${fact[4]}`];
    if (fact[1] === "step_failed") return [`${fact[2]} ${fact[7] === null ? "failed" : "retrying"} after ${fact[4]}`];
    return fact[1] === "step_cancelled" ? [`${fact[2]} cancelled`] : [];
  });
  const recorded = steps.flatMap(({ name, status, attempts, isCopied }) => {
    if (isCopied) return [];
    // Between two attempts it is only noted: the contract has `step:cancel` for steps that are executed.
    if (status === "cancelled") return told.filter((step) => isTold(step, name));
    const failed = Array.from({ length: attempts - 1 }, (_, at) => `${name} retrying after ${at + 1}`);
    return [...failed, `${name} ${status} after ${attempts}`];
  });
  const missing = recorded.filter((step) => !told.includes(step));
  const extra = told.filter((step, at) => !recorded.includes(step) || told.indexOf(step) < at);
  return [...missing.map((step) => `no fact says ${step}`), ...extra.map((step) => `a fact says ${step}`)];
}
