import type { Failure } from "./failure.ts";
import { kindOf } from "../values/unknown_values.ts";
import { checkOptionNames } from "../values/option_names.ts";
import type { Disposition, Labels, RetriggerFrom } from "./run.ts";
import type { TraceContext } from "./origin.ts";
import type { SignalOutcome } from "./wait.ts";

/**
 * A function that a plugin calls something in: `next` does it, and resolves with how it ended. `next` never rejects.
 *
 * The engine does not depend on it. It calls `next` itself if the function has not done so before it first awaits; a
 * second call returns the same promise. It ignores what the function returns, does not wait for it, and publishes what
 * it throws as `worker:error`.
 */
export type AroundFunction<Info, Outcome> = (info: Info, next: () => Promise<Outcome>) => Promise<Outcome>;

/** What a plugin does around the work of an engine: see {@linkcode AroundFunction}. */
export interface Around {
  /** Around adding runs to the store. */
  trigger?: AroundFunction<TriggerInfo, TriggerOutcome>;
  /** Around one execution of a run, from its claim until it has ended, parked, or was interrupted. */
  execution?: AroundFunction<ExecutionInfo, ExecutionOutcome>;
  /** Around one attempt at a step, with the recording of its result. */
  step?: AroundFunction<StepInfo, StepOutcome>;
  /** Around a signal. */
  signal?: AroundFunction<SignalInfo, SignalResult>;
  /** Around a message. */
  send?: AroundFunction<SendInfo, SendEnd>;
}

/** A request to add runs of one job. */
export interface TriggerInfo {
  /** The name of the job. */
  readonly jobName: string;
  /** How many runs are asked for: more than one in a batch, or for `step.invokeAll()`. */
  readonly count: number;
  /** The run that this one retries, with its trace; `null`: it is no retrigger. */
  readonly retriggerOf:
    | { readonly runId: string; readonly from: RetriggerFrom; readonly trace: TraceContext | null }
    | null;
  /** The run that starts these as its children; `null`: none does. */
  readonly parentRunId: string | null;
  /** Whether a schedule fires, and nobody has called the engine. */
  readonly isScheduled: boolean;
  /** What is stored with the new runs, and shown to all their executions. `null` until the plugin sets it. */
  trace: TraceContext | null;
}

/** How a request to add runs ended. */
export type TriggerOutcome =
  | {
    kind: "triggered";
    /** In the order of the request. `trace`: that of a run that was there before, if it has one. */
    runs: readonly { readonly id: string; readonly disposition: Disposition; readonly trace: TraceContext | null }[];
  }
  /** The run of a schedule was not needed: another engine has fired the slot, or an earlier run has not ended. */
  | { kind: "skipped" }
  | { kind: "refused"; error: unknown };

/** An execution of a run. */
export interface ExecutionInfo {
  /** The run. */
  readonly runId: string;
  /** The name of its job. */
  readonly jobName: string;
  /** Its labels. */
  readonly labels: Labels;
  /** 1 for the first execution, one more after each interruption. */
  readonly execution: number;
  /** The worker that executes it. */
  readonly workerId: string;
  /** How long ago its function was first called, in milliseconds. */
  readonly startedAgoMs: number;
  /**
   * How long it was due before that, in milliseconds; `null`: its function was called before, in an earlier execution.
   */
  readonly startDelayMs: number | null;
  /** The trace that was stored with the run at its trigger. */
  readonly trace: TraceContext | null;
  /** What the run had parked on and has ended, if this execution resumes it; in the order of preparation. */
  readonly resumedFrom: readonly EndedPause[];
}

/** A wait, a sleep or a receive that has ended, or children that all have. */
export interface EndedPause {
  /** What it waited for. */
  readonly kind: "wait" | "sleep" | "children" | "receive";
  /** Its name, with its occurrence from the second on. */
  readonly name: string;
  /** Its id. */
  readonly id: string;
  /** What ended it. */
  readonly outcome: "signal" | "timeout" | "children" | "messages";
  /** When the run first paused on it, by the store's clock: milliseconds since 1970. */
  readonly suspendedAt: number;
  /** When it ended, by the store's clock: milliseconds since 1970. */
  readonly resolvedAt: number;
  /** The trace that was stored with its signal, or with the first message. */
  readonly trace: TraceContext | null;
}

/** How an execution ended. */
export type ExecutionOutcome =
  | { kind: "completed" }
  | { kind: "failed"; failure: Failure }
  | { kind: "waiting" }
  | { kind: "held" }
  /** The run was cancelled, or the engine stops. */
  | { kind: "interrupted" }
  /** The lease was lost: another worker executes the run, or will. */
  | { kind: "lost" };

/** An attempt at a step. */
export interface StepInfo {
  /** The execution that makes it: the same object as in `execution`. */
  readonly execution: ExecutionInfo;
  /** The name of the step, with its occurrence from the second on. */
  readonly stepName: string;
  /** From 1 on. */
  readonly attempt: number;
}

/** How an attempt at a step ended. */
export type StepOutcome =
  | { kind: "completed" }
  | { kind: "failed"; failure: Failure }
  /** It failed, and another attempt follows. */
  | { kind: "retried"; failure: Failure }
  /** The execution ended first: nothing was recorded. */
  | { kind: "cancelled" };

/** A signal to a wait. */
export interface SignalInfo {
  /** The wait. */
  readonly waitId: string;
  /** The id of the signal. */
  readonly signalId: string;
  /** What is stored with the wait, and shown to the execution that resumes. `null` until the plugin sets it. */
  trace: TraceContext | null;
}

/** How a signal ended. */
export type SignalResult =
  | {
    kind: "accepted" | "duplicate";
    /** The run of the wait. */
    runId: string;
    /** The name of its job. */
    jobName: string;
    /** The name of the wait. */
    waitName: string;
  }
  | { kind: "refused"; error: unknown };

/** A message to a run. */
export interface SendInfo {
  /** The run, or its job and its idempotency key. */
  readonly to: { readonly runId: string } | { readonly jobName: string; readonly key: string };
  /** The name of the message. */
  readonly name: string;
  /** Its id. */
  readonly messageId: string;
  /**
   * What is stored with the message, and with a run that is started for it, and shown to the execution that receives it.
   * `null` until the plugin sets it.
   */
  trace: TraceContext | null;
}

/** How a message ended. */
export type SendEnd =
  | {
    kind: "accepted" | "duplicate";
    /** The run that has it. */
    runId: string;
    /** The name of its job. */
    jobName: string;
    /** Whether it was started for the message. */
    started: boolean;
  }
  | { kind: "refused"; error: unknown };

const NAMES: Record<keyof Around, true> = { trigger: true, execution: true, step: true, signal: true, send: true };

/** What the plugins of an engine do around its work. `null` where no plugin does anything. */
export class AroundHooks {
  /** Around adding runs. */
  trigger: NonNullable<Around["trigger"]> | null = null;
  /** Around executions. */
  execution: NonNullable<Around["execution"]> | null = null;
  /** Around attempts at steps. */
  step: NonNullable<Around["step"]> | null = null;
  /** Around signals. */
  signal: NonNullable<Around["signal"]> | null = null;
  /** Around messages. */
  send: NonNullable<Around["send"]> | null = null;
  readonly #report: (error: unknown) => void;

  /** @param report Receives what the function of a plugin throws. */
  constructor(report: (error: unknown) => void) {
    this.#report = report;
  }

  /** Adds the functions of a plugin, inside those of the plugins before. */
  add(around: Around): void {
    checkOptionNames(around, NAMES, "around()");
    for (const [name, given] of Object.entries(around)) {
      if (given === undefined || typeof given === "function") continue;
      throw new TypeError(`around() takes functions: ${name} is ${kindOf(given)}`);
    }
    const { trigger, execution, step, signal, send } = around;
    this.trigger = this.#inside(this.trigger, trigger);
    this.execution = this.#inside(this.execution, execution);
    this.step = this.#inside(this.step, step);
    this.signal = this.#inside(this.signal, signal);
    this.send = this.#inside(this.send, send);
  }

  #inside<Info, Outcome>(
    outer: AroundFunction<Info, Outcome> | null,
    given: AroundFunction<Info, Outcome> | undefined,
  ): AroundFunction<Info, Outcome> | null {
    if (given === undefined) return outer;
    const inner: AroundFunction<Info, Outcome> = (info, next) => this.#callOnce(given, info, next);
    return outer === null ? inner : (info, next) => outer(info, () => inner(info, next));
  }

  #callOnce<Info, Outcome>(
    given: AroundFunction<Info, Outcome>,
    info: Info,
    next: () => Promise<Outcome>,
  ): Promise<Outcome> {
    let outcome: Promise<Outcome> | null = null;
    const once = () => outcome ??= next();
    try {
      Promise.resolve(given(info, once)).catch(this.#report);
    } catch (error) {
      this.#report(error);
    }
    return once();
  }
}

/** A request for runs of a job by a call: of a parent if there is one. */
export function newTriggerInfo(jobName: string, count = 1, parentRunId: string | null = null): TriggerInfo {
  return { jobName, count, retriggerOf: null, parentRunId, isScheduled: false, trace: null };
}

/** How a signal ended that a store has answered. */
export function toSignalResult({ run, wait, disposition }: SignalOutcome): SignalResult {
  return { kind: disposition, runId: run.id, jobName: run.jobName, waitName: wait.name };
}

/** How a trigger, a signal or a message ends that throws. */
export function refused(error: unknown): { kind: "refused"; error: unknown } {
  return { kind: "refused", error };
}

/**
 * Does something inside the functions of the plugins. It begins in this call, before the first `await`.
 *
 * @param work Does it. It says how it ended, for the plugins, possibly before it resolves.
 * @param toOutcome How it ended if it rejects before it has said so.
 * @returns What `work` returns.
 */
export function runAround<Info, Outcome, T>(
  around: AroundFunction<Info, Outcome>,
  info: Info,
  work: (end: (outcome: Outcome) => void) => Promise<T>,
  toOutcome: (error: unknown) => Outcome,
): Promise<T> {
  const ended = Promise.withResolvers<Outcome>();
  let result: Promise<T> | null = null;
  around(info, () => {
    result = work(ended.resolve);
    result.catch((error) => ended.resolve(toOutcome(error)));
    return ended.promise;
  });
  return result!; // AroundHooks has called it, once
}
