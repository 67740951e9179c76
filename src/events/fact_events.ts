import type { RunEvent } from "../model/event.ts";
import {
  deletedRunOf,
  type Fact,
  type FactPlace,
  type FactValue,
  type FactValueRef,
  isOfRun,
  toEvents,
  valueRefOf,
} from "../model/fact.ts";
import type { Cursor, JournalRow } from "../model/journal.ts";
import type { RunIdentity } from "../model/run.ts";
import type { Store } from "../store/store.ts";
import { type RetryDeps, retryStoreCall } from "./retry_store_call.ts";

/** The consumers that receive the events of rows. */
interface Receivers {
  /** Consumers of single runs, by row number. */
  ofRun(seq: number): Iterable<Receiver>;
  /** Consumers of several runs. */
  ofLists: Iterable<Receiver>;
}

/** A consumer, and the position from which on it receives events. */
export interface Receiver {
  /** The consumer. */
  consumer: EventConsumer;
  /** It has received the events of facts up to this number. */
  after: number;
  /** It receives no further events of these rows. */
  isPaused: boolean;
}

/** A fact with at least one receiver. */
interface Wanted {
  fact: Fact;
  place: FactPlace;
  row: JournalRow;
  run: RunIdentity;
  receivers: Receiver[];
  /** Those that receive no later fact of the row. */
  reaching: Receiver[];
  /** The value that the events need; `null` if they need none. */
  valueRef: FactValueRef | null;
}

// The most characters of values, and the most values, that are read at once.
const VALUES_LENGTH = 262_144;
const MAX_VALUES = 500;
// After this many characters of events it yields, so that readers can receive them: far fewer than a stream may buffer.
const BREATHE_LENGTH = 16_384;
// In UTF-8.
const MAX_CHARACTER_BYTES = 3;
// About how many characters the events of a fact have, without labels and values.
const EVENT_LENGTH = 400;

/** Builds the events of facts, each once; reads the values that facts leave out only if a consumer needs them. */
export class FactEvents {
  readonly #deps: RetryDeps & { store: Store };

  constructor(deps: RetryDeps & { store: Store }) {
    this.#deps = deps;
  }

  /**
   * Publishes the events of rows to their consumers. Of deleted runs it publishes only the deletion.
   *
   * @param breathe Awaited whenever much has been published, also within a row (a row can have any number of facts), and
   * before an event for which a consumer has no room. It is given the size of what comes next.
   */
  async publish(
    rows: readonly JournalRow[],
    receivers: Receivers,
    breathe: (bytes: number) => Promise<void>,
    abortSignal: AbortSignal,
  ): Promise<void> {
    const wanted = await this.#findWanted(rows, receivers, abortSignal);
    let length = 0;
    for (let from = 0; from < wanted.length && !abortSignal.aborted;) {
      const values = await this.#readValues(wanted.slice(from), abortSignal);
      for (; from < wanted.length && !abortSignal.aborted; from++) {
        const { valueRef, ...item } = wanted[from]!; // `from` is below the length
        const value = valueRef === null ? null : values.shift();
        if (value === undefined) break; // is read next
        const added = lengthOf(item.run, value);
        const bytes = MAX_CHARACTER_BYTES * added;
        if (item.receivers.some((receiver) => !receiver.isPaused && receiver.consumer.ready(bytes) !== null)) {
          await breathe(bytes);
        }
        publishTo(item, valueRef !== null && value === null ? [] : toEvents(item.fact, item.place, item.run, value));
        length += added;
        if (length < BREATHE_LENGTH) continue;
        await breathe(0);
        length = 0;
      }
    }
    if (length > 0) await breathe(0);
  }

  async #findWanted(rows: readonly JournalRow[], receivers: Receivers, abortSignal: AbortSignal): Promise<Wanted[]> {
    const isListed = [...receivers.ofLists].length > 0;
    const relevant = rows.flatMap((row) => {
      const first = row.position - row.facts.length + 1;
      return row.facts.flatMap((fact, at) => {
        const ofRun = [...receivers.ofRun(fact[0])];
        const isRelevant = ofRun.length > 0 || (isListed && isOfRun(fact));
        return isRelevant ? [{ fact, row, place: { number: first + at, at: row.at }, ofRun }] : [];
      });
    });
    const identities = await this.#identify(relevant.map(({ fact }) => fact), abortSignal);
    const ofLists = new Map<RunIdentity, Receiver[]>();
    const wanted = relevant.flatMap(({ fact, row, place, ofRun }): Wanted[] => {
      const run = deletedRunOf(fact) ?? identities.get(fact[0]);
      if (run === undefined) return [];
      const following = isOfRun(fact) ? ofLists.get(run) ?? followersOf(run, receivers) : [];
      if (isOfRun(fact)) ofLists.set(run, following);
      const isNew = ({ after, consumer }: Receiver) => place.number > after && !consumer.abortSignal.aborted;
      const all = [...ofRun, ...following].filter(isNew);
      if (all.length === 0) return [];
      // Streams of several runs do not show the input of a run.
      const valueRef = fact[1] === "triggered" && ofRun.length === 0 ? null : valueRefOf(fact);
      return [{ fact, row, place, run, receivers: all, reaching: [], valueRef }];
    });
    noteReaching(wanted);
    return wanted;
  }

  /** The identities of the facts' runs that still exist, by row number. */
  async #identify(facts: readonly Fact[], abortSignal: AbortSignal): Promise<ReadonlyMap<number, RunIdentity>> {
    const seqs = [...new Set(facts.map(([seq]) => seq))];
    if (seqs.length === 0) return new Map();
    const found = await retryStoreCall(() => this.#deps.store.getRunIdentities(seqs), this.#deps, abortSignal);
    return new Map(seqs.flatMap((seq, at) => found[at] ? [[seq, found[at]] as const] : []));
  }

  /** The next values, in their order: as many as are read at once. */
  async #readValues(wanted: readonly Wanted[], abortSignal: AbortSignal): Promise<(FactValue | null)[]> {
    const refs: FactValueRef[] = [];
    for (const { valueRef } of wanted) {
      if (valueRef !== null && refs.push(valueRef) === MAX_VALUES) break;
    }
    if (refs.length === 0) return [];
    return await retryStoreCall(() => this.#deps.store.readFactValues(refs, VALUES_LENGTH), this.#deps, abortSignal);
  }
}

function lengthOf({ labels }: RunIdentity, value: FactValue | null | undefined): number {
  const labelLengths = Object.entries(labels).map(([key, label]) => key.length + label.length);
  return labelLengths.reduce((sum, length) => sum + length, EVENT_LENGTH + (value?.json?.length ?? 0));
}

/** The consumers of several runs that follow a run. */
function followersOf(run: RunIdentity, { ofLists }: Receivers): Receiver[] {
  return [...ofLists].filter(({ consumer }) => consumer.follows(run));
}

/** Notes with which fact each receiver has received everything of a row. */
function noteReaching(wanted: readonly Wanted[]): void {
  let row: JournalRow | null = null;
  const later = new Set<Receiver>();
  for (const item of wanted.toReversed()) {
    if (item.row !== row) later.clear();
    row = item.row;
    item.reaching = item.receivers.filter((receiver) => !later.has(receiver));
    for (const receiver of item.reaching) later.add(receiver);
  }
}

/** Sends events to their receivers, and the position of the row to those that have received everything of it. */
function publishTo({ receivers, reaching, place, row }: Omit<Wanted, "valueRef">, events: readonly RunEvent[]): void {
  const isActive = ({ consumer, isPaused }: Receiver) => !isPaused && !consumer.abortSignal.aborted;
  for (const event of events) for (const receiver of receivers) if (isActive(receiver)) receiver.consumer.next(event);
  for (const receiver of receivers) if (!receiver.isPaused) receiver.after = place.number;
  for (const receiver of reaching) {
    if (isActive(receiver)) receiver.consumer.reach({ position: row.position, at: row.at });
  }
}

/** Receives the events of a run, or of all runs that it chooses, in the order of the journal. */
export interface EventConsumer {
  /** The row number of the run; `null`: the runs that {@linkcode EventConsumer.follows} chooses, without their steps. */
  readonly runSeq: number | null;
  /** Fires when it unsubscribes. */
  readonly abortSignal: AbortSignal;
  /** Whether it receives the events of a run; only used if it follows several runs. */
  follows(run: RunIdentity): boolean;
  /** Receives the next event. */
  next(event: RunEvent): void;
  /** Called when it has received all its events of a row. */
  reach(place: Cursor): void;
  /** Called when there are no more events, with the error if there was one. */
  end(error?: unknown): void;
  /** While it catches up: resolves when it can receive so many bytes more (default 0); `null`: it can. */
  ready(bytes?: number): Promise<void> | null;
}
