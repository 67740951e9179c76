import { outcomeOf } from "../fact.ts";
import type { SignalReceipt } from "./check_receipts.ts";

/** What is known of a wait through the answers that its signals got. */
export interface SignalHistory {
  /** What was accepted. */
  receipt: SignalReceipt | null;
  /** Whether somebody was told "accepted", rather than "duplicate". */
  isAccepted: boolean;
  /** Whether somebody was told that the deadline had passed. */
  isExpired: boolean;
}

/** What a signal was answered. */
export interface SignalAnswer {
  waitId: string;
  /** What was sent, as in the ledger. */
  value: string;
  status: number;
  text: string;
  /** Whether the run may have been deleted. */
  mayBeGone: boolean;
}

/**
 * Checks an answer to a signal against those before it, and takes it into the history.
 *
 * @returns What is wrong, or `null`.
 */
export function checkSignalAnswer(history: SignalHistory, answer: SignalAnswer): string | null {
  const problem = findProblem(history, answer);
  if (answer.status === 410) history.isExpired = true;
  if (answer.status === 200 && problem === null) {
    const { waitId, value, text } = answer;
    history.isAccepted ||= dispositionOf(text) === "accepted";
    history.receipt ??= { waitId, value, shown: shownOf(text) };
  }
  return problem;
}

function findProblem(
  { receipt, isAccepted, isExpired }: SignalHistory,
  { waitId, value, status, text, mayBeGone }: SignalAnswer,
): string | null {
  const told = `signal ${value} to wait ${waitId} was answered ${status} ${text}`;
  if (status === 404 && mayBeGone) return null;
  if (status === 200) {
    const { wait } = JSON.parse(text);
    if (outcomeOf(wait) !== value) return `${told}: that is another signal`;
    if (isExpired) return `${told}: its deadline had passed before`;
    if (receipt !== null && shownOf(text) !== receipt.shown) return `${told}: the first receipt was ${receipt.shown}`;
    if (isAccepted && dispositionOf(text) === "accepted") return `${told}: it had been accepted before`;
    return null;
  }
  if (status === 410 && receipt === null) return null;
  if (status === 409 && (receipt === null || receipt.value !== value)) return null;
  return receipt === null ? told : `${told}: accepted was ${receipt.value}`;
}

function dispositionOf(text: string): string {
  return JSON.parse(text).disposition;
}

/** The receipt byte for byte, but for what the second one is called. */
function shownOf(text: string): string {
  return text.replace(/"disposition":"(accepted|duplicate)"/, '"disposition":…');
}
