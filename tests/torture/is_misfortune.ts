import { StoreError } from "../../src/error.ts";

/**
 * Whether a complaint of a worker tells of what a storm does to it, rather than of a mistake: its store cannot answer
 * for now, or its event loop was blocked.
 */
export function isMisfortune(error: unknown): boolean {
  if (error instanceof StoreError) return error.code === "unavailable";
  return error instanceof Error && /^The event loop was blocked for \d+ ms/.test(error.message);
}
