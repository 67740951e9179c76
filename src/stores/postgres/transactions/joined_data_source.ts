import { StoreError } from "../../../model/error.ts";
import { checkOptionNames } from "../../../values/option_names.ts";
import type { PostgresClient } from "../database/client.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";
import { isEmbedded, type PostgresPool, type SqlDriver } from "./drivers.ts";
import { type JoinedDataSourceOptions, openDataSource, type PostgresDataSource } from "./postgres_data_source.ts";
import type { TransactDeps } from "./transact.ts";

const OPTIONS: Record<keyof JoinedDataSourceOptions<never, never>, true> = { wrap: true, keepEffects: true };
const SUBJECT = "PostgresStore.dataSource()";

/** A store, and where it is. */
export interface JoinedPlace {
  store: object;
  database: PostgresDatabase;
  schema: string;
  /** The address of the store, or the client that it uses. */
  client: string | PostgresClient;
}

/** Makes a data source of the database of a store, and what the store executes its transactions with. */
export function joinedDataSource<Client, Db>(
  { store, database, schema, client }: JoinedPlace,
  pool: PostgresPool | undefined,
  options: JoinedDataSourceOptions<Client, Db>,
): { source: PostgresDataSource<Client, Db>; deps: TransactDeps } {
  checkOptionNames(options, OPTIONS, SUBJECT);
  const used = pool ?? (typeof client === "string" || isEmbedded(client) ? client : undefined);
  if (used === undefined) throw new TypeError(`${SUBJECT} needs a pool of yours: the store was given a client`);
  if (used === client && typeof client !== "string" && !isEmbedded(client)) {
    throw new TypeError(`${SUBJECT} cannot use the pool of the store: renewals of leases would wait for transactions`);
  }
  const { source, driver, toTx } = openDataSource(used, store, { ...options, schema }, SUBJECT);
  return { source, deps: { database, driver: used === client ? driver : new CheckedDriver(driver, database), toTx } };
}

/** Checks before the first transaction that a pool leads to the database of the store. */
class CheckedDriver implements SqlDriver {
  readonly #driver: SqlDriver;
  readonly #database: PostgresDatabase;
  #check: Promise<void> | null = null;

  constructor(driver: SqlDriver, database: PostgresDatabase) {
    this.#driver = driver;
    this.#database = database;
  }

  async begin(...given: Parameters<SqlDriver["begin"]>) {
    await (this.#check ??= this.#compare().catch((error) => {
      this.#check = null; // the next transaction tries again
      throw error;
    }));
    return await this.#driver.begin(...given);
  }

  async #compare(): Promise<void> {
    const { statement, id } = await this.#database.readId();
    const open = await this.#driver.begin({});
    const found = await open.query(statement, []).catch(() => []);
    await open.rollback();
    if (found[0]?.r === id) return;
    throw new StoreError("The pool of the data source is connected to another database than the store", {
      code: "internal",
    });
  }
}
