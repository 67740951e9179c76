import { StoreError } from "../model/error.ts";
import type { Host } from "../model/host.ts";
import type { Store } from "../store/store.ts";
import type { ProcessMetrics } from "./process_metrics.ts";

/** Where a store that is measured stands. */
export interface StoreCondition {
  /** Whether its tables exist. */
  isMigrated: boolean;
  /** Whether its last call that was answered found it broken for good: a repetition will not succeed. */
  isBroken: boolean;
  /** Why a write failed, and when, on the monotonic clock; `null`: one has succeeded since. */
  failedWrite: { error: StoreError; at: number } | null;
}

type Calls = Omit<Required<Store>, symbol | "watch">;

const READING = /^(get|read|find|has|search)/;

// Reading a clock twice costs as much as a short call. So the first calls of each kind are measured, then each eighth,
// which counts for eight.
const ALL_MEASURED = 100;
const MEASURED_EACH = 8;

/**
 * The same store; its calls are counted and measured, and the first of them creates its tables. From then on a call answers
 * with the promise of the store itself, so nothing changes for the caller.
 *
 * @param onAnswer Called after each call that the store has answered.
 */
export function measuredStore(
  store: Store,
  metrics: ProcessMetrics,
  host: Host,
  onAnswer: () => void = () => {},
): { store: Store; condition: StoreCondition } {
  const condition: StoreCondition = { isMigrated: false, isBroken: false, failedWrite: null };
  const noteAnswer = () => {
    condition.isBroken = false;
    onAnswer();
  };
  const noteWritten = () => {
    noteAnswer();
    condition.failedWrite = null;
  };
  const noteError = (error: unknown, isWriting: boolean) => {
    if (!(error instanceof StoreError)) return noteAnswer(); // a refusal is an answer
    metrics.storeErrors.add(error.code);
    condition.isBroken = error.code === "internal";
    if (isWriting) condition.failedWrite = { error, at: host.monotonic() };
  };
  const measure = (name: keyof Calls) => {
    let count = 0;
    const isWriting = !READING.test(name) && name !== "addStats"; // statistics have a check of their own
    // A claim that finds nothing writes nothing.
    const noteDone = isWriting && name !== "claim" ? noteWritten : noteAnswer;
    const noteFailed = (error: unknown) => noteError(error, isWriting);
    const call = (...parameters: never[]): Promise<unknown> => {
      if (!condition.isMigrated && name !== "migrate") return migrate().then(() => call(...parameters));
      const weight = ++count <= ALL_MEASURED ? 1 : count % MEASURED_EACH === 0 ? MEASURED_EACH : 0;
      const since = weight === 0 ? 0 : host.monotonic();
      const answer = (store[name] as (...parameters: never[]) => Promise<unknown>)(...parameters);
      answer.then(noteDone, noteFailed);
      if (weight > 0) {
        const noteTime = () => metrics.noteStoreCall(name, host.monotonic() - since, weight);
        answer.then(noteTime, noteTime);
      }
      return answer;
    };
    return call;
  };
  const createTables = measure("migrate");
  let migration: Promise<unknown> | null = null;
  const migrate = () =>
    migration ??= createTables().then(() => {
      condition.isMigrated = true;
    }, (error) => {
      migration = null; // the next call tries again
      throw error;
    });
  return {
    store: {
      ...Object.fromEntries(callsOf(store).map((name) => [name, measure(name)])),
      migrate,
      transact: store.transact && measure("transact"),
      watch: store.watch?.bind(store),
      close: () => store.close(),
      [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
    } as unknown as Store, // one function for each call
    condition,
  };
}

/** The names of all methods of a store: its own, and those of its classes. */
function callsOf(store: object | null): (keyof Calls)[] {
  if (store === null || store === Object.prototype) return [];
  const members = Object.entries(Object.getOwnPropertyDescriptors(store));
  const own = members.flatMap(([name, { value }]) => typeof value === "function" ? [name as keyof Calls] : []);
  return [...callsOf(Object.getPrototypeOf(store)), ...own];
}
