import { StoreError } from "../../../model/error.ts";
import { PACKAGE_VERSION } from "../../../model/version.ts";
import { SEARCH_PATH } from "../sql/basics.ts";
import { compactSql, FUNCTIONS } from "../sql/functions.ts";
import { VERSION } from "../sql/names.ts";
import { TABLES } from "../sql/tables.ts";
import { INSUFFICIENT_PRIVILEGE, sqlState } from "./client.ts";
import { newerTablesError, type PostgresDatabase } from "./postgres_database.ts";

/**
 * The statements that lead from each version of the tables to the next, without the functions. They never change once
 * they are released.
 */
const MIGRATIONS: readonly string[] = [TABLES];

/** The functions of one package. */
export interface Functions {
  sql: string;
  /** The version of the package, such as `1.2.3`. */
  packageVersion: string;
}

const NEWER = "holdfast: newer tables";

/**
 * Creates or updates the tables and the functions. Of several processes one makes the change, and the others find it
 * made: a process that has waited for the lock asks a table for the version, since its view of the catalog may be old.
 *
 * A newer package replaces the functions of an older one also if both have the same version of the tables, and an older
 * one leaves them: so a function can be corrected without a new version, and processes of both packages call the newer
 * ones. Therefore, once a version of the tables is released, each of its functions keeps its name, its parameters and
 * their meaning, and what it answers can only be extended. That holds between two functions, too: a call that is under way
 * can go on with functions that have been replaced meanwhile.
 *
 * A role that may not create anything finds that there is nothing to do.
 *
 * @throws {StoreError} The tables were made by a newer version than this one, the role lacks rights, the server does not
 * keep what it acknowledges and `durability` is `full`, or it is another engine that speaks the protocol of PostgreSQL.
 */
export async function migrateTables(
  database: PostgresDatabase,
  durability: Durability,
  functions: Functions = { sql: FUNCTIONS, packageVersion: PACKAGE_VERSION },
): Promise<void> {
  await checkServer(database, durability);
  try {
    await database.execute(migration(functions));
  } catch (error) {
    if (error instanceof StoreError && sqlState(error.cause) === INSUFFICIENT_PRIVILEGE) {
      throw new StoreError(
        `The role of the connection has not the rights that the store needs: ${error.message}. Let the owner of the ` +
          'schema call migrate(), and grant them: see "Roles" in docs/guides/postgres.md',
        { code: "internal", cause: error },
      );
    }
    const found = error instanceof StoreError ? new RegExp(`${NEWER} (\\d+)`).exec(error.message)?.[1] : undefined;
    throw found === undefined ? error : newerTablesError(Number(found), error);
  }
}

/** An array that has the order of the versions of a package: a release comes after the candidates for it. */
function orderOf(version: string): string {
  return `(string_to_array(split_part(${version}, '-', 1), '.')::int[] || (strpos(${version}, '-') = 0)::int)`;
}

const migration = ({ sql, packageVersion }: Functions) => `
set local ${SEARCH_PATH};
select pg_advisory_xact_lock(hashtextextended('holdfast/migrate/' || {literal}, 0));
do $migrate$
declare
  v_made jsonb := '{}'; v_version int; v_function text; v_functions text := $functions$ ${compactSql(sql)} $functions$;
  v_hash text := encode(sha256(convert_to(v_functions, 'UTF8')), 'hex');
begin
  perform 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = {literal} and c.relname = 'schema_version';
  if found then execute $execute$ select to_jsonb(s) from {schema}.schema_version s $execute$ into v_made; end if;
  v_version := coalesce((v_made ->> 'version')::int, 0);
  if v_version > ${VERSION} then raise exception '${NEWER} %', v_version; end if;
  if v_version = ${VERSION} and (v_made ->> 'functions' = v_hash
      or ${orderOf("(v_made ->> 'package')")} > ${orderOf(`'${packageVersion}'`)}) then
    return;
  end if;
  if v_version = 0 then
    perform 1 from pg_catalog.pg_namespace where nspname = {literal};
    if not found then execute $execute$ create schema {schema} $execute$; end if;
    execute $execute$
      create table {schema}.schema_version (version int not null, functions text, package text,
        id text not null default gen_random_uuid()::text);
      insert into {schema}.schema_version values (0);
    $execute$;
  end if;
${
  MIGRATIONS.map((migration, at) => `
  if v_version <= ${at} then
    execute $execute$ ${migration} $execute$;
  end if;`).join("\n")
}
  execute v_functions;
  -- Everybody may call a new function otherwise.
  for v_function in select p.oid::regprocedure::text from pg_catalog.pg_proc p
      where p.pronamespace = {literal}::regnamespace and p.proname like '%\\_v${VERSION}' loop
    execute 'revoke execute on routine ' || v_function || ' from public';
  end loop;
  execute $execute$ update {schema}.schema_version set version = ${VERSION}, functions = $1, package = '${packageVersion}' $execute$
    using v_hash;
end $migrate$;
select fn.check_isolation();
select fn.forget_dead_workers(fn.clock(null));
`;

const OTHER_ENGINES = [
  {
    name: "CockroachDB",
    pattern: /CockroachDB/,
    reason: "it has neither advisory locks nor LISTEN, and may skip rows that are due",
  },
  {
    name: "YugabyteDB",
    pattern: /-YB-/,
    reason: "its sequences and snapshots work differently, so that readers of events would miss some",
  },
];

/** What a store asks of the server: see `PostgresStoreOptions.durability`. */
export type Durability = "full" | "relaxed";

/**
 * Refuses engines that speak the protocol of PostgreSQL but do not keep what the store relies on, databases that lack
 * characters, sessions where a backslash in a string is an escape, and with `full` a server or a role whose commits do not
 * wait for the disk.
 *
 * @throws {StoreError} It is such a server, or it does not answer (`unavailable`).
 */
export async function checkServer(database: PostgresDatabase, durability: Durability): Promise<void> {
  const version = await database.ask(VERSION_AND_SETTINGS);
  const engine = OTHER_ENGINES.find(({ pattern }) => pattern.test(version));
  if (engine !== undefined) {
    throw new StoreError(`PostgresStore does not support ${engine.name}: ${engine.reason}. Use PostgreSQL`, {
      code: "internal",
    });
  }
  const encoding = / server_encoding=(\w+)/.exec(version)?.[1] ?? "UTF8";
  if (!KEEPS_ALL_CHARACTERS.includes(encoding)) {
    throw new StoreError(
      `The encoding of the database is ${encoding}, which lacks characters that inputs and results may have. Create one ` +
        "with the encoding UTF8",
      { code: "internal" },
    );
  }
  if (version.includes(" standard_conforming_strings=off")) {
    throw new StoreError(
      "The setting standard_conforming_strings is off, with which the functions of the store do not work. Turn it on for " +
        "the role and the database of the store",
      { code: "internal" },
    );
  }
  if (durability === "relaxed" || await database.ask(IS_LOSSY) !== "true") return;
  throw new StoreError(
    "The server may lose what it has acknowledged: synchronous_commit or fsync is off. Change that, or open the store " +
      'with durability: "relaxed"',
    { code: "internal" },
  );
}

// A database with SQL_ASCII keeps the bytes that it is sent.
const KEEPS_ALL_CHARACTERS: readonly string[] = ["UTF8", "SQL_ASCII"];
const VERSION_AND_SETTINGS = "select pg_catalog.version() || ' standard_conforming_strings=' || " +
  "pg_catalog.current_setting('standard_conforming_strings') || ' server_encoding=' || " +
  "pg_catalog.current_setting('server_encoding') as r";
const IS_LOSSY =
  "select ('off' in (pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('fsync')))::text as r";

const LOOK_EVERY_MS = 60_000;

/** Notices that a newer version of this package has changed the tables while this process was running. */
export class VersionWatch {
  readonly #database: PostgresDatabase;
  readonly #monotonic: () => number;
  #nextLookAt: number;

  /** @param monotonic A clock in milliseconds that is never set. */
  constructor(database: PostgresDatabase, monotonic: () => number) {
    this.#database = database;
    this.#monotonic = monotonic;
    this.#nextLookAt = monotonic() + LOOK_EVERY_MS;
  }

  /**
   * Looks, at most once a minute. The functions of this version are still there after the next one has come, so the
   * caller can go on when it has reported the error.
   *
   * @throws {StoreError} The tables are of a newer version.
   */
  async look(): Promise<void> {
    const now = this.#monotonic();
    if (now < this.#nextLookAt) return;
    this.#nextLookAt = now + LOOK_EVERY_MS;
    const version = await this.#database.readVersion();
    if (version > VERSION) throw newerTablesError(version);
  }
}
