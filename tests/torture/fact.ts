/**
 * Something that a worker writes down at the moment at which it happens. `generation` is that of the lease under which
 * the body was called, `step` and `wait` are names with their occurrence (`part#2`).
 */
export type Fact =
  /** The function of a job was called. */
  | { is: "begin"; pid: number; run: string; generation: number; key: string | null }
  /** The function of a step was called. */
  | { is: "start"; pid: number; run: string; generation: number; step: string; attempt: number }
  /** The function of a step has returned or thrown `value`; see {@linkcode valueOf}. */
  | { is: "done"; pid: number; run: string; generation: number; step: string; attempt: number; value: string }
  /** The engine has said that the end of an attempt was recorded. `isLast`: no other attempt follows. */
  | { is: "ack"; pid: number; run: string; step: string; attempt: number; value: string; isLast: boolean }
  /** The body was given the recorded end of a step without its function being called. */
  | { is: "replay"; pid: number; run: string; generation: number; step: string; value: string }
  /** The body was given the outcome of a wait; see {@linkcode outcomeOf}. */
  | { is: "outcome"; pid: number; run: string; generation: number; wait: string; value: string }
  /** The function of a job is about to return or throw. */
  | { is: "end"; pid: number; run: string; generation: number }
  /** The engine has said that the run had ended. */
  | { is: "over"; pid: number; run: string; status: "completed" | "failed" }
  /** The store has refused a write under a lease that was lost. */
  | { is: "refused"; pid: number; run: string; generation: number; call: string }
  /** The event loop stood still for longer than ever before in this process, and not on purpose. */
  | { is: "gap"; pid: number; wallMs: number; cpuMs: number }
  /** The event loop is about to stand still, on purpose. `from`: an instant, in milliseconds. */
  | { is: "block"; pid: number; from: number; ms: number }
  /** The worker has logged an error; `isExpected`: it is a consequence of the faults of a storm. */
  | { is: "error"; pid: number; message: string; isExpected: boolean };

/** A fact and where it stands: a fact that stands after another was written later, whichever process wrote them. */
export type Placed<F extends Fact = Fact> = F & { at: number };

/** What a step came to as one text: what it returned, or the message of what it threw. No two steps have the same. */
export function valueOf(end: { output: unknown } | { error: string }): string {
  return "error" in end ? `failed: ${end.error}` : JSON.stringify(end.output);
}

/** What a wait came to as one text. */
export function outcomeOf(
  result: { outcome: string | null; payload?: unknown; signalId?: string | null },
): string {
  if (result.outcome !== "signal") return String(result.outcome);
  return JSON.stringify([result.signalId, result.payload ?? null]);
}
