import { errorMessage } from "../../../values/unknown_values.ts";
import { StoreError, WorkError } from "../../../model/error.ts";
import type {
  EffectRequest,
  Effects,
  NewEffect,
  NewOutboxRow,
  Outbox,
  OutboxRequest,
  OutboxRow,
  StoredEffect,
  StuckRows,
} from "../../../model/effects.ts";
import { sqlState, storeError } from "../database/client.ts";
import type { SqlDriver } from "./drivers.ts";
import { endedError, isEnded } from "./ended_transaction.ts";
import { callWork, levelOf, own, OwnError, repeatTransaction, rollBack } from "./executions.ts";
import { outboxChannel } from "../notify/announcer.ts";
import { SEARCH_PATH } from "../sql/basics.ts";

const UNIQUE_VIOLATION = "23505";
// Connections, and intervention by an operator; no code at all: no answer of the server.
const UNKNOWN = /^(57P0|08|$)/;
// How long the rows that an engine has taken are not relayed by another one.
const TAKEN_MS = 5_000;
// NOTIFY takes a lock of the whole cluster: while a row of the last second waits, engines look without it.
const WAITING_MS = 1_000;
const NOW = "floor(extract(epoch from pg_catalog.clock_timestamp()) * 1000)";

/** The last message has failed: perhaps nobody knows whether it was committed. */
class CommitError extends OwnError {}

interface PostgresEffectsOptions {
  schema: string;
  keepMs: number;
  toTx: (client: unknown) => object;
}

/** The effects of steps, and the outbox, in a PostgreSQL database. */
export class PostgresEffects implements Effects, Outbox {
  readonly keepMs: number;
  readonly #driver: SqlDriver;
  /** The schema of its tables, in quotes. */
  readonly schema: string;
  /** Where a new row of the outbox is announced if the store listens there. */
  readonly #channel: string;
  readonly #toTx: (client: unknown) => object;

  constructor(driver: SqlDriver, { schema, keepMs, toTx }: PostgresEffectsOptions) {
    this.#driver = driver;
    this.schema = `"${schema}"`;
    this.#channel = outboxChannel(schema);
    this.keepMs = keepMs;
    this.#toTx = toTx;
  }

  async migrate(isJoined: boolean): Promise<void> {
    await this.#makeOutbox(isJoined);
    if (isJoined) return;
    await this.#makeTable("effects", [
      `CREATE TABLE IF NOT EXISTS ${this.schema}.effects (step_key text PRIMARY KEY, store_id text NOT NULL,
  run_id text NOT NULL, output text, at bigint NOT NULL)`,
    ]);
  }

  async transact(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }> {
    const { keys, abortSignal } = request;
    const isUnknown = (error: unknown) => error instanceof CommitError && UNKNOWN.test(sqlState(error.cause) ?? "");
    // After an unknown outcome, the first statement finds the effect.
    const mayRepeat = (error: unknown) =>
      (isUnknown(error) && keys.length > 0) ||
      (error instanceof OwnError && sqlState(error.cause) === UNIQUE_VIOLATION);
    try {
      return await repeatTransaction(() => this.#transactOnce(request), abortSignal, mayRepeat);
    } catch (error) {
      if (error instanceof WorkError || error instanceof StoreError) throw error;
      const cause = error instanceof OwnError ? error.cause : error;
      if (error instanceof OwnError && isEnded(cause)) throw new WorkError(endedError(cause));
      if (!isUnknown(error) || keys.length > 0) throw new WorkError(cause);
      throw new StoreError(`Nobody knows whether the transaction was committed: ${errorMessage(cause)}`, {
        cause,
        outcomeUnknown: true,
      });
    }
  }

  async #transactOnce(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }> {
    const { keys, work, abortSignal, isolation } = request;
    const open = await this.#driver.begin({ isolation: levelOf(isolation) });
    try {
      if (keys.length > 0) {
        const places = keys.map((_, at) => `$${at + 1}`).join(", ");
        const sql = `SELECT output FROM ${this.schema}.effects WHERE step_key IN (${places})`;
        const [row] = await open.query(sql, keys);
        if (row !== undefined) {
          await open.rollback();
          return { found: row.output as string | null };
        }
      }
      const { effect, rows } = await callWork(work, open, this.#toTx, abortSignal);
      const insertions = rows.map((row) => this.insertion(row));
      if (effect !== null) insertions.push(this.#insertionOf(effect));
      for (const { sql, parameters } of insertions) {
        // Without a transaction, the row would be committed at once.
        await open.query(`${sql} WHERE ${open.isSame}`, parameters).catch(own);
      }
      await open.commit().catch((cause) => {
        throw new CommitError("A commit has failed", { cause });
      });
      return { committed: true };
    } catch (error) {
      return await rollBack(open, error, abortSignal);
    }
  }

  #insertionOf({ key, storeId, runId, output, at }: NewEffect) {
    const sql = `INSERT INTO ${this.schema}.effects (step_key, store_id, run_id, output, at) SELECT $1, $2, $3, $4, $5`;
    return { sql, parameters: [key, storeId, runId, output, at] };
  }

  async findOlder(storeId: string, at: number, after: string, limit: number): Promise<StoredEffect[]> {
    const rows = await this.#execute([[
      `SELECT step_key AS key, run_id AS run, at::text AS at FROM ${this.schema}.effects
       WHERE step_key COLLATE "C" > $1 AND store_id = $2 AND at < $3 ORDER BY step_key COLLATE "C" LIMIT $4`,
      [after, storeId, Math.floor(at), limit],
    ]]);
    return rows.map(({ key, run, at }) => ({ key: String(key), runId: String(run), at: Number(at) }));
  }

  async forget(keys: readonly string[]): Promise<void> {
    const sql = `DELETE FROM ${this.schema}.effects WHERE step_key IN
      (SELECT pg_catalog.jsonb_array_elements_text($1::text::jsonb))`;
    await this.#execute([[sql, [JSON.stringify(keys)]]]);
  }

  insertion({ id, kind, name, value, options, storeId, at }: NewOutboxRow) {
    const sql = `INSERT INTO ${this.schema}.outbox (id, kind, name, value, options, store_id, at)
      SELECT $1, $2, $3, $4, $5, $6, $7`;
    return { sql, parameters: [id, kind, name, value, options, storeId, at] };
  }

  async takeRows({ storeId, jobs, except, now, limit }: OutboxRequest): Promise<OutboxRow[]> {
    const mine = `error IS NULL AND (store_id IS NULL OR store_id = $1) AND CASE kind WHEN 'signal' THEN true
      WHEN 'send' THEN no NOT IN (SELECT pg_catalog.jsonb_array_elements_text($3::text::jsonb)::bigint)
      ELSE name IN (SELECT pg_catalog.jsonb_array_elements_text($2::text::jsonb)) END`;
    const parameters = [storeId, JSON.stringify(jobs), JSON.stringify(except)];
    const found = await this.#execute([[`SELECT 1 FROM ${this.schema}.outbox WHERE ${mine} LIMIT 1`, parameters]]);
    if (found.length === 0) return [];
    // Two transactions: what other engines see of the first is committed before the second.
    const taken = await this.#execute([[
      `UPDATE ${this.schema}.outbox SET taken_until = $5 WHERE no = (SELECT min(no) FROM ${this.schema}.outbox
         WHERE ${mine}) AND (taken_until IS NULL OR taken_until <= $4) RETURNING no`,
      [...parameters, Math.floor(now), Math.floor(now) + TAKEN_MS],
    ]]);
    if (taken.length === 0) return [];
    const rows = await this.#execute([[
      `SELECT o.no::text AS no, id, kind, name, value, options FROM ${this.schema}.outbox o WHERE ${mine}
         ORDER BY o.no LIMIT $4`,
      [...parameters, limit],
    ]]);
    // The columns of the statement.
    return rows.map((row) => ({ ...row as unknown as OutboxRow, no: Number(row.no) }));
  }

  async deleteRows(nos: readonly number[]): Promise<void> {
    const sql = `DELETE FROM ${this.schema}.outbox WHERE no IN
      (SELECT pg_catalog.jsonb_array_elements_text($1::text::jsonb)::bigint)`;
    await this.#execute([[sql, [JSON.stringify(nos)]]]);
  }

  async countStuck(storeId: string, before: number): Promise<StuckRows> {
    const [row] = await this.#execute([[
      `SELECT count(error)::text AS refused, (count(*) - count(error))::text AS waiting FROM ${this.schema}.outbox
       WHERE (store_id IS NULL OR store_id = $1) AND (error IS NOT NULL OR at < $2)`,
      [storeId, Math.floor(before)],
    ]]);
    return { refused: Number(row!.refused), waiting: Number(row!.waiting) };
  }

  async findRows(ids: readonly string[]): ReturnType<Outbox["findRows"]> {
    const sql = `SELECT id, kind, name, options, error FROM ${this.schema}.outbox WHERE id IN
      (SELECT pg_catalog.jsonb_array_elements_text($1::text::jsonb))`;
    // The columns of the statement.
    return await this.#execute([[sql, [JSON.stringify(ids)]]]) as unknown as Awaited<ReturnType<Outbox["findRows"]>>;
  }

  async refuseRow(no: number, error: string): Promise<void> {
    await this.#execute([[`UPDATE ${this.schema}.outbox SET error = $1 WHERE no = $2`, [error, no]]]);
  }

  /** Creates a table with what belongs to it, unless it exists. */
  async #makeTable(table: string, statements: readonly string[]): Promise<void> {
    try {
      const [row] = await this.#execute([[`SELECT pg_catalog.to_regclass($1)::text AS found`, [
        `${this.schema}.${table}`,
      ]]]);
      if (row?.found != null) return;
      // Two processes can make it at the same moment: one of them waits, and finds it.
      await this.#execute([
        ["SELECT pg_catalog.pg_advisory_xact_lock(4850421)", []],
        ...statements.map((sql) => [sql, []] as const),
      ]);
    } catch (error) {
      if (storeError(error, { writes: false }).code === "unavailable") {
        throw new StoreError(`The database of a data source does not answer: ${errorMessage(error)}`, { cause: error });
      }
      if (error instanceof StoreError) throw error; // its pool cannot be used, and the tables would not change that
      const sql = statements.map((statement) => `${statement};`).join("\n");
      throw new StoreError(
        `The tables of a data source cannot be made: ${errorMessage(error)}. Execute it yourself:\n${sql}`,
        { cause: error, code: "internal" },
      );
    }
  }

  /** Creates its table. If the data source is joined, the store listens, and a new row is announced. */
  #makeOutbox(isJoined: boolean): Promise<void> {
    const announcement = [
      `CREATE OR REPLACE FUNCTION ${this.schema}.announce_row() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET ${SEARCH_PATH} AS $function$
  BEGIN
    PERFORM pg_catalog.pg_notify('${this.#channel}', '') WHERE NOT EXISTS (
      SELECT FROM (SELECT at, error FROM ${this.schema}.outbox ORDER BY no DESC LIMIT 1) newest
      WHERE error IS NULL AND at > ${NOW} - ${WAITING_MS});
    RETURN NULL;
  END $function$`,
      `CREATE TRIGGER announce_row BEFORE INSERT ON ${this.schema}.outbox
  FOR EACH STATEMENT EXECUTE FUNCTION ${this.schema}.announce_row()`,
    ];
    return this.#makeTable("outbox", [
      `CREATE SCHEMA IF NOT EXISTS ${this.schema}`,
      `CREATE TABLE IF NOT EXISTS ${this.schema}.outbox (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL DEFAULT pg_catalog.gen_random_uuid()::text,
  kind text NOT NULL CHECK (kind IN ('trigger', 'signal', 'send')), name text NOT NULL, value text, options text,
  store_id text, at bigint NOT NULL DEFAULT ${NOW},
  taken_until bigint, error text)`,
      `CREATE OR REPLACE FUNCTION ${this.schema}.trigger(job text, input jsonb DEFAULT 'null',
  idempotency_key text DEFAULT NULL, labels jsonb DEFAULT NULL, options jsonb DEFAULT '{}') RETURNS text
  LANGUAGE sql AS $function$
    -- RETURNING would need more rights than INSERT.
    WITH made AS MATERIALIZED (SELECT pg_catalog.gen_random_uuid()::text AS id), added AS (
      INSERT INTO ${this.schema}.outbox (id, kind, name, value, options) SELECT id, 'trigger', job, input::text,
        (options || pg_catalog.jsonb_strip_nulls(
          pg_catalog.jsonb_build_object('idempotencyKey', idempotency_key, 'labels', labels)))::text
      FROM made)
    SELECT id FROM made
  $function$`,
      ...(isJoined ? announcement : []),
    ]);
  }

  /** Executes statements in one transaction, and returns the rows of the last one. */
  async #execute(
    statements: readonly (readonly [sql: string, parameters: readonly (string | number | null)[]])[],
  ) {
    const open = await this.#driver.begin({});
    try {
      let rows: { [column: string]: unknown }[] = [];
      for (const [sql, parameters] of statements) rows = await open.query(sql, parameters);
      await open.commit();
      return rows;
    } catch (error) {
      await open.rollback();
      throw error;
    }
  }
}
