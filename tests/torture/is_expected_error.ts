import { StoreError } from "../../src/model/error.ts";

/**
 * Whether an error that a worker has logged is a consequence of the faults of a storm, rather than a bug: its store is
 * unavailable, or its event loop was blocked.
 */
export function isExpectedError(error: unknown): boolean {
  if (error instanceof StoreError) return error.code === "unavailable";
  return error instanceof Error && /^The event loop was blocked for \d+ ms/.test(error.message);
}
