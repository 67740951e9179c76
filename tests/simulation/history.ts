import type { Fact, FactValue } from "../../src/model/fact.ts";
import type { Cursor, JournalPage, JournalRow } from "../../src/model/journal.ts";
import type { RunState } from "../../src/store/run_query.ts";
import type { Call } from "./check_calls.ts";
import { type ExpectedFact, factsOf } from "./expected_facts.ts";
import type { Facts, RunFacts } from "./facts.ts";
import { isReading } from "./is_reading.ts";
import { checkFolded, foldIn, newFolded } from "./folded.ts";
import type { SharedStore } from "./stores.ts";

/** A fact in the journal, and the true value that it leaves out. */
export interface Entry {
  number: number;
  fact: Fact;
  /** When it was committed, by the store's clock and by the one that never jumps. */
  at: number;
  committedAt: number;
  run: RunFacts;
  value: FactValue | null;
}

/**
 * The journal as it has to be. It is made from the calls that were committed and their true answers, and compared with
 * that of the store after each event. What was trimmed since is known here.
 */
export class History {
  /** All facts, in the order of their numbers. */
  readonly entries: Entry[] = [];
  readonly #facts: Facts;
  readonly #store: SharedStore;
  readonly #rows: (JournalRow & { length: number })[] = [];
  readonly #rowAt = new Map<number, JournalRow>();
  readonly #runs = new Map<number, RunFacts>();
  /** The place in `#rows` of the oldest that is kept, and how many characters are kept. */
  #oldest = 0;
  #keptLength = 0;
  #expected: ExpectedFact[] = [];
  #calls: Call[] = [];

  /** Begins with an empty store. */
  constructor(facts: Facts, store: SharedStore) {
    this.#facts = facts;
    this.#store = store;
  }

  /** Where the journal ends. */
  get end(): Cursor {
    const { position, at } = this.#rows.at(-1) ?? { position: 0, at: 0 };
    return { position, at };
  }

  /** The place in `entries` of the first fact after a position. */
  indexAfter(position: number): number {
    let index = this.entries.length;
    while (index > 0 && this.entries[index - 1]!.number > position) index -= 1;
    return index;
  }

  /** Whether a fact shares its row with others. */
  sharesRow(number: number): boolean {
    return this.#rows.some(({ position, facts }) =>
      facts.length > 1 && number > position - facts.length && number <= position
    );
  }

  /** Whether a cursor is, or was, a place in the journal. */
  isPlace({ position, at }: Cursor): boolean {
    return position === 0 ? at === 0 : this.#rowAt.get(position)?.at === at;
  }

  /** Whether the store can still prove a place: its row is kept, or nothing was ever trimmed. */
  isKept(place: Cursor): boolean {
    if (!this.isPlace(place)) return false;
    if (place.position === 0) return this.#oldest === 0;
    return place.position >= this.#rows[this.#oldest]!.position && !this.#isRemoved(this.#rowAt.get(place.position)!);
  }

  /** Whether a row was that of a run, or of a step of it, and is gone with the run. */
  #isRemoved({ facts }: JournalRow): boolean {
    const [fact, ...others] = facts;
    const isOfRow = others.length === 0 && mayBeRow(fact!);
    return this.#store.hasRowFacts && isOfRow && this.#runs.get(fact![0])!.isDeleted;
  }

  /** Takes note of a call that was committed or refused, before anything else does. */
  note(call: Call): void {
    this.#expected.push(...factsOf(this.#facts, call));
    this.#calls.push(call);
  }

  /** Compares what the last event has committed with the journal, and judges what processes have read of it. */
  async look(now: number, wallNow: number): Promise<void> {
    const calls = this.#calls;
    if (calls.length === 0) return;
    this.#calls = [];
    const before = this.end.position;
    if (calls.some(({ method }) => !isReading(method))) await this.#readOn(now, wallNow);
    for (const { method, parameters, outcome } of calls) {
      if ("error" in outcome) continue;
      if (method === "readJournal") {
        const page = outcome.value as JournalPage | null;
        this.#checkPage(parameters[0] as number, page);
        this.#checkEnd(page?.end ?? null, before);
      }
      if (method === "findCursor") {
        const cursor = parameters[0] as Cursor | null;
        if (cursor === null) this.#checkEnd(outcome.value as Cursor, before);
        else this.#checkFound(cursor, outcome.value as Cursor | null);
      }
      if (method === "getRunState") {
        const state = outcome.value as RunState | null;
        this.#checkEnd(state?.place ?? null, before);
        if (state !== null) this.#checkState(state);
      }
    }
  }

  /** What is said to be the end of the journal was it at that moment. */
  #checkEnd(end: Cursor | null, before: number): void {
    const isEnd = end === null || (this.isPlace(end) && end.position >= before);
    this.#facts.expect(isEnd, "J1", () => `the journal is said to end at ${JSON.stringify(end)}, not at ${before}`);
  }

  async #readOn(now: number, wallNow: number): Promise<void> {
    const expected = this.#expected;
    this.#expected = [];
    const { position } = this.end;
    const page = await this.#store.truth.readJournal(position, Infinity);
    if (page === null) return this.#facts.violate("J7", `what was committed last, after ${position}, is not kept`);
    const facts = page.rows.flatMap((row) => this.#addRow(row, wallNow));
    const rest = [...expected];
    const entries = facts.map(({ fact, ...place }): Entry | null => {
      const index = rest.findIndex((one) => this.#isOf(one, fact[0]));
      const [one] = rest.splice(Math.max(0, index), 1);
      // Within a commit a store may give some facts the first numbers. No run can notice that.
      if (one === undefined || index < 0 || (index > 0 && !this.#store.numbersFreely)) return null;
      const run = this.#facts.run(one.runId);
      if (one.what[0] === "triggered") this.#noteRun(fact[0], run);
      return isMadeSo(fact, one.what) ? { ...place, fact, run, committedAt: now, value: one.value } : null;
    });
    this.#facts.expect(
      facts.length === expected.length && !entries.includes(null) && page.end.position === this.end.position,
      "J2",
      () => {
        const told = facts.map(({ fact }) => JSON.stringify([this.#runs.get(fact[0])?.request.id, ...fact]));
        const wanted = expected.map(({ runId, what }) => JSON.stringify([runId, ...what]));
        return `the journal goes on after ${position} with\n${told.join("\n")}\nexpected was\n${wanted.join("\n")}`;
      },
    );
    for (const entry of entries) {
      if (entry === null) return;
      this.entries.push(entry);
      entry.run.entries.push(entry);
      foldIn(entry.run.folded, entry.fact);
    }
    await this.#checkKept();
  }

  /** Whether an expected fact is of the run with a row number: the first trigger is that of a run that is new. */
  #isOf({ runId, what }: ExpectedFact, seq: number): boolean {
    const known = this.#runs.get(seq);
    return known === undefined ? what[0] === "triggered" : known.request.id === runId;
  }

  #addRow({ position, at, facts }: JournalRow, wallNow: number): Pick<Entry, "number" | "at" | "fact">[] {
    const first = position - facts.length + 1;
    // Numbers are left out that rows have that are not facts.
    const isNext = this.#store.numbersFreely ? first > this.end.position : first === this.end.position + 1;
    this.#facts.expect(
      isNext && facts.length > 0 && Math.abs(at - wallNow) <= NEAR_MS,
      "J2",
      () => `the row at ${position} of ${at} with ${facts.length} facts follows ${this.end.position} at ${wallNow}`,
    );
    const length = JSON.stringify(facts).length;
    const row = { position, at, facts, length };
    this.#rows.push(row);
    this.#rowAt.set(position, row);
    this.#keptLength += length;
    return facts.map((fact, index) => ({ number: first + index, at, fact }));
  }

  /** No more is kept than the bound and one row, and the newest row always. */
  async #checkKept(): Promise<void> {
    const { truth, journalLength } = this.#store;
    const isKept = async () => {
      const row = this.#rows[this.#oldest]!;
      const page = await truth.readJournal(this.#rows[this.#oldest - 1]?.position ?? 0, 1);
      return page !== null && (page.rows[0]?.position === row.position || this.#isRemoved(row));
    };
    while (this.#oldest < this.#rows.length && !await isKept()) {
      const { length, position } = this.#rows[this.#oldest]!;
      const isNeeded = this.#keptLength > journalLength || (this.#store.trimsByAge && this.#facts.jumps > 0);
      this.#facts.expect(isNeeded, "J7", () => `row ${position} is gone with ${this.#keptLength} characters kept`);
      this.#keptLength -= length;
      this.#oldest += 1;
    }
    const newest = this.#rows.at(-1);
    this.#facts.expect(
      newest === undefined || this.#oldest < this.#rows.length,
      "J7",
      () => `the newest row is not kept`,
    );
    const most = journalLength + (newest?.length ?? 0);
    this.#facts.expect(this.#keptLength <= most, "J7", () => `${this.#keptLength} characters are kept, not ${most}`);
  }

  /** Every process that reads a position reads the same rows, and none is left out. */
  #checkPage(after: number, page: JournalPage | null): void {
    const { position: end } = this.end;
    const oldest = this.#rows[this.#oldest];
    const isKept = after <= end && (oldest === undefined || after >= oldest.position - oldest.facts.length);
    if (page === null) {
      return this.#facts.expect(!isKept, "J1", () => `the rows after ${after} are said to be missing`);
    }
    const known = this.#rowsAfter(after);
    for (const row of page.rows) {
      // Some may have been read right before they were removed, by the same event.
      while (known[0] !== undefined && known[0].position < row.position && this.#isRemoved(known[0])) known.shift();
      const next = known.shift();
      const isSame = next?.position === row.position && next.at === row.at &&
        JSON.stringify(next.facts) === JSON.stringify(row.facts);
      this.#facts.expect(
        isSame,
        "J1",
        () => `after ${after} was read ${JSON.stringify(row)}, and expected was ${JSON.stringify(next)}`,
      );
    }
    const isAtEnd = page.rows.length > 0 || known.every((row) => this.#isRemoved(row));
    this.#facts.expect(isAtEnd, "J1", () => `nothing was read after ${after} of ${end}`);
  }

  #rowsAfter(position: number): JournalRow[] {
    let first = this.#rows.length;
    while (first > 0 && this.#rows[first - 1]!.position > position) first -= 1;
    return this.#rows.slice(first);
  }

  #checkFound(cursor: Cursor, found: Cursor | null): void {
    this.#facts.expect(
      (found !== null) === this.isKept(cursor),
      "J5",
      () => `the cursor ${JSON.stringify(cursor)} is ${found === null ? "not " : ""}a place in the journal`,
    );
  }

  /** What a process reads of a run and of its place belongs together. */
  #checkState(state: RunState): void {
    const { id } = state.run;
    const run = this.#facts.run(id);
    const before = run.entries.filter(({ number }) => number <= state.place.position);
    const folded = newFolded([]);
    for (const { fact } of before) foldIn(folded, fact);
    checkFolded(this.#facts, run, folded, state, null);
  }

  /** Takes note of the row number of a run. */
  #noteRun(seq: number, run: RunFacts): void {
    const known = this.#runs.get(seq);
    this.#facts.expect(
      known === undefined,
      "J2",
      () => `row ${seq} was of ${known!.request.id}, and is of another run`,
    );
    this.#runs.set(seq, run);
    run.seq = seq;
  }
}

// A store may have read its clock right before the call is known to be carried out.
const NEAR_MS = 1;
/** Where a fact about an attempt tells when that began. */
const STARTED_AT = 4;

/** Whether a fact is the expected one. */
function isMadeSo([, ...made]: Fact, expected: ExpectedFact["what"]): boolean {
  const what: readonly unknown[] = expected;
  const [left, right] = [made[STARTED_AT], what[STARTED_AT]];
  const isNear = (what[0] === "step_completed" || what[0] === "step_failed") && typeof left === "number" &&
    typeof right === "number" && Math.abs(left - right) <= NEAR_MS;
  const told = isNear ? (made as unknown[]).with(STARTED_AT, right) : made;
  return JSON.stringify(told) === JSON.stringify(what);
}

/** Whether the row of a run, or of a step, may be the fact: that of a step which was not tried more than once. */
function mayBeRow(fact: Fact): boolean {
  switch (fact[1]) {
    case "triggered":
      return true;
    case "step_completed":
      return fact[4] === 1;
    case "step_failed":
      return fact[4] === 1 && fact[7] === null;
    default:
      return false;
  }
}
