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

/** The requests that the clients have sent and the answers they have received: kept by the driver, which is not killed. */
export class ClientRecords {
  readonly #runs = new Map<string, RunReceipts>();
  readonly #waits = new Map<string, SignalHistory>();
  readonly #keys = new Map<string, { run: string; isCreated: boolean }>();
  readonly #mostRuns = new Map<string, number>();
  readonly #onProblem: (message: string, run: string) => void;

  /** @param onProblem Is called with each answer that cannot be. */
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

  /** How many runs with this token can have been made until now, of which some may be deleted. */
  mostRuns(token: string): number {
    return this.#mostRuns.get(token) ?? 0;
  }

  #makeRoom(token: string): void {
    this.#mostRuns.set(token, this.mostRuns(token) + 1);
  }

  /** Notes a trigger each time before it is sent: those with one idempotency key make one run between them. */
  noteTrigger({ token, idempotencyKey }: TriggerRequest): void {
    if (idempotencyKey === null || this.mostRuns(token) === 0) this.#makeRoom(token);
  }

  /** Notes each time before it is sent that another run is to be made from one with this token. */
  noteRetrigger(token: string): void {
    this.#makeRoom(token);
  }

  /** Notes each time before it is sent that a run is to be deleted: then its idempotency key may make another one. */
  noteDelete(run: string, token: string): void {
    const receipts = this.of(run);
    if (receipts.deletesAsked === 0) this.#makeRoom(token);
    receipts.deletesAsked += 1;
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
    const isReplaced = known !== undefined && (this.of(known.run).deletesAsked > 0 || receipts.deletesAsked > 0);
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
    const problem = checkSignalAnswer(history, { ...answer, mayBeGone: receipts.deletesAsked > 0 });
    if (problem !== null) this.#onProblem(problem, run);
    if (history.receipt !== null) receipts.signals.set(answer.waitId, history.receipt);
  }

  /** Takes in that a run was made from another one. */
  takeRetrigger(old: string, run: string): void {
    const { job, key, token } = this.of(old);
    Object.assign(this.of(run), { job, key, token });
  }
}
