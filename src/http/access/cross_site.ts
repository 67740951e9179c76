import { HoldfastError } from "../../error.ts";

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
