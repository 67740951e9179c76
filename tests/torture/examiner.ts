import { DatabaseSync } from "node:sqlite";
import { SqliteDatabase } from "../../src/stores/sqlite/sqlite_database.ts";
import { trimBySize } from "../../src/stores/sqlite/journal/journal.ts";
import { Chance } from "../support/chance.ts";
import { findWrongCount } from "../support/counts.ts";
import { findBrokenLine } from "../support/lines.ts";
import type { ClientRecords } from "./client_records.ts";
import type { Calm } from "./calm.ts";
import { type Chain, checkChain } from "./checks/check_chain.ts";
import { checkFacts } from "./checks/check_facts.ts";
import { checkReceipts } from "./checks/check_receipts.ts";
import { checkState } from "./checks/check_state.ts";
import { checkSteps } from "./checks/check_steps.ts";
import { checkTenures, findStaleWrites, findTenures, type Tenure } from "./checks/check_tenures.ts";
import { checkValues } from "./checks/check_values.ts";
import { type Expected, findDamage } from "./copy_examination.ts";
import { expectedOf } from "./expected_of.ts";
import type { Placed } from "./fact.ts";
import type { History } from "./history.ts";
import { readJournalOfCopy } from "./journal_of_copy.ts";
import { KnownJournal, readKeptFrom } from "./known_journal.ts";
import { Latencies } from "./latencies.ts";
import type { LedgerReader } from "./ledger.ts";
import { readHashes, readRuns, type RunRows } from "./rows.ts";
import type { Observations } from "./observations.ts";
import type { Tally } from "./tally.ts";
import type { Violations } from "./violations.ts";

/** What the examiner looks at. */
export interface ExaminerDeps {
  database: string;
  ledger: LedgerReader;
  history: History;
  records: ClientRecords;
  calm: Calm;
  observations: Observations;
  tally: Tally;
  violations: Violations;
}

const COMPARED_AGAIN = 100;
const KEPT_OBSERVATIONS = 200;
const SLICE = 2_000;
const EXPECTED_RUNS = 500;
const KEPT_TENURES = 1_000;
const UNBLOCKED_MS = 500;
const TRIM_TIMEOUT_MS = 100;

/** Compares what the workers have written down and what the clients were told with what is recorded. */
export class Examiner {
  /** All that the journal has ever told. */
  readonly journal = new KnownJournal();
  /** How fast events reached other processes. */
  readonly latencies: Latencies;
  readonly #deps: ExaminerDeps;
  readonly #tenures = new Map<string, Tenure[]>();
  readonly #chance = new Chance(1);
  #chains: Chain[] = [];
  #settledIds: string[] = [];
  readonly #runsByToken = new Map<string, number>();
  /** All older runs have ended, and were checked. */
  #nextSeq = 0;

  /** Begins with nothing seen. */
  constructor(deps: ExaminerDeps) {
    this.#deps = deps;
    this.latencies = new Latencies((at, pid) => {
      return deps.calm.isCalm(at) && !deps.history.wasBlocked(pid, at, at + UNBLOCKED_MS);
    });
  }

  /** Takes in what somebody has received. */
  hear(chain: Chain): void {
    this.#chains.push(chain);
  }

  /** Checks every run that has ended since the last look, and some older ones once more. */
  look(): void {
    const { history, ledger, observations, tally, violations } = this.#deps;
    const ended = this.#withDatabase((database) => {
      this.#readJournal(database);
      const oldest = "SELECT min(seq) AS seq, count(*) AS runs FROM holdfast_runs WHERE completed_at IS NULL";
      const { seq, runs } = database.prepare(oldest).get() as { seq: number | null; runs: number };
      observations.unfinished = runs;
      observations.triggered = 0;
      const over = database.prepare("SELECT seq, id FROM holdfast_runs WHERE seq >= ? AND completed_at IS NOT NULL")
        .all(this.#nextSeq) as { seq: number; id: string }[];
      const news = over.filter(({ id }) => !history.settled.has(id)).map(({ seq }) => seq);
      const ended = readRuns(database, "seq IN (SELECT value FROM json_each(?))", JSON.stringify(news));
      this.#nextSeq = seq ?? over.reduce((next, { seq }) => Math.max(next, seq + 1), this.#nextSeq);
      this.#compareAgain(database);
      for (const run of ended) this.#judge(run, [], checkFacts(run, this.journal.runOf(run.id)?.facts ?? []));
      return ended;
    });
    // After the rows: so all that led to them is there, and what comes later is known to have come later.
    history.take(ledger.readNew());
    this.#checkChains();
    for (const run of ended) this.#settle(run);
    for (const key of new Set(ended.map(({ key }) => key))) {
      for (const problem of checkTenures(this.#tenures.get(key ?? "") ?? [])) violations.add(problem);
    }
    tally.add("runs that ended", ended.length);
  }

  /** Checks everything, when nothing happens any more: every run has ended. */
  lookAtAll(): void {
    const { records, history, violations } = this.#deps;
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
          const facts = this.journal.runOf(run.id)?.facts ?? [];
          this.#judge(run, [], [
            ...checkState(run),
            ...checkReceipts(records.of(run.id), run),
            ...checkFacts(run, facts),
          ]);
        }
      }
      for (const [id, receipts] of records.runs) {
        if (seen.has(id)) continue;
        for (const problem of checkReceipts(receipts, null)) violations.add(problem, id);
      }
      for (const id of history.settled.keys()) {
        if (!seen.has(id) && records.of(id).deletesAsked === 0) violations.add("a checked run is gone", id);
      }
      for (const find of [findWrongCount, findBrokenLine]) {
        const problem = find(database);
        if (problem !== null) violations.add(problem);
      }
    });
  }

  /** What anybody was told of until now: whatever copy is made from now on has to contain it. */
  expected(): Expected {
    const { records, history, ledger } = this.#deps;
    history.take(ledger.readNew());
    return expectedOf(history, records, this.#settledIds.slice(-EXPECTED_RUNS));
  }

  #settle(run: RunRows): void {
    const { records, history, observations } = this.#deps;
    const facts = history.open.get(run.id) ?? [];
    const receipts = records.of(run.id);
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
    observations.ended.push({ run: run.id, job: run.job, token: run.input.token });
    if (observations.ended.length > KEPT_OBSERVATIONS) observations.ended.shift();
  }

  /** A run is seen once, so this counts what exists and what was deleted since. */
  #findGhost({ input: { token } }: RunRows): string[] {
    const runs = (this.#runsByToken.get(token) ?? 0) + 1;
    this.#runsByToken.set(token, runs);
    const most = this.#deps.records.mostRuns(token);
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
    const { records, history, tally, violations } = this.#deps;
    if (this.#settledIds.length === 0) return;
    const ids = Array.from({ length: COMPARED_AGAIN }, () => this.#chance.pick(this.#settledIds));
    const hashes = readHashes(database, "id IN (SELECT value FROM json_each(?))", JSON.stringify(ids));
    for (const id of new Set(ids)) {
      const hash = hashes.get(id);
      if (hash === undefined && records.of(id).deletesAsked > 0) continue;
      tally.add("terminal runs compared again");
      if (hash === undefined) violations.add("a run that had ended is gone, and nobody has deleted it", id);
      else if (hash !== history.settled.get(id)!.hash) violations.add("a run that had ended has changed", id);
    }
  }

  #readJournal(database: DatabaseSync): void {
    const before = this.journal.position;
    this.journal.read(database);
    this.#deps.tally.add("facts in the journal", this.journal.position - before);
  }

  /** Everything that was received was committed before: so the journal is known as far as that. */
  #checkChains(): void {
    const { tally, violations } = this.#deps;
    for (const chain of this.#chains.splice(0)) {
      const problems = checkChain(chain, this.journal, (known, heardAt, connection) => {
        tally.add("events compared with the journal");
        this.latencies.note(known, heardAt, connection);
      });
      if (problems.length === 0) continue;
      const evidence = chain.connections.map((connection) => JSON.stringify(connection));
      const facts = chain.runId === null ? [] : this.journal.runOf(chain.runId)?.facts ?? [];
      for (const problem of problems) {
        const what = `what was received differs from the journal: ${problem}`;
        violations.add(what, chain.runId, [...facts.map((fact) => JSON.stringify(fact)), ...evidence]);
      }
    }
  }

  /**
   * Trims the journal as a writer does that finds too much in it, but for the last bytes, once all of it is known. Not if
   * somebody else writes, perhaps one who is suspended.
   */
  trim(keptBytes: number): void {
    try {
      this.#withDatabase((database) => {
        this.#readJournal(database);
        const db = new SqliteDatabase(database);
        const [{ size } = { size: 0 }] = db.all("SELECT size FROM holdfast_journal ORDER BY position DESC LIMIT 1");
        const noteTrimmed = this.journal.noteTrim();
        trimBySize(db, Number(size) - keptBytes);
        const keptFrom = readKeptFrom(database);
        database.exec("COMMIT");
        noteTrimmed(keptFrom);
      }, { begin: "BEGIN IMMEDIATE", timeout: TRIM_TIMEOUT_MS });
      this.#deps.tally.add("trims of the journal");
    } catch (error) {
      if (!String(error).includes("database is locked")) throw error;
    }
  }

  /** Compares the journal of a copy, and answers the ids of what was committed since. */
  lostCursors(path: string): string[] {
    const rows = readJournalOfCopy(path);
    for (const problem of this.journal.compare(rows)) this.#deps.violations.add(`${path}: ${problem}`);
    return this.journal.cursorsAfter(rows.at(-1)?.position ?? 0);
  }

  #judge(run: RunRows, facts: readonly Placed[], problems: string[]): void {
    for (const problem of problems) this.#report(run, problem, facts);
  }

  #report(run: RunRows, problem: string, facts: readonly Placed[] = []): void {
    this.#deps.violations.add(problem, run.id, [JSON.stringify(run), ...facts.map(describeFact)]);
  }

  /** Never in parallel with another connection of this process: closing one would drop the locks of both. */
  #withDatabase<T>(work: (database: DatabaseSync) => T, { begin = "BEGIN", timeout = 10_000 } = {}): T {
    const database = new DatabaseSync(this.#deps.database, { timeout });
    try {
      database.exec(begin);
      return work(database);
    } finally {
      database.close();
    }
  }
}

function describeFact(fact: Placed): string {
  return JSON.stringify(fact);
}
