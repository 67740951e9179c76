import type { Fact, Placed } from "../fact.ts";
import { isOver, type RunRows } from "../rows.ts";

type OfKind<Kind extends Fact["is"]> = Placed<Extract<Fact, { is: Kind }>>;

/**
 * Checks what a ledger says of the steps of a run against what is recorded: nothing that was acknowledged is executed
 * again or lost, and what is recorded is what a function has returned.
 *
 * A zombie, that is a body under an older lease than that of the acknowledged attempt, may start a step that it does not
 * know to be recorded; one under the same lease or a newer one may not.
 *
 * @param facts All facts of the run, in their order.
 * @param inherited Values that the run may have been given by the run that it was made from.
 * @returns What is wrong.
 */
export function checkSteps(facts: readonly Placed[], run: RunRows, inherited: ReadonlySet<string>): string[] {
  const known = sortFacts(facts);
  return [
    ...findRestarts(known),
    ...findLostAcknowledgements(known, run),
    ...findForeignValues(known, run, inherited),
    ...findTwins(known),
    ...findAfterlife(known, run),
  ];
}

interface SortedFacts {
  begins: OfKind<"begin">[];
  starts: OfKind<"start">[];
  dones: OfKind<"done">[];
  acks: OfKind<"ack">[];
  overs: OfKind<"over">[];
}

function sortFacts(facts: readonly Placed[]): SortedFacts {
  const of = <Kind extends Fact["is"]>(kind: Kind) => facts.filter((fact): fact is OfKind<Kind> => fact.is === kind);
  return { begins: of("begin"), starts: of("start"), dones: of("done"), acks: of("ack"), overs: of("over") };
}

function findRestarts({ starts, dones, acks }: SortedFacts): string[] {
  return acks.flatMap((ack) => {
    const done = dones.find(({ step, value, at }) => step === ack.step && value === ack.value && at < ack.at);
    if (done === undefined) {
      return [`step "${ack.step}" was acknowledged with ${ack.value}, which nothing has returned`];
    }
    return starts
      .filter(({ step, at, generation, attempt }) =>
        step === ack.step && at > ack.at && generation >= done.generation && (ack.isLast || attempt <= done.attempt)
      )
      .map(({ attempt, generation }) =>
        `attempt ${attempt} at step "${ack.step}" was started under lease ${generation} ` +
        `after an attempt under lease ${done.generation} had been acknowledged`
      );
  });
}

function findLostAcknowledgements({ acks }: SortedFacts, run: RunRows): string[] {
  const rows = new Map(run.steps.map((step) => [step.name, step]));
  return acks.flatMap(({ step, attempt, value, isLast }) => {
    const row = rows.get(step);
    if (row === undefined) return [`step "${step}" was acknowledged and is not recorded`];
    if (isLast && row.value !== value) {
      return [`step "${step}" was acknowledged with ${value}, recorded is ${row.value}`];
    }
    if (!isLast && row.attempts < attempt) return [`attempt ${attempt} at step "${step}" was acknowledged and is lost`];
    return [];
  });
}

function findForeignValues({ dones }: SortedFacts, run: RunRows, inherited: ReadonlySet<string>): string[] {
  const returned = new Set(dones.map(({ step, value }) => `${step} ${value}`));
  return run.steps
    .filter(({ name, value }) => value !== null && !returned.has(`${name} ${value}`) && !inherited.has(value))
    .map(({ name, value }) => `step "${name}" is recorded with ${value}, which its function has never returned`);
}

/** One lease is one execution, in which an attempt is made once. */
function findTwins({ begins, starts }: SortedFacts): string[] {
  const names = [
    ...begins.map(({ generation }) => `the body under lease ${generation}`),
    ...starts.map(({ step, attempt, generation }) => `attempt ${attempt} at step "${step}" under lease ${generation}`),
  ];
  return names.filter((name, index) => names.indexOf(name) < index).map((name) => `${name} was started twice`);
}

function findAfterlife({ begins, starts, overs }: SortedFacts, run: RunRows): string[] {
  const problems = [...begins, ...starts]
    .filter(({ generation }) => generation > run.generation)
    .map(({ is, generation }) => `a ${is} was under lease ${generation}, the newest is ${run.generation}`);
  const last = begins.findLast(({ generation }) => generation === run.generation);
  for (const { status, pid, at } of overs) {
    if (pid !== last?.pid) {
      problems.push(`process ${pid} has ended the run under an older lease than ${run.generation}`);
    }
    if (run.status !== status) problems.push(`the run was said to be ${status}, and is ${run.status}`);
    const late = [...begins, ...starts].filter((fact) => fact.at > at && fact.generation >= run.generation);
    for (const { is } of late) problems.push(`a ${is} came after the run was said to be ${status}`);
  }
  if (overs.length > 0 && !isOver(run.status)) problems.push("the run goes on after its end");
  return problems;
}
