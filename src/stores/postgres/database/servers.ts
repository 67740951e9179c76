/** What `npm:pg` does not do, and what is not offered on purpose: a setting that is ignored would be believed. */
const REFUSED = [
  "channel_binding",
  "gssencmode",
  "hostaddr",
  "load_balance_hosts",
  "passfile",
  "requirepeer",
  "service",
];

/**
 * The servers of one address, one of which takes writes: `postgres://app@first,second:5433/jobs`. New connections are
 * made to the current one; a caller that finds no server there that takes writes passes on to the next.
 */
export class Servers {
  /** The addresses, one for each server. */
  readonly urls: readonly string[];
  #current = 0;

  /**
   * Reads an address.
   *
   * @throws {TypeError} It is not that of PostgreSQL, or has a parameter that would be ignored. The error does not show the
   * address: it may have a password.
   */
  constructor(address: string) {
    // A path is that of a socket. `pg` would read anything else as the name of a database on a host "base".
    if (!/^(postgres(ql)?:|socket:|\/)/i.test(address)) {
      const shown = /[:@]/.test(address) ? "This" : `"${address}"`;
      throw new TypeError(
        `${shown} is no address of PostgreSQL, such as postgres://user:password@host:5432/database; a file is for SqliteStore.open()`,
      );
    }
    const { before, hosts, after } = splitAddress(address);
    if (hosts.length > 1 && hosts.includes("")) {
      throw new TypeError("The address of the database has a comma with no host beside it");
    }
    // It says that it is PostgreSQL, so its name has to tell.
    if (hosts.some((host) => /\.dsql\.[\w-]+\.on\.aws(:\d+)?$/i.test(host))) {
      throw new TypeError("PostgresStore does not support Aurora DSQL: it has no PL/pgSQL. Use PostgreSQL");
    }
    checkParameters(after);
    this.urls = hosts.map((host) => before + host + after);
  }

  /** The address of the server to which new connections are made. */
  get url(): string {
    return this.urls[this.#current]!;
  }

  /** Goes on to the next server, unless somebody else has done so since. */
  leave(url: string): void {
    if (url === this.url) this.#current = (this.#current + 1) % this.urls.length;
  }

  /**
   * Connects to the servers in turn, until one of them takes the connection.
   *
   * @throws The error of the last one.
   */
  async connect<T>(attempt: (url: string) => Promise<T>): Promise<T> {
    for (let left = this.urls.length;; left--) {
      const { url } = this;
      try {
        return await attempt(url);
      } catch (error) {
        this.leave(url);
        if (left <= 1) throw error;
      }
    }
  }
}

/** The parts of an address around its hosts. */
function splitAddress(address: string): { before: string; hosts: string[]; after: string } {
  // Up to the last "@", as a URL is read: one in a password need not be escaped.
  const parts = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/is.exec(address);
  if (parts === null) return { before: "", hosts: [address], after: "" };
  const [, before, hosts, after] = parts;
  return { before: before!, hosts: hosts!.split(","), after: after! };
}

function checkParameters(after: string): void {
  const parameters = new URLSearchParams(after.split("?")[1] ?? "");
  const attributes = parameters.get("target_session_attrs");
  if (attributes !== null && !["read-write", "primary"].includes(attributes)) {
    throw new TypeError(
      `PostgresStore does not support target_session_attrs=${attributes}: it uses the server that takes writes ("read-write" or "primary", or leave it out)`,
    );
  }
  if (parameters.get("host")?.includes(",")) {
    throw new TypeError("Several hosts are written before the path: postgres://user:password@first,second/database");
  }
  const refused = REFUSED.find((name) => parameters.has(name));
  if (refused !== undefined) {
    throw new TypeError(`PostgresStore does not support "${refused}" in the address: leave it out`);
  }
}

/** A client of `npm:pg` that is connected, as far as it is used here. */
export interface ConnectedClient {
  /** The host that it is connected to. */
  readonly host: string;
  /** The port of that host. */
  readonly port: number;
  /** Asks one statement. */
  query(sql: string): Promise<{ rows: { r: unknown }[] }>;
}

/** The server of a connection is a standby: it takes no writes, and what it reads may be old. */
export class StandbyError extends Error {
  /** Creates the error. */
  constructor({ host, port }: Pick<ConnectedClient, "host" | "port">) {
    super(`The server ${host}:${port} is a standby, which takes no writes`);
    this.name = "StandbyError";
  }
}

/**
 * Asks the server of a new connection whether it is a standby. One that was made while an address still led to the old
 * primary, or by a balancer that keeps connections, would stay where nothing can be written, for as long as it lives.
 *
 * @throws {StandbyError} It is one.
 */
export async function refuseStandby(client: ConnectedClient): Promise<void> {
  const { rows: [row] } = await client.query("select pg_catalog.pg_is_in_recovery()::text as r");
  if (row?.r === "true") throw new StandbyError(client);
}
