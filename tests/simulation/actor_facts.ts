import type { NewRun } from "../../src/store/new_run.ts";
import type { Signal } from "../../src/model/wait.ts";
import { type Facts, isSignalPermitted, type RunFacts, type WaitFacts } from "./facts.ts";

/** A link, as it was sent to somebody. */
export interface LinkFacts {
  /** The run and the wait for which it was made. */
  runId: string;
  waitName: string;
  /** Who got it. */
  for: string;
  /** When it expires, by the clock of the process that serves it. */
  expiresAt: number;
  signalId: string;
  /** What was answered by it. */
  posted: Set<string>;
}

/** Who has done something, as a note of what somebody asked for who may. */
export function deed(what: string, by: string | null): string {
  return `${what} by ${by}`;
}

/** Who triggered a new run is one of those who have asked for it; `null`: a step, a schedule, or many at once. */
export function checkTriggeredBy(facts: Facts, request: NewRun, by: string | null, isOne: boolean): void {
  const { id, payload, retriggerOf, schedule } = request;
  const asked = retriggerOf === null ? `trigger ${payload}` : `retrigger ${retriggerOf.runId}`;
  const isNamed = isOne && (retriggerOf !== null || (schedule === null && !facts.triggeredBySteps.has(id)));
  facts.expect(
    isNamed ? facts.deeds.has(deed(asked, by)) : by === null,
    "A1",
    () => `${id} was triggered by ${by}, who has not asked for it`,
  );
}

/** Who answered a wait has sent that signal, or got that link. */
export function checkSignalledBy(
  facts: Facts,
  wait: WaitFacts,
  { signalId, payload }: Signal,
  by: string | null,
): void {
  const link = facts.links.get(signalId);
  if (link === undefined) {
    return facts.expect(
      isSignalPermitted(facts, wait, deed(signalId, by)),
      signalId.startsWith("link/") ? "A2" : "A1",
      () => `${wait.id} took ${signalId} from ${by}, who has not sent it`,
    );
  }
  facts.notice("a wait was answered by a link");
  facts.expect(
    link.posted.has(JSON.stringify(payload)) && link.for === by && isLinkedTo(facts, link, wait),
    "A2",
    () => `${wait.id} took ${JSON.stringify(payload)} of ${by} by the link ${JSON.stringify(link)}`,
  );
}

/** Whether a wait is one that a link is for: that of its name, in its run or in a retry of it. */
export function isLinkedTo(
  facts: Facts,
  { runId, waitName }: LinkFacts,
  wait: Pick<WaitFacts, "runId" | "name">,
): boolean {
  return wait.name === waitName && retriesOf(facts, runId).some(({ request: { id } }) => id === wait.runId);
}

/** A run, and all its retries. */
export function retriesOf(facts: Facts, runId: string): RunFacts[] {
  const isOf = (run: RunFacts | undefined): boolean =>
    run !== undefined &&
    (run.request.id === runId || isOf(facts.runs.get(run.request.retriggerOf?.runId ?? "")));
  return [...facts.runs.values()].filter(isOf);
}
