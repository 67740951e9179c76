import { readFile } from "node:fs/promises";
import { toFailure } from "../../model/to_failure.ts";
import { type Arguments, UsageError } from "../command.ts";
import type { Terminal } from "../terminal.ts";
import { openPostgresService } from "./postgres_service.ts";
import { openSqliteService } from "./sqlite_service.ts";
import type { Service } from "./service.ts";
import { StoreError } from "../../model/error.ts";
import { isName, NAME_RULE } from "../../values/name.ts";

/**
 * Opens the store, or the service, that the arguments or the environment name.
 *
 * @param command.store The argument of the command that names it, if there is one.
 * @param command.migrates Whether the command makes or updates the tables.
 * @throws {UsageError} None is named, or an option does not fit it.
 * @throws {StoreError} It cannot be reached.
 */
export async function openService(
  args: Arguments,
  terminal: Terminal,
  { store: argument, migrates }: { store: string | undefined; migrates: boolean },
): Promise<Service> {
  const option = args.text("store");
  if (argument !== undefined && option !== undefined) {
    throw new UsageError("The store is named twice: leave out --store");
  }
  const store = argument ?? option ?? terminal.env("HOLDFAST_STORE") ?? "";
  if (store === "") {
    throw new UsageError("--store is missing: a file, postgres://... or https://...; or set HOLDFAST_STORE");
  }
  const [migrate, schema, by] = [migrates || args.has("migrate"), args.text("schema"), args.text("by")];
  if (by !== undefined && !isName(by)) throw new UsageError(`--by ${NAME_RULE}`);
  if (/^https?:/i.test(store)) {
    checkServiceOptions(store, { migrate, schema });
    if (by !== undefined) throw new UsageError("--by is for a database: a service knows who calls it");
    return httpService(store, await readToken(args, terminal));
  }
  if (args.text("token-file") !== undefined) throw new UsageError("--token-file is for a service: http(s)://...");
  if (/^postgres(ql)?:/i.test(store)) return await openPostgresService(store, schema ?? "holdfast", migrate, by);
  if (/^(?!file:)[a-z][a-z+.-]+:\/\//i.test(store)) {
    throw new UsageError(`--store has an unknown scheme: ${schemeOf(store)}`);
  }
  if (schema !== undefined) throw new UsageError("--schema is for a Postgres database");
  return await openSqliteService(store, migrate, by);
}

function checkServiceOptions(
  store: string,
  { migrate, schema }: { migrate: boolean; schema: string | undefined },
): void {
  if (!URL.canParse(store)) throw new UsageError("--store is not a valid address");
  const { username, password, search, hash } = new URL(store);
  if (username !== "" || password !== "") {
    throw new UsageError("--store must have no credentials, which other users could read: set HOLDFAST_TOKEN");
  }
  if (search !== "" || hash !== "") throw new UsageError("--store must be an address without ? and #");
  if (migrate) throw new UsageError("Tables are migrated in a database: give it as --store, not a service");
  if (schema !== undefined) throw new UsageError("--schema is for a Postgres database");
}

function schemeOf(address: string): string {
  return address.slice(0, address.indexOf(":"));
}

// What a header can carry. An error of another value must not show it.
const TOKEN = /^[\x21-\x7e]+$/;

async function readToken(args: Arguments, terminal: Terminal): Promise<string | null> {
  const file = args.text("token-file");
  if (file === undefined) {
    const token = terminal.env("HOLDFAST_TOKEN") || null;
    if (token !== null && !TOKEN.test(token)) throw new UsageError("HOLDFAST_TOKEN has no token in one line");
    return token;
  }
  let token: string;
  try {
    token = (await readFile(file, "utf8")).trim();
  } catch (error) {
    throw new UsageError(`Cannot read --token-file: ${toFailure(error).message}`, { cause: error });
  }
  if (!TOKEN.test(token)) throw new UsageError(`--token-file has no token in one line: ${file}`);
  return token;
}

/**
 * Asks a service over HTTP.
 *
 * @param base The address under which its routes are: `https://host/api/jobs`.
 * @param token Is sent as a bearer token; `null`: none.
 */
function httpService(base: string, token: string | null): Service {
  const prefix = base.replace(/\/+$/, "");
  return {
    kind: "http",
    database: null,
    engine: null,
    ask: async (path, init) => {
      const headers = new Headers(init.headers);
      if (token !== null) headers.set("authorization", `Bearer ${token}`);
      try {
        // The token is for this address, and not for one that it leads to.
        return await fetch(`${prefix}${path}`, { ...init, headers, redirect: "error" });
      } catch (error) {
        if (init.signal?.aborted) throw error;
        throw new StoreError(`Cannot reach ${prefix}: ${toFailure(error).message}`, { cause: error });
      }
    },
    close: () => Promise.resolve(),
  };
}
