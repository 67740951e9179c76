import { isLastEvent, type RunEvent } from "../../../src/event.ts";
import type { RunRows } from "../rows.ts";

/** What somebody read who followed a run over HTTP. */
export interface HeardStream {
  run: string;
  events: RunEvent[];
  /** Whether it was ended by its server, rather than cut off. */
  isEnded: boolean;
  /** Whether its server has stopped, which ends all streams. */
  isServerGone: boolean;
}

/**
 * Checks that a stream tells each thing once, in an order that can be, and how the run really ended.
 *
 * @param run What is recorded, or `null` if the run was deleted meanwhile.
 * @returns What is wrong.
 */
export function checkStream(stream: HeardStream, run: RunRows | null): string[] {
  return [...checkOrder(stream.events), ...findRepeated(stream.events), ...checkEnding(stream, run)];
}

function checkOrder(events: readonly RunEvent[]): string[] {
  const problems: string[] = [];
  let isLeased = false;
  let isStarted = false;
  let last: RunEvent | null = null;
  for (const event of events) {
    if (last !== null && isLastEvent(last) && event.type !== "run:delete" && event.type !== "run:retry") {
      problems.push(`${event.type} came after ${last.type}`);
    }
    if (event.type === "run:leased") {
      isLeased = true;
      isStarted = false;
    } else if (event.type === "run:start") {
      if (!isLeased) problems.push("run:start came before run:leased");
      if (isStarted) problems.push("run:start came twice under one lease");
      isStarted = true;
    } else if (event.type === "run:waiting") isLeased = false;
    last = event;
  }
  return problems;
}

function findRepeated(events: readonly RunEvent[]): string[] {
  const names = events.flatMap((event) => {
    if (event.type === "step:complete" || event.type === "step:cancel") return [`${event.type} of "${event.stepName}"`];
    if (event.type === "step:fail") return [`step:fail of attempt ${event.attempt} at "${event.stepName}"`];
    if (event.type === "run:trigger" || isLastEvent(event)) return [event.type];
    return [];
  });
  return names.filter((name, index) => names.indexOf(name) < index).map((name) => `${name} was told twice`);
}

function checkEnding({ events, isEnded, isServerGone }: HeardStream, run: RunRows | null): string[] {
  const ending = events.find((event) => isLastEvent(event) && event.type !== "run:delete");
  const isDeleted = events.some(({ type }) => type === "run:delete");
  if (ending === undefined) return isEnded && !isServerGone && !isDeleted ? ["the stream ended before the run"] : [];
  if (run === null) return [];
  const expected = { completed: "run:complete", failed: "run:fail", cancelled: "run:cancel" }[run.status];
  if (ending.type !== expected) return [`the stream ended with ${ending.type}, and the run is ${run.status}`];
  if (ending.type === "run:complete" && JSON.stringify(ending.output) !== JSON.stringify(run.output)) {
    return ["run:complete told another output"];
  }
  if (ending.type === "run:fail" && ending.error !== run.error) return [`run:fail told of ${ending.error}`];
  return checkSteps(events, run);
}

function checkSteps(events: readonly RunEvent[], { steps }: RunRows): string[] {
  return events.flatMap((event) => {
    if (event.type !== "step:complete") return [];
    const recorded = steps.find(({ name }) => name === event.stepName)?.value;
    const told = JSON.stringify(event.output);
    return recorded === told ? [] : [`step:complete told ${told} of "${event.stepName}", recorded is ${recorded}`];
  });
}
