import { createHash } from "node:crypto";
import type { Duration } from "../values/duration.ts";
import type { Json, Jsonify } from "../values/json.ts";
import { isName } from "../values/name.ts";
import type { FailureKind } from "./failure.ts";
import type { RetryPolicy } from "./retry.ts";
import type { TerminalStatus } from "./run.ts";

/** How a run ended, for the function that cleans up after it. */
export interface EndContext<Input = unknown> {
  /** The run. */
  readonly runId: string;
  /** How it ended. */
  readonly status: TerminalStatus;
  /** What its trigger has parsed. What a changed schema or `upgradeInput` adds for the function of the run is not there. */
  readonly input: Input;
  /** What its function returned, if it completed. */
  readonly output: Json | undefined;
  /** Why it failed; `null` if it did not. */
  readonly error: string | null;
  /** The kind of its failure; `null` if it did not fail. */
  readonly failureKind: FailureKind | null;
  /** The names of its completed steps, in the order in which they were recorded. */
  readonly completed: readonly string[];
  /** What a step of the run returned, as stored; `undefined` if it did not complete. */
  result<T = Json>(stepName: string): T | undefined;
  /**
   * Undoes a step of the run, in a step `undo <name>`, if it completed. With `always` also if that is not known: it may have
   * had its effect when its process died. A retry of the run from its failure executes the step again, with another
   * `idempotencyKey`.
   *
   * @returns What `work` returns; `undefined` if there is nothing to undo.
   */
  undo<T>(
    stepName: string,
    work: (result: Json | undefined, tools: UndoTools) => T | Promise<T>,
    options?: UndoOptions,
  ): Promise<Jsonify<T> | undefined>;
}

/** What {@linkcode EndContext.undo} passes beside the result of the step. */
export interface UndoTools {
  /** The `idempotencyKey` that the step of the run was given. */
  readonly stepKey: string;
  /** That of this step, the same for each attempt. */
  readonly idempotencyKey: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** As in any step. */
  readonly abortSignal: AbortSignal;
}

/** Options of {@linkcode EndContext.undo}. */
export interface UndoOptions {
  /** Whether to undo a step of which it is not known whether it completed. Default `false`. */
  always?: boolean;
  /** How often and when it is tried again. Default: the policy of the job. */
  retry?: RetryPolicy;
  /** How long one attempt may take. Default: no limit. */
  timeout?: Duration;
}

/** The input of an end run, as its function's context is made of it: how its run ended, and the results of its steps. */
export interface EndData {
  /** The run. */
  runId: string;
  /** How it ended. */
  status: TerminalStatus;
  /** What its trigger has parsed; left out: `undefined`. */
  input?: Json;
  /** What its function returned; left out: nothing, or it did not complete. */
  output?: Json;
  /** Why it failed. */
  error: string | null;
  /** The kind of its failure. */
  failureKind: FailureKind | null;
  /** Its completed steps in the order in which they were recorded, with the idempotency key of each. */
  steps: { name: string; key: string; output?: Json }[];
  /** What the keys of its other steps begin with. */
  originId: string;
  /** The steps that were undone before, with the run that did. */
  undone: { readonly [stepName: string]: string };
}

/** A run that is added in the commit that ends another one, to clean up after it. */
export interface NewEnd {
  /** The name of its job. */
  jobName: string;
  /** It is added if the run ends with one of these. */
  statuses: readonly TerminalStatus[];
  /** If it has not ended this long after its first start, it fails, in milliseconds; `null`: no limit. */
  finishWithin: number | null;
}

/** The name of the job that cleans up after the runs of a job. */
export function endJobName(jobName: string): string {
  return `${jobName}:end`;
}

/** The id of the run that cleans up after another one: never a second. */
export function endRunId(runId: string): string {
  return derivedId(runId, `holdfast end ${runId}`);
}

/**
 * The id of what a step triggers or sends: the same whenever the step is executed again.
 *
 * @param originId The first run of the chain of retries.
 * @param stepKey The step's idempotency key.
 */
export function derivedRunId(originId: string, stepKey: string): string {
  return derivedId(originId, `holdfast trigger ${stepKey}`);
}

/** An id that follows from a text. It keeps the time of another id, so that it is a UUIDv7, too. */
function derivedId(id: string, text: string): string {
  const hash = createHash("sha256").update(text).digest("hex");
  const variant = (8 + parseInt(hash[3]!, 16) % 4).toString(16); // RFC 9562, section 4.1
  return `${id.slice(0, 13)}-7${hash.slice(0, 3)}-${variant}${hash.slice(4, 7)}-${hash.slice(7, 19)}`;
}

/**
 * The name of the step that undoes a step. A name cannot end like an occurrence: `charge#2` is `undo charge (2)`. Of a
 * name for which there is no room, it has the first characters and a hash. PostgresStore has the same rule in SQL.
 */
export function undoName(stepName: string): string {
  const name = `undo ${stepName.replace(/#(\d+)$/, " ($1)")}`;
  if (isName(name)) return name;
  const hash = createHash("sha256").update(stepName).digest("hex").slice(0, 16);
  return `undo ${Array.from(stepName).slice(0, 100).join("")} (${hash})`;
}

/**
 * The steps of a run that its end runs have undone, with the end run that did. A step that was killed has no record and
 * can be undone, too: its name then follows from that of the step that undid it. One for whose name there was no
 * room is always known by what that step is named after, too. PostgresStore has the same rule in SQL.
 *
 * @param undoers The completed steps of the end runs whose names begin with `undo `, with the end run.
 * @param recorded The names of the steps that the run has records of.
 */
export function undoneSteps(undoers: ReadonlyMap<string, string>, recorded: Iterable<string>): Map<string, string> {
  const undone = new Map<string, string>();
  const left = new Map(undoers);
  for (const name of recorded) {
    const undoer = undoers.get(undoName(name));
    if (undoer === undefined) continue;
    undone.set(name, undoer).set(undoneAs(name), undoer);
    left.delete(undoName(name));
  }
  for (const [undoing, undoer] of left) {
    const name = undoing.slice("undo ".length);
    undone.set(name, undoer).set(name.replace(/ \((\d+)\)$/, "#$1"), undoer);
  }
  return undone;
}

/** Under which name a step is known to be undone: a retry that executes it again may have no record of its own name. */
export function undoneAs(stepName: string): string {
  const name = undoName(stepName).slice("undo ".length);
  return name.replace(/ \((\d+)\)$/, "#$1") === stepName ? stepName : name;
}
