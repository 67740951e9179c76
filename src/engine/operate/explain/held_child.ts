import type { Held } from "../../../model/hold.ts";
import type { Blocker, BlockingRun, RunBlockers } from "../../../store/blockers.ts";
import type { Store } from "../../../store/store.ts";

/** A child that is held: the run that waits for it waits for code, or for a person. */
export interface HeldChild {
  /** Tells it from what a store finds. */
  kind: "held_child";
  /** The newest such child. */
  child: BlockingRun;
  /** Its hold. */
  held: Held;
  /** How many children are held. */
  count: number;
}

/** What holds up a run, with a child that is held. */
export interface Causes extends Omit<RunBlockers, "blockers"> {
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
