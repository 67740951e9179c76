import { HoldfastError } from "../../error.ts";

/** A host that a request may name. */
export interface AllowedHost {
  /** Its name or address, as URLs write it. */
  readonly name: string;
  /** Its port; `null` for any. */
  readonly port: string | null;
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { "http:": "80", "https:": "443" };

/**
 * Reads which hosts a request may name.
 *
 * @throws {TypeError} It is not an array of valid hosts.
 */
export function readAllowedHosts(hosts: unknown): AllowedHost[] {
  if (!Array.isArray(hosts)) throw new TypeError('allowedHosts must be an array of hosts like "localhost"');
  return hosts.map((host) => {
    const allowed = typeof host === "string" ? parseHost(host) : null;
    if (allowed !== null) return allowed;
    throw new TypeError(
      `allowedHosts must name hosts like "app.example.com", "localhost:8080" or "[::1]", not "${host}"`,
    );
  });
}

/**
 * Refuses a request whose host is not allowed. Otherwise a page whose name resolves to this server (DNS rebinding)
 * could send requests like a page of the same origin.
 *
 * @param url The URL of the request.
 * @throws {HoldfastError} `unknown_host`.
 */
export function checkHost(request: Request, url: URL, allowedHosts: readonly AllowedHost[]): void {
  const named = parseHost(request.headers.get("host") ?? url.host);
  const port = named?.port ?? DEFAULT_PORTS[url.protocol];
  const isAllowed = allowedHosts.some((allowed) =>
    allowed.name === named?.name && (allowed.port === null || allowed.port === port)
  );
  if (!isAllowed) throw new HoldfastError("unknown_host", "The Host of the request is not one of allowedHosts");
}

const HOST = /^(?:\[[\da-f:.]+\]|[^[\]:/\\?#@\s]+)(?::(?<port>\d+))?$/i;

/** Reads a host with or without a port; an IPv6 address is in brackets. */
function parseHost(text: string): AllowedHost | null {
  const match = HOST.exec(text);
  const name = URL.parse(`http://${text}`)?.hostname ?? "";
  if (match === null || !/^(\[.+\]|[\w.-]+)$/.test(name)) return null;
  const port = match.groups?.port;
  return { name, port: port === undefined ? null : `${Number(port)}` };
}
