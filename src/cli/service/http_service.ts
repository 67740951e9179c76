import { StoreError } from "../../error.ts";
import { toFailure } from "../../failure/to_failure.ts";
import type { Service } from "./service.ts";

/**
 * Asks a service over HTTP.
 *
 * @param base The address under which its routes are: `https://host/api/jobs`.
 * @param token Is sent as a bearer token; `null`: none.
 */
export function httpService(base: string, token: string | null): Service {
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
