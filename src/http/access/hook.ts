import { TimeoutError } from "../../error.ts";
import { isInstance } from "../../values/is_instance.ts";
import type { Host } from "../../host.ts";

/** A hook of the host failed. The original error is the `cause`. */
export class HookError extends Error {}

const HOOK_TIMEOUT_MS = 30_000;

/**
 * Calls a hook of the host, sync or async.
 *
 * @throws {Response} The response that it throws.
 * @throws {HookError} It threw something else, or took too long.
 */
export async function callHook<T>(name: string, hook: () => T | Promise<T>, host: Host): Promise<T> {
  const late = Promise.withResolvers<never>();
  const cancelTimer = host.schedule(
    HOOK_TIMEOUT_MS,
    () => late.reject(new TimeoutError(`${name} takes more than ${HOOK_TIMEOUT_MS} ms`)),
  );
  try {
    return await Promise.race([hook(), late.promise]);
  } catch (thrown) {
    if (isInstance(thrown, Response)) throw checkSendable(thrown, name);
    throw new HookError(`${name} failed`, { cause: thrown });
  } finally {
    cancelTimer();
  }
}

function checkSendable(response: Response, name: string): Response {
  if (!response.bodyUsed && !response.body?.locked && response.status >= 200) return response;
  const cause = new TypeError(`${name} threw a Response that cannot be sent: make a new one for each request`);
  throw new HookError(`${name} failed`, { cause });
}
