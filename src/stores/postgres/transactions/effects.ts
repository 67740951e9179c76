import { StoreError, WorkError } from "../../../model/error.ts";
import type { EffectRequest, Effects, NewEffect, StoredEffect } from "../../../model/effects.ts";
import { sqlState } from "../database/client.ts";
import type { OpenTransaction, SqlDriver } from "./drivers.ts";
import { callWork, levelOf, messageOf, own, OwnError, repeatTransaction, rollBack } from "./executions.ts";
import { PostgresOutbox } from "./outbox.ts";

const UNIQUE_VIOLATION = "23505";
// Connections, and intervention by an operator; no code at all: no answer of the server.
const UNKNOWN = /^(57P0|08|$)/;

interface PostgresEffectsOptions {
  schema: string;
  keepMs: number;
  toTx: (client: unknown) => object;
}

/** The effects of steps in a PostgreSQL database. */
export class PostgresEffects extends PostgresOutbox implements Effects {
  readonly keepMs: number;
  readonly #toTx: (client: unknown) => object;

  constructor(driver: SqlDriver, { schema, keepMs, toTx }: PostgresEffectsOptions) {
    super(driver, schema);
    this.keepMs = keepMs;
    this.#toTx = toTx;
  }

  async migrate(isJoined: boolean): Promise<void> {
    await this.makeOutbox(isJoined);
    if (isJoined) return;
    await this.makeTable("effects", [
      `CREATE TABLE IF NOT EXISTS ${this.schema}.effects (step_key text PRIMARY KEY, store_id text NOT NULL,
  run_id text NOT NULL, output text, at bigint NOT NULL)`,
    ]);
  }

  async transact(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }> {
    const { keys, abortSignal } = request;
    const isUnknown = (error: unknown) => error instanceof OwnError && UNKNOWN.test(sqlState(error.cause) ?? "");
    // After an unknown outcome, the first statement finds the effect.
    const mayRepeat = (error: unknown) =>
      (isUnknown(error) && keys.length > 0) ||
      (error instanceof OwnError && sqlState(error.cause) === UNIQUE_VIOLATION);
    try {
      return await repeatTransaction(() => this.#transactOnce(request), abortSignal, mayRepeat);
    } catch (error) {
      if (error instanceof WorkError || error instanceof StoreError) throw error;
      const cause = error instanceof OwnError ? error.cause : error;
      if (!isUnknown(error) || keys.length > 0) throw new WorkError(cause);
      throw new StoreError(`Nobody knows whether the transaction was committed: ${messageOf(cause)}`, {
        cause,
        outcomeUnknown: true,
      });
    }
  }

  async #transactOnce(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }> {
    const { keys, work, abortSignal, isolation } = request;
    const open = await this.driver.begin({ isolation: levelOf(isolation) });
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
      const { effect, rows } = await callWork(work, this.#toTx(open.client), abortSignal);
      for (const row of rows) {
        const { sql, parameters } = this.insertion(row);
        await open.query(sql, parameters).catch(own);
      }
      if (effect !== null) await this.#insert(open, effect).catch(own);
      await open.commit().catch(own);
      return { committed: true };
    } catch (error) {
      return await rollBack(open, error, abortSignal);
    }
  }

  async #insert(open: OpenTransaction, { key, storeId, runId, output, at }: NewEffect): Promise<void> {
    await open.query(
      `INSERT INTO ${this.schema}.effects (step_key, store_id, run_id, output, at) VALUES ($1, $2, $3, $4, $5)`,
      [key, storeId, runId, output, at],
    );
  }

  async findOlder(storeId: string, at: number, after: string, limit: number): Promise<StoredEffect[]> {
    const rows = await this.execute([[
      `SELECT step_key, run_id, at::text AS at FROM ${this.schema}.effects
       WHERE step_key COLLATE "C" > $1 AND store_id = $2 AND at < $3 ORDER BY step_key COLLATE "C" LIMIT $4`,
      [after, storeId, Math.floor(at), limit],
    ]]);
    return rows.map(({ step_key: key, run_id: runId, at }) => ({
      key: String(key),
      runId: String(runId),
      at: Number(at),
    }));
  }

  async forget(keys: readonly string[]): Promise<void> {
    const sql = `DELETE FROM ${this.schema}.effects WHERE step_key IN
      (SELECT pg_catalog.jsonb_array_elements_text($1::text::jsonb))`;
    await this.execute([[sql, [JSON.stringify(keys)]]]);
  }
}
