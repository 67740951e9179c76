import { ValidationError } from "../../model/error.ts";
import type { Run } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { FoundBy, SearchHit } from "../../store/operator_reads.ts";
import { getRun } from "../../store/reads.ts";

/** A run that a search has found, and by what. */
export interface FoundRun {
  /** The run. */
  run: Run;
  /** By its id, the id of one of its waits, its idempotency or concurrency key, or one of its labels. */
  by: FoundBy;
}

/** How many runs a search finds at most. */
export const MAX_FOUND = 20;
const MAX_TEXT_LENGTH = 320; // a label: its key, "=", and its value

/**
 * Checks the text of a search.
 *
 * @throws {ValidationError} It is no string of 1 to 320 characters.
 */
export function checkSearch(text: unknown): string {
  if (typeof text === "string" && text.length > 0 && text.length <= MAX_TEXT_LENGTH && text.isWellFormed()) {
    if (!text.includes("\0")) return text;
  }
  throw new ValidationError(`What is searched for must be a string of 1 to ${MAX_TEXT_LENGTH} characters`);
}

/**
 * The runs that a search has found, each once: 20 at most.
 *
 * @param mayShow Which of the runs with these ids may be shown; `null`: each may.
 */
export async function findRuns(
  store: Pick<Store, "readRuns">,
  hits: readonly SearchHit[],
  mayShow: ((runId: string) => Promise<boolean>) | null,
): Promise<FoundRun[]> {
  const found = new Map<string, FoundRun>();
  const seen = new Set<string>();
  for (const { runId, by } of hits) {
    if (found.size === MAX_FOUND) break;
    if (seen.has(runId)) continue;
    seen.add(runId);
    if (mayShow !== null && !await mayShow(runId)) continue;
    const run = await getRun(store, runId);
    if (run !== null) found.set(runId, { run, by });
  }
  return [...found.values()];
}
