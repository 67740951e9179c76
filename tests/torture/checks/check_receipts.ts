import { isOver, type RunRows } from "../rows.ts";

/** What the client was answered of one wait. */
export interface SignalReceipt {
  waitId: string;
  /** As in the ledger. */
  value: string;
  /** The wait as it was shown, byte for byte. */
  shown: string;
}

/** All that the client has done with a run, and was told of it. */
export interface RunReceipts {
  /** What it was triggered as, if the client knows. */
  job: string | null;
  key: string | null;
  token: string | null;
  /** Whether somebody has asked to cancel it, and whether that was confirmed. */
  isCancelAsked: boolean;
  isCancelled: boolean;
  /** Whether a cancel was refused because the run had ended. */
  isSeenOver: boolean;
  /** How often it was asked to delete it, and whether that was confirmed. */
  deletesAsked: number;
  isDeleted: boolean;
  /** What was accepted, by the id of the wait. */
  signals: Map<string, SignalReceipt>;
  /** What was sent to each wait, as in the ledger, whether or not it was answered. */
  sent: Map<string, Set<string>>;
}

/** Nothing known of a run yet. */
export function noReceipts(): RunReceipts {
  return {
    job: null,
    key: null,
    token: null,
    isCancelAsked: false,
    isCancelled: false,
    isSeenOver: false,
    deletesAsked: 0,
    isDeleted: false,
    signals: new Map(),
    sent: new Map(),
  };
}

/**
 * Checks that a run is as its client was told.
 *
 * @param run What is recorded, or `null` if there is no such run.
 * @returns What is wrong.
 */
export function checkReceipts(receipts: RunReceipts, run: RunRows | null): string[] {
  if (run === null) return receipts.deletesAsked > 0 ? [] : ["the run is gone, and nobody has deleted it"];
  const problems: string[] = [];
  const expect = (isTrue: boolean, what: string) => {
    if (!isTrue) problems.push(what);
  };
  const { job, key, token } = receipts;
  expect(!receipts.isDeleted, "the run was deleted, and is there");
  expect(job === null || job === run.job, `the run was triggered as ${job}, and is one of ${run.job}`);
  expect(token === null || token === run.input.token, `the run was triggered with ${token}, and has another input`);
  expect(job === null || key === run.key, `the run was triggered for key ${key}, and has ${run.key}`);
  expect(!receipts.isCancelled || run.status === "cancelled", `the run was cancelled, and is ${run.status}`);
  expect(run.status !== "cancelled" || receipts.isCancelAsked, "the run is cancelled, and nobody has asked for that");
  expect(!receipts.isSeenOver || isOver(run.status), `the run was said to have ended, and is ${run.status}`);
  return [...problems, ...checkSignals(receipts, run)];
}

function checkSignals({ signals, sent }: RunReceipts, { pauses }: RunRows): string[] {
  const problems: string[] = [];
  for (const { waitId, value } of signals.values()) {
    const recorded = pauses.find(({ id }) => id === waitId)?.value ?? null;
    if (recorded !== value) problems.push(`signal ${value} to wait ${waitId} was accepted, recorded is ${recorded}`);
  }
  for (const { id, value, hasSignal } of pauses) {
    if (hasSignal && !sent.get(id)?.has(value!)) problems.push(`wait ${id} has signal ${value}, which nobody has sent`);
  }
  return problems;
}
