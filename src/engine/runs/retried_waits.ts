import type { Wait } from "../../model/wait.ts";
import { getRun, getWaits } from "../../store/reads.ts";
import type { Store } from "../../store/store.ts";
import { isTerminal } from "../../model/run.ts";

/**
 * The wait that a signal to this one is for. A wait that was open when its run ended is prepared anew, under another id,
 * by a retry from the failure, which does not send the mail with the old id again. So what comes to the old id is for the
 * wait of that name in the newest retry, once that has it. A retry from the start asks, and sends, anew.
 */
export async function currentWait(store: Store, wait: Wait): Promise<Wait> {
  if (wait.status !== "closed" && wait.status !== "cancelled") return wait;
  let current = wait;
  let run = await getRun(store, wait.runId);
  while (run !== null && run.retriggeredAs !== null) {
    const history = await store.getHistory(run.retriggeredAs);
    if (history === null || history.copied === null) break;
    run = await getRun(store, run.retriggeredAs);
    if (run === null) break;
    const { id: runId } = run;
    current = (await getWaits(store, runId)).find(({ name }) => name === wait.name) ?? current;
  }
  return current;
}

/** The wait that a link is for. */
interface LinkedWait {
  /** Its wait of that name; `null`: it has none. */
  wait: Wait | null;
  /** Whether the run may still prepare it. */
  mayCome: boolean;
}

// A chain of retries that is longer is followed so far.
const MAX_RETRIES = 100;

/**
 * The wait that a link is for: that of its name in the newest retry of the run. A retry from the failure prepares an open
 * wait anew, under another id, but does not execute again the step that has sent the link.
 */
export async function findLinkedWait(
  store: Pick<Store, "readRuns" | "readWaits">,
  { runId, waitName }: { runId: string; waitName: string },
): Promise<LinkedWait> {
  const findWait = async (id: string) => (await getWaits(store, id)).find(({ name }) => name === waitName) ?? null;
  const named = await findWait(runId);
  if (named?.status === "pending") return { wait: named, mayCome: true }; // its run has not ended, so it has no retry
  const readRun = async (id: string) => (await store.readRuns([id], 1))[0] ?? null;
  let run = await readRun(runId);
  for (let at = 0; at < MAX_RETRIES && run !== null && run.retriggeredAs !== null; at++) {
    const retry = await readRun(run.retriggeredAs);
    if (retry === null) break; // deleted: nothing asks any more but what is left
    run = retry;
  }
  if (run === null) return { wait: null, mayCome: false };
  return { wait: run.id === runId ? named : await findWait(run.id), mayCome: !isTerminal(run.status) };
}
