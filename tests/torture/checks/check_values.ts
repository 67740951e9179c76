import type { Placed } from "../fact.ts";
import { FAILING_JOB } from "../jobs.ts";
import type { RunRows } from "../rows.ts";

/**
 * Checks that all bodies of a run have seen what is recorded, on every replay, and that its end follows from it.
 *
 * @param facts All facts of the run.
 * @returns What is wrong.
 */
export function checkValues(facts: readonly Placed[], run: RunRows): string[] {
  return [...findOtherReplays(facts, run), ...checkEnding(run)];
}

/** Checks that a run has ended as what is recorded in it says. Needs no ledger. */
export function checkEnding(run: RunRows): string[] {
  if (run.status === "completed") return checkOutput(run);
  return run.status === "failed" ? checkFailure(run) : [];
}

function findOtherReplays(facts: readonly Placed[], run: RunRows): string[] {
  const recorded = recordedValues(run);
  return facts.flatMap((fact) => {
    if (fact.is !== "replay" && fact.is !== "outcome") return [];
    const name = fact.is === "replay" ? `step ${fact.step}` : `wait ${fact.wait}`;
    const expected = recorded.get(name) ?? "nothing";
    if (fact.value === expected) return [];
    return [`a body under lease ${fact.generation} saw ${fact.value} of ${name}, recorded is ${expected}`];
  });
}

function checkOutput(run: RunRows): string[] {
  if (run.job === FAILING_JOB) return ["a run whose step fails was completed"];
  if (run.output === null) return ["a completed run has no output"];
  const problems: string[] = [];
  if (run.output.token !== run.input.token) problems.push(`the output is that of ${run.output.token}`);
  const recorded = recordedValues(run);
  for (const [kind, name, value] of run.output.seen) {
    const expected = recorded.get(`${kind} ${name}`) ?? "nothing";
    if (value !== expected) problems.push(`the output has ${value} of ${kind} ${name}, recorded is ${expected}`);
    recorded.delete(`${kind} ${name}`);
  }
  for (const name of recorded.keys()) problems.push(`the output knows nothing of ${name}`);
  return problems;
}

function checkFailure({ job, error, failedStep, steps }: RunRows): string[] {
  // Nothing else makes a run fail: not what happens to workers, nor what the store goes through.
  if (job !== FAILING_JOB) return [`a run of "${job}" has failed: ${error}`];
  const broken = steps.find(({ name }) => name === "broken");
  if (failedStep === "broken" && broken?.value === `failed: ${error}`) return [];
  return [`the run has failed with ${error} for step ${failedStep}, recorded is ${broken?.value}`];
}

function recordedValues({ steps, pauses }: RunRows): Map<string, string> {
  return new Map([
    ...steps.flatMap(({ name, value }) => value === null ? [] : [[`step ${name}`, value] as const]),
    ...pauses.flatMap(({ kind, name, value }) =>
      kind !== "wait" || value === null ? [] : [[`wait ${name}`, value] as const]
    ),
  ]);
}
