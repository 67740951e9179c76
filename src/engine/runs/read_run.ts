import { NotFoundError } from "../../model/error.ts";
import type { RunText } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";

/**
 * Reads a run that should exist.
 *
 * @throws {NotFoundError} There is no such run.
 */
export async function readRun(store: Pick<Store, "readRuns" | "getWait">, runId: string): Promise<RunText> {
  const [run] = await store.readRuns([runId], Infinity);
  return run ?? await refuseUnknownRun(store, runId);
}

/**
 * Explains an id that is not a run's.
 *
 * @throws {NotFoundError} Always. The message says if it is the id of a wait.
 */
export async function refuseUnknownRun(store: Pick<Store, "getWait">, runId: string): Promise<never> {
  const wait = await store.getWait(runId);
  throw new NotFoundError(
    wait === null
      ? `There is no run "${runId}"`
      : `"${runId}" is the id of a wait, not of a run: it belongs to run "${wait.runId}"`,
  );
}
