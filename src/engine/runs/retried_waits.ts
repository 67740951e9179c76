import type { Wait } from "../../model/wait.ts";
import { isTerminal } from "../../model/run.ts";
import { getWaits } from "../../store/reads.ts";
import type { Store } from "../../store/store.ts";

/** Where waits are found. */
interface WaitReads {
  store: Pick<Store, "readRuns" | "readWaits" | "findRetry">;
}

/**
 * The wait that a signal to this one is for. A wait that was open when its run ended is prepared anew, under another id,
 * by a retry from the failure, which does not send the mail with the old id again. So what comes to the old id is for the
 * wait of that name in the newest retry, once that has it. A retry from the start asks, and sends, anew.
 */
export async function currentWait(reads: WaitReads, wait: Wait): Promise<Wait> {
  if (wait.status !== "closed" && wait.status !== "cancelled") return wait;
  let current = wait;
  let runId: string | null = wait.runId;
  while ((runId = await reads.store.findRetry(runId)) !== null) {
    current = await findNamed(reads, runId, wait.name) ?? current;
  }
  return current;
}

async function findNamed({ store }: WaitReads, runId: string, name: string): Promise<Wait | null> {
  return (await getWaits(store, runId)).find((wait) => wait.name === name) ?? null;
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
  reads: WaitReads,
  { runId, waitName }: { runId: string; waitName: string },
): Promise<LinkedWait> {
  const { store } = reads;
  const named = await findNamed(reads, runId, waitName);
  if (named?.status === "pending") return { wait: named, mayCome: true }; // its run has not ended, so it has no retry
  const readRun = async (id: string | null) => id === null ? null : (await store.readRuns([id], 1))[0] ?? null;
  let run = await readRun(runId);
  for (let at = 0; at < MAX_RETRIES && run !== null && run.retriggeredAs !== null; at++) {
    // The newest retry may have been deleted, and what continues that be left.
    const retry = await readRun(run.retriggeredAs) ?? await readRun(await store.findRetry(run.id));
    if (retry === null) break;
    run = retry;
  }
  if (run === null) return { wait: null, mayCome: false };
  const wait = run.id === runId ? named : await findNamed(reads, run.id, waitName);
  return { wait, mayCome: !isTerminal(run.status) };
}
