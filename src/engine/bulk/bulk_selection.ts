import { ValidationError } from "../../model/error.ts";
import type { ActorOptions } from "../../model/origin.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { checkName } from "../../values/name.ts";
import { checkInteger } from "../../values/integer.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { BulkOperation, RunFilter } from "../../model/run.ts";
import type { ResumeOptions } from "../runs/run_changes.ts";
import { checkRunFilter, FILTER_FIELDS } from "../runs/run_filter.ts";
import type { RetriggerOptions } from "../triggers/triggers.ts";

/** Which runs a filter of a bulk operation matches. At least one field must restrict it. */
export interface BulkFilter extends Omit<RunFilter, "limit" | "offset"> {
  /**
   * Failed runs with this error, regardless of the numbers and ids in it: the `error` of a run, or that of a group of
   * {@linkcode Engine.getFailures}. With `held: true`, held runs with this message. 1 to 8,192 characters.
   */
  error?: string;
}

/** The runs of a bulk operation: some by their ids, 1,000 at most, or all that match a filter. */
export type BulkSelection =
  | { readonly runIds: readonly string[]; readonly filter?: undefined }
  | { readonly filter: BulkFilter; readonly runIds?: undefined };

/** Options of a bulk operation. */
export interface BulkOptions extends ActorOptions {
  /** Change nothing, and say how many runs are selected. Default `false`. */
  dryRun?: boolean;
  /** The maximum number of runs in this call, 1 to 1,000. Default 500. */
  limit?: number;
  /** Where to continue: the `next` of the previous call with the same selection. */
  cursor?: string;
}

/** Options of {@linkcode Engine.retriggerRuns}. */
export interface BulkRetriggerOptions extends BulkOptions, RetriggerOptions {}

/** Options of {@linkcode Engine.resumeRuns}. */
export interface BulkResumeOptions extends BulkOptions, ResumeOptions {}

/** A selection that was checked, and where to continue in it. */
export type CheckedSelection =
  | { kind: "ids"; runIds: readonly string[]; from: number }
  | { kind: "filter"; filter: RunFilter; error: string | null; before: number | null };

/** What was checked of a bulk operation. */
export interface CheckedBulk {
  /** Which runs. */
  selection: CheckedSelection;
  /** The maximum number of runs in this call. */
  limit: number;
  /** Whether nothing is to change. */
  dryRun: boolean;
}

/** The maximum number of ids of a selection. */
export const MAX_BULK_IDS = 1_000;
/** The maximum number of runs of a call. */
export const MAX_BULK_LIMIT = 1_000;
const DEFAULT_LIMIT = 500;
/** The maximum length of the `error` of a filter, in characters. */
export const MAX_ERROR_LENGTH = 8_192;

/** The names of the fields of a filter. */
export const BULK_FILTER_FIELDS = { ...FILTER_FIELDS, error: true } satisfies Record<keyof BulkFilter, unknown>;
const SELECTION = { runIds: true, filter: true } as const;
const OPTIONS: Record<keyof BulkOptions, true> = { dryRun: true, limit: true, cursor: true, by: true };

/** The names of the options of each operation. */
export const BULK_OPTIONS: Record<BulkOperation, { readonly [name: string]: true }> = {
  cancel: OPTIONS,
  delete: OPTIONS,
  retrigger: { ...OPTIONS, from: true },
  resume: { ...OPTIONS, onDivergence: true },
};

/**
 * Checks a bulk operation.
 *
 * @param subject The call, for messages: `cancelRuns()`.
 * @throws {TypeError} The selection, the filter or the options have an unknown field.
 * @throws {ValidationError} A field is not valid, or the filter is empty.
 */
export function checkBulk(selection: BulkSelection, options: BulkOptions, subject: string): CheckedBulk {
  checkOptionNames(selection, SELECTION, subject);
  const { dryRun = false, limit = DEFAULT_LIMIT, cursor } = options;
  if (typeof dryRun !== "boolean") throw new ValidationError("dryRun must be true or false");
  checkInteger(limit, "limit", 1, MAX_BULK_LIMIT);
  if ((selection.runIds === undefined) === (selection.filter === undefined)) {
    throw new ValidationError("A bulk operation takes either runIds or a filter");
  }
  const checked: CheckedSelection = selection.runIds !== undefined
    ? { kind: "ids", runIds: checkIds(selection.runIds), from: readCursor(cursor, "i") ?? 0 }
    : { kind: "filter", ...checkFilter(selection.filter, subject), before: readCursor(cursor, "r") };
  return { selection: checked, limit, dryRun };
}

/** Where to continue in a selection: a place in the list of ids, or before a row number. */
export function cursorOf(kind: CheckedSelection["kind"], place: number): string {
  return `${kind === "ids" ? "i" : "r"}${place}`;
}

function checkIds(runIds: readonly string[]): readonly string[] {
  if (!Array.isArray(runIds)) throw new ValidationError(`runIds must be an array, not ${kindOf(runIds)}`);
  if (runIds.length > MAX_BULK_IDS) {
    throw new ValidationError(`runIds may have at most ${MAX_BULK_IDS} ids, not ${runIds.length}`);
  }
  for (const runId of runIds) checkName(runId, "A run id");
  return [...new Set(runIds)];
}

/** An empty filter would select all runs: more often a mistake than meant. */
function checkFilter(filter: BulkFilter, subject: string): { filter: RunFilter; error: string | null } {
  checkOptionNames(filter, BULK_FILTER_FIELDS, `The filter of ${subject}`);
  const { labels, ...fields } = filter;
  const isEmpty = Object.values(fields).every((value) => value === undefined) && Object.keys(labels ?? {}).length === 0;
  if (isEmpty) throw new ValidationError("The filter of a bulk operation must not be empty: it would select all runs");
  const { error, ...ofRuns } = filter;
  if (error !== undefined && (typeof error !== "string" || error === "" || error.length > MAX_ERROR_LENGTH)) {
    throw new ValidationError(`error must be a string of 1 to ${MAX_ERROR_LENGTH} characters`);
  }
  return { filter: checkRunFilter(ofRuns), error: error ?? null };
}

function readCursor(cursor: string | undefined, prefix: "i" | "r"): number | null {
  if (cursor === undefined) return null;
  const place = typeof cursor === "string" && cursor.startsWith(prefix) ? cursor.slice(prefix.length) : "";
  if (/^\d{1,15}$/.test(place)) return Number(place);
  throw new ValidationError("cursor must be the next of a call with the same selection");
}
