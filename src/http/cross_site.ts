import { HoldfastError } from "../error.ts";

const METHODS_WITHOUT_EFFECT = ["GET", "HEAD", "OPTIONS"];

/**
 * Refuses what a page of another site makes a browser ask for: the browser would add the cookies of its user.
 *
 * Browsers say where a request comes from (Fetch Metadata, or at least `Origin`); a request that says nothing comes
 * from another kind of client, and passes.
 *
 * @param url The URL of the request.
 * @throws {HoldfastError} `cross_origin`.
 */
export function checkCrossSite(request: Request, url: URL, trustedOrigins: readonly string[] | "*"): void {
  if (METHODS_WITHOUT_EFFECT.includes(request.method) || !isFromElsewhere(request.headers, url)) return;
  const origin = request.headers.get("origin");
  if (trustedOrigins === "*" || (origin !== null && trustedOrigins.includes(origin))) return;
  throw new HoldfastError("cross_origin", "A page of another origin cannot ask for this");
}

function isFromElsewhere(headers: Headers, url: URL): boolean {
  const site = headers.get("sec-fetch-site");
  if (site !== null) return site !== "same-origin" && site !== "none";
  const origin = headers.get("origin");
  // The scheme is not compared: behind a proxy that ends TLS, the request has another one than the page.
  return origin !== null && URL.parse(origin)?.host !== url.host;
}
