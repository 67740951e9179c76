import { DatabaseSync } from "node:sqlite";
import { Chance } from "../support/chance.ts";
import { findWrongCount } from "../support/counts.ts";
import { findBrokenLine } from "../support/lines.ts";
import type { Book } from "./book.ts";
import { checkReceipts } from "./checks/check_receipts.ts";
import { checkState } from "./checks/check_state.ts";
import { checkSteps } from "./checks/check_steps.ts";
import { checkStream, type HeardStream } from "./checks/check_stream.ts";
import { checkTenures, findStaleWrites, findTenures, type Tenure } from "./checks/check_tenures.ts";
import { checkValues } from "./checks/check_values.ts";
import { type Expected, findDamage } from "./copy_examination.ts";
import { expectedOf } from "./expected_of.ts";
import type { Placed } from "./fact.ts";
import type { History } from "./history.ts";
import type { LedgerReader } from "./ledger.ts";
import { readHashes, readRuns, type RunRows } from "./rows.ts";
import type { Sights } from "./sights.ts";
import type { Tally } from "./tally.ts";
import type { Violations } from "./violations.ts";

/** What the examiner looks at. */
export interface ExaminerDeps {
  database: string;
  ledger: LedgerReader;
  history: History;
  book: Book;
  sights: Sights;
  tally: Tally;
  violations: Violations;
}

const COMPARED_AGAIN = 100;
const KEPT_SIGHTS = 200;
const SLICE = 2_000;
const EXPECTED_RUNS = 500;
const KEPT_TENURES = 1_000;

/** Compares what the workers have written down and what the clients were told with what is recorded. */
export class Examiner {
  readonly #deps: ExaminerDeps;
  readonly #tenures = new Map<string, Tenure[]>();
  readonly #chance = new Chance(1);
  #streams: HeardStream[] = [];
  #settledIds: string[] = [];
  readonly #runsByToken = new Map<string, number>();
  /** All older runs have ended, and were checked. */
  #nextSeq = 0;

  /** Begins with nothing seen. */
  constructor(deps: ExaminerDeps) {
    this.#deps = deps;
  }

  /** Takes in a stream that somebody has read. */
  hear(stream: HeardStream): void {
    this.#streams.push(stream);
  }

  /** Checks every run that has ended since the last look, and some older ones once more. */
  look(): void {
    const { history, ledger, sights, tally, violations } = this.#deps;
    const ended = this.#withDatabase((database) => {
      const oldest = "SELECT min(seq) AS seq, count(*) AS runs FROM holdfast_runs WHERE completed_at IS NULL";
      const { seq, runs } = database.prepare(oldest).get() as { seq: number | null; runs: number };
      sights.unfinished = runs;
      sights.triggered = 0;
      const over = database.prepare("SELECT seq, id FROM holdfast_runs WHERE seq >= ? AND completed_at IS NOT NULL")
        .all(this.#nextSeq) as { seq: number; id: string }[];
      const news = over.filter(({ id }) => !history.settled.has(id)).map(({ seq }) => seq);
      const ended = readRuns(database, "seq IN (SELECT value FROM json_each(?))", JSON.stringify(news));
      this.#nextSeq = seq ?? over.reduce((next, { seq }) => Math.max(next, seq + 1), this.#nextSeq);
      this.#compareAgain(database);
      this.#checkStreams(database);
      return ended;
    });
    // After the rows: so all that led to them is there, and what comes later is known to have come later.
    history.take(ledger.readNew());
    for (const run of ended) this.#settle(run);
    for (const key of new Set(ended.map(({ key }) => key))) {
      for (const problem of checkTenures(this.#tenures.get(key ?? "") ?? [])) violations.add(problem);
    }
    tally.add("runs that ended", ended.length);
  }

  /** Checks everything, when nothing happens any more: every run has ended. */
  lookAtAll(): void {
    const { book, history, violations } = this.#deps;
    this.look();
    this.#withDatabase((database) => {
      for (const problem of findDamage(database)) violations.add(problem);
      const seen = new Set<string>();
      const last = Number(database.prepare("SELECT max(seq) AS seq FROM holdfast_runs").get()!.seq);
      for (let from = 0; from <= last; from += SLICE) {
        for (const run of readRuns(database, "seq >= ? AND seq < ?", from, from + SLICE)) {
          seen.add(run.id);
          const hash = history.settled.get(run.id)?.hash;
          if (hash !== run.hash) this.#report(run, `the run ${hash === undefined ? "never ended" : "has changed"}`);
          this.#judge(run, [], [...checkState(run), ...checkReceipts(book.of(run.id), run)]);
        }
      }
      for (const [id, receipts] of book.runs) {
        if (seen.has(id)) continue;
        for (const problem of checkReceipts(receipts, null)) violations.add(problem, id);
      }
      for (const id of history.settled.keys()) {
        if (!seen.has(id) && book.of(id).deletesAsked === 0) violations.add("a checked run is gone", id);
      }
      for (const find of [findWrongCount, findBrokenLine]) {
        const problem = find(database);
        if (problem !== null) violations.add(problem);
      }
      this.#checkStreams(database, { isLast: true });
    });
  }

  /** What anybody was told of until now: whatever copy is made from now on has to contain it. */
  expected(): Expected {
    const { book, history, ledger } = this.#deps;
    history.take(ledger.readNew());
    return expectedOf(history, book, this.#settledIds.slice(-EXPECTED_RUNS));
  }

  #settle(run: RunRows): void {
    const { book, history, sights } = this.#deps;
    const facts = history.open.get(run.id) ?? [];
    const receipts = book.of(run.id);
    this.#judge(run, facts, [
      ...checkState(run),
      ...checkSteps(facts, run, history.inheritedBy(run)),
      ...findStaleWrites(facts, run),
      ...checkValues(facts, run),
      ...checkReceipts(receipts, run),
      ...this.#findGhost(run),
    ]);
    if (run.key !== null) {
      const ofKey = [...this.#tenures.get(run.key) ?? [], ...findTenures(facts, run)];
      this.#tenures.set(run.key, ofKey.slice(-KEPT_TENURES));
    }
    this.#countRestarts(facts);
    history.settle(run);
    this.#settledIds.push(run.id);
    sights.ended.push({ run: run.id, job: run.job, token: run.input.token });
    if (sights.ended.length > KEPT_SIGHTS) sights.ended.shift();
  }

  /** A run is seen once, so this counts what exists and what was deleted since. */
  #findGhost({ input: { token } }: RunRows): string[] {
    const runs = (this.#runsByToken.get(token) ?? 0) + 1;
    this.#runsByToken.set(token, runs);
    const most = this.#deps.book.mostRuns(token);
    return runs <= most ? [] : [`it is run number ${runs} with token ${token}, and so many were asked for: ${most}`];
  }

  #countRestarts(facts: readonly Placed[]): void {
    const { tally } = this.#deps;
    const starts = new Set<string>();
    const acknowledged = new Set<string>();
    for (const fact of facts) {
      if (fact.is === "ack" && fact.isLast) acknowledged.add(fact.step);
      if (fact.is !== "start") continue;
      const name = `${fact.step} ${fact.attempt}`;
      if (acknowledged.has(fact.step)) tally.add("steps started by a zombie after they were recorded");
      else if (starts.has(name)) tally.add("steps started again");
      starts.add(name);
    }
  }

  #compareAgain(database: DatabaseSync): void {
    const { book, history, tally, violations } = this.#deps;
    if (this.#settledIds.length === 0) return;
    const ids = Array.from({ length: COMPARED_AGAIN }, () => this.#chance.pick(this.#settledIds));
    const hashes = readHashes(database, "id IN (SELECT value FROM json_each(?))", JSON.stringify(ids));
    for (const id of new Set(ids)) {
      const hash = hashes.get(id);
      if (hash === undefined && book.of(id).deletesAsked > 0) continue;
      tally.add("terminal runs compared again");
      if (hash === undefined) violations.add("a run that had ended is gone, and nobody has deleted it", id);
      else if (hash !== history.settled.get(id)!.hash) violations.add("a run that had ended has changed", id);
    }
  }

  #checkStreams(database: DatabaseSync, { isLast = false } = {}): void {
    const { history, tally } = this.#deps;
    const ready = this.#streams.filter(({ run }) => isLast || history.settled.has(run));
    if (ready.length === 0) return;
    this.#streams = this.#streams.filter((stream) => !ready.includes(stream));
    const ids = JSON.stringify(ready.map(({ run }) => run));
    const runs = new Map(
      readRuns(database, "id IN (SELECT value FROM json_each(?))", ids).map((run) => [run.id, run]),
    );
    for (const stream of ready) {
      if (stream.isEnded && !stream.isServerGone) tally.add("streams read to the end of the run");
      const evidence = stream.events.map((event) => JSON.stringify(event));
      for (const problem of checkStream(stream, runs.get(stream.run) ?? null)) {
        this.#deps.violations.add(`a stream is wrong: ${problem}`, stream.run, evidence);
      }
    }
  }

  #judge(run: RunRows, facts: readonly Placed[], problems: string[]): void {
    for (const problem of problems) this.#report(run, problem, facts);
  }

  #report(run: RunRows, problem: string, facts: readonly Placed[] = []): void {
    this.#deps.violations.add(problem, run.id, [JSON.stringify(run), ...facts.map(describeFact)]);
  }

  /** Never in parallel with another connection of this process: closing one would drop the locks of both. */
  #withDatabase<T>(work: (database: DatabaseSync) => T): T {
    const database = new DatabaseSync(this.#deps.database, { timeout: 10_000 });
    try {
      database.exec("BEGIN");
      return work(database);
    } finally {
      database.close();
    }
  }
}

function describeFact(fact: Placed): string {
  return JSON.stringify(fact);
}
