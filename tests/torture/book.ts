import { noReceipts, type RunReceipts } from "./checks/check_receipts.ts";
import { checkSignalAnswer, type SignalAnswer, type SignalHistory } from "./checks/check_signal_answer.ts";
import type { JOB_NAMES } from "./jobs.ts";

/** A trigger that the client has sent. */
export interface TriggerRequest {
  job: typeof JOB_NAMES[number];
  token: string;
  seed: number;
  key: string | null;
  idempotencyKey: string | null;
  coalesce: "skip" | "queue" | "active" | null;
}

/** What the clients were told, and what they have asked for: kept by the driver, which nobody kills. */
export class Book {
  readonly #runs = new Map<string, RunReceipts>();
  readonly #waits = new Map<string, SignalHistory>();
  readonly #keys = new Map<string, { run: string; isCreated: boolean }>();
  readonly #tokens = new Set<string>();
  readonly #onProblem: (message: string, run: string) => void;

  /** @param onProblem Hears of each answer that cannot be. */
  constructor(onProblem: (message: string, run: string) => void) {
    this.#onProblem = onProblem;
  }

  /** All runs of which something is known. */
  get runs(): ReadonlyMap<string, RunReceipts> {
    return this.#runs;
  }

  /** What is known of a run. */
  of(run: string): RunReceipts {
    let receipts = this.#runs.get(run);
    if (receipts === undefined) this.#runs.set(run, receipts = noReceipts());
    return receipts;
  }

  /** Whether a run with this token may exist. */
  knowsToken(token: string): boolean {
    return this.#tokens.has(token);
  }

  /** Notes a trigger before it is sent. */
  noteTrigger({ token }: TriggerRequest): void {
    this.#tokens.add(token);
  }

  /** Takes in what a trigger was answered. */
  takeTrigger(request: TriggerRequest, answer: { runId: string; disposition: string }): void {
    const { runId: run, disposition } = answer;
    const receipts = this.of(run);
    receipts.job = request.job;
    receipts.key = request.key;
    if (disposition === "coalesced") {
      if (request.coalesce === null) this.#onProblem("a trigger was coalesced, and had not asked for it", run);
      return;
    }
    receipts.token = request.token;
    if (request.idempotencyKey === null) return;
    const known = this.#keys.get(request.idempotencyKey);
    const isCreated = disposition === "created";
    // One that is deleted makes room for another, and of two answers the later one can be that of before.
    const isReplaced = known !== undefined && (this.of(known.run).isDeleteAsked || receipts.isDeleteAsked);
    if (known !== undefined && known.run !== run && !isReplaced) {
      this.#onProblem(`key ${request.idempotencyKey} names two runs; the other is ${known.run}`, run);
    } else if (known?.run === run && known.isCreated && isCreated) this.#onProblem("the run was created twice", run);
    this.#keys.set(request.idempotencyKey, { run, isCreated: isCreated || known?.run === run && known.isCreated });
  }

  /** Notes a signal before it is sent. */
  noteSignal(run: string, waitId: string, value: string): void {
    const { sent } = this.of(run);
    const values = sent.get(waitId);
    if (values === undefined) sent.set(waitId, new Set([value]));
    else values.add(value);
  }

  /** Takes in what a signal was answered. */
  takeSignal(run: string, answer: Omit<SignalAnswer, "mayBeGone">): void {
    const receipts = this.of(run);
    let history = this.#waits.get(answer.waitId);
    if (history === undefined) {
      this.#waits.set(answer.waitId, history = { receipt: null, isAccepted: false, isExpired: false });
    }
    const problem = checkSignalAnswer(history, { ...answer, mayBeGone: receipts.isDeleteAsked });
    if (problem !== null) this.#onProblem(problem, run);
    if (history.receipt !== null) receipts.signals.set(answer.waitId, history.receipt);
  }

  /** Takes in that a run was made from another one. */
  takeRetrigger(old: string, run: string): void {
    const { job, key, token } = this.of(old);
    Object.assign(this.of(run), { job, key, token });
  }
}
