import type { DatabaseSync } from "node:sqlite";
import type { RunEvent } from "../../src/model/event.ts";
import {
  deletedRunOf,
  type Fact,
  type FactValue,
  type FactValueRef,
  isOfRun,
  toEvents,
  valueRefOf,
} from "../../src/model/fact.ts";
import { type Cursor, formatCursor, type JournalRow } from "../../src/model/journal.ts";
import { type ListFilter, matches, type RunIdentity } from "../../src/model/run.ts";
import { SqliteDatabase } from "../../src/stores/sqlite/sqlite_database.ts";
import { readFactValues, readIdentities, readJournal } from "../../src/stores/sqlite/journal/read_journal.ts";
import { hashText } from "../support/chance.ts";

/** A run that the journal tells of. */
export interface KnownRun extends RunIdentity {
  /** All facts of it, in their order. */
  facts: Fact[];
  /** All events of it, in their order. */
  events: KnownEvent[];
  /** The worker that has claimed it last. */
  owner: string | null;
  /** Whether it was deleted: then what somebody reads later leaves it out. */
  isDeleted: boolean;
}

/** An event that the journal tells of. */
export interface KnownEvent {
  run: KnownRun;
  type: RunEvent["type"];
  sequence: number;
  /** The number of its fact. */
  number: number;
  /** What kind of fact that is. */
  kind: Fact[1];
  /** When it was committed. */
  at: number;
  /** Who held the run then. */
  owner: string | null;
  /** Whether lists show it, too. */
  isListed: boolean;
  /** Of all that is told of it but its number; `null` if the run was gone too soon to know. */
  hash: number | null;
  /** The same without what the state of the run tells differently. */
  gist: number | null;
}

/** What facts leave out. */
interface Values {
  identify(runs: readonly number[]): (RunIdentity | null)[];
  readValue(ref: FactValueRef): FactValue | null;
}

const PAGE_LENGTH = 262_144;

/** A hash of what an event says, without its number and the inputs that lists leave out. */
export function hashEvent(event: RunEvent): number {
  return hashWithout(event, ["sequence", "input", "skippedInput", "skippedLabels"]);
}

/** A hash of what an event says, without what the state of its run, read at another time, tells differently. */
export function gistOf(event: RunEvent): number {
  return hashWithout(event, ["sequence", "timestamp", "duration", "leaseExpiresAt", "deadlineAt"]);
}

function hashWithout(event: RunEvent, names: readonly string[]): number {
  const told = Object.entries(event).filter(([name]) => !names.includes(name));
  return hashText(JSON.stringify(told.sort(([one], [other]) => one < other ? -1 : 1)));
}

/** The rows of a journal after a position, as everybody reads them; `null` if some are missing. */
export function readRows(database: DatabaseSync, after: number): JournalRow[] | null {
  const db = new SqliteDatabase(database);
  const rows: JournalRow[] = [];
  while (true) {
    const page = readJournal(db, rows.at(-1)?.position ?? after, PAGE_LENGTH);
    if (page === null) return null;
    if (page.rows.length === 0) return rows;
    rows.push(...page.rows);
  }
}

/** The position after which a journal has everything. */
export function readKeptFrom(database: DatabaseSync): number {
  const row = database.prepare(
    `SELECT min(position), iif(size > octet_length(facts), position - json_array_length(facts), 0) AS kept_from
     FROM holdfast_journal`,
  ).get()!;
  return Number(row.kept_from ?? 0);
}

/** All that a journal has ever told, read before any of it is trimmed. */
export class KnownJournal {
  /** All events, by their numbers. */
  readonly events: KnownEvent[] = [];
  readonly #runs = new Map<number, KnownRun>();
  readonly #runsById = new Map<string, KnownRun>();
  /** The cursors after which each position is a place, with what the row says and the run that the row is one of. */
  readonly #rows = new Map<number, { cursor: string; hash: number; run: KnownRun | null }>();
  readonly #trims: { keptFrom: number; beganAt: number; endedAt: number }[] = [];
  #position = 0;

  /** Up to where it was read. */
  get position(): number {
    return this.#position;
  }

  /** The number of the last fact that a list shows. */
  lastNumber(filter: ListFilter): number {
    return this.events.findLast(({ isListed, run }) => isListed && matches(run, filter))?.number ?? 0;
  }

  /** What is known of a run. */
  runOf(id: string): KnownRun | undefined {
    return this.#runsById.get(id);
  }

  /**
   * Reads what was committed since, as the open transaction of a connection shows it.
   *
   * @throws Something that was not read yet is gone.
   */
  read(database: DatabaseSync): void {
    const rows = readRows(database, this.#position);
    if (rows === null) throw new Error(`The journal after ${this.#position} is gone, and nobody has trimmed it`);
    const db = new SqliteDatabase(database);
    this.take(rows, {
      identify: (runs) => readIdentities(db, runs),
      readValue: (ref) => readFactValues(db, [ref], 1)[0]!,
    });
  }

  /** Takes rows in. */
  take(rows: readonly JournalRow[], values: Values): void {
    this.#learn(rows.flatMap(({ facts }) => facts), values);
    for (const row of rows) {
      const first = row.position - row.facts.length + 1;
      row.facts.forEach((fact, at) => this.#takeFact(fact, { number: first + at, at: row.at }, values));
      const [{ 0: seq, 1: kind } = [0, ""]] = row.facts;
      const isOwn = kind === "triggered" || (row.facts.length === 1 && kind.startsWith("step_"));
      const run = isOwn ? this.#runs.get(seq) ?? null : null;
      this.#rows.set(row.position, { cursor: formatCursor(row), hash: hashText(JSON.stringify(row.facts)), run });
      this.#position = row.position;
    }
  }

  #learn(facts: readonly Fact[], values: Values): void {
    const unknown = [...new Set(facts.map(([run]) => run))].filter((run) => !this.#runs.has(run));
    const identities = values.identify(unknown);
    for (const [at, seq] of unknown.entries()) {
      const deleted = facts.find((fact) => fact[0] === seq && fact[1] === "deleted");
      const identity = identities[at] ?? (deleted === undefined ? null : deletedRunOf(deleted));
      if (identity === null) throw new Error(`Facts tell of a run with the number ${seq}, which there never was`);
      const run: KnownRun = { ...identity, facts: [], events: [], owner: null, isDeleted: false };
      this.#runs.set(seq, run);
      this.#runsById.set(run.id, run);
    }
  }

  #takeFact(fact: Fact, place: { number: number; at: number }, values: Values): void {
    const run = this.#runs.get(fact[0])!;
    const { number, at } = place;
    run.facts.push(fact);
    if (fact[1] === "claimed") run.owner = fact[3];
    if (fact[1] === "deleted") run.isDeleted = true;
    const ref = valueRefOf(fact);
    const value = ref === null ? null : values.readValue(ref);
    const isWhole = ref === null || value !== null;
    for (const event of toEvents(fact, place, run, value)) {
      const known: KnownEvent = {
        run,
        type: event.type,
        sequence: event.sequence,
        number,
        kind: fact[1],
        at,
        owner: run.owner,
        isListed: isOfRun(fact),
        hash: isWhole ? hashEvent(event) : null,
        gist: isWhole ? gistOf(event) : null,
      };
      this.events.push(known);
      run.events.push(known);
    }
  }

  /**
   * Takes note that the oldest rows are about to be removed. From when on, and up to where, is known when the returned
   * function is called.
   */
  noteTrim(): (keptFrom: number) => void {
    const trim = { keptFrom: Infinity, beganAt: performance.now(), endedAt: Infinity };
    this.#trims.push(trim);
    return (keptFrom) => Object.assign(trim, { keptFrom, endedAt: performance.now() });
  }

  /** Whether a cursor may have been no place, or cannot have been one, at some time between two instants. */
  placeOf(cursor: Cursor, from: number, until: number): { mayBeGone: boolean; mustBeGone: boolean } {
    // A place whose own row is gone cannot be told from one in another journal.
    const trims = this.#trims.filter(({ keptFrom }) => keptFrom >= cursor.position);
    const row = this.#rows.get(cursor.position);
    return {
      mayBeGone: row?.run?.isDeleted === true || trims.some(({ beganAt }) => beganAt < until),
      mustBeGone: trims.some(({ keptFrom, endedAt }) => keptFrom > cursor.position && endedAt < from),
    };
  }

  /** Whether a cursor is right after a row. */
  isCursor(cursor: Cursor): boolean {
    return this.#rows.get(cursor.position)?.cursor === formatCursor(cursor);
  }

  /**
   * Compares with the journal of a copy.
   *
   * @returns What is wrong with it.
   */
  compare(copied: readonly JournalRow[]): string[] {
    return copied.flatMap((row) => {
      const known = this.#rows.get(row.position);
      if (known === undefined && row.position > this.#position) return [];
      const isSame = known?.cursor === formatCursor(row) && known.hash === hashText(JSON.stringify(row.facts));
      return isSame ? [] : [`its journal has ${JSON.stringify(row)}, which was never in the journal`];
    });
  }

  /** The cursors of all rows after a position. */
  cursorsAfter(position: number): string[] {
    return [...this.#rows].flatMap(([at, { cursor }]) => at > position ? [cursor] : []);
  }
}
