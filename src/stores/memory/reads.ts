import { MESSAGE_VALUES, type MessageText } from "../../model/message.ts";
import type { FactValue, FactValueRef } from "../../model/fact.ts";
import { failureText } from "../../model/failure.ts";
import type { LogText } from "../../model/log.ts";
import { DEFAULT_RUN_LIMIT, isOneOf, matches, RUN_VALUES, type RunText } from "../../model/run.ts";
import { STEP_VALUES, type StepText } from "../../model/step.ts";
import type { FoundRuns, Part, RunQuery, ValuePart, ValuePlace } from "../../store/run_query.ts";
import type { StoredValue } from "../../values/json.ts";
import { WAIT_VALUES, type WaitText } from "../../model/wait.ts";
import { PartBuilder, VALUE_PART_LENGTH, VALUE_PARTS, withoutLarge } from "../part_builder.ts";
import {
  type Columns,
  isCountedInFull,
  MAX_COUNT_MS,
  MIN_EXAMINED,
  mostCounted,
  storedConditionsOf,
} from "../run_conditions.ts";
import { toLogText, toMessageText, toRunText, toStep, toWaitText } from "./copies.ts";
import { byIndex, type KeptRun } from "./records.ts";
import type { MemoryRuns } from "./runs.ts";

// How many runs are examined between two looks at the clock.
const SLICE = 1_000;

/** The runs that match a query, newest first. See `Store.findRuns()`. */
export function listRuns(
  { all }: MemoryRuns,
  query: RunQuery,
  monotonic: () => number,
): Omit<FoundRuns, "ids" | "seqs"> & { runs: KeptRun[] } {
  const { limit = DEFAULT_RUN_LIMIT, offset = 0, before = Number.MAX_SAFE_INTEGER } = query;
  const isWanted = queryMatcher(query);
  const most = isCountedInFull(query) ? Infinity : mostCounted(query);
  const startedAt = monotonic();
  const page: KeptRun[] = [];
  let [total, lastCounted] = [0, before];
  for (let index = all.length - 1; index >= 0; index--) {
    const run = all[index]!;
    const isLate = index % SLICE === 0 && all.length - index > MIN_EXAMINED && total > offset + limit &&
      monotonic() - startedAt >= MAX_COUNT_MS;
    if (isLate && most !== Infinity) return { runs: page, total, hasMore: true, countedTo: run.seq + 1 };
    if (!isWanted(run)) continue;
    if (total === most) return { runs: page, total, hasMore: true, countedTo: lastCounted };
    if (total >= offset && page.length < limit) page.push(run);
    lastCounted = run.seq;
    total += 1;
  }
  return { runs: page, total, hasMore: total > offset + page.length, countedTo: null };
}

/** Reads runs up to a number of characters. See `Store.readRuns()`. */
export function readRuns(runs: readonly (KeptRun | undefined)[], maxLength: number): (RunText | null)[] {
  const part = new PartBuilder<RunText | null>(maxLength);
  part.add(runs, (run) => run === undefined ? null : withoutLarge(toRunText(run), RUN_VALUES, maxLength));
  return part.items;
}

/** Reads the steps of a run behind a given one. See `Store.readSteps()`. */
export function readSteps(run: KeptRun, after: string | null, maxLength: number): Part<StepText> {
  const steps = behind(byIndex(run.steps), ({ name }) => name === after);
  const part = new PartBuilder<StepText>(maxLength);
  return part.add(steps, (step) => withoutLarge(toStep(run.id, step), STEP_VALUES, maxLength));
}

/** Reads the waits of a run behind a given one. See `Store.readWaits()`. */
export function readWaits(run: KeptRun, after: string | null, maxLength: number): Part<WaitText> {
  const waits = behind(run.pauses, ({ id }) => id === after).filter(({ kind }) => kind === "wait");
  const part = new PartBuilder<WaitText>(maxLength);
  return part.add(waits, (wait) => withoutLarge(toWaitText(run.id, wait), WAIT_VALUES, maxLength));
}

/** Reads the messages of a run behind a given one. See `Store.readMessages()`. */
export function readMessages(run: KeptRun, after: string | null, maxLength: number): Part<MessageText> {
  const messages = behind([...run.messages.values()], ({ id }) => id === after);
  const part = new PartBuilder<MessageText>(maxLength);
  return part.add(messages, (message) => withoutLarge(toMessageText(run, message), MESSAGE_VALUES, maxLength));
}

/** Reads the log lines of a run behind a given one. See `Store.readLogs()`. */
export function readLogs(run: KeptRun, after: string | null, maxLength: number): Part<LogText> {
  const kept = [...run.logs.values()];
  const lines = behind(kept, ({ id }) => id === after);
  return new PartBuilder<LogText>(maxLength).add(lines, (line) => toLogText(run, line, line === kept[0]));
}

/** Reads the next part of a value. See `Store.readValue()`. */
export function readValue(run: KeptRun, place: ValuePlace, from: number): ValuePart | null {
  const text = findValue(run, place);
  if (typeof text !== "string") return null;
  const end = from + Math.max(VALUE_PART_LENGTH, Math.floor(text.length / VALUE_PARTS));
  const next = isFirstHalf(text, end - 1) ? end - 1 : end;
  return { bytes: new TextEncoder().encode(text.slice(from, next)), next: next < text.length ? next : null };
}

function findValue(run: KeptRun, place: ValuePlace): StoredValue | undefined {
  if (place.of === "run") return run[place.value];
  if (place.of === "wait") {
    const wait = run.pauses.find(({ id }) => id === place.waitId);
    return wait && toWaitText(run.id, wait)[place.value];
  }
  if (place.of === "message") return run.messages.get(place.messageId)?.payload;
  const result = run.steps.get(place.stepName)?.result;
  return result?.status === "completed" ? result.output : null;
}

/** Reads values that facts leave out. See `Store.readFactValues()`. */
export function readFactValues(
  values: readonly { ref: FactValueRef; run: KeptRun | undefined }[],
  maxLength: number,
): (FactValue | null)[] {
  const part = new PartBuilder<FactValue | null>(maxLength);
  part.add(values, ({ ref, run }) => run === undefined ? null : findFactValue(run, ref));
  return part.items;
}

function findFactValue(run: KeptRun, ref: FactValueRef): FactValue | null {
  if (ref.of === "step") {
    const result = run.steps.get(ref.stepName)?.result;
    if (result === undefined) return null;
    return result.status === "completed"
      ? { json: result.output, error: null, failedStepName: null }
      : { json: null, error: result.failure?.message ?? null, failedStepName: null };
  }
  const { failure, failedStepName } = run;
  if (ref.of !== "failure") return { json: run[ref.of], error: null, failedStepName: null };
  return { json: null, error: failure === null ? null : failureText(failure), failedStepName };
}

/** Whether there is the first half of a surrogate pair at an index. */
function isFirstHalf(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 0xD800 && code <= 0xDBFF;
}

/** The items after a given one; all if there is none. */
function behind<T>(items: readonly T[], isReached: (item: T) => boolean): T[] {
  return items.slice(items.findLastIndex(isReached) + 1);
}

const VALUES: Columns<(run: KeptRun) => string | number | object | null | undefined> = {
  parentRunId: (run) => run.parent?.run.id,
  failureKind: (run) => run.failure?.kind,
  completedAt: (run) => run.completedAt,
  createdAt: (run) => run.createdAt,
  endOf: (run) => run.endOf,
  held: (run) => run.hold,
  completedAs: (run) => run.completedAs,
};

/** Returns a function that says whether a run is one of those to find, on whatever page. */
function queryMatcher(query: RunQuery): (run: KeptRun) => boolean {
  const { before, notRetried, status } = query;
  const conditions = storedConditionsOf(query);
  return (run) =>
    (before === undefined || run.seq < before) &&
    (notRetried !== true || (run.retriggeredAs === null && !run.isKeyTaken)) &&
    isOneOf(run.status, status) && matches(run, query) &&
    conditions.every(({ field, isMetBy }) => isMetBy(VALUES[field](run)));
}
