import type { Placed } from "../fact.ts";
import type { RunRows } from "../rows.ts";
import { checkSteps } from "./check_steps.ts";
import { checkValues } from "./check_values.ts";

/**
 * Checks what the ledger of a process says that has worked off a copy of the database: what the copy shows as recorded
 * is not executed again, and what came later follows the same rules as ever.
 *
 * @param facts All facts of the run since the copy was opened, in their order.
 * @param before The run as the copy had it; `null` if it had ended there.
 * @param after The run as it stands now.
 * @returns What is wrong.
 */
export function checkRecovery(facts: readonly Placed[], before: RunRows | null, after: RunRows): string[] {
  if (before === null) return facts.map(({ is }) => `a ${is} came though the run had ended`);
  const known = before.steps.flatMap(({ value }) => value === null ? [] : [value]);
  return [
    ...findRestarts(facts, before),
    ...checkSteps(facts, after, new Set(known)),
    ...checkValues(facts, after),
  ];
}

function findRestarts(facts: readonly Placed[], { steps }: RunRows): string[] {
  const recorded = new Map(steps.map((step) => [step.name, step]));
  return facts.flatMap((fact) => {
    if (fact.is !== "start") return [];
    const step = recorded.get(fact.step);
    if (step === undefined || (step.status === "retrying" && fact.attempt > step.attempts)) return [];
    return [
      `attempt ${fact.attempt} at step "${fact.step}" was started, ` +
      `which was recorded as ${step.status} after ${step.attempts}`,
    ];
  });
}
