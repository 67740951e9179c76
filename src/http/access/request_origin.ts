import { HoldfastError } from "../../model/error.ts";

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
  if (isAllowed(request.headers.get("host") ?? url.host, url.protocol, allowedHosts)) return;
  throw new HoldfastError("unknown_host", "The Host of the request is not one of allowedHosts");
}

/** Whether requests to an address are allowed. */
export function allowsHost(address: string, allowedHosts: readonly AllowedHost[]): boolean {
  const { host, protocol } = new URL(address);
  return isAllowed(host, protocol, allowedHosts);
}

function isAllowed(host: string, protocol: string, allowedHosts: readonly AllowedHost[]): boolean {
  const named = parseHost(host);
  const port = named?.port ?? DEFAULT_PORTS[protocol];
  return allowedHosts.some((allowed) =>
    allowed.name === named?.name && (allowed.port === null || allowed.port === port)
  );
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

const METHODS_WITHOUT_EFFECT = ["GET", "HEAD", "OPTIONS"];

/**
 * Refuses requests that a page of another site sends through a browser: the browser would add the user's cookies.
 *
 * Browsers send the origin of a request (Fetch Metadata, or at least `Origin`); a request without it comes from
 * another kind of client, and is accepted.
 *
 * @param url The URL of the request.
 * @throws {HoldfastError} `cross_origin`.
 */
export function checkCrossSite(request: Request, url: URL, trustedOrigins: readonly string[] | "*"): void {
  if (METHODS_WITHOUT_EFFECT.includes(request.method) || !isFromElsewhere(request.headers, url)) return;
  const origin = request.headers.get("origin");
  if (trustedOrigins === "*" || (origin !== null && trustedOrigins.includes(origin))) return;
  throw new HoldfastError("cross_origin", "Requests from pages of another origin are not allowed");
}

function isFromElsewhere(headers: Headers, url: URL): boolean {
  const site = headers.get("sec-fetch-site");
  if (site !== null) return site !== "same-origin" && site !== "none";
  const origin = headers.get("origin");
  // The scheme is not compared: behind a proxy that ends TLS, the request has another one than the page.
  return origin !== null && URL.parse(origin)?.host !== url.host;
}
