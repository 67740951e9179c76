import type { RecordName } from "../hold.ts";
import type { JobChanges } from "../job_changes.ts";
import type { StepRecord } from "../step.ts";
import type { Claim } from "../store/claim.ts";
import type { PauseKind, PauseRecord } from "../wait.ts";

/** A record of the run. */
interface Entry<R> {
  record: R;
  kind: RecordName["kind"] | "patch";
  /** The name under which the job has asked for it in this execution; `null`: it has not. */
  askedAs: string | null;
  /** Whether the job has to ask for it. */
  isCounted: boolean;
}

/**
 * What a run has recorded, by kind and name, and how much of it the job has not asked for in this execution.
 *
 * What a retry has taken over from earlier runs counts only until the job asks for something that those runs have not
 * completed: from there on it may go another way.
 */
export class RecordedHistory {
  readonly #changes: JobChanges;
  readonly #steps = new Map<string, Entry<StepRecord>>();
  readonly #pauses: Readonly<Record<PauseKind, Map<string, Entry<PauseRecord>>>> = {
    wait: new Map(),
    sleep: new Map(),
    children: new Map(),
    patch: new Map(),
  };
  /** What the earlier runs had begun and not completed. */
  readonly #unfinished: ReadonlySet<string>;
  /** The copies that count. */
  #copies: Entry<unknown>[] = [];
  #unaskedCount = 0;
  /** Called whenever the job asks for something. */
  onAsk: () => void = () => {};

  constructor({ steps, pauses, copied }: Claim, changes: JobChanges) {
    this.#changes = changes;
    for (const record of steps) {
      const entry = this.#newEntry("step", record);
      this.#steps.set(record.name, entry);
      if (copied !== null && record.recordedNo <= copied.upTo) this.#copies.push(entry);
    }
    for (const record of pauses) {
      const entry = this.#newEntry(record.kind, record);
      this.#pauses[record.kind].set(record.name, entry);
      if (copied !== null && positionOf(record) <= copied.upTo) this.#copies.push(entry);
    }
    this.#unfinished = new Set(copied?.unfinished.map(keyOf));
  }

  /** How many records the job has to ask for and has not. */
  get unaskedCount(): number {
    return this.#unaskedCount;
  }

  /** The recorded step that the job asks for by a name. */
  step(name: string): StepRecord | undefined {
    return this.#ask(this.#steps, "step", name);
  }

  /** The recorded pause that the job asks for by a kind and a name. */
  pause(kind: PauseKind, name: string): PauseRecord | undefined {
    return this.#ask(this.#pauses[kind], kind, name);
  }

  /** The names that the job has to ask for and has not, in the order of the records. */
  unasked(): RecordName[] {
    const entries: Entry<StepRecord | PauseRecord>[] = [
      ...this.#steps.values(),
      ...Object.values(this.#pauses).flatMap((pauses) => [...pauses.values()]),
    ];
    return entries.filter(({ isCounted, askedAs }) => isCounted && askedAs === null)
      .sort(({ record: one }, { record: other }) => positionOf(one) - positionOf(other))
      .map(({ kind, record: { name } }) => ({ kind, name }) as RecordName); // a patch is not counted
  }

  #newEntry<R extends { name: string }>(kind: Entry<R>["kind"], record: R): Entry<R> {
    const isCounted = kind !== "patch" && !this.#changes.removed.has(baseOf(record.name).base);
    if (isCounted) this.#unaskedCount += 1;
    return { record, kind, askedAs: null, isCounted };
  }

  #ask<R>(entries: ReadonlyMap<string, Entry<R>>, kind: Entry<R>["kind"], name: string): R | undefined {
    const own = entries.get(name);
    const oldName = own === undefined ? this.#oldNameOf(name) : null;
    const entry = own ?? (oldName === null ? undefined : entries.get(oldName));
    if (entry !== undefined) note(entry, name);
    if (entry?.isCounted === true) {
      entry.isCounted = false;
      this.#unaskedCount -= 1;
    }
    if (this.#unfinished.has(keyOf({ kind, name })) || this.#unfinished.has(keyOf({ kind, name: oldName ?? name }))) {
      this.#forgetCopies();
    }
    this.onAsk();
    return entry?.record;
  }

  #oldNameOf(name: string): string | null {
    if (this.#changes.oldNames.size === 0) return null;
    const { base, occurrence } = baseOf(name);
    const old = this.#changes.oldNames.get(base);
    return old === undefined ? null : old + occurrence;
  }

  #forgetCopies(): void {
    for (const entry of this.#copies) {
      if (!entry.isCounted) continue;
      entry.isCounted = false;
      this.#unaskedCount -= 1;
    }
    this.#copies = [];
  }
}

function note(entry: Entry<unknown>, name: string): void {
  if (entry.askedAs !== null && entry.askedAs !== name) {
    const [old, renamed] = [entry.askedAs, name].map((asked) => baseOf(asked).base);
    throw new TypeError(`"${old}" is renamed to "${renamed}", and the job asks for both`);
  }
  entry.askedAs = name;
}

/** A name without its occurrence, and the occurrence as it is written: `""` or `"#2"`. */
export function baseOf(name: string): { base: string; occurrence: string } {
  const at = name.search(/#\d+$/);
  return at === -1 ? { base: name, occurrence: "" } : { base: name.slice(0, at), occurrence: name.slice(at) };
}

function keyOf({ kind, name }: { kind: string; name: string }): string {
  return `${kind} ${name}`;
}

/** The position of a record among those of the run; `Infinity` for a pause that was not prepared and is not over. */
function positionOf(record: StepRecord | PauseRecord): number {
  if ("recordedNo" in record) return record.recordedNo;
  return record.preparedNo ?? record.resolution?.recordedNo ?? Infinity;
}
