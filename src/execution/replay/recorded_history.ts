import { withoutOccurrence } from "../../values/name.ts";
import type { RecordName } from "../../model/hold.ts";
import type { JobChanges } from "../../model/job/job_changes.ts";
import type { StepRecord } from "../../model/step.ts";
import type { Claim } from "../../store/claim.ts";
import type { CopiedHistory } from "../../store/hold_record.ts";
import type { PauseKind, PauseRecord } from "../../model/wait.ts";

/** A record of the run. */
interface Entry<R> {
  record: R;
  kind: RecordName["kind"] | "patch";
  /** The name under which the job has asked for it in this execution; `null`: it has not. */
  askedAs: string | null;
  /** Whether the job has to ask for it. */
  isCounted: boolean;
  /** Whether a retry has taken it over. */
  isCopy: boolean;
}

/**
 * What a run has recorded, by kind and name, and how much of it the job has not asked for in this execution.
 *
 * What a retry has taken over from earlier runs counts, too. But what those runs have not completed may end otherwise
 * now, and what they recorded after its end may have depended on that: such copies count only until the job asks for
 * something that the earlier runs have not completed.
 */
export class RecordedHistory {
  readonly #changes: JobChanges;
  readonly #steps = new Map<string, Entry<StepRecord>>();
  /** By kind and name; most runs have none. */
  readonly #pauses = new Map<PauseKind, Map<string, Entry<PauseRecord>>>();
  /** What the earlier runs had begun and not completed. */
  readonly #unfinished: ReadonlySet<string> | null;
  /** The copies that count until the job asks for something unfinished. */
  #doubtful: Entry<unknown>[] = [];
  #unaskedCount = 0;
  #unaskedCopies = 0;
  /** Called whenever the job asks for something. */
  onAsk: (() => void) | null = null;

  constructor({ steps, pauses, copied }: Claim, changes: JobChanges) {
    this.#changes = changes;
    const upTo = copied?.upTo ?? 0;
    const isDoubtful = copied === null ? () => false : findDoubtful(steps, pauses, copied);
    for (const record of steps) {
      const entry = this.#newEntry("step", record, record.recordedNo <= upTo);
      this.#steps.set(record.name, entry);
      if (isDoubtful(record)) this.#doubtful.push(entry);
    }
    for (const record of pauses) {
      const entry = this.#newEntry(record.kind, record, positionOf(record) <= upTo);
      const ofKind = this.#pauses.get(record.kind) ?? new Map();
      this.#pauses.set(record.kind, ofKind.set(record.name, entry));
      if (isDoubtful(record)) this.#doubtful.push(entry);
    }
    this.#unfinished = copied === null ? null : new Set(copied.unfinished.map(keyOf));
  }

  /** How many records the job has to ask for and has not. */
  get unaskedCount(): number {
    return this.#unaskedCount;
  }

  /** Whether something new has to wait for the rest: what earlier runs have begun does not wait for copies. */
  mustWait({ kind, name }: RecordName): boolean {
    const mayPassCopies = this.#unaskedCopies > 0 && this.#isUnfinished(kind, name);
    return this.#unaskedCount > (mayPassCopies ? this.#unaskedCopies : 0);
  }

  /** The recorded step that the job asks for by a name. */
  step(name: string): StepRecord | undefined {
    return this.#ask(this.#steps, "step", name);
  }

  /** The recorded pause that the job asks for by a kind and a name. */
  pause(kind: PauseKind, name: string): PauseRecord | undefined {
    return this.#ask(this.#pauses.get(kind), kind, name);
  }

  /** The former name under which an earlier run has begun this and not completed it; without one, the name. */
  unfinishedName(kind: string, name: string): string {
    if (this.#unfinished === null) return name;
    return oldNamesOf(name, this.#changes).find((name) => this.#unfinished!.has(keyOf({ kind, name }))) ?? name;
  }

  /** The names that the job has to ask for and has not, in the order of the records. */
  unasked(): RecordName[] {
    const entries: Entry<StepRecord | PauseRecord>[] = [
      ...this.#steps.values(),
      ...[...this.#pauses.values()].flatMap((pauses) => [...pauses.values()]),
    ];
    return entries.filter(({ isCounted, askedAs }) => isCounted && askedAs === null)
      .sort(({ record: one }, { record: other }) => positionOf(one) - positionOf(other))
      .map(({ kind, record: { name } }) => ({ kind, name }) as RecordName); // a patch is not counted
  }

  #newEntry<R extends { name: string }>(kind: Entry<R>["kind"], record: R, isCopy: boolean): Entry<R> {
    const { removed } = this.#changes;
    const isRemoved = removed.size > 0 && removed.has(withoutOccurrence(record.name));
    const isCounted = kind !== "patch" && !isRemoved;
    if (isCounted) {
      this.#unaskedCount += 1;
      if (isCopy) this.#unaskedCopies += 1;
    }
    return { record, kind, askedAs: null, isCounted, isCopy };
  }

  #ask<R>(entries: ReadonlyMap<string, Entry<R>> | undefined, kind: Entry<R>["kind"], name: string): R | undefined {
    const own = entries?.get(name);
    const entry = own ?? this.#findOld(entries, name);
    if (entry !== undefined) {
      if (entry.askedAs !== null && entry.askedAs !== name) this.#refuseBoth(entry.askedAs, name);
      entry.askedAs = name;
      if (entry.isCounted) this.#count(entry, false);
    }
    if (this.#unfinished !== null && this.#isUnfinished(kind, name)) this.#forgetDoubtful();
    this.onAsk?.();
    return entry?.record;
  }

  #findOld<R>(entries: ReadonlyMap<string, Entry<R>> | undefined, name: string): Entry<R> | undefined {
    if (this.#changes.oldNames.size === 0 || entries === undefined) return undefined;
    const old = oldNamesOf(name, this.#changes).find((old) => entries.has(old));
    return old === undefined ? undefined : entries.get(old);
  }

  /** Refuses that a job asks for one record by two names, in either order. */
  #refuseBoth(one: string, other: string): never {
    const isOneNew = oldNamesOf(one, this.#changes).includes(other);
    const [old, renamed] = (isOneNew ? [other, one] : [one, other]).map(withoutOccurrence);
    throw new TypeError(`"${old}" is renamed to "${renamed}", and the job asks for both`);
  }

  /** Whether an earlier run has begun this, under its name or a former one, and has not completed it. */
  #isUnfinished(kind: string, name: string): boolean {
    if (this.#unfinished === null) return false;
    return this.#unfinished.has(keyOf({ kind, name: this.unfinishedName(kind, name) }));
  }

  /** Makes the job have to ask for a record, or no longer. */
  #count(entry: Entry<unknown>, isCounted: boolean): void {
    if (entry.isCounted === isCounted) return;
    entry.isCounted = isCounted;
    this.#unaskedCount += isCounted ? 1 : -1;
    if (entry.isCopy) this.#unaskedCopies += isCounted ? 1 : -1;
  }

  #forgetDoubtful(): void {
    for (const entry of this.#doubtful) this.#count(entry, false);
    this.#doubtful = [];
  }
}

/** The former names of a name, with its occurrence, the latest first. */
export function oldNamesOf(name: string, { oldNames }: JobChanges): string[] {
  if (oldNames.size === 0) return [];
  const base = withoutOccurrence(name);
  const occurrence = name.slice(base.length); // "" or "#2"
  return (oldNames.get(base) ?? []).map((old) => old + occurrence);
}

function keyOf({ kind, name }: { kind: string; name: string }): string {
  return `${kind} ${name}`;
}

/**
 * Which copies may depend on how something ended that was not copied. A copy does not if all positions before it are
 * those of copies: nothing else had ended by then. Nor does a step that began before all steps that were not copied, as
 * long as no children are missing: of pauses, only one that had not ended is left out, or the wait that timed out last.
 */
function findDoubtful(
  steps: readonly StepRecord[],
  pauses: readonly PauseRecord[],
  { upTo, unfinished }: CopiedHistory,
): (record: StepRecord | PauseRecord) => boolean {
  const copiedSteps = steps.filter(({ recordedNo }) => recordedNo <= upTo);
  const gapAt = findGap(copiedSteps, pauses);
  const indexes = new Set(copiedSteps.map(({ index }) => index));
  const hasAllChildren = unfinished.every(({ kind }) => kind !== "children");
  let missingIndex = 0;
  while (indexes.has(missingIndex)) missingIndex += 1;
  return (record) => {
    const at = positionOf(record);
    if (at > upTo || at < gapAt) return false;
    return !(hasAllChildren && "index" in record && record.index < missingIndex);
  };
}

/** The first position of a copy before which something was recorded that was not copied. */
function findGap(steps: readonly StepRecord[], pauses: readonly PauseRecord[]): number {
  const records = [
    // The failed attempts at a step have positions before that of the last one.
    ...steps.map(({ recordedNo, attempts }) => ({ at: recordedNo, count: attempts })),
    ...pauses.flatMap(({ preparedNo, resolution }) => [preparedNo ?? 0, resolution?.recordedNo ?? 0])
      .filter((at) => at > 0).map((at) => ({ at, count: 1 })),
  ].sort((one, other) => one.at - other.at);
  let count = 0;
  return records.find((record) => (count += record.count) < record.at)?.at ?? Infinity;
}

/** The position of a record among those of the run; `Infinity` for a pause that was not prepared and is not over. */
function positionOf(record: StepRecord | PauseRecord): number {
  if ("recordedNo" in record) return record.recordedNo;
  return record.preparedNo ?? record.resolution?.recordedNo ?? Infinity;
}
