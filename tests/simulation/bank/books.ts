import { DatabaseSync } from "node:sqlite";
import { prepared } from "../../support/prepared.ts";

/** How many accounts the bank has, and what is in each of them at first. */
export const ACCOUNTS = 6;
/** See {@linkcode ACCOUNTS}. */
export const CENTS = 1_000;

/** The database of a bank, and what its tables have to show at every moment. */
export class Books {
  readonly database = new DatabaseSync(":memory:");

  constructor() {
    this.database.exec(`
      CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL);
      CREATE TABLE orders (no INTEGER PRIMARY KEY, way TEXT NOT NULL, run_id TEXT NOT NULL);
      CREATE TABLE approvals (wait_id TEXT NOT NULL, signal_id TEXT NOT NULL);
      CREATE TABLE ledger (step_key TEXT NOT NULL, step TEXT NOT NULL, run_id TEXT NOT NULL, no INTEGER NOT NULL, notice_id TEXT);
    `);
    for (let id = 0; id < ACCOUNTS; id++) prepared(this.database, "INSERT INTO accounts VALUES (?, ?)").run(id, CENTS);
  }

  /** A number that changes with each change. */
  get changes(): number {
    return Number(prepared(this.database, "SELECT total_changes() AS n").get()!.n);
  }

  /** B1: what is wrong with the total. */
  findWrongTotal(): string | null {
    const { cents } = prepared(this.database, "SELECT sum(cents) AS cents FROM accounts").get()!;
    return cents === ACCOUNTS * CENTS ? null : `the accounts have ${cents} cents`;
  }

  /** B2 of a bank that is joined: a row of the ledger for each recorded transaction, and for no other. */
  findUnrecorded(): string | null {
    return this.#find(`
      SELECT step_key || ' was made and not recorded' AS r FROM ledger l WHERE NOT EXISTS (
        SELECT 1 FROM holdfast_runs r JOIN holdfast_steps s ON s.run_seq = r.seq AND s.name = l.step
        WHERE r.id = l.run_id AND s.status = 'completed')
      UNION ALL ${RECORDED_NOT_MADE}
      UNION ALL
      SELECT signal_id || ' was approved, and its wait did not get it' FROM approvals a WHERE NOT EXISTS (
        SELECT 1 FROM holdfast_pauses w WHERE w.id = a.wait_id AND w.signal_id = a.signal_id)
      LIMIT 1`);
  }

  /** B3: no transaction was made twice. */
  findTwice(): string | null {
    return this.#find(
      "SELECT step_key || ' was made ' || count(*) || ' times' AS r FROM ledger GROUP BY step_key HAVING count(*) > 1",
    );
  }

  /** B4 of a bank that is joined: orders of `engine.transaction()` are there together with their runs. */
  findOrderWithoutRun(): string | null {
    return this.#find(`
      SELECT 'order ' || no || ' has no run' AS r FROM orders o
      WHERE way = 'engine' AND NOT EXISTS (SELECT 1 FROM holdfast_runs r WHERE r.id = o.run_id) LIMIT 1`);
  }

  /** B7: what is left in the outbox although it could be relayed. */
  findLeft(): string | null {
    return this.#find(
      "SELECT kind || ' ' || name || ' is left: ' || coalesce(error, '') AS r FROM holdfast_outbox WHERE error IS NULL OR kind = 'trigger'",
    );
  }

  /** The runs of all orders. */
  orderedRuns(): Map<number, string> {
    const rows = prepared(this.database, "SELECT no, run_id FROM orders ORDER BY no").all();
    return new Map(rows.map(({ no, run_id }) => [Number(no), String(run_id)]));
  }

  /** How many rows of the ledger each run has made. */
  countMade(runId: string): number {
    return Number(prepared(this.database, "SELECT count(*) AS n FROM ledger WHERE run_id = ?").get(runId)!.n);
  }

  /** What was made: the step and the number of the order, and the run that was triggered with it. */
  ledger(): { step: string; no: number; key: string; noticeId: string | null }[] {
    return prepared(this.database, "SELECT step, no, step_key, notice_id FROM ledger ORDER BY rowid").all().map((
      row,
    ) => ({
      step: String(row.step),
      no: Number(row.no),
      key: String(row.step_key),
      noticeId: row.notice_id === null ? null : String(row.notice_id),
    }));
  }

  #find(sql: string): string | null {
    return prepared(this.database, sql).get()?.r as string | undefined ?? null; // a row has one sentence
  }
}

const RECORDED_NOT_MADE = `
  SELECT r.id || ' has recorded ' || s.name || ', which was not made' FROM holdfast_steps s
  JOIN holdfast_runs r ON r.seq = s.run_seq
  WHERE s.name IN ('move', 'fee') AND s.status = 'completed' AND NOT EXISTS (
    SELECT 1 FROM ledger l WHERE l.step_key = coalesce(r.origin_id, r.id) || '/' || s.name)`;
