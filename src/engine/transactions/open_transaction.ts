import { kindOf } from "../../values/kind_of.ts";
import { propertyOf } from "../../values/property_of.ts";
import type { Soon } from "../../values/at_once.ts";

type Parameters = (string | number | null)[];

/** Executes a statement in a transaction that somebody else has begun. */
export type Execute = (sql: string, parameters: Parameters) => Soon<void>;

/**
 * What executes statements with the client of an open transaction: a function, a client of npm:pg, a transaction of
 * PGlite or npm:postgres, or a SQLite database. It is recognized by its shape. On SQLite it is done at once.
 *
 * @throws {TypeError} It is none.
 */
export function executorOf(client: unknown): Execute {
  const has = (name: string) => typeof propertyOf(client, name) === "function";
  const call = (name: string) => (sql: string, parameters: Parameters) =>
    Promise.resolve(
      (client as Record<string, (sql: string, parameters: Parameters) => unknown>)[name]!(sql, parameters),
    )
      .then(() => {});
  if (has("unsafe")) return call("unsafe"); // npm:postgres, whose transactions have `prepare`, too
  if (has("prepare")) {
    const database = client as { prepare(sql: string): { run(...parameters: Parameters): unknown } };
    return (sql, parameters) => void database.prepare(sql).run(...parameters);
  }
  if (has("query")) return call("query");
  if (typeof client === "function") {
    return async (sql, parameters) => void await client(sql, parameters);
  }
  throw new TypeError(
    `engine.inTransaction() needs the client of an open transaction, or a function (sql, parameters), not ${
      kindOf(client)
    }`,
  );
}

/** The result as a promise; what is thrown rejects it. */
export function inPromise<T>(work: () => Soon<T>): Promise<T> {
  try {
    return Promise.resolve(work());
  } catch (error) {
    return Promise.reject(error);
  }
}
