import { errorMessage } from "../../../values/unknown_values.ts";
import { StoreError, WorkError } from "../../../model/error.ts";
import { isOfStandby, sqlState } from "../database/client.ts";
import type { OpenTransaction } from "./drivers.ts";

const MAX_REPEATS = 10;
const MAX_PAUSE_MS = 50;
// Serialization failure, deadlock, lock not available: another try may succeed.
const REPEATED = /^(40001|40P01|55P03)$/;
const LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/** The connection was lost while the function was executed: nothing was committed. */
export class ConnectionLostError extends WorkError {}

/** A statement of ours has failed, and not the function: its `cause` is the error of the driver. */
export class OwnError extends Error {}

/** Throws the error of a statement of ours. */
export function own(cause: unknown): never {
  throw new OwnError("A statement of Holdfast has failed", { cause });
}

/**
 * Executes a transaction, and repeats it up to ten times if others were in its way.
 *
 * @param mayRepeat Whether it is repeated after an error of another kind, too.
 */
export async function repeatTransaction<T>(
  attempt: () => Promise<T>,
  abortSignal: AbortSignal | null,
  mayRepeat: (error: unknown) => boolean,
): Promise<T> {
  for (let repeats = 0;; repeats++) {
    try {
      return await attempt();
    } catch (error) {
      const cause = error instanceof OwnError || error instanceof WorkError ? error.cause : error;
      const isRepeated = REPEATED.test(sqlState(cause) ?? "") || mayRepeat(error);
      if (!isRepeated || repeats === MAX_REPEATS || abortSignal?.aborted) throw error;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * MAX_PAUSE_MS));
    }
  }
}

/** Calls the function of a transaction, and ends its client. What it throws, and the reason of the signal, are the cause of a WorkError. */
export async function callWork<T>(
  work: (tx: object) => T | Promise<T>,
  open: OpenTransaction,
  toTx: (client: unknown) => object,
  abortSignal: AbortSignal | null,
): Promise<T> {
  try {
    return await untilAborted(work, toTx(open.client), abortSignal);
  } finally {
    open.endWork();
  }
}

async function untilAborted<T>(
  work: (tx: object) => T | Promise<T>,
  tx: object,
  abortSignal: AbortSignal | null,
): Promise<T> {
  const working = (async () => await work(tx))().catch((error) => {
    throw new WorkError(error);
  });
  if (abortSignal === null) return await working;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = () => reject(new WorkError(abortSignal.reason));
  abortSignal.addEventListener("abort", abort, { once: true });
  working.catch(() => {}); // it may fail when nobody waits for it any more
  try {
    if (abortSignal.aborted) abort();
    return await Promise.race([working, aborted]);
  } finally {
    abortSignal.removeEventListener("abort", abort);
  }
}

/**
 * Rolls back, and throws the error. If the connection is lost, the function has failed because of that.
 *
 * @throws {ConnectionLostError} The connection is lost.
 */
export async function rollBack(
  open: OpenTransaction,
  error: unknown,
  abortSignal: AbortSignal | null,
): Promise<never> {
  // A statement of the function may still be under way.
  const isAborted = abortSignal?.aborted ?? false;
  const cause = error instanceof WorkError ? error.cause : null;
  const isAnswered = await open.rollback({ destroy: isAborted || isOfStandby(error) });
  if (isAborted || isAnswered || cause === null) throw error;
  throw new ConnectionLostError(
    new StoreError(`The connection of the transaction is lost: ${errorMessage(cause)}`, { cause }),
  );
}

/**
 * The isolation level in the words of SQL.
 *
 * @throws {WorkError} It is none: its cause is a TypeError.
 */
export function levelOf(isolation: string | undefined): string | undefined {
  if (isolation === undefined) return undefined;
  const level = String(isolation).toUpperCase();
  if (LEVELS.includes(level)) return level;
  throw new WorkError(
    new TypeError(`isolation must be one of ${LEVELS.join(", ").toLowerCase()}, not "${isolation}"`),
  );
}
