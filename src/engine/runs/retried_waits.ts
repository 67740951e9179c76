import type { Wait } from "../../model/wait.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { newNamesOf } from "../../model/job/job_changes.ts";
import { isTerminal } from "../../model/run.ts";
import { getWaits } from "../../store/reads.ts";
import type { Store } from "../../store/store.ts";
import type { RunOfJob } from "../../store/transaction.ts";

/** Where waits are found, and what has become of their names. */
interface WaitReads {
  store: Pick<Store, "readRuns" | "readWaits" | "findRetry">;
  jobs: JobCatalog;
}

/**
 * The wait that a signal to this one is for. A wait that was open when its run ended is prepared anew, under another id,
 * by a retry from the failure, which does not send the mail with the old id again. So what comes to the old id is for the
 * wait of that name in the newest retry, once that has it. A retry from the start asks, and sends, anew.
 */
export async function currentWait(reads: WaitReads, wait: Wait): Promise<Wait> {
  if (!isClosed(wait)) return wait;
  let current = wait;
  let runId: string | null = wait.runId;
  while ((runId = await reads.store.findRetry(runId)) !== null) {
    current = await findNamed(reads, runId, wait.name) ?? current;
  }
  return current;
}

/** Whether a wait has ended with its run, without an answer. */
export function isClosed({ status }: Pick<Wait, "status">): boolean {
  return status === "closed" || status === "cancelled";
}

/** The later names of a wait, as the job that executes a run declares them (`changes.renamed`). */
export function laterNamesOf(name: string, { jobName, version }: RunOfJob, jobs: JobCatalog): string[] {
  const job = jobs.executing(jobName, version)?.job;
  return job === undefined ? [] : newNamesOf(name, job.changes);
}

/** The wait of a run with a name, or with one of the later names of that. */
async function findNamed({ store, jobs }: WaitReads, runId: string, name: string): Promise<Wait | null> {
  const waits = await getWaits(store, runId);
  const named = waits.find((wait) => wait.name === name);
  const [run] = named === undefined && waits.length > 0 ? await store.readRuns([runId], 1) : [];
  const names = run ? laterNamesOf(name, run, jobs) : [];
  return named ?? waits.find((wait) => names.includes(wait.name)) ?? null;
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
