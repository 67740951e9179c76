import type { RunStatus } from "../../model/run.ts";
import type { Blocker, RunBlockers } from "../../store/blockers.ts";
import type { Store } from "../../store/store.ts";
import { isoTime } from "../../values/iso_time.ts";
import { type HeldChild, type Reason, toReason, type Visibility } from "./reason.ts";

/** Why a run is not executed, or that it is. Times are ISO 8601 in UTC. */
export interface Explanation {
  /** The run. */
  runId: string;
  /** Its status. */
  status: RunStatus;
  /** When it was asked, by the store's clock. */
  at: string;
  /** The message of the first reason. */
  message: string;
  /** The reasons, the one to act on first at the front: at least one. */
  reasons: Reason[];
}

/** What holds up a run, with a child that is held. */
interface Causes extends Omit<RunBlockers, "blockers"> {
  /** The reasons: at least one. */
  blockers: readonly (Blocker | HeldChild)[];
}

/** Reads what holds up a run; `null` if there is none. A child that is held comes before those that are not. */
export async function readCauses(
  store: Pick<Store, "getBlockers" | "findRuns" | "readRuns">,
  runId: string,
): Promise<Causes | null> {
  const found = await store.getBlockers(runId);
  const at = found === null ? -1 : found.blockers.findIndex(({ kind }) => kind === "child");
  if (found === null || at === -1) return found;
  const { ids, total } = await store.findRuns({ parentRunId: runId, held: true, limit: 1 });
  const [run] = ids.length === 0 ? [] : await store.readRuns(ids, 1);
  if (run === undefined || run === null || run.held === null) return found;
  const { id, jobName, status, held } = run;
  const cause: HeldChild = { kind: "held_child", child: { runId: id, jobName, status }, held, count: total };
  return { ...found, blockers: [...found.blockers.slice(0, at), cause, ...found.blockers.slice(at)] };
}

/** The runs that the explanation would name, besides its own. */
export function namedRuns({ blockers }: Causes): string[] {
  return blockers.flatMap((blocker) => {
    if (blocker.kind === "child" || blocker.kind === "held_child") return [blocker.child.runId];
    if (blocker.kind === "parent_ended") return [blocker.runId];
    return blocker.kind === "key" && blocker.holder !== null ? [blocker.holder.runId] : [];
  });
}

/** What a store found, in words. */
export function toExplanation({ run, blockers, now }: Causes, visibility: Visibility): Explanation {
  const reasons = blockers.map((blocker) => toReason(blocker, { run, now, visibility }));
  return { runId: run.id, status: run.status, at: isoTime(now), message: reasons[0]!.message, reasons }; // there is one
}
