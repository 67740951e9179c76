import { ON_DIVERGENCE, type OnDivergence } from "../hold.ts";
import { isInstance, kindOf } from "../../values/unknown_values.ts";
import type { Json } from "../../values/json.ts";
import { checkName, withoutOccurrence } from "../../values/name.ts";
import { checkOptionNames } from "../../values/option_names.ts";

/** What a change of a job means for runs that have recorded something. Names are given without an occurrence. */
export interface Changes {
  /** New names, by their old ones: what is recorded under the old name answers the new one. */
  renamed?: { readonly [old: string]: string };
  /** Names that the job does not ask for any more. */
  removed?: readonly string[];
  /** Names that may begin in runs that are past them already. */
  added?: readonly string[];
}

/** What {@linkcode ChangeDefinition.upgradeInput} receives beside the stored input. */
export interface StoredInput {
  /** The input as given to the trigger. */
  payload: Json;
  /** The version of the job that triggered the run. */
  version: number;
}

/** What the definition of a job can say about changes of its code. */
export interface ChangeDefinition {
  /** Former names of the job: it executes their runs, is triggered by them, and finds idempotency keys under them. */
  aliases?: readonly string[];
  /**
   * The version of the job, an integer from 1 (default). A run keeps the version that triggered it. Compatible changes
   * need no new version.
   */
  version?: number;
  /** Earlier versions whose runs this code executes, too. */
  continues?: readonly number[];
  /** Definitions of earlier versions: each executes the runs of its own version, and has its own `previous`. */
  previous?: readonly { readonly name: string; readonly changes: JobChanges }[];
  /** What changed for runs that have recorded something. */
  changes?: Changes;
  /**
   * What is done with a run whose job does not ask for what the run has recorded. `hold` (default): no worker executes
   * it until one has code that fits. `continue`: what is new is executed. `fail`: the run fails.
   */
  onDivergence?: OnDivergence;
  /**
   * Makes the input for this code from a stored one, when the schema of the input has changed since the trigger. Default:
   * the given input is parsed again, and fields that only the new result has are added. What it returns is not parsed.
   */
  upgradeInput?: (stored: Json, about: StoredInput) => unknown;
  /** Whether a stored input is parsed again, or upgraded, when the schema has changed (default `true`). */
  recheckInput?: boolean;
}

/** What a job says about changes of its code, complete. */
export interface JobChanges {
  /** Other names of the job. */
  readonly aliases: readonly string[];
  /** Its version. */
  readonly version: number;
  /** Earlier versions whose runs it executes. */
  readonly continues: readonly number[];
  /** New names, by their old ones. */
  readonly renamed: ReadonlyMap<string, string>;
  /** All former names of each name, the latest first: a name can have been changed several times. */
  readonly oldNames: ReadonlyMap<string, readonly string[]>;
  /** Names that it does not ask for any more. */
  readonly removed: ReadonlySet<string>;
  /** Names that may begin in runs that are past them already. */
  readonly added: ReadonlySet<string>;
  /** What is done with a run that diverges; `null`: the engine decides. */
  readonly onDivergence: OnDivergence | null;
  /** Makes the input for this code from a stored one; `null`: the given input is parsed again. */
  readonly upgradeInput: ChangeDefinition["upgradeInput"] | null;
  /** Whether a stored input is parsed again, or upgraded, when the schema has changed. */
  readonly recheckInput: boolean;
}

const CHANGES: Record<keyof Changes, true> = { renamed: true, removed: true, added: true };

/**
 * Checks and copies what the definition of a job says about changes.
 *
 * @param job The job, for messages: `job "checkout"`.
 * @throws {TypeError} An option is unknown, has the wrong type, or contradicts another one.
 * @throws {RangeError} A version is not an integer from 1.
 * @throws {ValidationError} A name is not valid.
 */
export function readJobChanges(definition: ChangeDefinition & { name: string }, job: string): JobChanges {
  const { aliases = [], version = 1, continues = [], changes = {}, onDivergence, upgradeInput, recheckInput = true } =
    definition;
  checkOptionNames(changes, CHANGES, `changes of ${job}`);
  const { renamed = {}, removed = [], added = [] } = changes;
  checkVersion(version, `The version of ${job}`);
  checkList(continues, `continues of ${job}`);
  for (const other of continues) {
    checkVersion(other, `A version in continues of ${job}`);
    if (other === version) throw new TypeError(`continues of ${job} has its own version, ${version}`);
  }
  checkList(aliases, `aliases of ${job}`);
  for (const alias of aliases) checkName(alias, `A name in aliases of ${job}`);
  for (const [names, where] of [[removed, "changes.removed"], [added, "changes.added"]] as const) {
    checkList(names, `${where} of ${job}`);
    for (const name of names) checkRecordName(name, `A name in ${where} of ${job}`);
  }
  if (onDivergence !== undefined) checkOnDivergence(onDivergence, job);
  if (typeof recheckInput !== "boolean") {
    throw new TypeError(`recheckInput of ${job} must be true or false, not ${kindOf(recheckInput)}`);
  }
  if (upgradeInput !== undefined && typeof upgradeInput !== "function") {
    throw new TypeError(`upgradeInput of ${job} must be a function, not ${kindOf(upgradeInput)}`);
  }
  return Object.freeze({
    aliases: Object.freeze([...new Set(aliases)].filter((alias) => alias !== definition.name)),
    version,
    continues: Object.freeze([...new Set(continues)]),
    ...readNames(renamed, removed, added, job),
    onDivergence: onDivergence ?? null,
    upgradeInput: upgradeInput ?? null,
    recheckInput,
  });
}

/**
 * Checks what is done with runs that diverge.
 *
 * @param subject Whose option it is, for messages: `job "checkout"`.
 * @throws {TypeError} It is none of the three values.
 */
export function checkOnDivergence(value: unknown, subject: string): void {
  if (ON_DIVERGENCE.some((one) => one === value)) return;
  throw new TypeError(`onDivergence of ${subject} must be "hold", "continue" or "fail", not ${JSON.stringify(value)}`);
}

function readNames(
  renamed: { readonly [old: string]: string },
  removed: readonly string[],
  added: readonly string[],
  job: string,
): Pick<JobChanges, "renamed" | "oldNames" | "removed" | "added"> {
  if (Object.prototype.toString.call(renamed) !== "[object Object]") {
    throw new TypeError(`changes.renamed of ${job} must be an object, not ${kindOf(renamed)}`);
  }
  for (const [old, name] of Object.entries(renamed)) {
    for (const either of [old, name]) checkRecordName(either, `A name in changes.renamed of ${job}`);
    if (removed.includes(old)) throw new TypeError(`"${old}" of ${job} is both renamed and removed`);
  }
  for (const name of removed) {
    if (added.includes(name)) throw new TypeError(`"${name}" of ${job} is both removed and added`);
  }
  const names = new Map(Object.entries(renamed));
  return { renamed: names, oldNames: findOldNames(names, job), removed: new Set(removed), added: new Set(added) };
}

/**
 * All former names of each name, the latest first.
 *
 * @param renamed New names, by their old ones.
 * @param job The job, for messages: `job "checkout"`.
 * @throws {TypeError} Names are renamed in a circle.
 */
export function findOldNames(
  renamed: ReadonlyMap<string, string>,
  job: string,
): ReadonlyMap<string, readonly string[]> {
  const oldNames = new Map<string, string[]>();
  for (const name of new Set(renamed.values())) {
    const former = [name];
    for (const known of former) {
      for (const [old, newer] of renamed) {
        if (newer !== known) continue;
        if (former.includes(old)) {
          throw new TypeError(`The names "${old}" and "${newer}" of ${job} are renamed in a circle`);
        }
        former.push(old);
      }
    }
    oldNames.set(name, former.slice(1));
  }
  return oldNames;
}

/** The later names of a name, with its occurrence, the next first. */
export function newNamesOf(name: string, { renamed }: Pick<JobChanges, "renamed">): string[] {
  const base = withoutOccurrence(name);
  const occurrence = name.slice(base.length);
  const names = [];
  for (let newer = renamed.get(base); newer !== undefined; newer = renamed.get(newer)) names.push(newer + occurrence);
  return names;
}

/** Checks the name of a step or a pause: one with an occurrence would be no name that a job can ask for. */
export function checkRecordName(name: unknown, subject: string): void {
  checkName(name, subject);
  const base = withoutOccurrence(name);
  if (base !== name) throw new TypeError(`${subject} has no occurrence: "${base}", not "${name}"`);
}

function checkVersion(version: unknown, subject: string): void {
  if (typeof version !== "number") throw new TypeError(`${subject} must be an integer from 1, not ${kindOf(version)}`);
  if (!Number.isSafeInteger(version) || version < 1) {
    throw new RangeError(`${subject} must be an integer from 1, not ${version}`);
  }
}

function checkList(list: unknown, subject: string): void {
  if (!isInstance(list, Array)) throw new TypeError(`${subject} must be an array, not ${kindOf(list)}`);
}
