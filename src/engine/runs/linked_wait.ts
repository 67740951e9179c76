import { isTerminal, type RunText } from "../../model/run.ts";
import type { Wait } from "../../model/wait.ts";
import { getWaits } from "../../store/reads.ts";
import type { Store } from "../../store/store.ts";

/** The wait that a link is for. */
export interface LinkedWait {
  /** The newest retry of the run, or the run itself; `null`: there is none. */
  run: RunText | null;
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
  const readRun = async (id: string) => (await store.readRuns([id], 1))[0] ?? null;
  let run = await readRun(runId);
  for (let at = 0; at < MAX_RETRIES && run !== null && run.retriggeredAs !== null; at++) {
    const retry = await readRun(run.retriggeredAs);
    if (retry === null) break; // deleted: nothing asks any more but what is left
    run = retry;
  }
  if (run === null) return { run, wait: null, mayCome: false };
  const waits = await getWaits(store, run.id);
  const wait = waits.find(({ name }) => name === waitName) ?? null;
  return { run, wait, mayCome: !isTerminal(run.status) };
}
