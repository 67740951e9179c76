import { withoutOccurrence } from "../values/name.ts";
import type { Execution } from "../execution/execution.ts";
import { RecordedHistory } from "../execution/replay/recorded_history.ts";
import { ReplayGuard } from "../execution/replay/replay_guard.ts";
import type { OnDivergence, RecordName } from "../model/hold.ts";
import type { JobChanges } from "../model/job/job_changes.ts";
import type { StepRecord } from "../model/step.ts";
import type { Claim } from "../store/claim.ts";
import type { PauseKind, PauseRecord } from "../model/wait.ts";

/** Entries of `changes` of a job. Names are given without an occurrence. */
export interface NeededChanges {
  /** New names, by their old ones. */
  renamed: { [old: string]: string };
  /** Names that the job does not ask for any more. */
  removed: string[];
  /** Names that began although later things are recorded. */
  added: string[];
}

/** The records of a run, which notes the entries of `changes` that a replay has needed. */
export class ObservedHistory extends RecordedHistory {
  readonly #claim: Claim;
  readonly #changes: JobChanges;
  readonly #asked = new Set<string>();
  readonly #renamed = new Map<string, string>();
  readonly #onAsked: () => void;

  /** @param onAsked Called after the job has asked for something. */
  constructor(claim: Claim, changes: JobChanges, onAsked: () => void) {
    super(claim, changes);
    this.#claim = claim;
    this.#changes = changes;
    this.#onAsked = onAsked;
  }

  override step(name: string): StepRecord | undefined {
    return this.#note("step", name, super.step(name));
  }

  override pause(kind: PauseKind, name: string): PauseRecord | undefined {
    return this.#note(kind, name, super.pause(kind, name));
  }

  /** The renamed and removed names without which the job would not have come as far. */
  get needed(): Pick<NeededChanges, "renamed" | "removed"> {
    const { steps, pauses } = this.#claim;
    const names = [
      ...steps.map(({ name }) => ({ kind: "step", name })),
      ...pauses.map(({ kind, name }) => ({ kind, name })),
    ];
    const unasked = names.filter(({ kind, name }) => !this.#asked.has(`${kind} ${name}`));
    const removed = unasked.map(({ name }) => withoutOccurrence(name)).filter((name) =>
      this.#changes.removed.has(name)
    );
    return { renamed: Object.fromEntries(this.#renamed), removed: [...new Set(removed)] };
  }

  #note<R extends { name: string }>(kind: string, name: string, record: R | undefined): R | undefined {
    if (record !== undefined) {
      this.#asked.add(`${kind} ${record.name}`);
      if (record.name !== name) this.#renamed.set(withoutOccurrence(record.name), withoutOccurrence(name));
    }
    this.#onAsked();
    return record;
  }
}

/** The guard of a replay, which says when the job begins something new although nothing is left that it can diverge from. */
export class ObservedGuard extends ReplayGuard {
  readonly #changes: JobChanges;
  readonly #onFrontier: (isNew: RecordName) => void;
  readonly #added = new Set<string>();
  readonly #heldBack = new Set<RecordName>();

  /** @param onFrontier Called when the job has asked for all that is recorded, and begins something new. */
  constructor(
    execution: Execution,
    history: RecordedHistory,
    changes: JobChanges,
    mode: OnDivergence,
    onFrontier: (isNew: RecordName) => void,
  ) {
    super(execution, history, changes, mode);
    this.#changes = changes;
    this.#onFrontier = onFrontier;
  }

  /** The added names that began although the job had not asked for all that is recorded. */
  get added(): string[] {
    return [...this.#added];
  }

  /** Whether anything began although the job had not asked for all that is recorded. */
  get beganEarly(): boolean {
    return this.#added.size + this.begunAnyway.length > 0;
  }

  /** The first new thing that waits; `null`: nothing does. */
  get heldBack(): RecordName | null {
    const [first = null] = this.#heldBack;
    return first;
  }

  override mustWait(isNew: RecordName): boolean {
    const base = withoutOccurrence(isNew.name);
    if (this.isClear) this.#onFrontier(isNew);
    else if (this.#changes.added.has(base)) this.#added.add(base);
    return super.mustWait(isNew);
  }

  override async untilMayBegin(isNew: RecordName): Promise<void> {
    this.#heldBack.add(isNew);
    await super.untilMayBegin(isNew);
    this.#heldBack.delete(isNew);
    if (this.isClear) this.#onFrontier(isNew);
  }
}
